// SPDX-License-Identifier: Apache-2.0
#pragma once
// A plan, priced: every operation with its time, what carries that time, and the term of the answer that
// it belongs to; then the whole pass on its ranks, with its time split over terms.
//
// On each rank the critical path is a gapless sequence of kernel, launch (idle), wait, latency, transport and
// contention; a term is its mean over ranks. Where two streams run side by side the path follows the longer one,
// and what the other does is in no term. Ranks that finish before the last one wait for it. So, exactly:
//     sum of terms = PassTimes::total

#include <string>
#include <string_view>
#include <vector>

#include "model/plan.h"
#include "sim/collective.h"
#include "sim/kernel_cost.h"
#include "sim/ranks.h"

namespace draftboard::sim {

/// The parts that a pass is reported in.
enum class TermKind {
    experts,
    attention,
    delta_net,
    dense,       ///< projections, dense and shared MLP, router projection
    lm_head,
    other,       ///< norms, rope, activation, top-k, sampling
    launch,      ///< stream idle: graph gaps, or waiting for the host to launch
    latency,     ///< collectives: hops and handshakes
    transport,   ///< collectives: bytes moving
    wait,        ///< collectives: for the last rank
    contention,  ///< where two streams join: memory that both use, beyond the longer one
};
inline constexpr int kTermKinds = 11;
[[nodiscard]] std::string_view to_name(TermKind kind);

/// The term of an operation that is not a collective.
[[nodiscard]] TermKind term_of(const model::Operation& operation);

struct PricedOperationInfo {
    TermKind term = TermKind::other;
    Coverage coverage = Coverage::datasheet;
    double relative_uncertainty = 0;  ///< of this operation
    double common_uncertainty = 0;    ///< of its term: what operations of one kind err together
};

struct PricedPass {
    model::Plan plan;
    std::vector<PricedOperation> operations;  ///< parallel to plan.operations
    std::vector<PricedOperationInfo> info;
    std::vector<std::string> remarks;         ///< from collectives, each once
};

/// Price of a byte from L2 in bytes from memory: gated delta net kernels whose states stay in L2 reach
/// 6.2 TB/s where cold ones reach 1.49 (gdn_us.csv, RTX PRO 6000; calibration rtx-pro-6000).
inline constexpr double kL2Share = 0.24;

/// Everything that prices: shared by all passes of a prediction.
struct PassPricer {
    const KernelModel* kernels = nullptr;
    CollectiveModel* collectives = nullptr;
    std::vector<int> gpus;           ///< ordinals of the tensor-parallel group, in rank order
    bool fused_all_reduce_norm = false;
    /// The shared expert's operations run on the side stream from in front of moe.router_proj up to moe.combine.
    bool overlap_shared_experts = false;
    std::vector<std::string> host_sync_after;  ///< roles
    /// Workload::shared_context: attention reads the context from memory once and the other sequences'
    /// copies of it from L2, at 1 / kL2Share of the price, if it stays there:
    ///   bytes = c (1 + (S - 1) kL2Share), c one sequence's cache in this layer, S sequences, c <= l2_bytes
    bool shared_context = false;
    double l2_bytes = 0;
    double near_cache_bytes = 0;  ///< CPU: a core's own cache, see near_share(); 0: none
    /// One rank of a layout runs without the others, as for measurements of its share: its collectives move nothing and take no time.
    bool rank_alone = false;

    [[nodiscard]] model::Expected<PricedPass> price(model::Plan plan, model::LaunchMode mode) const;
};

struct PassTerm {
    double ms = 0;
    double sigma_ms = 0;  ///< one standard deviation; parts of one term err together
    Coverage coverage = Coverage::measured;
};

struct PassCost {
    double total_ms = 0;
    PassTerm terms[kTermKinds];
    double slowest_wait_ms = 0;   ///< total wait of the rank that waits most
    double fastest_wait_ms = 0;   ///< and of the one that waits least (the one others wait for)
    int collectives = 0;
    int kernels = 0;
};

/// Splits the simulated times over terms, for one run of the pass.
[[nodiscard]] PassCost pass_cost(const PricedPass& pass, const PassTimes& times,
                                 const HostConstants& host);

}  // namespace draftboard::sim
