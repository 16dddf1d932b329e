// SPDX-License-Identifier: Apache-2.0
#include "model/import/hf_fields.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftboard::model {

int read_size(const JsonReader& text, std::string_view key) {
    return static_cast<int>(text.integer(key, 1, kMaxFeatures));
}

int read_size_or(const JsonReader& text, std::string_view key, int fallback) {
    return static_cast<int>(text.integer_or(key, fallback, 0, kMaxFeatures));
}

int read_layer_count(const JsonReader& text) {
    return static_cast<int>(text.integer("num_hidden_layers", 1, kMaxLayers));
}

GqaShape read_gqa(const JsonReader& text, int hidden) {
    GqaShape gqa;
    gqa.heads = read_size(text, "num_attention_heads");
    gqa.kv_heads =
        text.has("num_key_value_heads") ? read_size(text, "num_key_value_heads") : gqa.heads;
    if (gqa.heads % gqa.kv_heads != 0) {
        text.problem("num_key_value_heads",
                     fmt::format("{} heads can't be shared evenly by {} key/value heads", gqa.heads,
                                 gqa.kv_heads));
    }
    if (text.has("head_dim")) {
        gqa.head_dim = read_size(text, "head_dim");
    } else if (hidden % gqa.heads == 0) {
        gqa.head_dim = hidden / gqa.heads;
    } else {
        gqa.head_dim = 1;
        text.problem("num_attention_heads",
                     fmt::format("{} heads don't divide hidden_size {}, and there is no head_dim",
                                 gqa.heads, hidden));
    }
    if (text.has("rotary_dim")) {
        gqa.rotary_dim = read_size(text, "rotary_dim");
    } else {
        double share = 1.0;
        if (text.has("rope_parameters")) {
            share = text.at("rope_parameters").number_or("partial_rotary_factor", share, 0.0, 1.0);
        }
        share = text.number_or("partial_rotary_factor", share, 0.0, 1.0);
        gqa.rotary_dim = static_cast<int>(share * gqa.head_dim);
    }
    return gqa;
}

MlaShape read_mla(const JsonReader& text) {
    MlaShape mla;
    mla.heads = read_size(text, "num_attention_heads");
    mla.q_lora_rank = read_size_or(text, "q_lora_rank", 0);
    mla.kv_lora_rank = read_size(text, "kv_lora_rank");
    mla.qk_nope_head_dim = read_size(text, "qk_nope_head_dim");
    mla.qk_rope_head_dim = read_size(text, "qk_rope_head_dim");
    mla.v_head_dim = read_size(text, "v_head_dim");
    if (text.has("index_topk")) {
        mla.indexer =
            SparseIndexer{read_size(text, "index_n_heads"), read_size(text, "index_head_dim"),
                          read_size(text, "index_topk")};
    }
    return mla;
}

DeltaNetShape read_delta_net(const JsonReader& text) {
    DeltaNetShape net;
    net.key_heads = read_size(text, "linear_num_key_heads");
    net.value_heads = read_size(text, "linear_num_value_heads");
    net.key_head_dim = read_size(text, "linear_key_head_dim");
    net.value_head_dim = read_size(text, "linear_value_head_dim");
    net.conv_kernel = static_cast<int>(text.integer("linear_conv_kernel_dim", 1, 64));
    const std::string state = text.string_or("mamba_ssm_dtype", "float32");
    if (const auto format = number_format_from_name(state)) {
        net.state_format = *format;
    } else {
        text.problem("mamba_ssm_dtype", "expected float32, bfloat16 or float16");
    }
    return net;
}

std::vector<std::string> read_layer_types(const JsonReader& text, int layers,
                                          const std::vector<std::string>& allowed) {
    if (!text.has("layer_types")) return {};
    std::vector<std::string> types = text.strings_or("layer_types");
    if (types.size() != static_cast<std::size_t>(layers)) {
        text.problem("layer_types", fmt::format("{} entries for {} layers", types.size(), layers));
        return {};
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
        if (std::find(allowed.begin(), allowed.end(), types[i]) == allowed.end()) {
            text.problem("layer_types",
                         fmt::format("entry {} is none of {}", i, fmt::join(allowed, ", ")));
            return {};
        }
    }
    return types;
}

std::vector<bool> read_dense_only(const JsonReader& text, int layers) {
    std::vector<bool> dense(static_cast<std::size_t>(layers), false);
    for (const double index : text.numbers_or("mlp_only_layers", {}, 0, kMaxLayers)) {
        if (index < layers) dense[static_cast<std::size_t>(index)] = true;
    }
    return dense;
}

int read_mtp_count(const JsonReader& text, std::string_view key) {
    return static_cast<int>(text.integer_or(key, 0, 0, kMaxMtpModules));
}

void read_experts(const JsonReader& text, std::string_view experts_key, MoeFeedForward& moe) {
    moe.experts = static_cast<int>(text.integer(experts_key, 1, kMaxExperts));
    moe.experts_per_token =
        static_cast<int>(text.integer("num_experts_per_tok", 1, kMaxExperts));
    if (text.has(experts_key) && moe.experts_per_token > moe.experts) {
        text.problem("num_experts_per_tok", fmt::format("{} experts a token of {} experts",
                                                        moe.experts_per_token, moe.experts));
    }
}

RouterScoring read_scoring(const JsonReader& text, RouterScoring fallback) {
    if (!text.has("scoring_func")) return fallback;
    const std::string name = text.string_or("scoring_func", "");
    if (name == "softmax") return RouterScoring::softmax;
    if (name != "sigmoid") text.problem("scoring_func", "expected softmax or sigmoid");
    return RouterScoring::sigmoid;
}

}  // namespace draftboard::model
