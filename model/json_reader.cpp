// SPDX-License-Identifier: Apache-2.0
#include "model/json_reader.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

std::string type_of(const Json& value) {
    if (value.is_number_integer()) return "an integer";
    if (value.is_number()) return "a number";
    if (value.is_string()) return "a string";
    if (value.is_boolean()) return "a boolean";
    if (value.is_array()) return "an array";
    if (value.is_object()) return "an object";
    return "null";
}

std::string escape_token(std::string_view key) {  // RFC 6901
    std::string out;
    for (const char c : key) {
        if (c == '~') out += "~0";
        else if (c == '/') out += "~1";
        else out += c;
    }
    return out;
}

/// Deepest nesting of brackets outside strings; guards the recursive parts of the JSON library.
int nesting_depth(std::string_view text) {
    int depth = 0;
    int deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return deepest;
}

const Json kNull = nullptr;

}  // namespace

Expected<std::string> read_file(const std::string& path, std::size_t limit) {
    std::error_code ec;
    const auto status = std::filesystem::status(path, ec);
    if (ec || !std::filesystem::exists(status)) {
        return fail(ErrorCode::not_found, "the file does not exist", path,
                    "check the path, or use the name of a shipped one");
    }
    if (std::filesystem::is_directory(status)) {
        return fail(ErrorCode::invalid_input, "this is a directory and not a file", path,
                    "name a file inside it");
    }
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
        return fail(ErrorCode::invalid_input, "the file can't be opened for reading", path,
                    "check its permissions");
    }
    std::string text;
    // Read in pieces rather than trusting the stated size: pipes and /dev files have none.
    std::vector<char> buffer(1u << 16);
    while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) ||
           stream.gcount() > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(stream.gcount()));
        if (text.size() > limit) {
            return fail(ErrorCode::too_large,
                        fmt::format("the file is larger than {} MiB, which no input of this kind is",
                                    limit >> 20),
                        path, "check that this is the right file");
        }
    }
    return text;
}

Expected<Json> parse_json(std::string_view text, const std::string& name) {
    if (nesting_depth(text) > kMaxJsonDepth) {
        return fail(ErrorCode::too_large,
                    fmt::format("JSON nested deeper than {} levels", kMaxJsonDepth), name,
                    "check that this is the right file");
    }
    try {
        return Json::parse(text.begin(), text.end());
    } catch (const nlohmann::json::parse_error& error) {
        std::size_t line = 1;
        std::size_t column = 1;
        const std::size_t end = std::min<std::size_t>(error.byte, text.size());
        for (std::size_t i = 0; i + 1 < end; ++i) {
            if (text[i] == '\n') {
                ++line;
                column = 1;
            } else {
                ++column;
            }
        }
        std::string why = error.what();  // "[json.exception.parse_error.101] parse error at ...: reason"
        if (const auto at = why.find(": "); at != std::string::npos) why = why.substr(at + 2);
        std::string printable;  // the library quotes what it read, which may be binary
        for (const char c : why.substr(0, 160)) {
            printable += (c >= 0x20 && c < 0x7f) ? c : '?';
        }
        return fail(ErrorCode::invalid_input, "not valid JSON: " + printable,
                    fmt::format("{}:{}:{}", name, line, column),
                    "the file is truncated or malformed there");
    } catch (const nlohmann::json::exception& error) {
        return fail(ErrorCode::invalid_input, fmt::format("not valid JSON: {}", error.what()), name,
                    "a number in it is out of range, or the text is not UTF-8");
    }
}

Expected<Json> load_json(const std::string& path) {
    auto text = read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse_json(*text, path);
}

JsonReader::JsonReader(const Json& value, std::vector<Problem>& problems, std::string pointer)
    : value_(&value), problems_(&problems), pointer_(std::move(pointer)) {}

