// SPDX-License-Identifier: Apache-2.0
#pragma once
// The best way to serve a model on a box: every combination of drafter, depth, layout, all-reduce and launch modes that is valid,
// fits in memory, is fast enough for each user and is not known to fail here (data/feasibility.json) is predicted; then the best
// drafter's tree is shaped; then the depth is chosen anew for each batch size. Exhaustive over the lists below, so the answer is
// the best of them, and the same each time.
//
//   drafter     the scenario's own, its family's published ones, none
//   depth       0 .. kDeepestDraft
//   layout      TP over 1, 2, 4, ... GPUs with as many replicas as there are GPUs for; EP or not; DCP; DP attention
//   all-reduce  NCCL, and the custom kernels that work here, reading or writing, with NCCL above some sizes
//   launch      as the scenario has it, and everything in graphs
//   overlap     where the engine has it
//   tree        Sequoia's best tree of each size (sequoia_tree.h); the size by length / (draft + verify + host), verify priced
//   with
//               the experts that so many tokens touch
//   schedule    for each batch size the depth of the highest rate; 0 where no depth beats plain decoding: stop speculating
//
// How sure it is that the best beats another: contest.h.

#include <optional>
#include <string>
#include <vector>

#include "planning/contest.h"
#include "planning/document.h"
#include "planning/feasibility.h"
#include "planning/scenario_variants.h"
#include "planning/sequoia_tree.h"

namespace draftboard::planning {

inline constexpr int kDeepestDraft = 7;

struct OptimizeOptions {
    double max_ms_per_token = 0;  ///< latency that each user accepts; 0: any
    bool unproven = true;         ///< settings of which nobody knows whether they work may be chosen
    bool keep_layout = false;     ///< do not change the layout
    std::string engine_version;
    int threads = 0;  ///< 0: all cores
    std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64, 128};
};

struct Candidate {
    std::string drafter;
    std::string layout;
    std::string all_reduce;
    std::string launch;
    int depth = 0;
    model::Edits edits;
    model::Scenario scenario;
    sim::Prediction prediction;
};

struct ScheduleEntry {
    int batch = 1;
    int depth = 0;    ///< 0: plain decoding
    double rate = 0;  ///< all users, at that depth
    double plain_rate = 0;
    double confidence = 0.5;  ///< that the depth beats plain decoding; of 0: that plain beats the best depth
    bool fits = true;
};

struct Optimum {
    model::Scenario scenario;
    sim::Prediction base;
    std::vector<Candidate> best;          ///< the ten best that meet the constraints, best first
    std::vector<Contest> against_best;    ///< of each: the best against it
    std::optional<Contest> against_base;  ///< the best against the scenario as it is
    std::optional<TreeShape> tree;        ///< the best tree of the best drafter, if a drafter is chosen
    std::optional<sim::Prediction> tree_prediction;
    std::optional<Contest> tree_gain;  ///< against the best chain
    std::vector<ScheduleEntry> schedule;
    std::size_t predicted = 0;
    std::size_t refused = 0;            ///< values that contradict each other
    std::size_t too_large = 0;          ///< do not fit in memory
    std::size_t too_slow = 0;           ///< for the latency asked for
    std::vector<std::string> left_out;  ///< what was not tried, and why
    double max_ms_per_token = 0;
};

[[nodiscard]] model::Expected<Optimum> optimize(const std::string& scenario, const model::Edits& edits,
                                                const OptimizeOptions& options, const std::string& data_directory);

/// vLLM's dynamic depth: --speculative-config with num_speculative_tokens_per_batch_size, bands of (from, to, depth).
[[nodiscard]] std::string vllm_flags(const Optimum& optimum);
/// SGLang has one depth a server: the flags for each band of batch sizes.
[[nodiscard]] std::string sglang_flags(const Optimum& optimum);

[[nodiscard]] Document optimum_document(const Optimum& optimum);
[[nodiscard]] model::Json optimum_json(const Optimum& optimum);

}  // namespace draftboard::planning
