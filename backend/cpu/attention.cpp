// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/attention.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/attention_slots.h"
#include "backend/cpu/vector_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

/// Positions a block: 64 keys of 128 floats are 32 KiB. Blocks begin at multiples of it.
constexpr std::int64_t kBlock = 64;
/// Pairs of (row, head) that pass over the cache together; their sums (32 x 512 floats for MLA) stay in L2.
constexpr std::int64_t kPairs = 32;
/// Pairs whose products are computed side by side.
constexpr std::int64_t kTile = 4;

/// One row and head of the pass, and the state of its softmax.
struct Pair {
    int row = 0;
    std::int64_t visible = 0;
    const std::int32_t* list = nullptr;
    float maximum = 0;
    float sum = 0;
};

/// scores[0, count) become p = exp(scale score - maximum), 0 up to kBlock. Returns the factor on earlier sums.
HWY_INLINE float soften(Pair& pair, float* scores, std::int64_t count, float scale, bool first) {
    const Floats d;
    const V factor = hn::Set(d, scale);
    for (std::int64_t s = 0; s < kBlock; s += static_cast<std::int64_t>(N)) {
        hn::Store(hn::Mul(hn::Load(d, scores + s), factor), d, scores + s);
    }
    std::fill(scores + count, scores + kBlock, -std::numeric_limits<float>::infinity());
    V most = hn::Load(d, scores);
    for (std::int64_t s = 0; s < kBlock; s += static_cast<std::int64_t>(N)) most = hn::Max(most, hn::Load(d, scores + s));
    const float of_block = hn::GetLane(hn::MaxOfLanes(d, most));
    const float maximum = first ? of_block : std::max(pair.maximum, of_block);
    const V shift = hn::Set(d, maximum);
    V sum = hn::Zero(d);
    for (std::int64_t s = 0; s < kBlock; s += static_cast<std::int64_t>(N)) {
        const V p = exponential(hn::Sub(hn::Load(d, scores + s), shift));
        hn::Store(p, d, scores + s);
        sum = hn::Add(sum, p);
    }
    const float correction = first ? 0.0F : hn::GetLane(exponential(hn::Set(d, pair.maximum - maximum)));
    pair.sum = pair.sum * correction + sum_lanes(sum);
    pair.maximum = maximum;
    return correction;
}

HWY_INLINE void scale_row(float* y, std::size_t width, float factor) {
    const Floats d;
    const V f = hn::Set(d, factor);
    std::size_t c = 0;
    for (; c + N <= width; c += N) hn::StoreU(hn::Mul(hn::LoadU(d, y + c), f), d, y + c);
    for (; c < width; ++c) y[c] *= factor;
}

/// M pairs over one block of positions: scores, softmax, sums. `counts` are the positions that each pair sees here.
template <int M>
void attend_tile(Pair* pairs, const std::int64_t* counts, const KeyValueStream& stream, const float* const* keys, const float* const* values,
                 const float* queries, float* scores, float* sums, float scale, bool first) {
    const std::int64_t most = *std::max_element(counts, counts + M);
    const std::int64_t least = std::max<std::int64_t>(*std::min_element(counts, counts + M), 0);
    const auto query_stride = static_cast<std::ptrdiff_t>(stream.key_width);
    const auto sum_stride = static_cast<std::ptrdiff_t>(stream.value_width);
    for (std::int64_t s = 0; s < most; s += 4) {
        const float* key[4];
        for (std::int64_t t = 0; t < 4; ++t) key[t] = keys[std::min(s + t, most - 1)];
        dot_tile<M, 4>(queries, query_stride, key, stream.key_width, scores + s, kBlock, static_cast<int>(std::min<std::int64_t>(4, most - s)));
    }
    for (std::int64_t i = 0; i < M; ++i) {
        if (counts[i] <= 0) continue;
        const float correction = soften(pairs[i], scores + i * kBlock, counts[i], scale, first);
        float* sum = sums + i * sum_stride;
        if (first) {
            std::fill_n(sum, stream.value_width, 0.0F);
        } else if (correction != 1.0F) {
            scale_row(sum, stream.value_width, correction);
        }
    }
    update_rows<M>(scores, kBlock, values, static_cast<std::size_t>(least), stream.value_width, sums, sum_stride);
    for (std::int64_t i = 0; i < M; ++i) {
        if (counts[i] <= least) continue;
        update_rows<1>(scores + i * kBlock + least, kBlock, values + least, static_cast<std::size_t>(counts[i] - least),
                       stream.value_width, sums + i * sum_stride, sum_stride);
    }
}

