// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of the rows of one sequence over its cache, with a tree mask. All rows see slots [0, context); row i also sees
// the slots of itself and its ancestors: slot context + u for uncommitted row u. The rows of the pass are the uncommitted rows
// first_row .. first_row + rows - 1; parents[u] < u is the parent of uncommitted row u (-1: none), for all u below
// first_row + rows; parents == nullptr is a chain.
//
//   p = softmax over visible slots s of  scale q . k_s,      out = sum_s p_s v_s       (online: blocks of slots, running maximum)
//
// Blocks are counted in what the row sees (attention_slots.h): its result has the same bits in a pass of any number of rows, in
// a chain or a tree, and whether its ancestors are committed or not.
//
//   gqa  cache: keys and values, slot after slot, kv_heads x dim each. Query head h reads kv head h / (heads / kv_heads).
//        bytes: 2 context kv_heads dim x 4, read once for each 32 pairs of row and query head of a kv head; flops: 4 rows heads dim context
//   mla  cache: latent + rope numbers a slot, shared by all heads; q of a head is (latent | rope), k the whole slot, v its latent.
//        bytes: context (latent + rope) x 4, once for each 32 pairs of row and head; flops: 2 rows heads context (2 latent + rope)

#include <cstdint>

#include "backend/cpu/matmul.h"

namespace draftboard::backend::cpu {

struct AttentionRows {
    int rows = 0;
    int first_row = 0;               ///< number of uncommitted rows before this pass
    std::int64_t context = 0;        ///< committed tokens
    const std::int32_t* parents = nullptr;
    const float* queries = nullptr;  ///< row i at queries + i * query_stride, heads x width
    std::int64_t query_stride = 0;
    float* output = nullptr;         ///< row i at output + i * output_stride
    std::int64_t output_stride = 0;
    int heads = 0;
    float scale = 1;
};

/// output: heads x dim a row. keys and values: `slot_stride` floats from slot to slot (kv_heads * dim, or more).
void attend_gqa(const AttentionRows& rows, int kv_heads, int dim, const float* keys, const float* values,
                std::int64_t slot_stride, Scratch& scratch);
/// queries: heads x (latent + rope); output: heads x latent.
void attend_mla(const AttentionRows& rows, int latent, int rope, const float* cache, Scratch& scratch);

}  // namespace draftboard::backend::cpu
