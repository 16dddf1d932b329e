// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/weight_shares.h"

#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace draftboard::backend::cpu {

namespace {

using Cut = NamedMatrix::Cut;

void add_mlp(std::vector<NamedMatrix>& out, const std::string& name, const DenseWeights& mlp, int expert) {
    out.push_back({name + ".gate", &mlp.gate_up.parts.at(0), Cut::rows, {}, 0, expert});
    out.push_back({name + ".up", &mlp.gate_up.parts.at(1), Cut::rows, {}, 0, expert});
    out.push_back({name + ".down", &mlp.down, Cut::columns, {}, 0, expert});
}

void add_mixer(std::vector<NamedMatrix>& out, const std::string& name, const LayerWeights& layer, const model::Layer& shape) {
    if (const auto* mla = std::get_if<MlaWeights>(&layer.mixer)) {
        const bool latent_query = std::get<model::MlaShape>(shape.mixer).q_lora_rank > 0;
        out.push_back({name + ".q_a", &mla->qkv_a.parts.at(0), latent_query ? Cut::whole : Cut::rows});
        out.push_back({name + ".kv_a", &mla->qkv_a.parts.at(1), Cut::whole});
        if (latent_query) out.push_back({name + ".q_b", &mla->q_b.parts.at(0), Cut::rows});
        out.push_back({name + ".kv_b", &mla->kv_b, Cut::rows});
        out.push_back({name + ".o", &mla->o, Cut::columns});
    } else if (const auto* gqa = std::get_if<GqaWeights>(&layer.mixer)) {
        const int kv_heads = std::get<model::GqaShape>(shape.mixer).kv_heads;
        out.push_back({name + ".q", &gqa->qkv.parts.at(0), Cut::rows});
        out.push_back({name + ".k", &gqa->qkv.parts.at(1), Cut::rows, {}, kv_heads});
        out.push_back({name + ".v", &gqa->qkv.parts.at(2), Cut::rows, {}, kv_heads});
        out.push_back({name + ".o", &gqa->o, Cut::columns});
    } else {
        const auto& net = std::get<DeltaNetWeights>(layer.mixer);
        const auto& sizes = std::get<model::DeltaNetShape>(shape.mixer);
        const std::int64_t keys = std::int64_t{sizes.key_heads} * sizes.key_head_dim;
        const std::int64_t values = std::int64_t{sizes.value_heads} * sizes.value_head_dim;
        out.push_back({name + ".qkv", &net.in_proj.parts.at(0), Cut::rows, {keys, keys, values}});
        out.push_back({name + ".z", &net.in_proj.parts.at(1), Cut::rows});
        out.push_back({name + ".b", &net.in_proj.parts.at(2), Cut::rows});
        out.push_back({name + ".a", &net.in_proj.parts.at(3), Cut::rows});
        out.push_back({name + ".out", &net.out, Cut::columns});
    }
}

/// The numbers that rank r of `ranks` must hold of a whole.
std::vector<float> expected_share(const NamedMatrix& whole, const std::vector<float>& values, Cut cut, int ranks, int r) {
    const std::int64_t rows = whole.weights->rows;
    const std::int64_t columns = whole.weights->columns;
    std::vector<float> out;
    const auto take_rows = [&](std::int64_t first, std::int64_t count) {
        out.insert(out.end(), values.begin() + first * columns, values.begin() + (first + count) * columns);
    };
    if (cut == Cut::whole) return values;
    if (cut == Cut::columns) {
        const std::int64_t width = columns / ranks;
        for (std::int64_t i = 0; i < rows; ++i) {
            out.insert(out.end(), values.begin() + i * columns + r * width, values.begin() + i * columns + (r + 1) * width);
        }
        return out;
    }
    if (whole.heads > 0 && whole.heads < ranks) {
        const std::int64_t dim = rows / whole.heads;
        take_rows(r / (ranks / whole.heads) * dim, dim);
        return out;
    }
    std::int64_t start = 0;
    for (const std::int64_t segment : whole.segments.empty() ? std::vector<std::int64_t>{rows} : whole.segments) {
        take_rows(start + r * (segment / ranks), segment / ranks);
        start += segment;
    }
    return out;
}

void expect_vectors(const ModelWeights& whole, const ModelWeights& rank, int ranks, int r) {
    EXPECT_EQ(whole.final_norm, rank.final_norm);
    for (std::size_t i = 0; i < whole.layers.size(); ++i) {
        const LayerWeights& a = whole.layers[i];
        const LayerWeights& b = rank.layers[i];
        EXPECT_EQ(a.mixer_norm, b.mixer_norm);
        EXPECT_EQ(a.feed_forward_norm, b.feed_forward_norm);
        if (const auto* net = std::get_if<DeltaNetWeights>(&a.mixer)) {
            const auto& share = std::get<DeltaNetWeights>(b.mixer);
            const auto n = static_cast<std::ptrdiff_t>(net->a_log.size()) / ranks;
            EXPECT_EQ(std::vector<float>(net->a_log.begin() + r * n, net->a_log.begin() + (r + 1) * n), share.a_log);
            EXPECT_EQ(std::vector<float>(net->dt_bias.begin() + r * n, net->dt_bias.begin() + (r + 1) * n), share.dt_bias);
            EXPECT_EQ(net->norm, share.norm);
            EXPECT_EQ(net->conv.size(), share.conv.size() * static_cast<std::size_t>(ranks));
            // q's first channel of rank r is channel r x (own keys) of the whole.
            const auto own_keys = static_cast<std::size_t>(share.in_proj.parts[0].rows - share.in_proj.parts[1].rows) / 2;
            const std::size_t taps = net->conv.size() / static_cast<std::size_t>(net->in_proj.parts[0].rows);
            EXPECT_EQ(share.conv.front(), net->conv[static_cast<std::size_t>(r) * own_keys * taps]);
        }
        if (const auto* gqa = std::get_if<GqaWeights>(&a.mixer)) {
            const auto& share = std::get<GqaWeights>(b.mixer);
            EXPECT_EQ(gqa->q_norm, share.q_norm);
            EXPECT_EQ(gqa->k_norm, share.k_norm);
            EXPECT_EQ(share.o_bias.empty(), gqa->o_bias.empty() || r != 0);  // added once
            if (!gqa->qkv.bias.empty()) {
                EXPECT_EQ(share.qkv.bias.size(), static_cast<std::size_t>(share.qkv.rows()));
                EXPECT_EQ(share.qkv.bias.front(), gqa->qkv.bias[static_cast<std::size_t>(r * share.qkv.parts[0].rows)]);
            }
        }
        if (const auto* moe = std::get_if<MoeWeights>(&a.feed_forward)) {
            EXPECT_EQ(moe->correction_bias, std::get<MoeWeights>(b.feed_forward).correction_bias);
            EXPECT_EQ(moe->shared_gate, std::get<MoeWeights>(b.feed_forward).shared_gate);
        }
    }
}

}  // namespace

