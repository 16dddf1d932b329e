// SPDX-License-Identifier: Apache-2.0
// Times the GPU's matrices, experts and vocabulary at the shapes of real models, cold: weights rotate over more than 200 MB,
// launches are replayed from a graph, and times are medians. Prints a table; each row beside the fastest read of the same memory
// measured in the same run. Not a test: build/tests/cuda_matrices_bench [quick]
//
//   share = bytes of weights and scales / time / read ceiling;  lt = cuBLASLt's bf16 product (x and y in bf16), the best of its
//   first four algorithms

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/vocabulary.h"

using namespace draftboard::backend::cuda;

namespace {

constexpr std::size_t kPoolBytes = std::size_t{3} << 30;
constexpr int kReplays = 9;

/// Bytes: n 16 once.
__global__ void read_kernel(const uint4* data, std::size_t n, unsigned* sink) {
    unsigned sum = 0;
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = i + j * stride < n ? __ldcs(data + i + j * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x12345678U) *sink = sum;
}

/// Bytes: n 16 read, n 16 written.
__global__ void copy_kernel(const uint4* from, uint4* to, std::size_t n) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = i + j * stride < n ? __ldcs(from + i + j * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (i + j * stride < n) __stcs(to + i + j * stride, v[j]);
        }
    }
}

/// Bits that are small numbers in bf16 and fp8 alike, and any code of int4.
__global__ void fill_kernel(unsigned* data, std::size_t n) {
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
        unsigned long long z = (i + 1) * 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z ^= z >> 27;
        data[i] = static_cast<unsigned>(z >> 16) & 0xBFBFBFBFU;
    }
}

struct Bench {
    unsigned char* pool = nullptr;
    float* scales = nullptr;  ///< 512 MB of 1/100
    float* x = nullptr;
    float* y = nullptr;
    unsigned char* workspace = nullptr;
    std::int32_t* ids = nullptr;
    cudaStream_t stream = nullptr;
    double ceiling = 0;
};

constexpr std::size_t kScaleCount = std::size_t{128} << 20;

template <class T>
T* take(std::size_t count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    return static_cast<T*>(memory);
}

