// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the readers of logs share: lines without colours and launcher prefixes, words, numbers with the digits they were printed
// with, and lists of remarks that stay short. It knows no tool. All of it is linear in the input.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/error.h"

namespace draftboard::calibration {

inline constexpr std::size_t kMaxLogLine = 16384;    ///< bytes; the rest of a longer line is not read
inline constexpr std::size_t kMaxLogRows = 100'000;  ///< of collectives, of tuning
inline constexpr std::size_t kMaxLogMatrices = 4096;
inline constexpr std::size_t kMaxLogCells = 1'000'000;  ///< of all matrices of a log together
inline constexpr int kMaxLogDevices = 1024;
inline constexpr int kMaxLogRanks = 1 << 20;
inline constexpr std::size_t kMaxLogJsonDepth = 64;

struct LogLine {
    int number = 0;
    std::string_view text;  ///< valid until the next line is taken
    bool last = false;      ///< the text ends here without a line break: it may be cut
};

class LogLines {
 public:
    explicit LogLines(std::string_view text);
    [[nodiscard]] bool next(LogLine& line);
    /// An editor's line numbers stood before each line and were removed.
    [[nodiscard]] bool numbered() const { return numbered_; }

 private:
    std::string_view rest_;
    std::string clean_;
    int number_ = 0;
    bool numbered_ = false;
};

[[nodiscard]] std::string_view trimmed(std::string_view text);
[[nodiscard]] bool contains(std::string_view text, std::string_view part);
[[nodiscard]] bool starts_with(std::string_view text, std::string_view part);
/// What stands behind `part`, trimmed; nothing if it is not there.
[[nodiscard]] std::optional<std::string_view> after(std::string_view text, std::string_view part);
/// At most kMaxLogDevices + 16 words.
[[nodiscard]] std::vector<std::string_view> split_words(std::string_view text);

/// A decimal number; `half` is half a unit of its last digit: the value before rounding lies within value +- half.
struct PrintedNumber {
    double value = 0;
    double half = 0;
};
/// Finite and at most 1e18 in size; nothing for all other words (nan, inf, 12ms).
[[nodiscard]] std::optional<PrintedNumber> printed_number(std::string_view word);
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view word);

/// Printable ASCII of at most `limit` bytes.
[[nodiscard]] std::string shown(std::string_view text, std::size_t limit = 100);
/// Adds a remark; past 24 it only says that there are more.
void remark(std::vector<std::string>& list, std::string text);
[[nodiscard]] std::string at_line(const std::string& name, int line);

/// Parses a JSON log; errors name line and column. Sorted objects, so that repeated keys cost no quadratic time.
[[nodiscard]] model::Expected<nlohmann::json> parse_log_json(const std::string& text, const std::string& name);
/// The string at a key, cut to 100 characters, or nothing; numbers are written out.
[[nodiscard]] std::string json_text(const nlohmann::json& object, const char* key);

}  // namespace draftboard::calibration
