// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a serving engine's own log says about speculative decoding: a measurement that the owner of a box already has.
// A sample is one periodic line of the engine with what belongs to it; acceptance stands in the terms of
// model/acceptance.h whatever the engine's are, and `assumptions` says what was decided on the way:
//
//   SGLang   "Decode batch" lines (sglang_log.h): the acceptance length counts the bonus token; "accept rate" is
//            (accepted + bonus) / tokens with the root, in some versions accepted / drafted: told apart by the lines themselves
//   vLLM     "Avg generation throughput" and "SpecDecoding metrics" lines (vllm_log.h): rates are of all drafts, by position
//            unconditional; the mean length counts the bonus token or, in early versions, does not
//
// Logs are read line by line, so that their size does not matter: colours, timestamps, progress bars and lines of other
// processes are passed over. A line of an engine that can't be read is counted, not fatal. Which windows are steady
// and what they give together is serving_summary.h; the prediction beside it is serving_validation.h.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::calibration {

inline constexpr std::size_t kMaxServingSamples = 500'000;
inline constexpr std::size_t kMaxLogLineBytes = 1u << 16;         ///< of a longer line the rest is passed over
inline constexpr std::size_t kMaxLoggedPositions = 64;            ///< acceptance rates on a line
inline constexpr std::uint64_t kMaxBytesBeforeSample = 64u << 20;   ///< a log that says nothing until there is none
inline constexpr std::uint64_t kMaxLogBytes = 32ull << 30;

enum class ServingEngine { sglang, vllm };
[[nodiscard]] std::string_view to_name(ServingEngine engine);  ///< "SGLang", "vLLM"

/// The window that ends with one periodic line of one data-parallel rank.
struct ServingSample {
    std::int64_t line = 0;          ///< in the file, from 1
    int rank = 0;                   ///< data-parallel rank (SGLang: DP, vLLM: Engine)
    int running = 0;                ///< requests decoded at once at the window's end
    double tokens_per_second = 0;   ///< of all running requests
    double acceptance_length = 0;   ///< mean tokens a cycle, bonus included; 0: not printed
    std::vector<float> per_position;   ///< unconditional rates m_1..m_k; empty: not printed
    std::int64_t drafted = 0;       ///< tokens, in this window; 0: not printed
    std::int64_t accepted = 0;
    double cycles = 0;              ///< drafts behind the rates, from the counts; 0: not known
    std::optional<bool> graph;      ///< whether the pass was replayed as a CUDA graph
    double context_tokens = 0;      ///< cached tokens of all running requests; 0: not known
    bool same_batch = false;        ///< as many requests at the window's beginning
    bool prefill = false;           ///< prompts were read within the window
    bool warm_up = false;           ///< among the first kWarmUpWindows of its rank

    [[nodiscard]] double tokens_per_second_per_user() const { return running > 0 ? tokens_per_second / running : 0; }
};

inline constexpr int kWarmUpWindows = 2;

struct ServingLog {
    std::string name;            ///< the file
    ServingEngine engine = ServingEngine::sglang;
    std::string version;         ///< as printed; empty: not printed
    std::vector<ServingSample> samples;  ///< in the file's order
    std::int64_t lines = 0;
    std::int64_t prefill_lines = 0;      ///< counted and left out
    std::int64_t idle_lines = 0;         ///< periodic lines without a running request or without a token
    std::int64_t malformed_lines = 0;    ///< lines of the engine with a figure that can't be one
    std::int64_t first_malformed = 0;    ///< its line; 0: none
    std::int64_t cut_lines = 0;          ///< longer than kMaxLogLineBytes
    int ranks = 1;               ///< data-parallel ranks that logged
    int starts = 0;              ///< of a server within the log; 0: none seen
    int draft_steps = 0;         ///< longest chain of drafts, as printed or as the lines imply; 0: not known
    int draft_tokens = 0;        ///< tokens verified per sequence, root included; 0: not known
    int top_k = 0;               ///< 0: not known, 1: a chain
    bool depth_inferred = false; ///< SGLang: draft_tokens and draft_steps follow from the accept rates, as of a chain
    std::vector<std::string> assumptions;
};

/// Takes the bytes of a log in pieces of any size.
class ServingLogReader {
   public:
    explicit ServingLogReader(std::string name);
    ~ServingLogReader();
    ServingLogReader(const ServingLogReader&) = delete;
    ServingLogReader& operator=(const ServingLogReader&) = delete;

    /// Errors: too many samples or bytes, nothing within kMaxBytesBeforeSample, starts with different settings.
    [[nodiscard]] model::Expected<void> add(std::string_view bytes);
    /// Errors: no sample at all, samples of two engines.
    [[nodiscard]] model::Expected<ServingLog> finish();

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

[[nodiscard]] model::Expected<ServingLog> parse_serving_log(std::string_view text, const std::string& name);
[[nodiscard]] model::Expected<ServingLog> load_serving_log(const std::string& path);

}  // namespace draftboard::calibration