/// Microseconds of one of the `count` launches that enqueue(i) makes.
double time_us(const Bench& bench, int count, const std::function<void(int)>& enqueue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < count; ++i) enqueue(i);
    check(cudaStreamEndCapture(bench.stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> samples;
    for (int r = 0; r < kReplays + 2; ++r) {
        check(cudaEventRecord(begin, bench.stream), "cudaEventRecord");
        check(cudaGraphLaunch(executable, bench.stream), "cudaGraphLaunch");
        check(cudaEventRecord(end, bench.stream), "cudaEventRecord");
        check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        if (r >= 2) samples.push_back(ms * 1000 / static_cast<float>(count));
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
}

std::int64_t row_bytes(Stored format, std::int64_t columns) {
    const std::int64_t bits = format == Stored::fp32 ? 32 : format == Stored::bf16 ? 16 : format == Stored::fp8_e4m3 ? 8 : 4;
    return (columns * bits / 8 + 63) / 64 * 64;
}

/// The scales' shape; data is set by the caller. fp8 in blocks of 128, int4 in groups of 32.
DeviceMatrix matrix(const Bench& bench, Stored format, std::int64_t rows, std::int64_t columns) {
    DeviceMatrix w;
    w.rows = rows;
    w.columns = columns;
    w.format = format;
    w.row_bytes = row_bytes(format, columns);
    if (format == Stored::fp8_e4m3 || format == Stored::int4) {
        const int block = format == Stored::int4 ? 32 : 128;
        w.scales = bench.scales;
        w.block_rows = format == Stored::int4 ? 1 : 128;
        w.block_columns = block;
        w.scale_columns = static_cast<int>((columns + block - 1) / block);
    }
    return w;
}

std::int64_t scale_count(const DeviceMatrix& w) {
    return w.scales == nullptr ? 0 : (w.rows + w.block_rows - 1) / w.block_rows * w.scale_columns;
}

const char* name(Stored format) {
    return format == Stored::fp32 ? "fp32" : format == Stored::bf16 ? "bf16" : format == Stored::fp8_e4m3 ? "fp8" : "int4";
}

void check_blas(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(cublasLtGetStatusString(status));
}

/// cuBLASLt's bf16 product of m rows, microseconds.
double library_us(const Bench& bench, cublasLtHandle_t handle, std::int64_t rows, std::int64_t columns, int m, int count,
                  std::int64_t stride) {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_blas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    check_blas(cublasLtMatrixLayoutCreate(&w, CUDA_R_16BF, columns, rows, columns));
    check_blas(cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, columns, m, columns));
    check_blas(cublasLtMatrixLayoutCreate(&d, CUDA_R_16BF, rows, m, rows));
    check_blas(cublasLtMatmulPreferenceCreate(&preference));
    const std::size_t bytes = std::size_t{32} << 20;
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    cublasLtMatmulHeuristicResult_t results[4] = {};
    int found = 0;
    check_blas(cublasLtMatmulAlgoGetHeuristic(handle, operation, w, x, d, d, preference, 4, results, &found));
    double best = 1e30;
    for (int a = 0; a < found; ++a) {
        const float one = 1, zero = 0;
        best = std::min(
            best, time_us(bench, count, [&](int i) {
                check_blas(cublasLtMatmul(handle, operation, &one, bench.pool + i * stride, w, bench.x, x, &zero, bench.y, d,
                                          bench.y, d, &results[a].algo, bench.workspace, bytes, bench.stream));
            }));
    }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(w);
    cublasLtMatrixLayoutDestroy(x);
    cublasLtMatrixLayoutDestroy(d);
    cublasLtMatmulDescDestroy(operation);
    return best;
}

void dense(const Bench& bench, cublasLtHandle_t handle, const char* what, Stored format, std::int64_t rows, std::int64_t columns,
           bool with_library) {
    DeviceMatrix w = matrix(bench, format, rows, columns);
    const std::int64_t stride = rows * w.row_bytes;
    const double bytes = static_cast<double>(stride) + 4.0 * static_cast<double>(scale_count(w));
    const int count =
        static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(4, (std::int64_t{300} << 20) / stride + 1), 64));
    std::printf("%-22s %-5s %6lld x %-6lld %7.1f MB |", what, name(format), static_cast<long long>(rows),
                static_cast<long long>(columns), bytes / 1e6);
    for (const int m : {1, 2, 4, 8, 16}) {
        const double us = time_us(bench, count, [&](int i) {
            DeviceMatrix moved = w;
            moved.data = bench.pool + i * stride;
            few_rows_matmul(bench.x, m, columns, moved, nullptr, bench.y, rows, bench.stream);
        });
        std::printf(" %7.1f us %3.0f%%", us, bytes / us / 1e3 / bench.ceiling * 100);
        if (with_library && format == Stored::bf16 && (m == 1 || m == 4 || m == 16)) {
            std::printf(" (lt %.1f)", library_us(bench, handle, rows, columns, m, count, stride));
        }
    }
    std::printf("\n");
}

