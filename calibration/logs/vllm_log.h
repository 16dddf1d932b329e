// SPDX-License-Identifier: Apache-2.0
#pragma once
// The periodic lines of vLLM's loggers, every ten seconds while there is work:
//
//   (APIServer pid=1) INFO 03-01 10:00:10 [loggers.py:248] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation
//   throughput: 210.4 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 0.0%
//   (APIServer pid=1) INFO 03-01 10:00:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.28, Accepted
//   throughput: ..., Drafted throughput: ..., Accepted: 1180 tokens, Drafted: 2766 tokens, Per-position acceptance rate: 0.645,
//   0.393, 0.240, Avg Draft acceptance rate: 42.6%
//
//   0.6 .. 0.7 (V0)  no "Engine"; "Swapped:", "Pending:"; "Speculative metrics: Draft acceptance rate: 0.61, System efficiency:
//                    ..., Number of speculative tokens: k, ... draft tokens: D, ... emitted tokens: E", counted since the start:
//                    differences of successive lines are taken. Its accepted tokens count hits behind a miss too: L = E k / D
//   0.8 (V1)         "SpecDecoding metrics: Draft acceptance rate: r%, Accepted: A tokens, Drafted: D tokens": L = 1 + k r
//   0.9              and the mean length and the rates by position; 0.10 and later: throughputs, the rate last
//   later            "N Engines Aggregated:" sums over the ranks
//
// m_i = drafts accepted up to i / all drafts: unconditional. L = 1 + sum m_i; a mean length that equals the sum alone leaves the
// bonus token out and gets it. Drafts are not printed: A / (L - 1). Requests that run are those at the window's end. Cached
// tokens: usage x "GPU KV cache size", where the log has it.

#include "calibration/logs/log_line.h"

namespace draftboard::calibration {

class VllmLog {
   public:
    /// A whole line, without colours. False: settings that differ from those of an earlier start.
    bool read(std::string_view line, std::int64_t number);
    /// Moves what was found into `log`, with its assumptions.
    void finish(ServingLog& log);
    [[nodiscard]] const std::vector<ServingSample>& samples() const { return found_.samples; }

   private:
    void throughput(std::string_view text, std::string_view before, std::int64_t number);
    void speculation(std::string_view text, std::int64_t number);
    void cumulative_speculation(std::string_view text, std::int64_t number);
    bool start(std::string_view line);
    void malformed(std::int64_t number);

    ServingLog found_;
    ServerSettings settings_;
    std::int64_t samples_at_start_ = 0;
    RankWindows windows_;
    std::size_t pending_ = kNone;      ///< sample whose line of acceptance may follow
    double cache_tokens_ = 0;          ///< "GPU KV cache size"
    double drafted_before_ = 0;        ///< cumulative, V0
    double emitted_before_ = 0;
    std::int64_t without_bonus_ = 0;   ///< lines whose mean length leaves the bonus out
    std::int64_t undecided_ = 0;       ///< lines that don't show whether it does
    std::int64_t unknown_depth_ = 0;   ///< lines with a rate but no depth
    std::int64_t cumulative_ = 0;
    bool aggregated_ = false;
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
};

}  // namespace draftboard::calibration
