// SPDX-License-Identifier: Apache-2.0
// The gated delta net of a pass's rows: formulae in cpu/delta_net.h, caches in delta_net.h. Two
// kernels: the convolution with silu and the length of q and k, all rows at once; then the
// recurrence, a block a strip of 8 value columns, row after row with the state in registers. One
// reduction a row is enough, because with S' = g S and d = beta (v - S'^T k)
//
//   o = (S' + k d^T)^T q = S'^T q + (k q) d
//
// What a commit does afterwards is in commit.cu.
#include "backend/cuda/delta_net.h"

#include <stdexcept>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/launch_ahead.cuh"

namespace draftboard::backend::cuda {

namespace {

constexpr int kConvolveThreads = 128;
constexpr int kMaxTaps = 8;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8;  ///< of a strip: 32 bytes of each row of the state
constexpr int kKeyLanes = kThreads / kColumns;
constexpr int kRows = 16;  ///< whose q, k, v are in shared memory at a time

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }
/// ln(1 + e^x), x itself where e^x drowns the 1.
__device__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

/// Block x: a head of q, k or v, y: a row. Bytes a row: 4 channels x (1 + taps) read from cache or
/// memory, 4 written (8 where rows are kept). Flops: 2 taps + 12 a channel.
__global__ void __launch_bounds__(kConvolveThreads)
    convolve_kernel(PassView pass, DeltaNetShape shape, const float* projected, std::int64_t stride, const float* conv,
                    DeltaNetCache cache, float* convolved) {
    begin_behind_predecessor();
    __shared__ std::int32_t parents[kMaxUncommitted];
    __shared__ float sums[kConvolveThreads / 32];
    const int row = static_cast<int>(blockIdx.y);
    const int sequence = row / pass.tokens;
    const int t = row % pass.tokens;
    const int first_row = pass.first_row[sequence];
    const std::int64_t slot = pass.slots[sequence];
    const std::int64_t channels = shape.channels();
    const int taps = shape.conv_kernel;
    if (pass.keeps_uncommitted) {
        for (int u = static_cast<int>(threadIdx.x); u < kMaxUncommitted; u += kConvolveThreads) {
            parents[u] = pass.parents[std::int64_t{sequence} * kMaxUncommitted + u];
        }
        __syncthreads();
    }
    // The inputs of the last `taps` rows, the row's own last: rows of this pass, uncommitted rows
    // before it, then the committed window.
    const float* inputs[kMaxTaps];
    int u = first_row + t;
    int ended = 0;  // ancestors in the window so far
#pragma unroll
    for (int back = 0; back < kMaxTaps; ++back) {
        if (back >= taps) break;
        const float* from = nullptr;
        if (u >= first_row) {
            from = projected + (std::int64_t{sequence} * pass.tokens + (u - first_row)) * stride;
        } else if (u >= 0 && pass.keeps_uncommitted) {
            from = cache.snapshot_input + (slot * cache.snapshots + u) * channels;
        } else {
            ++ended;
            from = cache.window + (slot * (taps - 1) + (taps - 1 - ended)) * channels;
        }
        inputs[back] = from;
        if (u >= 0) u = pass.keeps_uncommitted ? parents[u] : u > first_row ? u - 1 : -1;
    }

    const int head = static_cast<int>(blockIdx.x);
    const bool value = head >= 2 * shape.key_heads;
    const int width = value ? shape.value_dim : shape.key_dim;
    const std::int64_t start =
        value ? std::int64_t{2} * shape.key_heads * shape.key_dim + std::int64_t{head - 2 * shape.key_heads} * shape.value_dim
              : std::int64_t{head} * shape.key_dim;
    float* output = convolved + row * channels + start;
    float* kept =
        pass.keeps_uncommitted ? cache.snapshot_input + (slot * cache.snapshots + first_row + t) * channels + start : nullptr;
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += kConvolveThreads) {
        const float* weights = conv + (start + i) * taps;
        float x[kMaxTaps];
#pragma unroll
        for (int back = 0; back < kMaxTaps; ++back) {
            if (back < taps) x[back] = inputs[back][start + i];
        }
        float sum = 0;
#pragma unroll
        for (int back = kMaxTaps - 1; back >= 0; --back) {  // oldest first
            if (back < taps) sum = fmaf(weights[taps - 1 - back], x[back], sum);
        }
        const float c = silu(sum);
        output[i] = c;
        if (kept != nullptr) kept[i] = x[0];
        squares = fmaf(c, c, squares);
    }
    if (value) return;
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < kConvolveThreads / 32; ++w) total += sums[w];
    const float scale = head < shape.key_heads ? 1.0f / sqrtf(static_cast<float>(shape.key_dim)) : 1.0f;
    const float factor = scale / sqrtf(total + 1e-6f);
    for (int i = static_cast<int>(threadIdx.x); i < width; i += kConvolveThreads) output[i] *= factor;
}