void experts(const Bench& bench, const char* what, Stored format, std::int64_t hidden, std::int64_t width, int held, int k) {
    ExpertLayer layer;
    layer.gate.first = matrix(bench, format, width, hidden);
    layer.up.first = layer.gate.first;
    layer.down.first = matrix(bench, format, hidden, width);
    const std::int64_t gate_bytes = width * layer.gate.first.row_bytes;
    const std::int64_t down_bytes = hidden * layer.down.first.row_bytes;
    const std::int64_t gate_scales = scale_count(layer.gate.first);
    const std::int64_t down_scales = scale_count(layer.down.first);
    layer.gate.stride_bytes = layer.up.stride_bytes = gate_bytes;
    layer.down.stride_bytes = down_bytes;
    layer.gate.scale_stride = layer.up.scale_stride = gate_scales;
    layer.down.scale_stride = down_scales;
    layer.gate.experts = layer.up.experts = layer.down.experts = held;
    layer.gate.first.data = bench.pool;
    layer.up.first.data = bench.pool + held * gate_bytes;
    layer.down.first.data = bench.pool + 2 * held * gate_bytes;
    if (gate_scales > 0) {
        layer.up.first.scales = bench.scales + held * gate_scales;
        layer.down.first.scales = bench.scales + 2 * held * gate_scales;
    }
    const double of_expert = static_cast<double>(2 * gate_bytes + down_bytes + 4 * (2 * gate_scales + down_scales));
    std::printf("%-22s %-5s hidden %lld width %lld k %d |", what, name(format), static_cast<long long>(hidden),
                static_cast<long long>(width), k);
    std::mt19937_64 generator(1);
    for (const int m : {1, 2, 4, 8, 16}) {
        constexpr int kCount = 24;
        std::vector<std::int32_t> ids, order(static_cast<std::size_t>(held));
        std::iota(order.begin(), order.end(), 0);
        double distinct = 0;
        for (int i = 0; i < kCount; ++i) {
            std::vector<bool> seen(static_cast<std::size_t>(held));
            for (int t = 0; t < m; ++t) {
                std::shuffle(order.begin(), order.end(), generator);
                for (int j = 0; j < k; ++j) {
                    ids.push_back(order[static_cast<std::size_t>(j)]);
                    seen[static_cast<std::size_t>(ids.back())] = true;
                }
            }
            distinct += static_cast<double>(std::count(seen.begin(), seen.end(), true)) / kCount;
        }
        check(cudaMemcpy(bench.ids, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
        const double us = time_us(bench, kCount, [&](int i) {
            run_experts(bench.x, m, hidden, layer, bench.ids + i * m * k, k, bench.y, bench.workspace, bench.stream);
        });
        std::printf(" m%d: %.0f experts %.1f us %3.0f%%", m, distinct, us, distinct * of_expert / us / 1e3 / bench.ceiling * 100);
    }
    std::printf("\n");
}

void small(const Bench& bench) {
    constexpr int kCount = 50;
    for (const int m : {1, 4, 16}) {
        RouterRule rule;
        rule.experts = 384;
        rule.k = 8;
        rule.sigmoid = true;
        const double routed = time_us(bench, kCount, [&](int) { route(bench.x, m, rule, bench.ids, bench.y, bench.stream); });
        const double combined =
            time_us(bench, kCount, [&](int) { combine(bench.x, bench.x, m, 8, 7168, nullptr, nullptr, bench.y, bench.stream); });
        const DeviceMatrix kv_b = [&] {
            DeviceMatrix w = matrix(bench, Stored::bf16, 8 * 256, 512);
            w.data = bench.pool;
            return w;
        }();
        const double rows = time_us(bench, kCount, [&](int) {
            head_rows_matmul(bench.x, m, 8, 8 * 512, 512, kv_b, 256, 128, 128, bench.y, 1024, 128, bench.stream);
        });
        const double columns = time_us(bench, kCount, [&](int) {
            head_columns_matmul(bench.x, m, 8, 8 * 192, 192, kv_b, 256, 0, 128, bench.y, 8 * 576, 576, bench.stream);
        });
        std::printf("m %2d: route %.1f us, combine %.1f us, head rows %.1f us, head columns %.1f us, best of 151936:", m, routed,
                    combined, rows, columns);
        for (const int k : {1, 4, 64}) {
            const double best = time_us(bench, kCount, [&](int) {
                best_tokens(bench.scales, m, 151936, 151936, k, bench.ids, bench.y, bench.y + 4096, bench.stream);
            });
            std::printf(" k%d %.1f us", k, best);
        }
        std::printf("\n");
    }
    // Gaps: an empty matrix's time is a launch's.
    DeviceMatrix tiny = matrix(bench, Stored::bf16, 32, 64);
    tiny.data = bench.pool;
    std::printf("a product of 4 KB: %.1f us\n",
                time_us(bench, kCount, [&](int) { few_rows_matmul(bench.x, 1, 64, tiny, nullptr, bench.y, 32, bench.stream); }));
}

}  // namespace

int main(int argc, char** argv) {
    const bool quick = argc > 1 && std::strcmp(argv[1], "quick") == 0;
    Bench bench;
    bench.pool = take<unsigned char>(kPoolBytes);
    bench.scales = take<float>(kScaleCount);
    bench.x = take<float>(std::size_t{16} << 20);
    bench.y = take<float>(std::size_t{16} << 20);
    bench.workspace = take<unsigned char>(std::size_t{64} << 20);
    bench.ids = take<std::int32_t>(std::size_t{1} << 20);
    check(cudaStreamCreate(&bench.stream), "cudaStreamCreate");
    fill_kernel<<<1024, 256>>>(reinterpret_cast<unsigned*>(bench.pool), kPoolBytes / 4);
    fill_kernel<<<1024, 256>>>(reinterpret_cast<unsigned*>(bench.scales), kScaleCount);
    fill_kernel<<<1024, 256>>>(reinterpret_cast<unsigned*>(bench.x), std::size_t{16} << 20);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const std::size_t half = kPoolBytes / 2;
    const double copy_us = time_us(bench, 2, [&](int) {
        copy_kernel<<<132 * 16, 512, 0, bench.stream>>>(reinterpret_cast<const uint4*>(bench.pool + half),
                                                        reinterpret_cast<uint4*>(bench.pool), half / 16);
    });
    for (const int blocks : {132 * 4, 132 * 8}) {
        const double read_us = time_us(bench, 2, [&](int) {
            read_kernel<<<blocks, 256, 0, bench.stream>>>(reinterpret_cast<const uint4*>(bench.pool), kPoolBytes / 16,
                                                          reinterpret_cast<unsigned*>(bench.y));
        });
        bench.ceiling = std::max(bench.ceiling, static_cast<double>(kPoolBytes) / read_us / 1e3);
    }
    std::printf("copy %.0f GB/s (read + written), read %.0f GB/s\n", 2 * static_cast<double>(half) / copy_us / 1e3,
                bench.ceiling);
    cublasLtHandle_t handle = nullptr;
    check_blas(cublasLtCreate(&handle));
    dense(bench, handle, "square", Stored::bf16, 2048, 2048, true);
    dense(bench, handle, "square", Stored::bf16, 4096, 4096, !quick);
    dense(bench, handle, "kimi qkv_a", Stored::bf16, 2112, 7168, true);
    dense(bench, handle, "kimi o", Stored::bf16, 7168, 1024, !quick);
    dense(bench, handle, "kimi shared gate_up", Stored::bf16, 512, 7168, !quick);
    dense(bench, handle, "kimi shared down", Stored::bf16, 7168, 256, !quick);
    dense(bench, handle, "kimi lm_head", Stored::bf16, 20480, 7168, true);
    dense(bench, handle, "router", Stored::bf16, 384, 7168, !quick);
    dense(bench, handle, "router", Stored::fp32, 384, 7168, false);
    dense(bench, handle, "qwen3 qkv", Stored::bf16, 5120, 2048, !quick);
    dense(bench, handle, "qwen3 o", Stored::bf16, 2048, 4096, !quick);
    dense(bench, handle, "qwen3 lm_head", Stored::bf16, 151936, 2048, !quick);
    dense(bench, handle, "deep", Stored::fp8_e4m3, 4096, 4096, false);
    dense(bench, handle, "deep", Stored::fp8_e4m3, 7168, 18432, false);
    dense(bench, handle, "square", Stored::int4, 4096, 4096, false);
    dense(bench, handle, "wide", Stored::int4, 14336, 7168, false);
    experts(bench, "kimi tp8", Stored::int4, 7168, 256, 384, 8);
    experts(bench, "qwen3-30b", Stored::bf16, 2048, 768, 128, 8);
    experts(bench, "qwen3.5 tp8", Stored::fp8_e4m3, 4096, 128, 512, 10);
    experts(bench, "qwen3.5 tp8", Stored::bf16, 4096, 128, 512, 10);
    small(bench);
    cublasLtDestroy(handle);
    return 0;
}
