// SPDX-License-Identifier: Apache-2.0
#include "model/architecture.h"

#include <algorithm>

#include <fmt/format.h>

#include "model/parameter_count.h"

namespace draftboard::model {

namespace {

// A hostile file could break the same rule in each of a thousand layers; a person reads the first
// few.
constexpr std::size_t kMaxProblems = 100;

/// Collects problems below one place.
class Checker {
 public:
    Checker(std::vector<Problem>& problems, std::string place)
        : problems_(&problems), place_(std::move(place)) {}

    void problem(std::string_view field, std::string message) const {
        if (problems_->size() < kMaxProblems) {
            problems_->push_back({fmt::format("{}/{}", place_, field), std::move(message)});
        }
    }
    void within(std::string_view field, std::int64_t value, std::int64_t low,
                std::int64_t high) const {
        if (value < low || value > high)
            problem(field, fmt::format("{} is outside {} .. {}", value, low, high));
    }
    void size(std::string_view field, std::int64_t value) const {
        within(field, value, 1, kMaxFeatures);
    }
    void size_or_zero(std::string_view field, std::int64_t value) const {
        within(field, value, 0, kMaxFeatures);
    }
    /// Factors within limits whose product is one matrix dimension.
    void product(std::string_view field, std::int64_t a, std::int64_t b) const {
        if (a >= 0 && b >= 0 && a <= kMaxFeatures && b <= kMaxFeatures &&
            a * b > kMaxFeatures) {
            problem(field, fmt::format("{} x {} is wider than {}", a, b, kMaxFeatures));
        }
    }
    [[nodiscard]] Checker below(std::string_view field) const {
        return {*problems_, fmt::format("{}/{}", place_, field)};
    }

