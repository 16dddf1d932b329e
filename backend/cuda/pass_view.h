// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of one pass in device memory, and the caches they read and write, as kernels see them. A captured graph keeps these
// pointers; what they point at changes from pass to pass, so nothing that varies (positions, lengths, parents) may come from
// the host by value. The pass's shape (sequences, tokens) is fixed in a graph.
//
// Row i belongs to sequence i / tokens of the pass. A sequence's slots in the cache are its committed tokens, then its
// uncommitted rows u = 0, 1, ...: slot committed + u. Row t of a sequence in this pass is uncommitted row first_row + t. It sees
// all committed slots and those uncommitted rows whose bit is set in its mask: its ancestors and itself. Its position is
// committed + (bits set) - 1. Position p of what it sees is the p-th slot that it sees, in ascending order. Kernels sum over
// positions in blocks of fixed size: a row then gives the same bits in a pass of any number of rows, in a chain or a tree.

#include <cstdint>

#include <cuda_runtime_api.h>

namespace draftboard::backend::cuda {

/// Rows of one sequence that are not committed, those of the pass included.
inline constexpr int kMaxUncommitted = 256;
inline constexpr int kMaskWords = kMaxUncommitted / 32;

struct PassView {
    int sequences = 1;
    int tokens = 1;                             ///< rows a sequence
    const std::int32_t* token_ids = nullptr;    ///< by row
    const std::int32_t* positions = nullptr;    ///< by row
    const std::int32_t* slots = nullptr;        ///< by sequence: which of the engine's sequences
    const std::int32_t* committed = nullptr;    ///< by sequence: tokens
    const std::int32_t* first_row = nullptr;    ///< by sequence: uncommitted rows before this pass
    const std::int32_t* parents = nullptr;      ///< sequences x kMaxUncommitted: of uncommitted row u, -1: none
    const std::uint32_t* masks = nullptr;       ///< rows x kMaskWords: bit u % 32 of word u / 32
    const std::int32_t* logits_rows = nullptr;  ///< rows whose logits are wanted, ascending
    int logits_count = 0;
    bool keeps_uncommitted = false;  ///< verify, draft_extend, draft; else rows are committed at once, as a chain
    [[nodiscard]] int rows() const { return sequences * tokens; }
};

/// The words of a pass that change from cycle to cycle where the device lays out its own passes (chain_kernels.h).
struct PassWords {
    std::int32_t* token_ids = nullptr;
    std::int32_t* positions = nullptr;
    const std::int32_t* slots = nullptr;
    std::int32_t* committed = nullptr;
    std::int32_t* logits_rows = nullptr;
    std::int32_t* commit_slots = nullptr;
    std::int32_t* commit_committed = nullptr;
    std::int32_t* commit_lengths = nullptr;
    int commits = 0;  ///< entries of these three
};

/// An ordinary kernel that does nothing but wait for all before it: see launch_ahead.cuh. Every pass begins with it.
void begin_pass(cudaStream_t stream);

enum class CacheFormat : int { fp32, bf16 };

/// Keys and values of one layer, all sequences. GQA: kv_heads x dim numbers a slot in each. MLA: latent + rope in keys, no
/// values.
struct KeyValueCache {
    void* keys = nullptr;
    void* values = nullptr;
    CacheFormat format = CacheFormat::fp32;
    std::int64_t slot_width = 0;       ///< numbers
    std::int64_t sequence_stride = 0;  ///< numbers from one sequence's slot 0 to the next one's
};

/// cos and sin by position: positions x dim / 2, as cpu::RotaryTable holds them.
struct RotaryView {
    const float* cos = nullptr;
    const float* sin = nullptr;
    int dim = 0;
    bool interleaved = false;  ///< pairs (2i, 2i + 1), else (i, i + dim / 2)
};

}  // namespace draftboard::backend::cuda
