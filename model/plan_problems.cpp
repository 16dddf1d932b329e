// SPDX-License-Identifier: Apache-2.0
// What stops a plan from being written; declared in plan_layers.h. Bounds keep every product of the writer
// within int64 and every division away from zero, whoever built the Architecture.
#include <cmath>

#include <fmt/format.h>

#include "model/plan_layers.h"

namespace draftboard::model {

namespace {

constexpr std::int64_t kMaxHeadSize = 1 << 16;
constexpr std::size_t kMaxReported = 16;

class SizeChecker {
   public:
    explicit SizeChecker(std::vector<Problem>& problems) : problems_(&problems) {}

    void within(int layer, const char* key, std::int64_t value, std::int64_t low, std::int64_t high) {
        if (value >= low && value <= high) return;
        if (problems_->size() >= kMaxReported) return;
        const std::string place = layer < 0 ? fmt::format("/{}", key) : fmt::format("/layers/{}/{}", layer, key);
        problems_->push_back({place, fmt::format("{} is outside {} .. {}", value, low, high)});
    }

   private:
    std::vector<Problem>* problems_;
};

void check_mixer(SizeChecker& check, const TokenMixer& mixer, int i) {
    if (const auto* mla = std::get_if<MlaShape>(&mixer)) {
        check.within(i, "mixer/heads", mla->heads, 1, kMaxHeadSize);
        check.within(i, "mixer/q_lora_rank", mla->q_lora_rank, 0, kMaxFeatures);
        check.within(i, "mixer/kv_lora_rank", mla->kv_lora_rank, 1, kMaxHeadSize);
        check.within(i, "mixer/qk_nope_head_dim", mla->qk_nope_head_dim, 1, kMaxHeadSize);
        check.within(i, "mixer/qk_rope_head_dim", mla->qk_rope_head_dim, 0, kMaxHeadSize);
        check.within(i, "mixer/v_head_dim", mla->v_head_dim, 1, kMaxHeadSize);
        if (mla->indexer) {
            check.within(i, "mixer/indexer/heads", mla->indexer->heads, 1, kMaxHeadSize);
            check.within(i, "mixer/indexer/head_dim", mla->indexer->head_dim, 1, kMaxHeadSize);
            check.within(i, "mixer/indexer/top_k", mla->indexer->top_k, 1, kMaxFeatures);
        }
    } else if (const auto* gqa = std::get_if<GqaShape>(&mixer)) {
        check.within(i, "mixer/heads", gqa->heads, 1, kMaxHeadSize);
        check.within(i, "mixer/kv_heads", gqa->kv_heads, 1, kMaxHeadSize);
        check.within(i, "mixer/head_dim", gqa->head_dim, 1, kMaxHeadSize);
        check.within(i, "mixer/rotary_dim", gqa->rotary_dim, 0, kMaxHeadSize);
        check.within(i, "mixer/sliding_window", gqa->sliding_window, 0, 1 << 30);
    } else if (const auto* net = std::get_if<DeltaNetShape>(&mixer)) {
        check.within(i, "mixer/key_heads", net->key_heads, 1, kMaxHeadSize);
        check.within(i, "mixer/value_heads", net->value_heads, 1, kMaxHeadSize);
        check.within(i, "mixer/key_head_dim", net->key_head_dim, 1, kMaxHeadSize);
        check.within(i, "mixer/value_head_dim", net->value_head_dim, 1, kMaxHeadSize);
        check.within(i, "mixer/conv_kernel", net->conv_kernel, 0, kMaxHeadSize);
    }
}

void check_feed_forward(SizeChecker& check, const FeedForward& feed_forward, int i) {
    if (const auto* dense = std::get_if<DenseFeedForward>(&feed_forward)) {
        check.within(i, "feed_forward/intermediate", dense->intermediate, 1, kMaxFeatures);
    } else if (const auto* moe = std::get_if<MoeFeedForward>(&feed_forward)) {
        check.within(i, "feed_forward/experts", moe->experts, 1, kMaxExperts);
        check.within(i, "feed_forward/experts_per_token", moe->experts_per_token, 1, moe->experts);
        check.within(i, "feed_forward/intermediate", moe->intermediate, 1, kMaxFeatures);
        check.within(i, "feed_forward/shared_intermediate", moe->shared_intermediate, 0, kMaxFeatures);
    }
}

void check_step(const Step& step, std::vector<Problem>& problems) {
    const auto within = [&](const char* key, std::int64_t value, std::int64_t low, std::int64_t high) {
        if (value >= low && value <= high) return;
        problems.push_back({std::string("/step/") + key, fmt::format("{} is outside {} .. {}", value, low, high)});
    };
    within("sequences", step.sequences, 1, kMaxPassTokens);
    within("tokens", step.tokens, 1, kMaxPassTokens);
    within("context", step.context, 0, kMaxContext);
    const std::int64_t tokens = std::int64_t{step.sequences} * step.tokens;
    if (problems.empty() && tokens > kMaxPassTokens) within("sequences x tokens", tokens, 1, kMaxPassTokens);
}

void check_trace(const Architecture& architecture, const Routing& routing, std::vector<Problem>& problems) {
    if (routing.kind != RoutingKind::trace || !routing.trace) return;
    for (std::size_t i = 0; i < architecture.layers.size(); ++i) {
        const MoeFeedForward* moe = moe_of(architecture.layers[i]);
        if (moe == nullptr) continue;
        if (moe->experts == routing.trace->experts && moe->experts_per_token == routing.trace->experts_per_token) {
            continue;
        }
        problems.push_back({"/routing/trace",
                            fmt::format("it was recorded with {} of {} experts, and layer {} takes {} of {}",
                                        routing.trace->experts_per_token, routing.trace->experts, i,
                                        moe->experts_per_token, moe->experts)});
        return;
    }
}

}  // namespace

std::vector<Problem> plan_problems(const Architecture& architecture, const Layout& layout, const Step& step) {
    std::vector<Problem> problems;
    SizeChecker check(problems);
    check.within(-1, "hidden", architecture.hidden, 1, 1 << 20);
    check.within(-1, "vocabulary", architecture.vocabulary, 1, std::int64_t{1} << 31);
    check.within(-1, "layers", static_cast<std::int64_t>(architecture.layers.size()), 0, kMaxLayers);
    if (!problems.empty()) return problems;
    for (std::size_t i = 0; i < architecture.layers.size(); ++i) {
        check_mixer(check, architecture.layers[i].mixer, static_cast<int>(i));
        check_feed_forward(check, architecture.layers[i].feed_forward, static_cast<int>(i));
    }
    check_step(step, problems);
    if (!problems.empty()) return problems;
    // A trace is checked where it is read; looking at its millions of choices for every step would be slow.
    const Routing& routing = step.routing;
    if (!(std::isfinite(routing.alpha) && routing.alpha >= 0 && routing.alpha <= 16)) {
        problems.push_back({"/routing/alpha", "it is outside 0 .. 16"});
    }
    if (!(routing.draft_overlap >= 0 && routing.draft_overlap <= 1)) {
        problems.push_back({"/routing/draft_overlap", "it is outside 0 .. 1"});
    }
    if (routing.kind == RoutingKind::trace && !routing.trace) {
        problems.push_back({"/routing/trace_file", "no routing trace has been read"});
    }
    check_trace(architecture, routing, problems);
    if (problems.empty()) problems = layout.validate(architecture);
    return problems;
}

}  // namespace draftboard::model
