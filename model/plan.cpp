// SPDX-License-Identifier: Apache-2.0
#include "model/plan.h"

#include <numeric>

#include <fmt/format.h>

#include "model/plan_layers.h"
#include "model/sharding.h"

namespace draftboard::model {

std::string_view to_name(OperationKind kind) {
    switch (kind) {
        case OperationKind::embedding: return "embedding";
        case OperationKind::gemm: return "gemm";
        case OperationKind::batched_gemm: return "batched_gemm";
        case OperationKind::norm: return "norm";
        case OperationKind::elementwise: return "elementwise";
        case OperationKind::attention: return "attention";
        case OperationKind::indexer: return "indexer";
        case OperationKind::delta_net: return "delta_net";
        case OperationKind::router: return "router";
        case OperationKind::experts: return "experts";
        case OperationKind::all_reduce: return "all_reduce";
        case OperationKind::all_gather: return "all_gather";
        case OperationKind::reduce_scatter: return "reduce_scatter";
        case OperationKind::all_to_all: return "all_to_all";
        case OperationKind::send_receive: return "send_receive";
        case OperationKind::sample: return "sample";
        case OperationKind::accept: return "accept";
        case OperationKind::copy: return "copy";
    }
    return "?";
}

bool is_collective(OperationKind kind) {
    switch (kind) {
        case OperationKind::all_reduce:
        case OperationKind::all_gather:
        case OperationKind::reduce_scatter:
        case OperationKind::all_to_all:
        case OperationKind::send_receive: return true;
        default: return false;
    }
}

std::string_view to_name(Pass pass) {
    switch (pass) {
        case Pass::decode: return "decode";
        case Pass::verify: return "verify";
        case Pass::draft_extend: return "draft_extend";
        case Pass::draft: return "draft";
        case Pass::prefill: return "prefill";
    }
    return "?";
}

std::string Operation::key(Pass pass) const {
    if (layer < 0) return fmt::format("{}/{}", to_name(pass), role);
    return fmt::format("{}/L{:02d}/{}", to_name(pass), layer, role);
}

double Plan::weight_bytes() const {
    return std::accumulate(operations.begin(), operations.end(), 0.0,
                           [](double sum, const Operation& op) { return sum + op.weight_bytes; });
}

double Plan::flops() const {
    return std::accumulate(operations.begin(), operations.end(), 0.0,
                           [](double sum, const Operation& op) { return sum + op.flops; });
}

int Plan::count(OperationKind kind) const {
    int count = 0;
    for (const Operation& op : operations) count += op.kind == kind ? 1 : 0;
    return count;
}

Expected<Plan> plan_forward(const Architecture& architecture, const Layout& layout, const Step& step) {
    if (const auto problems = plan_problems(architecture, layout, step); !problems.empty()) {
        return tl::unexpected(to_error(problems, architecture.name));
    }
    constexpr std::size_t kOperationsPerLayer = 24;
    Plan plan;
    plan.pass = step.pass;
    plan.operations.reserve((architecture.layers.size() + 1) * kOperationsPerLayer);

    PlanWriter writer(pass_shape(architecture, layout, step), plan.operations);
    writer.embedding(architecture.vocabulary, architecture.embedding_format);
    const auto layers = static_cast<int>(architecture.layers.size());
    for (int i = 0; i < layers; ++i) {
        if (i > 0 && pipeline_stage(i, layers, layout.pipeline) != pipeline_stage(i - 1, layers, layout.pipeline)) {
            writer.pipeline_boundary(i);
        }
        writer.layer(architecture.layers[static_cast<std::size_t>(i)], i, architecture.hidden);
    }
    const int rows = step.pass == Pass::prefill ? 1 : step.tokens;
    if (step.pass == Pass::verify) {
        writer.head(architecture.vocabulary, architecture.lm_head_format, rows, "accept", OperationKind::accept);
        writer.rollback(architecture);
    } else {
        writer.head(architecture.vocabulary, architecture.lm_head_format, rows, "sample", OperationKind::sample);
    }
    return plan;
}

Expected<CyclePlan> plan_cycle(const Architecture& target, const Layout& layout,
                               const Speculation& speculation, int sequences, std::int64_t context,
                               NumberFormat kv_format, const Routing& routing, std::uint64_t seed) {
    Step step;
    step.pass = Pass::decode;
    step.sequences = sequences;
    step.tokens = 1;
    step.context = context;
    step.kv_format = kv_format;
    step.routing = routing;
    step.seed = seed;

    CyclePlan cycle;
    auto plain = plan_forward(target, layout, step);
    if (!plain) return tl::unexpected(plain.error());
    cycle.plain = std::move(*plain);
    cycle.verify.pass = Pass::verify;
    cycle.draft_extend.pass = Pass::draft_extend;
    cycle.draft.pass = Pass::draft;
    if (speculation.method == SpeculationMethod::none) return cycle;

    if (const auto problems = speculation.validate(target); !problems.empty()) {
        return tl::unexpected(to_error(problems, target.name));
    }
    step.pass = Pass::verify;
    step.tokens = speculation.verify_tokens();
    auto verify = plan_forward(target, layout, step);
    if (!verify) return tl::unexpected(verify.error());
    cycle.verify = std::move(*verify);
    if (speculation.method == SpeculationMethod::ngram) return cycle;

    step.pass = Pass::draft_extend;
    step.tokens = speculation.steps + 1;
    auto extend = plan_draft(target, speculation, layout, step);
    if (!extend) return tl::unexpected(extend.error());
    cycle.draft_extend = std::move(*extend);
    cycle.draft_steps = speculation.steps - 1;
    step.pass = Pass::draft;
    step.tokens = speculation.top_k;
    auto draft = plan_draft(target, speculation, layout, step);
    if (!draft) return tl::unexpected(draft.error());
    cycle.draft = std::move(*draft);
    return cycle;
}

}  // namespace draftboard::model
