// SPDX-License-Identifier: Apache-2.0
#include "model/layout.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "model/architecture.h"
#include "model/sharding.h"

namespace draftboard::model {

namespace {

/// Collects problems, each (place, subject) once: 61 equal layers give one line.
class Checker {
   public:
    explicit Checker(std::vector<Problem>& problems) : problems_(&problems) {}

    void divides(const char* place, int layer, const char* what, std::int64_t size, int ranks) {
        if (ranks > 0 && size % ranks == 0) return;
        add(place, what, [&] {
            return fmt::format("{} {} of layer {} do not divide by {} ranks", size, what, layer, ranks);
        });
    }
    void keeps_blocks(const char* place, int layer, const char* what, std::int64_t shard,
                      std::int64_t block, const WeightFormat& format) {
        if (block <= 1 || shard % block == 0) return;
        add(place, what, [&] {
            return fmt::format("a shard of {} {} in layer {} cuts the {}-wide blocks of {}", shard, what,
                               layer, block, format.name());
        });
    }
    template <class Text>
    void add(const char* place, const char* subject, Text text) {
        if (seen_.emplace(place, subject).second) {
            problems_->push_back({std::string("/layout/") + place, text()});
        }
    }

   private:
    std::vector<Problem>* problems_;
    std::set<std::pair<std::string, std::string>> seen_;
};

void check_mla(Checker& check, const MlaShape& mla, const WeightFormat& format, int layer, int ranks) {
    check.divides("tensor", layer, "attention heads", mla.heads, ranks);
    if (ranks <= 1 || mla.heads % ranks != 0) return;
    const std::int64_t heads = mla.heads / ranks;
    check.keeps_blocks("tensor", layer, "q_b_proj rows",
                       heads * (std::int64_t{mla.qk_nope_head_dim} + mla.qk_rope_head_dim),
                       format.block_rows, format);
    check.keeps_blocks("tensor", layer, "kv_b_proj rows",
                       heads * (std::int64_t{mla.qk_nope_head_dim} + mla.v_head_dim),
                       format.block_rows, format);
    check.keeps_blocks("tensor", layer, "o_proj columns", heads * mla.v_head_dim, format.block_columns,
                       format);
}

void check_gqa(Checker& check, const GqaShape& gqa, const WeightFormat& format, int layer, int ranks,
               int decode_context) {
    check.divides("tensor", layer, "attention heads", gqa.heads, ranks);
    if (gqa.kv_heads >= ranks) {
        check.divides("tensor", layer, "KV heads", gqa.kv_heads, ranks);
    } else if (gqa.kv_heads > 0 && ranks % gqa.kv_heads != 0) {
        check.add("tensor", "kv replication", [&] {
            return fmt::format("{} KV heads of layer {} can't be replicated evenly over {} ranks",
                               gqa.kv_heads, layer, ranks);
        });
    }
    // The ranks that split a context must hold the same KV head (vLLM's rule for DCP with GQA).
    if (decode_context > 1 &&
        (gqa.kv_heads <= 0 || ranks % (std::int64_t{gqa.kv_heads} * decode_context) != 0)) {
        check.add("decode_context", "kv heads", [&] {
            return fmt::format(
                "{} ranks with {} KV heads (layer {}) leave no {} ranks that hold the same KV head", ranks,
                gqa.kv_heads, layer, decode_context);
        });
    }
    if (ranks <= 1 || gqa.heads % ranks != 0) return;
    const std::int64_t heads = gqa.heads / ranks;
    check.keeps_blocks("tensor", layer, "q_proj rows", heads * gqa.head_dim, format.block_rows, format);
    check.keeps_blocks("tensor", layer, "kv_proj rows",
                       kv_heads_per_rank(gqa.kv_heads, ranks) * gqa.head_dim, format.block_rows, format);
    check.keeps_blocks("tensor", layer, "o_proj columns", heads * gqa.head_dim, format.block_columns,
                       format);
}

void check_delta_net(Checker& check, const DeltaNetShape& net, const WeightFormat& format, int layer,
                     int ranks) {
    check.divides("tensor", layer, "delta-net key heads", net.key_heads, ranks);
    check.divides("tensor", layer, "delta-net value heads", net.value_heads, ranks);
    if (ranks <= 1) return;
    check.keeps_blocks("tensor", layer, "out_proj columns",
                       std::int64_t{net.value_heads} / ranks * net.value_head_dim, format.block_columns,
                       format);
}

void check_moe(Checker& check, const MoeFeedForward& moe, const LayerFormats& formats, int layer,
               const Layout& layout) {
    const WeightFormat& format = formats.routed_experts;
    if (layout.expert > 1) {
        check.divides("expert", layer, "experts", moe.experts, layout.expert);
    } else {
        check.divides("tensor", layer, "features of an expert", moe.intermediate, layout.tensor);
        if (layout.tensor > 1) {
            const auto width = expert_width_per_rank(moe, format, layout);
            check.keeps_blocks("tensor", layer, "expert features", width, format.block_columns, format);
            check.keeps_blocks("tensor", layer, "expert features", width, format.block_rows, format);
        }
    }
    const bool shared_is_sharded = moe.shared_intermediate > 0 && !layout.all_to_all;
    if (!shared_is_sharded) return;
    check.divides("tensor", layer, "shared-expert features", moe.shared_intermediate, layout.tensor);
    if (layout.tensor > 1) {
        const auto width = std::int64_t{moe.shared_intermediate} / layout.tensor;
        check.keeps_blocks("tensor", layer, "shared-expert features", width,
                           std::max(formats.shared_expert.block_columns, formats.shared_expert.block_rows),
                           formats.shared_expert);
    }
}

void check_layer(Checker& check, const Layer& layer, int index, const Layout& layout) {
    const int ranks = attention_tensor(layout);
    if (const auto* mla = std::get_if<MlaShape>(&layer.mixer)) {
        check_mla(check, *mla, layer.formats.mixer, index, ranks);
    } else if (const auto* gqa = std::get_if<GqaShape>(&layer.mixer)) {
        check_gqa(check, *gqa, layer.formats.mixer, index, ranks, layout.decode_context);
    } else if (const auto* net = std::get_if<DeltaNetShape>(&layer.mixer)) {
        check_delta_net(check, *net, layer.formats.mixer, index, ranks);
    }
    if (const auto* moe = moe_of(layer)) {
        check_moe(check, *moe, layer.formats, index, layout);
    } else if (const auto* dense = std::get_if<DenseFeedForward>(&layer.feed_forward)) {
        check.divides("tensor", index, "MLP features", dense->intermediate, layout.tensor);
        const WeightFormat& format = layer.formats.feed_forward;
        if (layout.tensor > 1 && dense->intermediate % layout.tensor == 0) {
            check.keeps_blocks("tensor", index, "MLP features",
                               std::int64_t{dense->intermediate} / layout.tensor,
                               std::max(format.block_columns, format.block_rows), format);
        }
    }
}

}  // namespace

std::vector<Problem> Layout::validate(const Architecture& architecture) const {
    std::vector<Problem> problems;
    const auto degree = [&](const char* key, int value) {
        if (value >= 1 && value <= kMaxParallelDegree) return;
        problems.push_back({std::string("/layout/") + key,
                            fmt::format("{} is outside 1 .. {}", value, kMaxParallelDegree)});
    };
    degree("tensor", tensor);
    degree("expert", expert);
    degree("pipeline", pipeline);
    degree("attention_data", attention_data);
    degree("decode_context", decode_context);
    degree("replicas", replicas);
    if (!problems.empty()) return problems;

    if (expert != 1 && expert != tensor) {
        problems.push_back({"/layout/expert",
                            fmt::format("{} is neither 1 nor the tensor degree {}", expert, tensor)});
    }
    if (all_to_all && expert == 1) {
        problems.push_back({"/layout/all_to_all", "an all-to-all backend needs expert parallelism"});
    }
    if (tensor % attention_data != 0) {
        problems.push_back({"/layout/attention_data",
                            fmt::format("{} does not divide the tensor degree {}", attention_data, tensor)});
        return problems;
    }
    if (attention_tensor(*this) % decode_context != 0) {
        problems.push_back({"/layout/decode_context",
                            fmt::format("{} does not divide the {} ranks that share an attention",
                                        decode_context, attention_tensor(*this))});
    }
    if (pipeline > static_cast<int>(std::min<std::size_t>(architecture.layers.size(), 1u << 20)) &&
        pipeline > 1) {
        problems.push_back({"/layout/pipeline", fmt::format("{} stages for {} layers", pipeline,
                                                            architecture.layers.size())});
    }
    if (architecture.vocabulary % tensor != 0) {
        problems.push_back({"/layout/tensor", fmt::format("the vocabulary of {} does not divide by {} ranks",
                                                          architecture.vocabulary, tensor)});
    }
    Checker check(problems);
    for (std::size_t i = 0; i < architecture.layers.size(); ++i) {
        check_layer(check, architecture.layers[i], static_cast<int>(i), *this);
    }
    return problems;
}

std::string Layout::name() const {
    std::string out = fmt::format("TP{}", tensor);
    if (expert > 1) out += fmt::format(" EP{}", expert);
    if (all_to_all) out += " all-to-all";
    if (attention_data > 1) out += fmt::format(" DP-attention{}", attention_data);
    if (decode_context > 1) out += fmt::format(" DCP{}", decode_context);
    if (pipeline > 1) out += fmt::format(" PP{}", pipeline);
    if (replicas > 1) out += fmt::format(" x{}", replicas);
    return out;
}

}  // namespace draftboard::model
