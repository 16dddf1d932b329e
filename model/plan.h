// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan: the list of operations, in program order, that one GPU of a layout executes for one forward
// pass. It has two readers: sim/ prices it, backend/ executes it and measures each operation under the
// same key. Nothing may be priced that is not executed, and the other way round.
//
// All bytes and flops are per GPU (the busiest rank where ranks differ). Two flops a multiply-add.
// Weight bytes are read once a pass; activation bytes are inputs read plus outputs written;
// cache bytes are the KV cache or recurrent state moved. The table of roles with the formula of each is in
// docs/plan.md; plan_layers.h writes layers, sharding.h splits tensors, memory.h counts what a plan needs.
//
// With pipeline stages the plan walks through all of them, in order, with pipeline.send_receive between:
// it is the path of one pass, and each GPU executes its stage's share of it.
// Worked example: attention.o_proj of Kimi-K2.5, bf16, TP8, 4 tokens: n = 7168, k = 64/8 * 128 = 1024,
// 14.7 MB of weights, 4 * (1024 + 7168) * 2 = 65.5 kB of activations, 2 * 4 * 7168 * 1024 = 58.7 Mflop.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/layout.h"
#include "model/routing.h"
#include "model/speculation.h"

namespace draftboard::model {

enum class OperationKind {
    embedding,     ///< table lookup
    gemm,          ///< m x k times (n x k)^T, weights read once
    batched_gemm,  ///< one small matrix a head (MLA absorption)
    norm,
    elementwise,   ///< activation, gate, residual add, rope + cache write
    attention,     ///< MLA or GQA over the cache; for verify with a (tree) mask
    indexer,       ///< sparse attention's scoring of the context
    delta_net,     ///< causal conv + gated delta rule, per-draft-position state
    router,        ///< scores -> top-k experts
    experts,       ///< grouped gate/up + activation + down over the touched experts
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    send_receive,  ///< pipeline stage boundary
    sample,        ///< argmax or sampling over gathered logits
    accept,        ///< comparison of draft and target, on the GPU
    copy,          ///< state or cache bookkeeping (rollback, KV move)
};
[[nodiscard]] std::string_view to_name(OperationKind kind);
[[nodiscard]] bool is_collective(OperationKind kind);

/// Which pass an operation belongs to; leads its key.
enum class Pass { decode, verify, draft_extend, draft, prefill };
[[nodiscard]] std::string_view to_name(Pass pass);

struct Operation {
    std::string_view role;  ///< static name: "attention.o_proj", "moe.experts", ... (table in docs/plan.md)
    OperationKind kind = OperationKind::gemm;
    int layer = -1;         ///< decoder layer, -1 outside of layers
    std::int64_t m = 0;     ///< rows: tokens in this operation
    std::int64_t n = 0;     ///< output features per GPU (heads for attention)
    std::int64_t k = 0;     ///< input features per GPU (context tokens for attention)
    /// batched_gemm: heads; experts: expected distinct experts, rounded; attention, indexer, delta_net:
    /// sequences on this rank
    std::int64_t batch = 1;
    double distinct_experts = 0;  ///< experts: on the busiest rank
    double expert_tokens = 0;     ///< experts: token-expert pairs on the busiest rank
    WeightFormat weight_format;
    double weight_bytes = 0;
    double activation_bytes = 0;
    double cache_bytes = 0;
    double flops = 0;
    std::int64_t message_bytes = 0;  ///< collectives: payload per rank (all_gather: contribution of one rank)
    int group = 1;                   ///< collectives: ranks taking part

    /// "verify/L03/attention.o_proj"; stable: calibration entries, bars and report rows carry it.
    [[nodiscard]] std::string key(Pass pass) const;
};

/// One forward pass of the target over `sequences` x `tokens` tokens.
struct Step {
    Pass pass = Pass::decode;
    int sequences = 1;            ///< the whole TP group's batch; DP attention holds 1/attention_data of it a rank
    int tokens = 1;               ///< per sequence: 1 in plain decoding, draft_tokens in verify
    std::int64_t context = 0;     ///< cached tokens per sequence before the step
    NumberFormat kv_format = NumberFormat::bf16;
    Routing routing;
    std::uint64_t seed = 1;
};

struct Plan {
    Pass pass = Pass::decode;
    std::vector<Operation> operations;

    [[nodiscard]] double weight_bytes() const;
    [[nodiscard]] double flops() const;
    [[nodiscard]] int count(OperationKind kind) const;
};

/// Tokens of one pass, sequences x tokens: beyond it a Step is refused.
inline constexpr std::int64_t kMaxPassTokens = std::int64_t{1} << 24;

/// The target's forward pass. Errors: layout does not fit the architecture, non-positive sizes.
/// With TP > 1 a decoder layer ends its mixer and its feed-forward in one all-reduce each; the embedding
/// is one more and the logits one all-gather. TP = 1 has none.
[[nodiscard]] Expected<Plan> plan_forward(const Architecture& architecture, const Layout& layout,
                                          const Step& step);

/// One call of the drafter. Pass::draft_extend: the first call of a cycle, over the tokens accepted in
/// the last one (EAGLE-3 also runs fc over the auxiliary features); Pass::draft: each further step over
/// `top_k` tokens a sequence. MTP applies its module, a draft model its whole forward; n-gram none (empty).
/// step.tokens is what the caller wants per sequence. draft_extend computes logits for the last token only.
[[nodiscard]] Expected<Plan> plan_draft(const Architecture& target, const Speculation& speculation,
                                        const Layout& layout, const Step& step);

/// The layout a drafter runs in: the target's group without pipeline and DCP, or draft_tensor ranks of it
/// (then without expert parallelism and DP attention, as the engines run small drafters).
[[nodiscard]] Layout drafter_layout(const Layout& layout, const Speculation& speculation);

/// The drafter's layers as an architecture of its own: the MTP modules, the EAGLE-3 head's layers (their first
/// attention still to be widened to 2 hidden), the draft model itself. Empty layers: n-gram or none.
/// Precondition: speculation.validate(target) is empty.
[[nodiscard]] Architecture drafter_architecture(const Architecture& target, const Speculation& speculation);

/// All passes of one speculative cycle, and the plain decoding step it is compared with.
struct CyclePlan {
    Plan plain;
    Plan verify;        ///< empty operations if method none
    Plan draft_extend;  ///< over steps + 1 tokens a sequence: the width that engines capture and pad to
    Plan draft;         ///< one of draft_steps equal passes, over top_k tokens a sequence
    int draft_steps = 0;  ///< calls of `draft` after draft_extend: steps - 1 for eagle3/mtp
};
[[nodiscard]] Expected<CyclePlan> plan_cycle(const Architecture& target, const Layout& layout,
                                             const Speculation& speculation, int sequences,
                                             std::int64_t context, NumberFormat kv_format,
                                             const Routing& routing, std::uint64_t seed);

}  // namespace draftboard::model
