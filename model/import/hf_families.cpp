// SPDX-License-Identifier: Apache-2.0
#include "model/import/hf_families.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "model/import/hf_fields.h"

namespace draftboard::model {

namespace {

const std::vector<std::string> kHybridTypes{"linear_attention", "full_attention"};
const std::vector<std::string> kSlidingTypes{"sliding_attention", "full_attention"};

// ---- deepseek_v2/v3/v32, kimi_k2, kimi_k25, glm_moe_dsa: latent attention, dense first layers,
// shared experts

MoeFeedForward deepseek_moe(const JsonReader& text, RouterScoring scoring, bool correction) {
    MoeFeedForward moe;
    read_experts(text, "n_routed_experts", moe);
    moe.intermediate = read_size(text, "moe_intermediate_size");
    const auto shared = text.integer_or("n_shared_experts", 0, 0, 64);
    moe.shared_intermediate = static_cast<int>(shared * moe.intermediate);
    moe.scoring = read_scoring(text, scoring);
    moe.correction_bias =
        text.has("topk_method") ? text.string_or("topk_method", "") == "noaux_tc" : correction;
    moe.groups = static_cast<int>(text.integer_or("n_group", 1, 1, kMaxExperts));
    moe.top_groups = static_cast<int>(text.integer_or("topk_group", 1, 1, kMaxExperts));
    return moe;
}

/// Dense below first_k_dense_replace and off the moe_layer_freq grid; MTP modules are MoE layers.
void deepseek_layers(const FamilyReading& in, const TokenMixer& mixer, const MoeFeedForward& moe) {
    const int layers = read_layer_count(in.text);
    const int dense_first =
        static_cast<int>(in.text.integer_or("first_k_dense_replace", 0, 0, kMaxLayers));
    const int every =
        static_cast<int>(in.text.integer_or("moe_layer_freq", 1, 1, kMaxLayers));
    const bool any_dense = dense_first > 0 || every > 1;
    const DenseFeedForward dense{any_dense ? read_size(in.text, "intermediate_size") : 1};
    for (int i = 0; i < layers; ++i) {
        Layer layer{mixer, moe, {}};
        if (i < dense_first || i % every != 0) layer.feed_forward = dense;
        in.architecture.layers.push_back(std::move(layer));
    }
    for (int i = read_mtp_count(in.text, "num_nextn_predict_layers"); i > 0; --i) {
        in.architecture.mtp.push_back(MtpModule{Layer{mixer, moe, {}}, false, {}});
    }
}

void read_deepseek(const FamilyReading& in) {
    deepseek_layers(in, read_mla(in.text), deepseek_moe(in.text, RouterScoring::sigmoid, true));
}

void read_deepseek_v2(const FamilyReading& in) {
    deepseek_layers(in, read_mla(in.text), deepseek_moe(in.text, RouterScoring::softmax, false));
}

void read_glm4_moe(const FamilyReading& in) {
    GqaShape gqa = read_gqa(in.text, in.architecture.hidden);
    gqa.qkv_bias = in.text.boolean_or("attention_bias", false);
    gqa.qk_norm = in.text.boolean_or("use_qk_norm", false) ? QkNorm::per_head : QkNorm::none;
    deepseek_layers(in, gqa, deepseek_moe(in.text, RouterScoring::sigmoid, true));
}

// ---- qwen3_moe, qwen3_next, qwen3_5_moe: softmax routing, per-head norms

MoeFeedForward qwen_moe(const JsonReader& text) {
    MoeFeedForward moe;
    read_experts(text, "num_experts", moe);
    moe.intermediate = read_size(text, "moe_intermediate_size");
    moe.shared_intermediate = read_size_or(text, "shared_expert_intermediate_size", 0);
    moe.shared_gate = moe.shared_intermediate > 0;
    return moe;
}

GqaShape qwen_attention(const JsonReader& text, int hidden) {
    GqaShape gqa = read_gqa(text, hidden);
    gqa.qk_norm = QkNorm::per_head;
    gqa.qkv_bias = gqa.output_bias = text.boolean_or("attention_bias", false);
    return gqa;
}

/// Window of layer i under use_sliding_window / max_window_layers; 0: full attention.
int qwen_window(const JsonReader& text, int layer) {
    if (!text.boolean_or("use_sliding_window", false)) return 0;
    const auto full_below = text.integer_or("max_window_layers", 0, 0, kMaxFeatures);
    return layer >= full_below ? read_size_or(text, "sliding_window", 0) : 0;
}

FeedForward qwen_feed_forward(const JsonReader& text, const MoeFeedForward& moe, bool dense_only,
                              int layer) {
    const auto step = text.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
    if (dense_only || (layer + 1) % step != 0)
        return DenseFeedForward{read_size(text, "intermediate_size")};
    return moe;
}

void read_qwen3_moe(const FamilyReading& in) {
    in.naming.router_class = ModuleClass::router_linear;
    const int layers = read_layer_count(in.text);
    const MoeFeedForward moe = qwen_moe(in.text);
    const GqaShape base = qwen_attention(in.text, in.architecture.hidden);
    const auto dense_only = read_dense_only(in.text, layers);
    for (int i = 0; i < layers; ++i) {
        GqaShape gqa = base;
        gqa.sliding_window = qwen_window(in.text, i);
        in.architecture.layers.push_back(Layer{
            gqa, qwen_feed_forward(in.text, moe, dense_only[static_cast<std::size_t>(i)], i), {}});
    }
}

/// Three delta-net layers, one of full attention (full_attention_interval), unless layer_types says
/// otherwise.
void hybrid_layers(const FamilyReading& in, bool fused, const std::optional<MoeFeedForward>& moe,
                   int mtp) {
    in.naming.shared = "shared_expert";
    in.naming.mtp_layers = "mtp.layers";
    const JsonReader& text = in.text;
    const int layers = read_layer_count(text);
    const auto types = read_layer_types(text, layers, kHybridTypes);
    const int interval =
        static_cast<int>(text.integer_or("full_attention_interval", 4, 1, kMaxLayers));
    DeltaNetShape net = read_delta_net(text);
    net.fused_projections = fused;
    GqaShape gqa = qwen_attention(text, in.architecture.hidden);
    gqa.output_gate = text.boolean_or("attn_output_gate", true);
    const auto dense_only = read_dense_only(text, layers);
    const auto feed_forward = [&](int layer, bool dense) -> FeedForward {
        if (moe) return qwen_feed_forward(text, *moe, dense, layer);
        return DenseFeedForward{read_size(text, "intermediate_size")};
    };
    for (int i = 0; i < layers; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool full = types.empty() ? (i + 1) % interval == 0 : types[at] == "full_attention";
        Layer layer{gqa, feed_forward(i, dense_only[at]), {}};
        if (!full) layer.mixer = net;
        in.architecture.layers.push_back(std::move(layer));
    }
    for (int i = 0; i < mtp; ++i) {
        MtpModule module{
            Layer{gqa, moe ? FeedForward{*moe} : feed_forward(0, true), {}}, false, {}};
        module.own_embedding = text.boolean_or("mtp_use_dedicated_embeddings", false);
        in.architecture.mtp.push_back(std::move(module));
    }
}

void read_qwen3_5_moe(const FamilyReading& in) {
    hybrid_layers(in, false, qwen_moe(in.text), read_mtp_count(in.text, "mtp_num_hidden_layers"));
}

void read_qwen3_5(const FamilyReading& in) {
    hybrid_layers(in, false, std::nullopt, read_mtp_count(in.text, "mtp_num_hidden_layers"));
}

void read_qwen3_next(const FamilyReading& in) {
    in.naming.router_class = ModuleClass::router_linear;
    int mtp = read_mtp_count(in.text, "num_nextn_predict_layers");
    if (!in.text.has("num_nextn_predict_layers")) {
        mtp = 1;  // the published Qwen3-Next checkpoints hold "mtp.*" weights of one layer
        in.architecture.notes.emplace_back(
            "MTP: the config does not say; one module assumed, as in the published checkpoints");
    }
    hybrid_layers(in, true, qwen_moe(in.text), mtp);
}

// ---- minimax_m2, mixtral: block_sparse_moe with w1/w2/w3

MoeFeedForward local_experts(const JsonReader& text) {
    MoeFeedForward moe;
    read_experts(text, "num_local_experts", moe);
    moe.intermediate = read_size(text, "intermediate_size");
    return moe;
}

void name_block_sparse_moe(ModuleNaming& naming) {
    naming.mlp = "block_sparse_moe";
    naming.expert = {"experts.0.w1", "experts.0.w3", "experts.0.w2"};
    naming.router_class = ModuleClass::router_linear;
}

void read_minimax_m2(const FamilyReading& in) {
    name_block_sparse_moe(in.naming);
    GqaShape gqa = read_gqa(in.text, in.architecture.hidden);
    if (in.text.boolean_or("use_qk_norm", false)) {
        const std::string type = in.text.string_or("qk_norm_type", "per_layer");
        if (type != "per_layer" && type != "per_head")
            in.text.problem("qk_norm_type", "expected per_layer or per_head");
        gqa.qk_norm = type == "per_head" ? QkNorm::per_head : QkNorm::per_layer;
    }
    MoeFeedForward moe = local_experts(in.text);
    moe.shared_intermediate = read_size_or(in.text, "shared_intermediate_size", 0);
    moe.scoring = read_scoring(in.text, RouterScoring::sigmoid);
    moe.correction_bias = in.text.boolean_or("use_routing_bias", true);
    const int layers = read_layer_count(in.text);
    in.architecture.layers.assign(static_cast<std::size_t>(layers), Layer{gqa, moe, {}});
    if (in.text.boolean_or("use_mtp", false)) {
        in.architecture.notes.emplace_back(
            "MTP: the config declares modules, but no usable MTP weights are published; none "
            "assumed");
    }
}

void read_mixtral(const FamilyReading& in) {
    name_block_sparse_moe(in.naming);
    GqaShape gqa = read_gqa(in.text, in.architecture.hidden);
    gqa.sliding_window = read_size_or(in.text, "sliding_window", 0);
    in.architecture.layers.assign(static_cast<std::size_t>(read_layer_count(in.text)),
                                  Layer{gqa, local_experts(in.text), {}});
}

void read_gpt_oss(const FamilyReading& in) {
    in.naming.router = "router";
    in.naming.router_class = ModuleClass::router_linear;
    in.naming.expert = {"experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj"};
    GqaShape gqa = read_gqa(in.text, in.architecture.hidden);
    gqa.qkv_bias = gqa.output_bias = in.text.boolean_or("attention_bias", true);
    gqa.sinks = true;
    MoeFeedForward moe = local_experts(in.text);
    moe.biases = true;
    const int layers = read_layer_count(in.text);
    const auto types = read_layer_types(in.text, layers, kSlidingTypes);
    const int window = read_size_or(in.text, "sliding_window", 128);
    for (int i = 0; i < layers; ++i) {
        const bool full =
            types.empty() ? i % 2 == 1 : types[static_cast<std::size_t>(i)] == "full_attention";
        gqa.sliding_window = full ? 0 : window;
        in.architecture.layers.push_back(Layer{gqa, moe, {}});
    }
}

// ---- dense: llama, mistral, qwen2, qwen3

void dense_layers(const FamilyReading& in, GqaShape gqa, int (*window)(const JsonReader&, int)) {
    const DenseFeedForward dense{read_size(in.text, "intermediate_size")};
    if (in.text.boolean_or("mlp_bias", false)) {
        in.architecture.notes.emplace_back(
            "biases of the MLP are left out (a few thousand parameters a layer)");
    }
    const int layers = read_layer_count(in.text);
    for (int i = 0; i < layers; ++i) {
        gqa.sliding_window = window(in.text, i);
        in.architecture.layers.push_back(Layer{gqa, dense, {}});
    }
}

int no_window(const JsonReader&, int) { return 0; }
int same_window(const JsonReader& text, int) { return read_size_or(text, "sliding_window", 0); }

void read_llama(const FamilyReading& in) {
    GqaShape gqa = read_gqa(in.text, in.architecture.hidden);
    gqa.qkv_bias = gqa.output_bias = in.text.boolean_or("attention_bias", false);
    dense_layers(in, gqa, no_window);
}

void read_mistral(const FamilyReading& in) {
    dense_layers(in, read_gqa(in.text, in.architecture.hidden), same_window);
}

void read_qwen2(const FamilyReading& in) {
    GqaShape gqa = read_gqa(in.text, in.architecture.hidden);
    gqa.qkv_bias = true;
    dense_layers(in, gqa, qwen_window);
}

void read_qwen3(const FamilyReading& in) {
    dense_layers(in, qwen_attention(in.text, in.architecture.hidden), qwen_window);
}

/// "_text": the inner model_type of multimodal wrappers.
constexpr std::array<std::pair<std::string_view, FamilyFunction>, 20> kFamilies{{
    {"deepseek_v2", read_deepseek_v2},
    {"deepseek_v3", read_deepseek},
    {"deepseek_v32", read_deepseek},
    {"glm4_moe", read_glm4_moe},
    {"glm_moe_dsa", read_deepseek},
    {"gpt_oss", read_gpt_oss},
    {"kimi_k2", read_deepseek},
    {"kimi_k25", read_deepseek},
    {"llama", read_llama},
    {"minimax_m2", read_minimax_m2},
    {"mistral", read_mistral},
    {"mixtral", read_mixtral},
    {"qwen2", read_qwen2},
    {"qwen3", read_qwen3},
    {"qwen3_5", read_qwen3_5},
    {"qwen3_5_moe", read_qwen3_5_moe},
    {"qwen3_5_moe_text", read_qwen3_5_moe},
    {"qwen3_5_text", read_qwen3_5},
    {"qwen3_moe", read_qwen3_moe},
    {"qwen3_next", read_qwen3_next},
}};

}  // namespace

FamilyFunction find_family(std::string_view model_type) {
    for (const auto& family : kFamilies) {
        if (family.first == model_type) return family.second;
    }
    return nullptr;
}

std::string supported_model_types() {
    std::string out;
    for (const auto& family : kFamilies)
        out += (out.empty() ? "" : ", ") + std::string(family.first);
    return out;
}

}  // namespace draftboard::model
