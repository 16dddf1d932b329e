// SPDX-License-Identifier: Apache-2.0
#include "backend/engine.h"

namespace draftboard::backend {

int Engine::feature_width(model::Pass pass) const {
    if (shape_.kind == ModelKind::model) return 0;
    // EAGLE-3: auxiliary states of the target in the first call of a cycle, the head's own hidden state in the others.
    const bool first = pass == model::Pass::draft_extend || pass == model::Pass::prefill;
    if (shape_.kind == ModelKind::eagle3 && first) return static_cast<int>(fused_columns());
    return shape_.architecture.hidden;
}

model::Expected<model::Plan> Engine::plan(model::Pass pass, int sequences, int tokens, std::int64_t context) const {
    return planner_(step_of(shape_, pass, sequences, tokens, context));
}

void Engine::record(const model::Plan& plan, const PassRows& rows, std::span<const std::vector<OperationTime>> times,
                    std::int64_t commit_ns, double pass_us) {
    PassSamples& samples = profile_->pass(rows.pass, rows.sequences, rows.tokens, plan.operations.size());
    samples.total_us.push_back(static_cast<float>(pass_us));
    double context = 0;
    for (const std::int64_t committed : rows.committed) context += static_cast<double>(committed);
    samples.context_sum += context / rows.sequences;
    ++samples.count;
    const float share = 1e-3f / static_cast<float>(times.size());
    for (std::size_t i = 0; i < plan.operations.size(); ++i) {
        std::int64_t busy = 0;
        std::int64_t wait = 0;
        for (const auto& of_rank : times) {
            busy += of_rank[i].total_ns - of_rank[i].wait_ns;
            wait += of_rank[i].wait_ns;
        }
        if (plan.operations[i].role == "delta_net.rollback") busy = commit_ns;
        samples.operations[i].us.push_back(static_cast<float>(busy) * share);
        samples.operations[i].wait_us.push_back(static_cast<float>(wait) * share);
    }
}

}  // namespace draftboard::backend