 private:
    std::vector<Problem>* problems_;
    std::string place_;
};

void check(const MlaShape& mla, const Checker& at) {
    at.size("heads", mla.heads);
    at.size_or_zero("q_lora_rank", mla.q_lora_rank);
    at.size("kv_lora_rank", mla.kv_lora_rank);
    at.size("qk_nope_head_dim", mla.qk_nope_head_dim);
    at.size("qk_rope_head_dim", mla.qk_rope_head_dim);
    at.size("v_head_dim", mla.v_head_dim);
    at.product("heads", mla.heads, std::int64_t{mla.qk_nope_head_dim} + mla.qk_rope_head_dim);
    at.product("heads", mla.heads, std::int64_t{mla.qk_nope_head_dim} + mla.v_head_dim);
    if (mla.indexer) {
        const Checker below = at.below("indexer");
        below.size("heads", mla.indexer->heads);
        below.size("head_dim", mla.indexer->head_dim);
        below.size("top_k", mla.indexer->top_k);
        below.product("heads", mla.indexer->heads, mla.indexer->head_dim);
    }
}

void check(const GqaShape& gqa, const Checker& at) {
    at.size("heads", gqa.heads);
    at.size("kv_heads", gqa.kv_heads);
    at.size("head_dim", gqa.head_dim);
    at.within("rotary_dim", gqa.rotary_dim, 0, std::max(0, gqa.head_dim));
    at.size_or_zero("sliding_window", gqa.sliding_window);
    at.product("heads", gqa.heads, 2 * std::int64_t{gqa.head_dim});
    if (gqa.heads > 0 && gqa.kv_heads > 0 && gqa.heads % gqa.kv_heads != 0) {
        at.problem("kv_heads", fmt::format("{} heads can't be shared evenly by {} key/value heads",
                                           gqa.heads, gqa.kv_heads));
    }
}

void check(const DeltaNetShape& net, const Checker& at) {
    at.size("key_heads", net.key_heads);
    at.size("value_heads", net.value_heads);
    at.size("key_head_dim", net.key_head_dim);
    at.size("value_head_dim", net.value_head_dim);
    at.within("conv_kernel", net.conv_kernel, 1, 64);
    at.product("key_heads", net.key_heads, net.key_head_dim);
    at.product("value_heads", net.value_heads, net.value_head_dim);
    if (net.key_heads > 0 && net.value_heads > 0 && net.value_heads % net.key_heads != 0) {
        at.problem("value_heads",
                   fmt::format("{} value heads can't be shared evenly by {} key heads",
                               net.value_heads, net.key_heads));
    }
}

void check(const DenseFeedForward& dense, const Checker& at) {
    at.size("intermediate", dense.intermediate);
}

void check(const MoeFeedForward& moe, const Checker& at) {
    at.within("experts", moe.experts, 1, kMaxExperts);
    at.within("experts_per_token", moe.experts_per_token, 1, std::max(1, moe.experts));
    at.size("intermediate", moe.intermediate);
    at.size_or_zero("shared_intermediate", moe.shared_intermediate);
    at.within("groups", moe.groups, 1, std::max(1, moe.experts));
    at.within("top_groups", moe.top_groups, 1, std::max(1, moe.groups));
    if (moe.groups > 1 && moe.experts % moe.groups != 0) {
        at.problem("groups", fmt::format("{} experts can't be split into {} equal groups",
                                         moe.experts, moe.groups));
    }
    if (moe.groups > 0 && moe.top_groups > 0 && moe.top_groups <= moe.groups &&
        moe.experts >= moe.groups && moe.experts_per_token <= moe.experts &&
        moe.experts_per_token > std::int64_t{moe.experts / moe.groups} * moe.top_groups) {
        at.problem("top_groups",
                   fmt::format("{} groups of {} experts do not hold {} experts a token",
                               moe.top_groups, moe.experts / moe.groups, moe.experts_per_token));
    }
}

void check_format(const WeightFormat& format, std::string_view field, const Checker& at) {
    const Checker below = at.below(field);
    below.size_or_zero("block_rows", format.block_rows);
    below.size_or_zero("block_columns", format.block_columns);
    below.within("scale_bits", format.scale_bits, 0, 64);
    below.within("zero_bits", format.zero_bits, 0, 64);
}

void check_layer(const Layer& layer, const Checker& at) {
    std::visit([&at](const auto& shape) { check(shape, at.below("mixer")); }, layer.mixer);
    std::visit([&at](const auto& shape) { check(shape, at.below("feed_forward")); },
               layer.feed_forward);
    const Checker formats = at.below("formats");
    check_format(layer.formats.mixer, "mixer", formats);
    check_format(layer.formats.feed_forward, "feed_forward", formats);
    check_format(layer.formats.shared_expert, "shared_expert", formats);
    check_format(layer.formats.routed_experts, "routed_experts", formats);
    check_format(layer.formats.router, "router", formats);
}

}  // namespace

std::vector<Problem> Architecture::validate() const {
    std::vector<Problem> problems;
    const Checker root(problems, "");
    root.size("hidden", hidden);
    root.within("vocabulary", vocabulary, 1, kMaxVocabulary);
    root.within("max_context", max_context, 1, kMaxContext);
    root.within("layers", static_cast<std::int64_t>(layers.size()), 1, kMaxLayers);
    root.within("mtp", static_cast<std::int64_t>(mtp.size()), 0, kMaxMtpModules);
    check_format(embedding_format, "embedding_format", root);
    check_format(lm_head_format, "lm_head_format", root);
    if (!problems.empty()) return problems;
    for (std::size_t i = 0; i < layers.size(); ++i)
        check_layer(layers[i], root.below(fmt::format("layers/{}", i)));
    for (std::size_t i = 0; i < mtp.size(); ++i) {
        const Checker at = root.below(fmt::format("mtp/{}", i));
        check_layer(mtp[i].layer, at.below("layer"));
        check_format(mtp[i].projection, "projection", at);
    }
    if (!problems.empty()) return problems;
    // Each shape is within its limit here, so that counting can't overflow unnoticed (it
    // saturates).
    const ParameterCount count = count_parameters(*this);
    if (count.total > kMaxParameters || count.mtp > kMaxParameters) {
        problems.push_back(
            {"", fmt::format("{:.3g} parameters are more than the {:.0g} that any model has",
                             static_cast<double>(std::max(count.total, count.mtp)),
                             static_cast<double>(kMaxParameters))});
    }
    return problems;
}

}  // namespace draftboard::model
