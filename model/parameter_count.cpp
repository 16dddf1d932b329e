// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_count.h"

#include <array>
#include <limits>

namespace draftboard::model {

namespace {

// Saturating arithmetic: sound architectures stay far below 2^63 (see kMaxParameters), others must
// not be undefined behaviour.
std::int64_t times(std::int64_t a, std::int64_t b) {
    std::int64_t out = 0;
    return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<std::int64_t>::max() : out;
}

std::int64_t plus(std::int64_t a, std::int64_t b) {
    std::int64_t out = 0;
    return __builtin_add_overflow(a, b, &out) ? std::numeric_limits<std::int64_t>::max() : out;
}

std::vector<MixerMatrix> matrices(const MlaShape& mla, std::int64_t hidden) {
    const std::int64_t heads = mla.heads;
    const std::int64_t q_rows = heads * (std::int64_t{mla.qk_nope_head_dim} + mla.qk_rope_head_dim);
    const std::int64_t kv_rows = heads * (std::int64_t{mla.qk_nope_head_dim} + mla.v_head_dim);
    std::vector<MixerMatrix> out;
    if (mla.q_lora_rank > 0) {
        out.push_back({"q_a_proj", mla.q_lora_rank, hidden});
        out.push_back({"q_b_proj", q_rows, mla.q_lora_rank});
    } else {
        out.push_back({"q_proj", q_rows, hidden});
    }
    out.push_back(
        {"kv_a_proj_with_mqa", std::int64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim, hidden});
    out.push_back({"kv_b_proj", kv_rows, mla.kv_lora_rank});
    if (mla.indexer) {
        const SparseIndexer& indexer = *mla.indexer;
        out.push_back({"indexer.wq_b", std::int64_t{indexer.heads} * indexer.head_dim,
                       mla.q_lora_rank > 0 ? mla.q_lora_rank : hidden});
        out.push_back({"indexer.wk", indexer.head_dim, hidden});
        out.push_back({"indexer.weights_proj", indexer.heads, hidden});
    }
    out.push_back({"o_proj", hidden, heads * mla.v_head_dim});
    return out;
}

std::vector<MixerMatrix> matrices(const GqaShape& gqa, std::int64_t hidden) {
    const std::int64_t q_rows = std::int64_t{gqa.heads} * gqa.head_dim;
    const std::int64_t kv_rows = std::int64_t{gqa.kv_heads} * gqa.head_dim;
    return {{"q_proj", gqa.output_gate ? 2 * q_rows : q_rows, hidden, gqa.qkv_bias},
            {"k_proj", kv_rows, hidden, gqa.qkv_bias},
            {"v_proj", kv_rows, hidden, gqa.qkv_bias},
            {"o_proj", hidden, q_rows, gqa.output_bias}};
}

std::vector<MixerMatrix> matrices(const DeltaNetShape& net, std::int64_t hidden) {
    const std::int64_t keys = std::int64_t{net.key_heads} * net.key_head_dim;
    const std::int64_t values = std::int64_t{net.value_heads} * net.value_head_dim;
    if (net.fused_projections) {
        return {{"in_proj_qkvz", 2 * keys + 2 * values, hidden},
                {"in_proj_ba", 2 * std::int64_t{net.value_heads}, hidden},
                {"out_proj", hidden, values}};
    }
    return {{"in_proj_qkv", 2 * keys + values, hidden},
            {"in_proj_z", values, hidden},
            {"in_proj_b", net.value_heads, hidden},
            {"in_proj_a", net.value_heads, hidden},
            {"out_proj", hidden, values}};
}

std::int64_t vectors(const MlaShape& mla) {
    std::int64_t count = std::int64_t{mla.q_lora_rank} + mla.kv_lora_rank;  // q_a and kv_a norms
    if (mla.indexer)
        count += 2 * std::int64_t{mla.indexer->head_dim};  // k_norm: a LayerNorm, weight and bias
    return count;
}

std::int64_t vectors(const GqaShape& gqa) {
    std::int64_t count = gqa.sinks ? gqa.heads : 0;
    if (gqa.qk_norm == QkNorm::per_head) count += 2 * std::int64_t{gqa.head_dim};
    if (gqa.qk_norm == QkNorm::per_layer) {
        count += (std::int64_t{gqa.heads} + gqa.kv_heads) * gqa.head_dim;
    }
    return count;
}

std::int64_t vectors(const DeltaNetShape& net) {
    const std::int64_t channels = 2 * std::int64_t{net.key_heads} * net.key_head_dim +
                                  std::int64_t{net.value_heads} * net.value_head_dim;
    // Depthwise convolution over q, k, v; A_log and dt_bias a head; the gated norm over a head.
    return times(channels, net.conv_kernel) + 2 * std::int64_t{net.value_heads} +
           net.value_head_dim;
}

struct Amount {
    std::int64_t parameters = 0;
    double bytes = 0;

