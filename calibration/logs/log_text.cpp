// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/log_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace draftboard::calibration {
namespace {

constexpr std::size_t kMaxRemarks = 24;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

std::size_t digits_from(std::string_view text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    return end - at;
}

// Length of "  12" at the line's start if 12 is its number and a blank or nothing follows.
std::size_t number_prefix(std::string_view line, int number) {
    std::size_t at = 0;
    while (at < line.size() && is_blank(line[at])) ++at;
    const std::size_t digits = digits_from(line, at);
    if (digits == 0 || digits > 9) return 0;
    int value = 0;
    std::from_chars(line.data() + at, line.data() + at + digits, value);
    const std::size_t end = at + digits;
    return value == number && (end == line.size() || is_blank(line[end])) ? end : 0;
}

// Every one of the first lines, and six at least, begins with its own number.
bool lines_are_numbered(std::string_view text) {
    int number = 0;
    while (!text.empty() && number < 16) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        if (number_prefix(text.substr(0, std::min(end, kMaxLogLine)), ++number) == 0) return false;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return number >= 6;
}

// "[1,0]<stdout>:" of a launcher.
std::size_t launcher_prefix(std::string_view line) {
    std::size_t at = 0;
    while (at < line.size() && is_blank(line[at])) ++at;
    if (at == line.size() || line[at] != '[') return 0;
    std::size_t end = at + 1;
    while (end < line.size() && (is_digit(line[end]) || line[end] == ',')) ++end;
    for (const std::string_view tag : {"]<stdout>:", "]<stderr>:"}) {
        if (line.substr(end, tag.size()) == tag) return end + tag.size();
    }
    return 0;
}

std::size_t nesting(std::string_view text) {
    std::size_t depth = 0;
    std::size_t most = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') {
                ++i;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            most = std::max(most, ++depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            --depth;
        }
    }
    return most;
}

}  // namespace

LogLines::LogLines(std::string_view text) : rest_(text), numbered_(lines_are_numbered(text)) {}

bool LogLines::next(LogLine& line) {
    if (rest_.empty()) return false;
    const std::size_t found = rest_.find('\n');
    const std::size_t end = std::min(found, rest_.size());
    std::string_view raw = rest_.substr(0, std::min(end, kMaxLogLine));
    line.last = found == std::string_view::npos;
    line.number = ++number_;
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (numbered_) raw.remove_prefix(number_prefix(raw, number_));
    clean_.clear();
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i] != '\x1b') {
            clean_ += raw[i];
            continue;
        }
        // A colour: ESC [ parameters letter.
        while (i + 1 < raw.size() && !std::isalpha(static_cast<unsigned char>(raw[i + 1]))) ++i;
        ++i;
    }
    line.text = trimmed(std::string_view(clean_).substr(launcher_prefix(clean_)));
    return true;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool starts_with(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

std::optional<std::string_view> after(std::string_view text, std::string_view part) {
    const std::size_t at = text.find(part);
    if (at == std::string_view::npos) return std::nullopt;
    return trimmed(text.substr(at + part.size()));
}

std::vector<std::string_view> split_words(std::string_view text) {
    std::vector<std::string_view> words;
    std::size_t at = 0;
    while (words.size() < static_cast<std::size_t>(kMaxLogDevices) + 16) {
        while (at < text.size() && is_blank(text[at])) ++at;
        std::size_t end = at;
        while (end < text.size() && !is_blank(text[end])) ++end;
        if (end == at) break;
        words.push_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

std::optional<PrintedNumber> printed_number(std::string_view word) {
    if (word.empty() || word.size() > 40) return std::nullopt;
    std::size_t at = word[0] == '-' || word[0] == '+' ? 1 : 0;
    const std::size_t whole = digits_from(word, at);
    at += whole;
    std::size_t decimals = 0;
    if (at < word.size() && word[at] == '.') {
        decimals = digits_from(word, at + 1);
        at += 1 + decimals;
    }
    if (whole + decimals == 0) return std::nullopt;
    int exponent = 0;
    if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
        ++at;
        const bool negative = at < word.size() && word[at] == '-';
        if (at < word.size() && (word[at] == '-' || word[at] == '+')) ++at;
        const std::size_t digits = digits_from(word, at);
        if (digits == 0 || digits > 3) return std::nullopt;
        std::from_chars(word.data() + at, word.data() + at + digits, exponent);
        exponent = negative ? -exponent : exponent;
        at += digits;
    }
    if (at != word.size()) return std::nullopt;
    PrintedNumber number;
    const std::string_view body = word[0] == '+' ? word.substr(1) : word;
    const auto result = std::from_chars(body.data(), body.data() + body.size(), number.value);
    if (result.ec != std::errc() || !std::isfinite(number.value) || std::abs(number.value) > 1e18) return std::nullopt;
    number.half = 0.5 * std::pow(10.0, exponent - static_cast<int>(decimals));
    return number;
}

std::optional<std::int64_t> whole_number(std::string_view word) {
    std::int64_t value = 0;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || result.ec != std::errc() || result.ptr != word.data() + word.size()) return std::nullopt;
    return value;
}

std::string shown(std::string_view text, std::size_t limit) {
    std::string out(text.substr(0, limit));
    for (char& c : out) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte > 0x7e) c = '?';
    }
    return text.size() > limit ? out + "..." : out;
}

void remark(std::vector<std::string>& list, std::string text) {
    if (list.size() < kMaxRemarks) {
        list.push_back(std::move(text));
    } else if (list.size() == kMaxRemarks) {
        list.emplace_back("there are more of them, which are left out");
    }
}

std::string at_line(const std::string& name, int line) { return fmt::format("{}:{}", name, line); }

model::Expected<nlohmann::json> parse_log_json(const std::string& text, const std::string& name) {
    if (nesting(text) > kMaxLogJsonDepth) {
        return model::fail(model::ErrorCode::too_large, fmt::format("JSON nested deeper than {} levels", kMaxLogJsonDepth), name,
                           "neither nvbandwidth nor nccl-tests writes that; check that this is the right file");
    }
    try {
        return nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
        const std::size_t end = std::min<std::size_t>(error.byte, text.size());
        const std::string_view before = std::string_view(text).substr(0, end);
        const auto line = 1 + std::count(before.begin(), before.end(), '\n');
        const bool cut = end + 1 >= text.size();
        return model::fail(model::ErrorCode::invalid_input, cut ? "the JSON ends too early: it is cut" : "this is not valid JSON",
                           fmt::format("{}:{}", name, line),
                           cut ? "save the whole output" : "keep the tool's JSON alone in the file");
    } catch (const nlohmann::json::exception&) {
        return model::fail(model::ErrorCode::invalid_input, "a number in the JSON is out of range, or its text is not UTF-8",
                           name, "keep the tool's JSON alone in the file");
    }
}

std::string json_text(const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) return {};
    if (found->is_string()) return shown(found->get_ref<const std::string&>());
    if (found->is_number_integer()) return fmt::format("{}", found->get<std::int64_t>());
    return found->is_number() ? fmt::format("{:g}", found->get<double>()) : std::string();
}

}  // namespace draftboard::calibration
