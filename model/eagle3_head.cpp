// SPDX-License-Identifier: Apache-2.0
#include "model/eagle3_head.h"

#include <algorithm>

namespace draftboard::model {

namespace {

// SpecForge, configs/deepseek-v3-671b-eagle3.json: the reference Llama-style head.
constexpr int kReferenceHidden = 7168;
constexpr int kReferenceIntermediate = 40960;
constexpr int kHeadDim = 128;
constexpr int kKvHeads = 8;
constexpr int kAuxLayers = 3;
constexpr std::int64_t kDraftVocabulary = 32000;

const MlaShape* first_mla(const Architecture& target) {
    for (const Layer& layer : target.layers) {
        if (const auto* mla = std::get_if<MlaShape>(&layer.mixer)) return mla;
    }
    return nullptr;
}

int first_dense_intermediate(const Architecture& target) {
    for (const Layer& layer : target.layers) {
        if (const auto* dense = std::get_if<DenseFeedForward>(&layer.feed_forward)) return dense->intermediate;
    }
    return 0;
}

int scaled_intermediate(int hidden) {
    const auto wide = static_cast<std::int64_t>(hidden) * kReferenceIntermediate / kReferenceHidden;
    return static_cast<int>((wide + 1023) / 1024 * 1024);
}

Eagle3Head common(const Architecture& target) {
    Eagle3Head head;
    head.hidden = target.hidden;
    head.layers = 1;
    head.aux_layers = kAuxLayers;
    head.draft_vocabulary = std::min<std::int64_t>(kDraftVocabulary, target.vocabulary);
    head.format = WeightFormat::plain(NumberFormat::bf16);
    return head;
}

}  // namespace

Eagle3Head llama_style_eagle3_head(const Architecture& target) {
    Eagle3Head head = common(target);
    head.name = "llama_style";
    GqaShape gqa;
    gqa.head_dim = kHeadDim;
    gqa.rotary_dim = kHeadDim;
    gqa.heads = std::max(1, target.hidden / kHeadDim);
    gqa.kv_heads = kKvHeads;
    while (gqa.kv_heads > 1 && gqa.heads % gqa.kv_heads != 0) gqa.kv_heads /= 2;
    head.mixer = gqa;
    head.intermediate = scaled_intermediate(std::clamp(target.hidden, 1, 1 << 20));
    head.source = target.hidden == kReferenceHidden
                      ? "SpecForge configs/deepseek-v3-671b-eagle3.json"
                      : "assumed: the proportions of SpecForge configs/deepseek-v3-671b-eagle3.json";
    return head;
}

Eagle3Head mla_style_eagle3_head(const Architecture& target) {
    const MlaShape* mla = first_mla(target);
    if (mla == nullptr) return llama_style_eagle3_head(target);
    Eagle3Head head = common(target);
    head.name = "mla_style";
    MlaShape shape = *mla;
    shape.indexer.reset();
    head.mixer = shape;
    const int dense = first_dense_intermediate(target);
    head.intermediate = dense > 0 ? dense : scaled_intermediate(std::clamp(target.hidden, 1, 1 << 20));
    head.source =
        "assumed after lightseekorg/kimi-k2.x-eagle3-mla: MLA shapes and dense MLP width of the target; "
        "draft vocabulary as in SpecForge's deepseek-v3-671b-eagle3";
    return head;
}

Eagle3Head default_eagle3_head(const Architecture& target) {
    return first_mla(target) != nullptr ? mla_style_eagle3_head(target) : llama_style_eagle3_head(target);
}

}  // namespace draftboard::model