    void add_matrix(std::int64_t rows, std::int64_t columns, const WeightFormat& format) {
        parameters = plus(parameters, times(rows, columns));
        bytes += format.bytes(rows, columns);
    }
    void add_vector(std::int64_t size, NumberFormat format) {
        parameters = plus(parameters, size);
        bytes += static_cast<double>(size) * bits_per_element(format) / 8.0;
    }
    void add_scaled(const Amount& other, std::int64_t factor) {
        parameters = plus(parameters, times(other.parameters, factor));
        bytes += other.bytes * static_cast<double>(factor);
    }
};

Amount gated_mlp(std::int64_t hidden, std::int64_t intermediate, const WeightFormat& format) {
    Amount amount;
    amount.add_matrix(intermediate, hidden, format);  // gate
    amount.add_matrix(intermediate, hidden, format);  // up
    amount.add_matrix(hidden, intermediate, format);  // down
    return amount;
}

/// The parts of one layer, indexed like kPartNames.
enum Part {
    embedding,
    attention,
    dense_mlp,
    routed_experts,
    shared_experts,
    router,
    norms,
    lm_head
};
constexpr std::array<std::string_view, 8> kPartNames{
    "embedding",      "attention", "dense_mlp", "routed_experts",
    "shared_experts", "router",    "norms",     "lm_head"};

struct Tally {
    std::array<Amount, 8> stored;
    std::array<std::int64_t, 8> active{};

