// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/log_line.h"

#include <charconv>
#include <cstring>

namespace draftboard::calibration {

namespace {

constexpr std::size_t kMaxWord = 64;

bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-' ||
           c == '_';
}

/// A decimal number at `at`, which moves behind it. Infinities and NaN are none.
std::optional<double> read_number(std::string_view text, std::size_t& at) {
    std::size_t begin = at;
    while (begin < text.size() && text[begin] == ' ') ++begin;
    if (begin >= text.size() || !((text[begin] >= '0' && text[begin] <= '9') || text[begin] == '-' || text[begin] == '.')) {
        return std::nullopt;
    }
    double value = 0;
    const auto result = std::from_chars(text.data() + begin, text.data() + text.size(), value);
    if (result.ec != std::errc() || !(value > -1e300 && value < 1e300)) return std::nullopt;
    at = static_cast<std::size_t>(result.ptr - text.data());
    return value;
}

}  // namespace

std::string_view without_colours(std::string_view line, std::string& scratch) {
    if (line.find('\x1b') == std::string_view::npos) return line;
    scratch.clear();
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] != '\x1b') {
            scratch.push_back(line[i]);
            continue;
        }
        if (i + 1 >= line.size() || line[i + 1] != '[') continue;
        i += 2;  // parameters and intermediates, then one final byte
        while (i < line.size() && line[i] >= 0x20 && line[i] < 0x40) ++i;
    }
    return scratch;
}

std::size_t behind(std::string_view text, std::string_view key) {
    const void* found = text.empty() ? nullptr : memmem(text.data(), text.size(), key.data(), key.size());
    if (found == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) + key.size();
}

std::optional<double> number_behind(std::string_view text, std::string_view key) {
    std::size_t at = behind(text, key);
    if (at == std::string_view::npos) return std::nullopt;
    return read_number(text, at);
}

LogField log_field(std::string_view text, std::string_view key, double low, double high) {
    std::size_t at = behind(text, key);
    if (at == std::string_view::npos) return {};
    const auto value = read_number(text, at);
    if (!value || !(*value >= low && *value <= high)) return {true, false, 0};
    return {true, true, *value};
}

std::vector<double> numbers_behind(std::string_view text, std::string_view key) {
    std::vector<double> out;
    std::size_t at = behind(text, key);
    while (at < text.size() && out.size() <= kMaxLoggedPositions) {
        const auto value = read_number(text, at);
        if (!value) break;
        out.push_back(*value);
        if (at >= text.size() || text[at] != ',') break;
        ++at;
    }
    return out;
}

std::string word_behind(std::string_view text, std::string_view key) {
    const std::size_t at = behind(text, key);
    std::string out;
    for (std::size_t i = at; i < text.size() && out.size() < kMaxWord && is_word(text[i]); ++i) out.push_back(text[i]);
    while (!out.empty() && (out.back() == '.' || out.back() == '-')) out.pop_back();
    return out;
}

void RankWindows::close(ServingSample& sample) {
    note_rank(sample.rank);
    Rank& rank = ranks_[sample.rank];
    sample.same_batch = rank.running == sample.running;
    sample.warm_up = rank.windows < kWarmUpWindows;
    rank.running = sample.running;
    if (sample.running > 0 && rank.windows < kWarmUpWindows) ++rank.windows;
}

}  // namespace draftboard::calibration