std::vector<float> dequantized(const WeightMatrix& matrix) {
    std::vector<float> out(static_cast<std::size_t>(matrix.rows * matrix.columns));
    for (std::int64_t r = 0; r < matrix.rows; ++r) matrix.dequantize_row(r, out.data() + r * matrix.columns);
    return out;
}

std::vector<NamedMatrix> matrices_of(const ModelWeights& weights, const model::Architecture& architecture) {
    std::vector<NamedMatrix> out;
    if (weights.fusion) {
        out.push_back({"fusion", &weights.fusion->projection, Cut::whole});
    } else {
        out.push_back({"embedding", weights.embedding.get(), Cut::rows});
    }
    if (weights.lm_head != weights.embedding) out.push_back({"lm_head", weights.lm_head.get(), Cut::rows});
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
        const LayerWeights& layer = weights.layers[i];
        const std::string name = fmt::format("L{}", i);
        add_mixer(out, name, layer, architecture.layers.at(i));
        if (const auto* dense = std::get_if<DenseWeights>(&layer.feed_forward)) {
            add_mlp(out, name, *dense, -1);
            continue;
        }
        const auto& moe = std::get<MoeWeights>(layer.feed_forward);
        out.push_back({name + ".router", &moe.router, Cut::whole});
        for (std::size_t e = 0; e < moe.experts.size(); ++e) {
            const int expert = moe.first_expert + static_cast<int>(e);
            add_mlp(out, fmt::format("{}.E{}", name, expert), moe.experts[e], expert);
        }
        if (moe.shared) add_mlp(out, name + ".shared", *moe.shared, -1);
    }
    return out;
}

void expect_stitched(const ModelWeights& whole, const std::vector<ModelWeights>& ranks, const model::Architecture& architecture,
                     const model::Layout& layout) {
    std::map<std::string, NamedMatrix> all;
    for (NamedMatrix& matrix : matrices_of(whole, architecture)) all[matrix.name] = std::move(matrix);
    std::map<std::string, int> seen;
    const int count = static_cast<int>(ranks.size());
    for (int r = 0; r < count; ++r) {
        const ModelWeights& rank = ranks[static_cast<std::size_t>(r)];
        expect_vectors(whole, rank, count, r);
        for (const NamedMatrix& share : matrices_of(rank, architecture)) {
            ++seen[share.name];
            ASSERT_TRUE(all.contains(share.name)) << share.name;
            const NamedMatrix& matrix = all[share.name];
            const bool whole_expert = matrix.expert >= 0 && layout.expert > 1;
            const auto expected = expected_share(matrix, dequantized(*matrix.weights), whole_expert ? Cut::whole : matrix.cut, count, r);
            EXPECT_EQ(expected, dequantized(*share.weights)) << share.name << " of rank " << r;
        }
    }
    for (const auto& [name, matrix] : all) {
        EXPECT_EQ(seen[name], matrix.expert >= 0 && layout.expert > 1 ? 1 : count) << name;
    }
}

}  // namespace draftboard::backend::cpu