/// Block x: value head and strip of columns, y: sequence. A thread has one column and every 32nd
/// key, kKeys of them. Bytes: the state once, and once more written a row where rows are kept, else
/// once. Flops: 7 a state element and row.
template <int kKeys>
__global__ void __launch_bounds__(kThreads)
    recurrence_kernel(PassView pass, DeltaNetShape shape, const float* projected, std::int64_t stride, const float* a_log,
                      const float* dt_bias, DeltaNetCache cache, const float* convolved, float* output) {
    begin_behind_predecessor();
    extern __shared__ float vectors[];  // kRows x (q | k)
    __shared__ float values[kRows][kColumns];
    __shared__ float decays[kRows];
    __shared__ float betas[kRows];
    __shared__ std::int32_t parents[kRows];
    __shared__ float sums[2][kWarps][3][kColumns];
    const int strips = (shape.value_dim + kColumns - 1) / kColumns;
    const int head = static_cast<int>(blockIdx.x) / strips;
    const int strip = static_cast<int>(blockIdx.x) % strips;
    const int sequence = static_cast<int>(blockIdx.y);
    const int thread = static_cast<int>(threadIdx.x);
    const int column = strip * kColumns + thread % kColumns;
    const int key_lane = thread / kColumns;
    const int warp = thread / 32;
    const bool exists = column < shape.value_dim;
    const int key_dim = shape.key_dim;
    const int key_head = head / (shape.value_heads / shape.key_heads);
    const std::int64_t channels = shape.channels();
    const std::int64_t slot = pass.slots[sequence];
    const int first_row = pass.first_row[sequence];
    const bool keeps = pass.keeps_uncommitted;
    const std::int32_t* all_parents = pass.parents + std::int64_t{sequence} * kMaxUncommitted;
    const std::int64_t own = std::int64_t{head} * key_dim * shape.value_dim + std::int64_t{key_lane} * shape.value_dim + column;
    float* committed = cache.state + slot * shape.state() + own;
    float* snapshots = cache.snapshot_state + slot * cache.snapshots * shape.state() + own;

    float state[kKeys];
    const auto load = [&](const float* from) {
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
            const bool there = exists && key_lane + j * kKeyLanes < key_dim;
            state[j] = there ? from[std::int64_t{j} * kKeyLanes * shape.value_dim] : 0.0f;
        }
    };
    const auto store = [&](float* to) {
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
            if (exists && key_lane + j * kKeyLanes < key_dim) to[std::int64_t{j} * kKeyLanes * shape.value_dim] = state[j];
        }
    };
    const auto load_parent = [&](int parent) { load(parent < 0 ? committed : snapshots + parent * shape.state()); };
    load_parent(keeps ? all_parents[first_row] : -1);

    for (int begin = 0; begin < pass.tokens; begin += kRows) {
        const int count = min(kRows, pass.tokens - begin);
        const std::int64_t row = std::int64_t{sequence} * pass.tokens + begin;
        if (begin > 0) __syncthreads();
        for (int i = thread; i < count * 2 * key_dim; i += kThreads) {
            const int r = i / (2 * key_dim);
            const int c = i % (2 * key_dim);
            const int key = c < key_dim ? 0 : 1;
            vectors[i] = convolved[(row + r) * channels + (key * shape.key_heads + key_head) * key_dim + c - key * key_dim];
        }
        if (thread < count * kColumns && exists) {
            values[thread / kColumns][thread % kColumns] =
                convolved[(row + thread / kColumns) * channels + std::int64_t{2} * shape.key_heads * key_dim +
                          std::int64_t{head} * shape.value_dim + column];
        }
        if (thread >= kThreads - kRows && thread - (kThreads - kRows) < count) {
            const int r = thread - (kThreads - kRows);
            const float* b = projected + (row + r) * stride + channels + std::int64_t{shape.value_heads} * shape.value_dim + head;
            // In float: the exponent's rounding, 1e-7 of it, is far below what the state forgets.
            const float rate = softplus(b[shape.value_heads] + dt_bias[head]);
            decays[r] = expf(-expf(a_log[head]) * rate);
            betas[r] = 1.0f / (1.0f + expf(-b[0]));
            parents[r] = keeps ? all_parents[first_row + begin + r] : first_row + begin + r - 1;
        }
        __syncthreads();
        for (int r = 0; r < count; ++r) {
            const int u = first_row + begin + r;
            if (begin + r > 0 && parents[r] != u - 1) load_parent(parents[r]);
            const float* q = vectors + 2 * r * key_dim;
            const float decay = decays[r];
            float key[kKeys];
            float recalled = 0;
            float asked = 0;
            float overlap = 0;
#pragma unroll
            for (int j = 0; j < kKeys; ++j) {
                const int i = key_lane + j * kKeyLanes;
                const float query = i < key_dim ? q[i] : 0.0f;
                key[j] = i < key_dim ? q[key_dim + i] : 0.0f;
                state[j] *= decay;
                recalled = fmaf(key[j], state[j], recalled);
                asked = fmaf(query, state[j], asked);
                overlap = fmaf(key[j], query, overlap);
            }
            for (int step = kColumns; step < 32; step *= 2) {
                recalled += __shfl_xor_sync(0xFFFFFFFFu, recalled, step);
                asked += __shfl_xor_sync(0xFFFFFFFFu, asked, step);
                overlap += __shfl_xor_sync(0xFFFFFFFFu, overlap, step);
            }
            auto& mine = sums[r % 2];
            if (thread % 32 < kColumns) {
                mine[warp][0][thread % 32] = recalled;
                mine[warp][1][thread % 32] = asked;
                mine[warp][2][thread % 32] = overlap;
            }
            __syncthreads();
            recalled = asked = overlap = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) {
                recalled += mine[w][0][thread % kColumns];
                asked += mine[w][1][thread % kColumns];
                overlap += mine[w][2][thread % kColumns];
            }
            const float change = betas[r] * (values[r][thread % kColumns] - recalled);
#pragma unroll
            for (int j = 0; j < kKeys; ++j) state[j] = fmaf(key[j], change, state[j]);
            if (keeps) store(snapshots + u * shape.state());
            if (key_lane == 0 && exists) {
                output[((row + r) * shape.value_heads + head) * shape.value_dim + column] = fmaf(overlap, change, asked);
            }
        }
    }
    if (keeps) return;
    store(committed);
    // The window moves on: its last inputs, this pass's among them. Oldest first, so that it may
    // move in place.
    const int kept = shape.conv_kernel - 1;
    for (std::int64_t c = std::int64_t{blockIdx.x} * kThreads + thread; c < channels; c += std::int64_t{gridDim.x} * kThreads) {
        float* window = cache.window + slot * kept * channels + c;
        for (int j = 0; j < kept; ++j) {
            const int t = pass.tokens - kept + j;
            window[j * channels] = t >= 0 ? projected[(std::int64_t{sequence} * pass.tokens + t) * stride + c]
                                          : window[(pass.tokens + j) * channels];
        }
    }
}

