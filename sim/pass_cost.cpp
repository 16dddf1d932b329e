// SPDX-License-Identifier: Apache-2.0
#include "sim/pass_cost.h"

#include <algorithm>
#include <cmath>

namespace draftboard::sim {

using model::Operation;
using model::OperationKind;

std::string_view to_name(TermKind kind) {
    switch (kind) {
        case TermKind::experts: return "experts";
        case TermKind::attention: return "attention";
        case TermKind::delta_net: return "delta_net";
        case TermKind::dense: return "dense";
        case TermKind::lm_head: return "lm_head";
        case TermKind::other: return "other_kernels";
        case TermKind::launch: return "launch";
        case TermKind::latency: return "collectives.latency";
        case TermKind::transport: return "collectives.transport";
        case TermKind::wait: return "collectives.wait";
        case TermKind::contention: return "contention";
    }
    return "?";
}

TermKind term_of(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::experts: return TermKind::experts;
        case OperationKind::attention:
        case OperationKind::indexer: return TermKind::attention;
        case OperationKind::delta_net: return TermKind::delta_net;
        case OperationKind::gemm:
            return operation.role == "lm_head" ? TermKind::lm_head : TermKind::dense;
        case OperationKind::batched_gemm: return TermKind::dense;
        default: return TermKind::other;
    }
}

namespace {

/// A calibration that prices a role at nothing says that it runs inside of another kernel: nothing is launched for it.
constexpr double kInsideAnotherUs = 1e-4;

/// In piecewise graphs the attention and whatever else touches the cache stays outside of the graph.
bool outside_pieces(const Operation& operation) {
    return operation.kind == OperationKind::attention || operation.kind == OperationKind::indexer ||
           operation.kind == OperationKind::delta_net;
}

/// Puts the shared expert of each layer on the side stream: it forks in front of the router and joins in
/// moe.combine. `occupied`, of each operation: what it takes from the other stream.
void overlap_shared_experts(const model::Plan& plan, const std::vector<Time>& occupied,
                            std::vector<PricedOperation>& operations) {
    constexpr std::string_view kShared = "moe.shared_";
    int fork = -1;
    int last_side = -1;
    Time joint = 0;
    bool open = false;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const std::string_view role = plan.operations[i].role;
        if (role == "moe.router_proj") {
            open = true;
            fork = static_cast<int>(i) - 1;
            last_side = -1;
            joint = 0;
        }
        if (!open) continue;
        if (role == "moe.combine") {
            open = false;
            if (last_side < 0) continue;  // the model has no shared expert
            operations[i].join = true;
            operations[i].after = last_side;
            operations[i].fork = fork;
            operations[i].joint = joint;
            continue;
        }
        joint += occupied[i];
        if (!role.starts_with(kShared)) continue;
        operations[i].stream = 1;
        if (last_side < 0) operations[i].after = fork;
        last_side = static_cast<int>(i);
    }
}

/// What attention moves where all its sequences read one cache.
Operation with_shared_context(Operation operation, double l2_bytes) {
    if (operation.kind != OperationKind::attention || operation.batch < 2) return operation;
    const double sequences = static_cast<double>(operation.batch);
    const double one = operation.cache_bytes / sequences;
    if (one <= l2_bytes) operation.cache_bytes = one * (1 + (sequences - 1) * kL2Share);
    return operation;
}

}  // namespace

model::Expected<PricedPass> PassPricer::price(model::Plan plan, model::LaunchMode mode) const {
    PricedPass pass;
    pass.operations.reserve(plan.operations.size());
    pass.info.reserve(plan.operations.size());
    std::vector<Time> occupied;
    occupied.reserve(plan.operations.size());
    bool after_all_reduce = false;
    Time worked = 0;  // kernels since the last collective
    const double near = near_share(plan, near_cache_bytes);
    for (const Operation& operation : plan.operations) {
        PricedOperation priced;
        PricedOperationInfo info;
        occupied.push_back(0);
        if (rank_alone && model::is_collective(operation.kind)) {
            priced.fused = true;
            info.coverage = Coverage::measured;
        } else if (model::is_collective(operation.kind)) {
            CollectiveRequest request;
            request.operation = operation.kind;
            const auto ranks = std::min<std::size_t>(
                gpus.size(), static_cast<std::size_t>(std::max(operation.group, 1)));
            request.gpus.assign(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(ranks));
            request.bytes = operation.message_bytes;
            request.graph_launch = mode != model::LaunchMode::eager;
            auto time = collectives->time(request);
            if (!time) return tl::unexpected(time.error());
            priced.collective = true;
            priced.latency = time->latency;
            priced.transport = time->transport;
            priced.skew = time->skew + static_cast<Time>(std::llround(time->skew_share * static_cast<double>(worked)));
            worked = 0;
            info.coverage = time->coverage;
            info.relative_uncertainty = time->relative_uncertainty;
            info.common_uncertainty = time->relative_uncertainty;
            for (const std::string& remark : time->remarks) {
                if (std::find(pass.remarks.begin(), pass.remarks.end(), remark) ==
                    pass.remarks.end()) {
                    pass.remarks.push_back(remark);
                }
            }
        } else {
            const KernelTime time =
                shared_context ? kernels->time(with_shared_context(operation, l2_bytes), near)
                               : kernels->time(operation, near);
            priced.kernel = from_us(time.us);
            priced.fused = time.us < kInsideAnotherUs;
            worked += priced.kernel;
            occupied.back() = from_us(time.occupied_us);
            priced.host_sync = std::find(host_sync_after.begin(), host_sync_after.end(),
                                         operation.role) != host_sync_after.end();
            priced.eager_piece = outside_pieces(operation);
            priced.layer_piece = priced.eager_piece && operation.kind != OperationKind::indexer;
            info.term = term_of(operation);
            info.coverage = time.coverage;
            info.relative_uncertainty = time.relative_uncertainty;
            info.common_uncertainty = time.common_uncertainty;
            if (fused_all_reduce_norm && after_all_reduce && operation.kind == OperationKind::norm) {
                priced.kernel = 0;  // the residual add and norm run in the all-reduce kernel's epilogue
                priced.fused = true;
            }
        }
        after_all_reduce = operation.kind == OperationKind::all_reduce;
        pass.operations.push_back(priced);
        pass.info.push_back(info);
    }
    if (overlap_shared_experts) sim::overlap_shared_experts(plan, occupied, pass.operations);
    pass.plan = std::move(plan);
    return pass;
}

