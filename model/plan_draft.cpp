// SPDX-License-Identifier: Apache-2.0
// The drafter's calls; declared in plan.h.
#include "model/plan.h"
#include "model/plan_layers.h"

namespace draftboard::model {

namespace {

Architecture eagle3_architecture(const Architecture& target, const Eagle3Head& head) {
    Architecture out;
    out.name = "EAGLE-3 head " + head.name;
    out.source = head.source;
    out.hidden = head.hidden;
    out.vocabulary = head.draft_vocabulary;
    out.max_context = target.max_context;
    out.activation_format = target.activation_format;
    out.kv_format = target.kv_format;
    out.embedding_format = head.own_embedding ? head.format : target.embedding_format;
    out.lm_head_format = head.format;
    Layer layer;
    layer.mixer = head.mixer;
    layer.feed_forward = DenseFeedForward{head.intermediate};
    layer.formats = {head.format, head.format, head.format, head.format, head.format};
    out.layers.assign(static_cast<std::size_t>(head.layers), layer);
    return out;
}

Architecture mtp_architecture(const Architecture& target) {
    // One module is applied again for every further step; a checkpoint that holds several is served by its
    // first in the engines (num_nextn_predict_layers modules, one loaded).
    Architecture out = target;
    out.name = target.name + " MTP";
    out.layers.assign(1, target.mtp.front().layer);
    out.mtp.clear();
    return out;
}

}  // namespace

Layout drafter_layout(const Layout& layout, const Speculation& speculation) {
    Layout out = layout;
    out.pipeline = 1;
    out.replicas = 1;
    out.decode_context = 1;
    if (speculation.draft_tensor > 0 && speculation.draft_tensor != layout.tensor) {
        out.tensor = speculation.draft_tensor;
        out.expert = 1;
        out.all_to_all = false;
        out.attention_data = 1;
    }
    return out;
}

Architecture drafter_architecture(const Architecture& target, const Speculation& speculation) {
    switch (speculation.method) {
        case SpeculationMethod::eagle3: return eagle3_architecture(target, *speculation.head);
        case SpeculationMethod::mtp: return mtp_architecture(target);
        case SpeculationMethod::draft_model: return *speculation.draft_architecture;
        case SpeculationMethod::none:
        case SpeculationMethod::ngram: break;
    }
    return {};
}

Expected<Plan> plan_draft(const Architecture& target, const Speculation& speculation, const Layout& layout,
                          const Step& step) {
    Plan plan;
    plan.pass = step.pass;
    if (speculation.method == SpeculationMethod::none || speculation.method == SpeculationMethod::ngram) {
        return plan;
    }
    if (const auto problems = speculation.validate(target); !problems.empty()) {
        return tl::unexpected(to_error(problems, target.name));
    }
    const Architecture drafter = drafter_architecture(target, speculation);
    const Layout ranks = drafter_layout(layout, speculation);
    Step draft_step = step;
    if (speculation.method == SpeculationMethod::draft_model) {
        draft_step.routing = Routing{};  // the scenario's routing speaks of the target's experts
    }
    if (const auto problems = plan_problems(drafter, ranks, draft_step); !problems.empty()) {
        return tl::unexpected(to_error(problems, drafter.name));
    }
    if (target.hidden < 1 || target.hidden > (1 << 20) || target.vocabulary < 1 ||
        target.vocabulary % ranks.tensor != 0) {
        return fail(ErrorCode::invalid_input,
                    "the target's hidden size or vocabulary does not go with the drafter's ranks", target.name,
                    "check the architecture, or choose another draft_tensor");
    }

    constexpr std::size_t kOperationsPerLayer = 24;
    plan.operations.reserve((drafter.layers.size() + 1) * kOperationsPerLayer);
    PlanWriter writer(pass_shape(drafter, ranks, draft_step), plan.operations);
    const std::int64_t hidden = drafter.hidden;
    std::int64_t first_input = hidden;
    if (speculation.method == SpeculationMethod::eagle3) {
        const Eagle3Head& head = *speculation.head;
        if (step.pass == Pass::draft_extend) {  // further steps feed on the head's own output
            writer.fusion("eagle3.fc", std::int64_t{head.aux_layers} * target.hidden, head.format);
        }
        writer.embedding(target.vocabulary, drafter.embedding_format);
        first_input = 2 * hidden;
    } else if (speculation.method == SpeculationMethod::mtp) {
        writer.embedding(drafter.vocabulary, drafter.embedding_format);
        writer.fusion_norm("mtp.norm", 2 * hidden);
        writer.fusion("mtp.projection", 2 * hidden, target.mtp.front().projection);
    } else {
        writer.embedding(drafter.vocabulary, drafter.embedding_format);
    }
    for (std::size_t i = 0; i < drafter.layers.size(); ++i) {
        writer.layer(drafter.layers[i], static_cast<int>(i), i == 0 ? first_input : hidden);
    }
    const int rows = step.pass == Pass::draft_extend ? 1 : step.tokens;
    writer.head(drafter.vocabulary, drafter.lm_head_format, rows, "draft.top_k", OperationKind::sample);
    return plan;
}

}  // namespace draftboard::model
