// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines of SGLang's scheduler, every decode_log_interval (40) forward passes of a data-parallel rank:
//
//   [2026-03-01 10:00:02 DP0 TP0] Decode batch, #running-req: 4, #token: 8192, token usage: 0.02, accept len: 2.71,
//   accept rate: 0.68, cuda graph: True, gen throughput (token/s): 412.50, #queue-req: 0,
//
//   until 2025   "Decode batch. #running-req"; no "accept rate"; no "cuda graph"
//   later        "Decode batch [1234], " with the pass's number; "#full token" and "#swa token" of hybrid models (the full one
//                counts here); "npu graph", "cpu graph"; figures of disaggregation, hierarchical caches and TFLOPS between them
//   L            accept len: (accepted + bonus) / passes, mean over the requests of the window
//   accept rate  L / n with n tokens verified, root included ("sglang_log"), or (L - 1) / (n - 1) ("sglang_request"): the
//                reader takes the definition and n that most lines agree with; the length does not depend on it
//
// "Prefill batch" lines are counted and mark the window in which they stand. Lines of other tensor or pipeline ranks are passed
// over.

#include <array>

#include "calibration/logs/log_line.h"

namespace draftboard::calibration {

class SglangLog {
   public:
    /// A whole line, without colours. False: settings that differ from those of an earlier start.
    bool read(std::string_view line, std::int64_t number);
    /// Moves what was found into `log`, with its assumptions.
    void finish(ServingLog& log);
    [[nodiscard]] const std::vector<ServingSample>& samples() const { return found_.samples; }

   private:
    void decode(std::string_view text, std::string_view before, std::int64_t number);
    void weigh_definitions(double length, double rate);
    bool start(std::string_view line);

    static constexpr int kMostTokens = 64;  ///< largest n that is tried
    ServingLog found_;
    ServerSettings settings_;
    std::int64_t samples_at_start_ = 0;
    RankWindows windows_;
    std::map<int, bool> prefilled_;  ///< by rank, since its last decode line
    /// Lines that agree with n tokens under the two definitions.
    std::array<std::array<std::int64_t, kMostTokens + 1>, 2> agreeing_{};
    std::int64_t rated_ = 0;
};

}  // namespace draftboard::calibration
