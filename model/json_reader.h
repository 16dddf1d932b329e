// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reading JSON that people wrote: every failure names the file and the JSON pointer, numbers are checked
// for type, range and finiteness, and all problems of a document are collected before reporting.
// Files are limited in size and depth so that hostile input ends in an error and not in a hang.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/error.h"

namespace draftboard::model {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kMaxFileBytes = 64u << 20;  ///< 64 MiB
inline constexpr int kMaxJsonDepth = 200;

/// The file's bytes; errors: not found, a directory, larger than `limit`.
[[nodiscard]] Expected<std::string> read_file(const std::string& path,
                                              std::size_t limit = kMaxFileBytes);

/// Parses text; `name` stands in errors. Errors carry line and column. NaN and infinities are refused.
[[nodiscard]] Expected<Json> parse_json(std::string_view text, const std::string& name);
[[nodiscard]] Expected<Json> load_json(const std::string& path);

/// A cursor over one JSON value. Child readers share the problem list. A failed read records a Problem
/// and returns the fallback, so that a reader function is straight-line code with one check at its end.
class JsonReader {
   public:
    JsonReader(const Json& value, std::vector<Problem>& problems, std::string pointer = {});

    [[nodiscard]] const Json& value() const { return *value_; }
    [[nodiscard]] const std::string& pointer() const { return pointer_; }
    [[nodiscard]] bool has(std::string_view key) const;  ///< present and not null
    [[nodiscard]] JsonReader at(std::string_view key) const;     ///< required; a missing key is a Problem
    [[nodiscard]] JsonReader at(std::size_t index) const;
    [[nodiscard]] std::size_t size() const;  ///< of an array; a Problem if it is none

    [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
    [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t fallback,
                                          std::int64_t low, std::int64_t high) const;
    [[nodiscard]] double number(std::string_view key, double low, double high) const;
    [[nodiscard]] double number_or(std::string_view key, double fallback, double low,
                                   double high) const;
    [[nodiscard]] bool boolean_or(std::string_view key, bool fallback) const;
    [[nodiscard]] std::string string(std::string_view key) const;
    [[nodiscard]] std::string string_or(std::string_view key, std::string fallback) const;
    [[nodiscard]] std::vector<double> numbers_or(std::string_view key, std::vector<double> fallback,
                                                 double low, double high) const;
    [[nodiscard]] std::vector<std::string> strings_or(std::string_view key) const;  ///< default empty
    [[nodiscard]] bool expect_object() const;  ///< Problem and false otherwise

    void problem(std::string_view key, std::string message) const;  ///< at pointer()/key

    /// "format" must equal `format`, "version" must be 1..max_version.
    void expect_format(std::string_view format, int max_version) const;

   private:
    [[nodiscard]] const Json* find(std::string_view key) const;
    const Json* value_;
    std::vector<Problem>* problems_;
    std::string pointer_;
};

}  // namespace draftboard::model
