// SPDX-License-Identifier: Apache-2.0
#pragma once
// Figures on a line of a log: "key: 12.5", found by the key. Both readers of serving logs use it; what the
// figures mean is theirs to say (sglang_log.h, vllm_log.h).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/logs/serving_log.h"

namespace draftboard::calibration {

/// The line without terminal colours (ESC [ ... letter); `scratch` holds the text where some were cut out.
[[nodiscard]] std::string_view without_colours(std::string_view line, std::string& scratch);

/// Position behind the first `key`, or npos.
[[nodiscard]] std::size_t behind(std::string_view text, std::string_view key);

/// The number behind `key` and spaces, or nothing.
[[nodiscard]] std::optional<double> number_behind(std::string_view text, std::string_view key);

/// A number that a line may hold: absent is fine, present and outside low..high is not.
struct LogField {
    bool present = false;
    bool sound = true;  ///< absent, or a number in range
    double value = 0;
    [[nodiscard]] bool usable() const { return present && sound; }
};
[[nodiscard]] LogField log_field(std::string_view text, std::string_view key, double low, double high);

/// "0.802, 0.551, 0.415" behind `key`, as far as numbers follow one another.
[[nodiscard]] std::vector<double> numbers_behind(std::string_view text, std::string_view key);

/// Text behind `key` up to one of `ends`, at most 64 bytes of letters, digits and ".+-_".
[[nodiscard]] std::string word_behind(std::string_view text, std::string_view key);

/// What both readers keep of each data-parallel rank: whether a window began with the batch it ends with.
class RankWindows {
   public:
    /// Fills same_batch and warm_up of a window that ends now, and remembers its batch.
    void close(ServingSample& sample);
    /// A server was started: windows of before are over.
    void restart() { ranks_.clear(); }
    void note_rank(int rank) { most_ = rank + 1 > most_ ? rank + 1 : most_; }
    [[nodiscard]] int ranks() const { return most_; }

   private:
    struct Rank {
        int running = -1;
        int windows = 0;
    };
    std::map<int, Rank> ranks_;
    int most_ = 1;
};

inline constexpr int kMaxServingRank = 1023;
inline constexpr double kMaxRunning = 1e6;
inline constexpr double kMaxTokensPerSecond = 1e9;
inline constexpr double kMaxLoggedTokens = 1e12;

/// Settings that a server prints when it starts; 0: not printed.
struct ServerSettings {
    int draft_steps = 0;
    int draft_tokens = 0;
    int top_k = 0;
    bool eager = false;
    bool operator==(const ServerSettings&) const = default;
};

}  // namespace draftboard::calibration