/// A warp a head of a row. Bytes: 12 a number.
__global__ void __launch_bounds__(kThreads)
    gated_rms_norm_kernel(float* x, const float* z, std::int64_t z_stride, const float* weight, int heads, std::int64_t vectors,
                          int width, float epsilon) {
    begin_behind_predecessor();
    const std::int64_t vector = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
    if (vector >= vectors) return;
    const int lane = static_cast<int>(threadIdx.x % 32);
    float* y = x + vector * width;
    const float* gate = z + vector / heads * z_stride + vector % heads * width;
    float sum = 0;
    for (int i = lane; i < width; i += 32) sum = fmaf(y[i], y[i], sum);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(width) + epsilon);
    for (int i = lane; i < width; i += 32) y[i] = y[i] * scale * weight[i] * silu(gate[i]);
}

}  // namespace

void delta_net(const PassView& pass, const DeltaNetShape& shape, const float* projected, std::int64_t stride, const float* conv,
               const float* a_log, const float* dt_bias, const DeltaNetCache& cache, float* convolved, float* output,
               cudaStream_t stream) {
    if (pass.rows() <= 0 || shape.value_heads <= 0) return;
    if (shape.conv_kernel < 1 || shape.conv_kernel > kMaxTaps || shape.key_dim > 8 * kKeyLanes ||
        shape.value_heads % shape.key_heads != 0) {
        throw std::runtime_error("delta_net: up to 8 taps, keys up to 256 wide, value heads a multiple of key heads");
    }
    const dim3 rows(static_cast<unsigned>(2 * shape.key_heads + shape.value_heads), static_cast<unsigned>(pass.rows()));
    launch_ahead("delta_net", convolve_kernel, dim3(rows), kConvolveThreads, 0, stream, pass, shape, projected, stride, conv,
                 cache, convolved);
    const int strips = (shape.value_dim + kColumns - 1) / kColumns;
    const dim3 grid(static_cast<unsigned>(shape.value_heads * strips), static_cast<unsigned>(pass.sequences));
    const std::size_t bytes = sizeof(float) * kRows * 2 * static_cast<std::size_t>(shape.key_dim);
    const auto kernel = shape.key_dim <= kKeyLanes       ? recurrence_kernel<1>
                        : shape.key_dim <= 2 * kKeyLanes ? recurrence_kernel<2>
                        : shape.key_dim <= 4 * kKeyLanes ? recurrence_kernel<4>
                                                         : recurrence_kernel<8>;
    launch_ahead("delta_net", kernel, grid, kThreads, bytes, stream, pass, shape, projected, stride, a_log, dt_bias, cache,
                 convolved, output);
}

void gated_rms_norm(float* x, const float* z, std::int64_t z_stride, const float* weight, int m, int heads, int width,
                    float epsilon, cudaStream_t stream) {
    if (m <= 0 || heads <= 0) return;
    const std::int64_t vectors = std::int64_t{m} * heads;
    launch_ahead("gated_rms_norm", gated_rms_norm_kernel, dim3(static_cast<unsigned>((vectors + kWarps - 1) / kWarps)), kThreads,
                 0, stream, x, z, z_stride, weight, heads, vectors, width, epsilon);
}

}  // namespace draftboard::backend::cuda
