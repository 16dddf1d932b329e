// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight_builder.h"

#include <utility>

#include <fmt/format.h>

#include "model/sharding.h"

namespace draftboard::backend::cpu {

using model::Expected;
using model::WeightFormat;

namespace {

Range share_of(std::int64_t size, int ranks, int rank) { return {size / ranks * rank, size / ranks}; }

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

}  // namespace

WeightBuilder::WeightBuilder(TensorSource& source, const model::Architecture& architecture, const model::Layout& layout,
                             int rank, bool norm_plus_one)
    : source_(&source),
      architecture_(&architecture),
      layout_(layout),
      rank_(rank),
      attention_ranks_(model::attention_tensor(layout)),
      attention_rank_(rank % attention_ranks_),
      norm_plus_one_(norm_plus_one),
      names_(names_of(architecture.model_type)) {}

WeightBuilder::Names WeightBuilder::names_of(const std::string& model_type) {
    Names names;
    if (starts_with(model_type, "qwen")) names.shared = "mlp.shared_expert";
    if (model_type == "mixtral" || model_type == "minimax_m2") {
        names.mlp = "block_sparse_moe";
        names.gate = "w1";
        names.up = "w3";
        names.down = "w2";
        names.correction = "block_sparse_moe.e_score_correction_bias";
    }
    return names;
}

Range WeightBuilder::attention_share(std::int64_t size) const { return share_of(size, attention_ranks_, attention_rank_); }
Range WeightBuilder::tensor_share(std::int64_t size) const { return share_of(size, layout_.tensor, rank_); }

Expected<ModelWeights> WeightBuilder::take(ModelWeights weights) {
    if (error_) return tl::unexpected(std::move(*error_));
    return weights;
}

WeightMatrix WeightBuilder::matrix(const MatrixRequest& request) {
    if (error_) return {};
    auto found = source_->matrix(request);
    if (found) return std::move(*found);
    error_ = std::move(found.error());
    return {};
}

std::vector<float> WeightBuilder::vector(const VectorRequest& request) {
    if (error_) return {};
    auto found = source_->vector(request);
    if (found) return std::move(*found);
    error_ = std::move(found.error());
    return {};
}

WeightMatrix WeightBuilder::whole(const std::string& module, std::int64_t rows, std::int64_t columns,
                                  const WeightFormat& format, bool plain_too) {
    return rows_of(module, rows, columns, format, {}, plain_too);
}

WeightMatrix WeightBuilder::rows_of(const std::string& module, std::int64_t rows, std::int64_t columns,
                                    const WeightFormat& format, std::vector<Range> ranges, bool plain_too) {
    return matrix({module, rows, columns, format, std::move(ranges), std::nullopt, plain_too, std::nullopt});
}

WeightMatrix WeightBuilder::columns_of(const std::string& module, std::int64_t rows, std::int64_t columns,
                                       const WeightFormat& format, const Range& range) {
    return matrix({module, rows, columns, format, {}, range, false, std::nullopt});
}

std::vector<float> WeightBuilder::norm(const std::string& module, std::int64_t width) {
    std::vector<float> weight = vector({module + ".weight", {width}, VectorKind::norm, {}});
    if (norm_plus_one_) {
        for (float& value : weight) value += 1;
    }
    return weight;
}

std::shared_ptr<const WeightMatrix> WeightBuilder::embedding(const std::string& module, std::int64_t vocabulary,
                                                             const WeightFormat& format) {
    return std::make_shared<const WeightMatrix>(
        rows_of(module, vocabulary, architecture_->hidden, format, {attention_share(vocabulary)}));
}

std::shared_ptr<const WeightMatrix> WeightBuilder::lm_head(const std::string& module, std::int64_t vocabulary,
                                                           const WeightFormat& format) {
    return std::make_shared<const WeightMatrix>(
        rows_of(module, vocabulary, architecture_->hidden, format, {tensor_share(vocabulary)}));
}

ModelWeights WeightBuilder::model() {
    const model::Architecture& a = *architecture_;
    ModelWeights out;
    out.embedding = embedding("model.embed_tokens", a.vocabulary, a.embedding_format);
    for (std::size_t i = 0; i < a.layers.size() && !error_; ++i) {
        out.layers.push_back(layer(a.layers[i], fmt::format("model.layers.{}", i), a.hidden));
    }
    out.final_norm = norm("model.norm", a.hidden);
    if (!a.tied_embeddings) {
        out.lm_head = lm_head("lm_head", a.vocabulary, a.lm_head_format);
    } else if (attention_ranks_ == layout_.tensor) {
        out.lm_head = out.embedding;
    } else {
        out.lm_head = lm_head("model.embed_tokens", a.vocabulary, a.embedding_format);
    }
    return out;
}

LayerWeights WeightBuilder::layer(const model::Layer& layer, const std::string& prefix, std::int64_t mixer_input) {
    LayerWeights out;
    if (mixer_input == architecture_->hidden) out.mixer_norm = norm(prefix + ".input_layernorm", mixer_input);
    const WeightFormat& format = layer.formats.mixer;
    if (const auto* latent = std::get_if<model::MlaShape>(&layer.mixer)) {
        out.mixer = mla(*latent, format, prefix + ".self_attn", mixer_input);
    } else if (const auto* grouped = std::get_if<model::GqaShape>(&layer.mixer)) {
        out.mixer = gqa(*grouped, format, prefix + ".self_attn", mixer_input);
    } else {
        out.mixer = delta_net(std::get<model::DeltaNetShape>(layer.mixer), format, prefix + ".linear_attn");
    }
    out.feed_forward_norm = norm(prefix + ".post_attention_layernorm", architecture_->hidden);
    if (const auto* mixture = model::moe_of(layer)) {
        out.feed_forward = moe(*mixture, layer.formats, prefix);
    } else {
        const std::int64_t width = std::get<model::DenseFeedForward>(layer.feed_forward).intermediate;
        out.feed_forward = gated_mlp(prefix + ".mlp", width, tensor_share(width), layer.formats.feed_forward, std::nullopt);
    }
    return out;
}

MlaWeights WeightBuilder::mla(const model::MlaShape& shape, const WeightFormat& format, const std::string& prefix,
                              std::int64_t input) {
    const Range heads = attention_share(shape.heads);
    const auto of_heads = [&heads](std::int64_t width) { return Range{heads.begin * width, heads.count * width}; };
    const std::int64_t query = std::int64_t{shape.qk_nope_head_dim} + shape.qk_rope_head_dim;
    const std::int64_t key_value = std::int64_t{shape.qk_nope_head_dim} + shape.v_head_dim;
    MlaWeights out;
    if (shape.q_lora_rank > 0) {
        out.qkv_a.parts.push_back(whole(prefix + ".q_a_proj", shape.q_lora_rank, input, format));
        out.q_a_norm = norm(prefix + ".q_a_layernorm", shape.q_lora_rank);
        out.q_b.parts.push_back(
            rows_of(prefix + ".q_b_proj", shape.heads * query, shape.q_lora_rank, format, {of_heads(query)}));
    } else {
        out.qkv_a.parts.push_back(rows_of(prefix + ".q_proj", shape.heads * query, input, format, {of_heads(query)}));
    }
    out.qkv_a.parts.push_back(whole(prefix + ".kv_a_proj_with_mqa",
                                    std::int64_t{shape.kv_lora_rank} + shape.qk_rope_head_dim, input, format));
    out.kv_a_norm = norm(prefix + ".kv_a_layernorm", shape.kv_lora_rank);
    out.kv_b = rows_of(prefix + ".kv_b_proj", shape.heads * key_value, shape.kv_lora_rank, format, {of_heads(key_value)});
    out.o = columns_of(prefix + ".o_proj", architecture_->hidden, std::int64_t{shape.heads} * shape.v_head_dim, format,
                       of_heads(shape.v_head_dim));
    return out;
}

GqaWeights WeightBuilder::gqa(const model::GqaShape& shape, const WeightFormat& format, const std::string& prefix,
                              std::int64_t input) {
    const std::int64_t dim = shape.head_dim;
    const std::int64_t query = shape.output_gate ? 2 * dim : dim;
    const Range heads = attention_share(shape.heads);
    // Fewer KV heads than ranks: each is held by several.
    const std::int64_t kv_first = std::int64_t{shape.kv_heads} * attention_rank_ / attention_ranks_;
    const Range kv_heads{kv_first, model::kv_heads_per_rank(shape.kv_heads, attention_ranks_)};
    GqaWeights out;
    const auto project = [&](const char* name, std::int64_t all_heads, const Range& own, std::int64_t width) {
        const std::string module = prefix + "." + name;
        const Range rows{own.begin * width, own.count * width};
        out.qkv.parts.push_back(rows_of(module, all_heads * width, input, format, {rows}));
        if (!shape.qkv_bias) return;
        const auto bias = vector({module + ".bias", {all_heads * width}, VectorKind::bias, {rows}});
        out.qkv.bias.insert(out.qkv.bias.end(), bias.begin(), bias.end());
    };
    project("q_proj", shape.heads, heads, query);
    project("k_proj", shape.kv_heads, kv_heads, dim);
    project("v_proj", shape.kv_heads, kv_heads, dim);
    if (shape.qk_norm == model::QkNorm::per_head) {
        out.q_norm = norm(prefix + ".q_norm", dim);
        out.k_norm = norm(prefix + ".k_norm", dim);
    }
    out.o = columns_of(prefix + ".o_proj", architecture_->hidden, shape.heads * dim, format,
                       {heads.begin * dim, heads.count * dim});
    if (shape.output_bias) {
        out.o_bias = vector({prefix + ".o_proj.bias", {architecture_->hidden}, VectorKind::bias, {}});
        if (attention_rank_ != 0) out.o_bias.clear();  // the ranks' outputs are summed
    }
    return out;
}

Projection WeightBuilder::delta_net_projection(const model::DeltaNetShape& shape, const WeightFormat& format,
                                               const std::string& prefix) {
    const std::int64_t hidden = architecture_->hidden;
    const std::int64_t key = shape.key_head_dim;
    const std::int64_t value = shape.value_head_dim;
    const std::int64_t keys = shape.key_heads * key;
    const std::int64_t values = shape.value_heads * value;
    const Range key_heads = attention_share(shape.key_heads);
    const Range value_heads = attention_share(shape.value_heads);
    Projection out;
    if (!shape.fused_projections) {
        const Range own_keys{key_heads.begin * key, key_heads.count * key};
        const Range own_values{value_heads.begin * value, value_heads.count * value};
        out.parts.push_back(rows_of(prefix + ".in_proj_qkv", 2 * keys + values, hidden, format,
                                    {own_keys, {keys + own_keys.begin, own_keys.count},
                                     {2 * keys + own_values.begin, own_values.count}}));
        out.parts.push_back(rows_of(prefix + ".in_proj_z", values, hidden, format, {own_values}));
        out.parts.push_back(rows_of(prefix + ".in_proj_b", shape.value_heads, hidden, format, {value_heads}, true));
        out.parts.push_back(rows_of(prefix + ".in_proj_a", shape.value_heads, hidden, format, {value_heads}, true));
        return out;
    }
    // Qwen3-Next, key head after key head: q, k, then v and z of the n value heads that read it; b and a likewise.
    const std::int64_t n = shape.value_heads / shape.key_heads;
    const std::int64_t width = 2 * key + 2 * n * value;
    const auto of_each_head = [&key_heads](std::int64_t stride, std::int64_t offset, std::int64_t count) {
        std::vector<Range> ranges;
        for (std::int64_t h = key_heads.begin; h < key_heads.begin + key_heads.count; ++h) {
            ranges.push_back({h * stride + offset, count});
        }
        return ranges;
    };
    std::vector<Range> qkv;
    for (const auto& part : {of_each_head(width, 0, key), of_each_head(width, key, key), of_each_head(width, 2 * key, n * value)}) {
        qkv.insert(qkv.end(), part.begin(), part.end());
    }
    const std::string qkvz = prefix + ".in_proj_qkvz";
    const std::string ba = prefix + ".in_proj_ba";
    out.parts.push_back(rows_of(qkvz, shape.key_heads * width, hidden, format, std::move(qkv)));
    out.parts.push_back(rows_of(qkvz, shape.key_heads * width, hidden, format, of_each_head(width, 2 * key + n * value, n * value)));
    out.parts.push_back(rows_of(ba, 2 * std::int64_t{shape.value_heads}, hidden, format, of_each_head(2 * n, 0, n), true));
    out.parts.push_back(rows_of(ba, 2 * std::int64_t{shape.value_heads}, hidden, format, of_each_head(2 * n, n, n), true));
    return out;
}

DeltaNetWeights WeightBuilder::delta_net(const model::DeltaNetShape& shape, const WeightFormat& format,
                                         const std::string& prefix) {
    const std::int64_t keys = std::int64_t{shape.key_heads} * shape.key_head_dim;
    const std::int64_t values = std::int64_t{shape.value_heads} * shape.value_head_dim;
    const Range value_heads = attention_share(shape.value_heads);
    const Range own_keys = attention_share(keys);
    const Range own_values = attention_share(values);
    DeltaNetWeights out;
    out.in_proj = delta_net_projection(shape, format, prefix);
    out.conv = vector({prefix + ".conv1d.weight", {2 * keys + values, 1, shape.conv_kernel}, VectorKind::convolution,
                       {own_keys, {keys + own_keys.begin, own_keys.count}, {2 * keys + own_values.begin, own_values.count}}});
    out.a_log = vector({prefix + ".A_log", {shape.value_heads}, VectorKind::decay, {value_heads}});
    out.dt_bias = vector({prefix + ".dt_bias", {shape.value_heads}, VectorKind::time_bias, {value_heads}});
    out.norm = vector({prefix + ".norm.weight", {shape.value_head_dim}, VectorKind::norm, {}});  // never stored as w - 1
    out.out = columns_of(prefix + ".out_proj", architecture_->hidden, values, format, own_values);
    return out;
}

DenseWeights WeightBuilder::gated_mlp(const std::string& prefix, std::int64_t width, const Range& share,
                                      const WeightFormat& format, const std::optional<ExpertPart>& expert) {
    const std::int64_t hidden = architecture_->hidden;
    const auto part = [&](std::string_view name, ExpertPart::Role role) {
        MatrixRequest request;
        request.module = fmt::format("{}.{}", prefix, name);
        request.format = format;
        request.expert = expert;
        if (request.expert) request.expert->role = role;
        const bool down = role == ExpertPart::Role::down;
        request.rows = down ? hidden : width;
        request.columns = down ? width : hidden;
        if (down) request.column_range = share;
        else request.row_ranges = {share};
        return matrix(request);
    };
    DenseWeights out;
    out.gate_up.parts.push_back(part(expert ? names_.gate : "gate_proj", ExpertPart::Role::gate));
    out.gate_up.parts.push_back(part(expert ? names_.up : "up_proj", ExpertPart::Role::up));
    out.down = part(expert ? names_.down : "down_proj", ExpertPart::Role::down);
    return out;
}

MoeWeights WeightBuilder::moe(const model::MoeFeedForward& shape, const model::LayerFormats& formats,
                              const std::string& prefix) {
    const std::string mlp = fmt::format("{}.{}", prefix, names_.mlp);
    const std::int64_t hidden = architecture_->hidden;
    MoeWeights out;
    out.router = whole(mlp + ".gate", shape.experts, hidden, formats.router, true);
    if (shape.correction_bias) {
        out.correction_bias =
            vector({fmt::format("{}.{}", prefix, names_.correction), {shape.experts}, VectorKind::correction_bias, {}});
    }
    const bool spread = layout_.expert > 1;
    const int count = spread ? shape.experts / layout_.expert : shape.experts;
    out.first_expert = spread ? count * rank_ : 0;
    const Range width = spread ? Range{0, shape.intermediate} : tensor_share(shape.intermediate);
    const std::string experts = mlp + ".experts";
    out.experts.reserve(static_cast<std::size_t>(count));
    for (int e = out.first_expert; e < out.first_expert + count && !error_; ++e) {
        out.experts.push_back(gated_mlp(fmt::format("{}.{}", experts, e), shape.intermediate, width, formats.routed_experts,
                                        ExpertPart{experts, e, shape.experts, ExpertPart::Role::gate}));
    }
    if (shape.shared_intermediate > 0) {
        const std::string shared = fmt::format("{}.{}", prefix, names_.shared);
        const Range own = layout_.all_to_all ? Range{0, shape.shared_intermediate} : tensor_share(shape.shared_intermediate);
        out.shared = gated_mlp(shared, shape.shared_intermediate, own, formats.shared_expert, std::nullopt);
        if (shape.shared_gate) {
            out.shared_gate = vector({shared + "_gate.weight", {1, hidden}, VectorKind::gate, {}});
        }
    }
    return out;
}

}  // namespace draftboard::backend::cpu