namespace {

/// Relative error of what two streams cost each other; assumed: no table has kernels side by side.
constexpr double kContentionError = 0.3;

/// Sums of one term over operations and ranks, in picoseconds.
struct Sums {
    double time = 0;
    double uncertain = 0;  ///< time x relative uncertainty
    double by_coverage[5] = {};

    void add(double ps, double relative, Coverage coverage) {
        time += ps;
        uncertain += ps * relative;
        by_coverage[static_cast<int>(coverage)] += ps;
    }
    /// The worst coverage that carries at least 5 % of the term.
    [[nodiscard]] Coverage coverage() const {
        for (int c = 4; c > 0; --c) {
            if (by_coverage[c] >= 0.05 * time && by_coverage[c] > 0) return static_cast<Coverage>(c);
        }
        return Coverage::measured;
    }
};

}  // namespace

PassCost pass_cost(const PricedPass& pass, const PassTimes& times, const HostConstants& host) {
    PassCost cost;
    Sums sums[kTermKinds];
    const auto of = [&sums](TermKind kind) -> Sums& { return sums[static_cast<int>(kind)]; };
    double most_wait = 0;
    double least_wait = 0;
    for (int r = 0; r < times.ranks; ++r) {
        double wait = 0;
        Time previous = 0;
        for (std::size_t i = 0; i < pass.operations.size(); ++i) {
            const OperationTimes& at = times.at(r, i);
            const PricedOperation& operation = pass.operations[i];
            const PricedOperationInfo& info = pass.info[i];
            if (at.hidden) continue;
            if (at.contention > 0) {
                of(TermKind::contention)
                    .add(static_cast<double>(at.contention), kContentionError, Coverage::datasheet);
            }
            of(TermKind::launch)
                .add(static_cast<double>(at.idle), host.relative_uncertainty, host.coverage);
            if (operation.collective) {
                wait += static_cast<double>(at.wait);
                of(TermKind::latency)
                    .add(static_cast<double>(operation.latency), info.common_uncertainty, info.coverage);
                of(TermKind::transport)
                    .add(static_cast<double>(operation.transport), info.common_uncertainty, info.coverage);
            } else {
                of(info.term).add(static_cast<double>(at.end - at.start), info.common_uncertainty,
                                  info.coverage);
            }
            previous = at.end;
        }
        wait += static_cast<double>(times.total - previous);  // for the last rank to finish
        of(TermKind::wait).add(wait, host.relative_uncertainty, host.coverage);
        most_wait = r == 0 ? wait : std::max(most_wait, wait);
        least_wait = r == 0 ? wait : std::min(least_wait, wait);
    }
    const double to_mean_ms = times.ranks > 0 ? 1e-9 / times.ranks : 0;
    for (int k = 0; k < kTermKinds; ++k) {
        cost.terms[k].ms = sums[k].time * to_mean_ms;
        cost.terms[k].sigma_ms = sums[k].uncertain * to_mean_ms;
        cost.terms[k].coverage = sums[k].coverage();
    }
    cost.total_ms = to_ms(times.total);
    cost.slowest_wait_ms = most_wait * 1e-9;
    cost.fastest_wait_ms = least_wait * 1e-9;
    for (const PricedOperation& operation : pass.operations) {
        ++(operation.collective ? cost.collectives : cost.kernels);
    }
    return cost;
}

}  // namespace draftboard::sim
