// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes operations: one embedding, one layer, one head at a time, already sharded. plan.cpp and plan_draft.cpp
// decide what to write and in which order; nothing else needs this header. Formulas of every role stand in
// docs/plan.md, the sharding in sharding.h.
//
// The group of a pass:  T ranks of tensor parallelism = D groups of DP attention x A ranks each.
// Tokens: `local` on one attention group, `all` over the D groups, `own` = local / A where an all-to-all
// backend deals the tokens of a group out to its ranks.

#include <cstdint>
#include <vector>

#include "model/plan.h"

namespace draftboard::model {

/// What a pass is about, apart from layers. Filled from a Step and a Layout.
struct PassShape {
    Pass pass = Pass::decode;
    int hidden = 0;
    NumberFormat activation_format = NumberFormat::bf16;
    NumberFormat kv_format = NumberFormat::bf16;
    Layout layout;
    int sequences = 1;        ///< of the whole TP group
    int tokens = 1;           ///< per sequence
    std::int64_t context = 0;
    const Routing* routing = nullptr;  ///< outlives the writer
    std::uint64_t seed = 1;
};

[[nodiscard]] PassShape pass_shape(const Architecture& architecture, const Layout& layout, const Step& step);

/// Problems that would make a plan meaningless: non-positive or huge sizes of steps, layers and layouts, a
/// trace of another model. `architecture` may be a drafter's.
[[nodiscard]] std::vector<Problem> plan_problems(const Architecture& architecture, const Layout& layout,
                                                 const Step& step);

class PlanWriter {
   public:
    PlanWriter(const PassShape& shape, std::vector<Operation>& operations);

    void embedding(std::int64_t vocabulary, const WeightFormat& format);
    /// `mixer_input`: width of the input of the first projection; hidden, or 2 hidden in EAGLE-3's first layer.
    void layer(const Layer& layer, int index, std::int64_t mixer_input);
    void pipeline_boundary(int layer);
    /// final.norm, lm_head over `rows_per_sequence` tokens of each sequence, logits.all_gather, and `last`.
    void head(std::int64_t vocabulary, const WeightFormat& format, int rows_per_sequence,
              std::string_view last_role, OperationKind last_kind);
    /// EAGLE-3's fusion of auxiliary features, MTP's fusion of embedding and hidden state.
    void fusion_norm(std::string_view role, std::int64_t width);
    void fusion(std::string_view role, std::int64_t input, const WeightFormat& format);
    /// Accepted delta-net snapshots become the state again; `layers` that hold one.
    void rollback(const Architecture& architecture);

   private:
    Operation& add(std::string_view role, OperationKind kind, std::int64_t m);
    Operation& gemm(std::string_view role, std::int64_t m, std::int64_t n, std::int64_t k,
                    const WeightFormat& format);
    Operation& norm(std::string_view role, std::int64_t m, std::int64_t width);
    Operation& elementwise(std::string_view role, std::int64_t m, std::int64_t n, double reads, double writes);
    void collective(std::string_view role, OperationKind kind, std::int64_t m, std::int64_t width, int group);

    void gather_own_tokens();
    void mixer_norm(std::int64_t mixer_input);
    void mla(const MlaShape& shape, const WeightFormat& format, std::int64_t input);
    void indexer(const SparseIndexer& shape, const MlaShape& mla, const WeightFormat& format);
    /// DCP: the parts of `heads` heads' outputs, each over a part of the context, become whole ones of a rank's heads.
    void merge_contexts(std::int64_t heads, std::int64_t width, int split);
    void gqa(const GqaShape& shape, const WeightFormat& format, std::int64_t input);
    void delta_net(const DeltaNetShape& shape, const WeightFormat& format, std::int64_t input);
    void dense(const DenseFeedForward& shape, const WeightFormat& format);
    void moe(const MoeFeedForward& shape, const LayerFormats& formats);
    void shared_expert(const MoeFeedForward& shape, const WeightFormat& format, std::int64_t m);
    [[nodiscard]] const DistinctExperts& distinct(const MoeFeedForward& shape);

    struct KnownDistinct {
        int experts = 0;
        int per_token = 0;
        DistinctExperts value;
    };

    PassShape shape_;
    std::vector<Operation>* operations_;
    int layer_ = -1;
    std::int64_t hidden_ = 0;
    int tensor_ = 1;           // T
    int attention_ranks_ = 1;  // A
    int groups_ = 1;           // D
    std::int64_t local_sequences_ = 1;
    std::int64_t local_ = 1;
    std::int64_t all_ = 1;
    std::int64_t own_ = 1;
    double element_ = 2;     // bytes of an activation
    double kv_element_ = 2;  // bytes of a cached number
    bool scattered_ = false;  // each rank holds its own tokens only, and the next reader must gather
    std::vector<KnownDistinct> known_distinct_;
};

}  // namespace draftboard::model