const Json* JsonReader::find(std::string_view key) const {
    if (!value_->is_object()) return nullptr;
    const auto it = value_->find(std::string(key));
    return it == value_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonReader::has(std::string_view key) const { return find(key) != nullptr; }

void JsonReader::problem(std::string_view key, std::string message) const {
    problems_->push_back(
        {key.empty() ? pointer_ : pointer_ + "/" + escape_token(key), std::move(message)});
}

bool JsonReader::expect_object() const {
    if (value_->is_object()) return true;
    problem({}, "expected an object, found " + type_of(*value_));
    return false;
}

JsonReader JsonReader::at(std::string_view key) const {
    const std::string child = pointer_ + "/" + escape_token(key);
    if (const Json* found = find(key)) return {*found, *problems_, child};
    problem(key, "required field is missing");
    return {kNull, *problems_, child};
}

JsonReader JsonReader::at(std::size_t index) const {
    const std::string child = pointer_ + "/" + std::to_string(index);
    if (value_->is_array() && index < value_->size()) return {(*value_)[index], *problems_, child};
    problem(std::to_string(index), "array entry is missing");
    return {kNull, *problems_, child};
}

std::size_t JsonReader::size() const {
    if (value_->is_array()) return value_->size();
    problem({}, "expected an array, found " + type_of(*value_));
    return 0;
}

double JsonReader::number(std::string_view key, double low, double high) const {
    if (!has(key)) {
        problem(key, "required field is missing");
        return low;
    }
    return number_or(key, low, low, high);
}

double JsonReader::number_or(std::string_view key, double fallback, double low,
                             double high) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_number()) {
        problem(key, "expected a number, found " + type_of(*found));
        return fallback;
    }
    const auto value = found->get<double>();
    if (!std::isfinite(value) || value < low || value > high) {
        problem(key, fmt::format("{} is outside {} .. {}", value, low, high));
        return fallback;
    }
    return value;
}

std::int64_t JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
    if (!has(key)) {
        problem(key, "required field is missing");
        return low;
    }
    return integer_or(key, low, low, high);
}

std::int64_t JsonReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                    std::int64_t high) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    double value = 0;
    if (found->is_number_integer() || found->is_number_unsigned() || found->is_number_float()) {
        value = found->get<double>();
    }
    if (!found->is_number() || value != std::floor(value)) {
        problem(key, "expected an integer, found " +
                         (found->is_number() ? fmt::format("{}", value) : type_of(*found)));
        return fallback;
    }
    if (value < static_cast<double>(low) || value > static_cast<double>(high)) {
        problem(key, fmt::format("{:.0f} is outside {} .. {}", value, low, high));
        return fallback;
    }
    return static_cast<std::int64_t>(value);
}

bool JsonReader::boolean_or(std::string_view key, bool fallback) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_boolean()) {
        problem(key, "expected true or false, found " + type_of(*found));
        return fallback;
    }
    return found->get<bool>();
}

std::string JsonReader::string(std::string_view key) const {
    if (!has(key)) {
        problem(key, "required field is missing");
        return {};
    }
    return string_or(key, {});
}

std::string JsonReader::string_or(std::string_view key, std::string fallback) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_string()) {
        problem(key, "expected a string, found " + type_of(*found));
        return fallback;
    }
    return found->get<std::string>();
}

std::vector<double> JsonReader::numbers_or(std::string_view key, std::vector<double> fallback,
                                           double low, double high) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_array()) {
        problem(key, "expected an array of numbers, found " + type_of(*found));
        return fallback;
    }
    std::vector<double> out;
    for (std::size_t i = 0; i < found->size(); ++i) {
        const Json& item = (*found)[i];
        const double value = item.is_number() ? item.get<double>() : std::nan("");
        if (!std::isfinite(value) || value < low || value > high) {
            problems_->push_back({fmt::format("{}/{}/{}", pointer_, escape_token(key), i),
                                  fmt::format("expected a number within {} .. {}", low, high)});
            return fallback;
        }
        out.push_back(value);
    }
    return out;
}

std::vector<std::string> JsonReader::strings_or(std::string_view key) const {
    const Json* found = find(key);
    std::vector<std::string> out;
    if (found == nullptr) return out;
    if (!found->is_array()) {
        problem(key, "expected an array of strings, found " + type_of(*found));
        return out;
    }
    for (const Json& item : *found) {
        if (!item.is_string()) {
            problem(key, "expected an array of strings, found " + type_of(item) + " in it");
            return out;
        }
        out.push_back(item.get<std::string>());
    }
    return out;
}

void JsonReader::expect_format(std::string_view format, int max_version) const {
    if (!expect_object()) return;
    if (string("format") != format) {
        problem("format", fmt::format("expected \"{}\"", format));
    }
    if (const auto version = integer("version", 1, 1000000); version > max_version) {
        problem("version", fmt::format("version {} is newer than this program reads (up to {})",
                                       version, max_version));
    }
}

}  // namespace draftboard::model