/// `count` <= kPairs pairs over all positions they see.
void attend_pairs(Pair* pairs, std::int64_t count, const AttentionSlots& slots, std::int64_t context, const KeyValueStream& stream,
                  const float* queries, float* scores, float* sums, float scale) {
    std::int64_t visible = 0;
    for (std::int64_t i = 0; i < count; ++i) visible = std::max(visible, pairs[i].visible);
    const float* keys[kBlock];
    const float* values[kBlock];
    for (std::int64_t base = 0; base < visible; base += kBlock) {
        const bool committed = base + kBlock <= context;  // every pair sees the same slots
        const std::int32_t* list = nullptr;
        bool filled = false;
        for (std::int64_t i = 0; i < count;) {
            std::int64_t tile = 1;
            while (tile < kTile && i + tile < count && (committed || pairs[i + tile].list == pairs[i].list)) ++tile;
            std::int64_t counts[kTile] = {};
            std::int64_t most = 0;
            for (std::int64_t t = 0; t < tile; ++t) {
                counts[t] = std::clamp<std::int64_t>(pairs[i + t].visible - base, 0, kBlock);
                most = std::max(most, counts[t]);
            }
            if (most > 0) {
                if (!filled || (!committed && (pairs[i].list != list || list != nullptr))) {
                    // A chain's positions are filled for the longest row of all, a tree row's for itself.
                    list = pairs[i].list;
                    filled = true;
                    const std::int64_t limit = list == nullptr || committed ? std::min(visible - base, kBlock) : most;
                    for (std::int64_t s = 0; s < limit; ++s) {
                        const std::int64_t slot = slots.slot(committed ? nullptr : list, base + s);
                        keys[s] = stream.keys + slot * stream.stride;
                        values[s] = stream.values + slot * stream.stride;
                    }
                }
                const auto run = tile == 4 ? attend_tile<4> : tile == 3 ? attend_tile<3> : tile == 2 ? attend_tile<2> : attend_tile<1>;
                run(pairs + i, counts, stream, keys, values, queries + i * static_cast<std::int64_t>(stream.key_width),
                    scores, sums + i * static_cast<std::int64_t>(stream.value_width), scale, base == 0);
            }
            i += tile;
        }
    }
}

/// All pairs of one kv head: heads [first_head, first_head + heads) of every row.
void attend(const AttentionRows& rows, const AttentionSlots& slots, int first_head, int heads, const KeyValueStream& stream, Scratch& scratch) {
    const std::int64_t total = std::int64_t{rows.rows} * heads;
    const auto key_width = static_cast<std::int64_t>(stream.key_width);
    const auto value_width = static_cast<std::int64_t>(stream.value_width);
    float* scores = scratch.scores.get(static_cast<std::size_t>(kTile * kBlock));
    float* queries = scratch.inputs.get(static_cast<std::size_t>(kPairs * key_width));
    float* sums = scratch.sums.get(static_cast<std::size_t>(kPairs * value_width));
    for (std::int64_t begin = 0; begin < total; begin += kPairs) {
        const std::int64_t count = std::min(kPairs, total - begin);
        Pair pairs[kPairs];
        for (std::int64_t i = 0; i < count; ++i) {
            const int row = static_cast<int>((begin + i) / heads);
            const std::int64_t head = first_head + (begin + i) % heads;
            pairs[i].row = row;
            pairs[i].visible = slots.visible(row);
            pairs[i].list = slots.list(row);
            std::copy_n(rows.queries + row * rows.query_stride + head * key_width, key_width, queries + i * key_width);
        }
        attend_pairs(pairs, count, slots, rows.context, stream, queries, scores, sums, rows.scale);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t head = first_head + (begin + i) % heads;
            float* output = rows.output + pairs[i].row * rows.output_stride + head * value_width;
            std::copy_n(sums + i * value_width, value_width, output);
            scale_row(output, stream.value_width, 1.0F / pairs[i].sum);
        }
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace draftboard::backend::cpu {

void attend_gqa(const AttentionRows& rows, int kv_heads, int dim, const float* keys, const float* values,
                std::int64_t slot_stride, Scratch& scratch) {
    if (rows.rows <= 0 || kv_heads <= 0) return;
    const AttentionSlots slots(rows, scratch);
    const int group = rows.heads / kv_heads;
    const auto run = DRAFTBOARD_DISPATCH(scratch.instruction_set, attend);
    for (int g = 0; g < kv_heads; ++g) {
        const std::int64_t at = std::int64_t{g} * dim;
        const auto width = static_cast<std::size_t>(dim);
        run(rows, slots, g * group, group, {keys + at, values + at, slot_stride, width, width}, scratch);
    }
}

void attend_mla(const AttentionRows& rows, int latent, int rope, const float* cache, Scratch& scratch) {
    if (rows.rows <= 0) return;
    const AttentionSlots slots(rows, scratch);
    const int slot = latent + rope;
    DRAFTBOARD_DISPATCH(scratch.instruction_set, attend)
    (rows, slots, 0, rows.heads, {cache, cache, slot, static_cast<std::size_t>(slot), static_cast<std::size_t>(latent)}, scratch);
}

}  // namespace draftboard::backend::cpu
#endif