    void add(Part part, const Amount& amount) {
        stored[part].add_scaled(amount, 1);
        active[part] = plus(active[part], amount.parameters);
    }
};

void add_moe(const MoeFeedForward& moe, const LayerFormats& formats, std::int64_t hidden,
             NumberFormat vector_format, Tally& tally) {
    Amount expert = gated_mlp(hidden, moe.intermediate, formats.routed_experts);
    if (moe.biases) expert.add_vector(2 * std::int64_t{moe.intermediate} + hidden, vector_format);
    tally.stored[routed_experts].add_scaled(expert, moe.experts);
    tally.active[routed_experts] =
        plus(tally.active[routed_experts], times(expert.parameters, moe.experts_per_token));
    if (moe.shared_intermediate > 0) {
        tally.add(shared_experts,
                  gated_mlp(hidden, moe.shared_intermediate, formats.shared_expert));
    }
    Amount scores;
    scores.add_matrix(moe.experts, hidden, formats.router);
    if (moe.biases) scores.add_vector(moe.experts, vector_format);
    if (moe.correction_bias) scores.add_vector(moe.experts, NumberFormat::fp32);
    if (moe.shared_gate) scores.add_vector(hidden, vector_format);
    tally.add(router, scores);
}

void add_layer(const Layer& layer, std::int64_t hidden, NumberFormat vector_format, Tally& tally) {
    Amount mixer;
    for (const MixerMatrix& matrix : mixer_matrices(layer.mixer, static_cast<int>(hidden))) {
        mixer.add_matrix(matrix.rows, matrix.columns, layer.formats.mixer);
        if (matrix.bias) mixer.add_vector(matrix.rows, vector_format);
    }
    mixer.add_vector(mixer_vector_parameters(layer.mixer), vector_format);
    tally.add(attention, mixer);
    if (const auto* dense = std::get_if<DenseFeedForward>(&layer.feed_forward)) {
        tally.add(dense_mlp, gated_mlp(hidden, dense->intermediate, layer.formats.feed_forward));
    } else {
        add_moe(std::get<MoeFeedForward>(layer.feed_forward), layer.formats, hidden, vector_format,
                tally);
    }
    Amount layer_norms;
    layer_norms.add_vector(2 * hidden, vector_format);
    tally.add(norms, layer_norms);
}

}  // namespace

std::vector<MixerMatrix> mixer_matrices(const TokenMixer& mixer, int hidden) {
    return std::visit([hidden](const auto& shape) { return matrices(shape, hidden); }, mixer);
}

std::int64_t mixer_vector_parameters(const TokenMixer& mixer) {
    return std::visit([](const auto& shape) { return vectors(shape); }, mixer);
}

std::int64_t mixer_parameters(const TokenMixer& mixer, int hidden) {
    std::int64_t count = mixer_vector_parameters(mixer);
    for (const MixerMatrix& matrix : mixer_matrices(mixer, hidden)) {
        count = plus(count, times(matrix.rows, matrix.columns));
        if (matrix.bias) count = plus(count, matrix.rows);
    }
    return count;
}

const PartCount* ParameterCount::part(std::string_view name) const {
    for (const PartCount& candidate : parts) {
        if (candidate.name == name) return &candidate;
    }
    return nullptr;
}

ParameterCount count_parameters(const Architecture& architecture) {
    const std::int64_t hidden = architecture.hidden;
    const NumberFormat vector_format = architecture.activation_format;

    Tally tally;
    Amount table;
    table.add_matrix(architecture.vocabulary, hidden, architecture.embedding_format);
    tally.stored[embedding] = table;
    for (const Layer& layer : architecture.layers) add_layer(layer, hidden, vector_format, tally);
    Amount final_norm;
    final_norm.add_vector(hidden, vector_format);
    tally.add(norms, final_norm);
    if (architecture.tied_embeddings) {
        tally.active[embedding] = table.parameters;
    } else {
        Amount head;
        head.add_matrix(architecture.vocabulary, hidden, architecture.lm_head_format);
        tally.add(lm_head, head);
    }

    ParameterCount count;
    for (std::size_t i = 0; i < kPartNames.size(); ++i) {
        count.parts.push_back({std::string(kPartNames[i]), tally.stored[i].parameters,
                               tally.stored[i].bytes, tally.active[i]});
        count.total = plus(count.total, tally.stored[i].parameters);
        count.active = plus(count.active, tally.active[i]);
        count.bytes += tally.stored[i].bytes;
    }
    count.active_with_embedding =
        architecture.tied_embeddings ? count.active : plus(count.active, table.parameters);

    for (const MtpModule& module : architecture.mtp) {
        Tally own;
        add_layer(module.layer, hidden, vector_format, own);
        Amount rest;
        rest.add_matrix(hidden, 2 * hidden, module.projection);
        rest.add_vector(3 * hidden,
                        vector_format);  // norms of the embedding, the hidden state, the output
        if (module.own_embedding) {
            rest.add_matrix(architecture.vocabulary, hidden, architecture.embedding_format);
            rest.add_matrix(architecture.vocabulary, hidden, architecture.lm_head_format);
        }
        own.add(norms, rest);
        for (const Amount& amount : own.stored) {
            count.mtp = plus(count.mtp, amount.parameters);
            count.mtp_bytes += amount.bytes;
        }
    }
    return count;
}

CollectiveCount count_collectives(const Architecture& architecture) {
    return {static_cast<int>(2 * architecture.layers.size()), 1, 1};
}

}  // namespace draftboard::model
