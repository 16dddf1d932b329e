// SPDX-License-Identifier: Apache-2.0
// Dense matrices of any number of rows (matmul.h): few go to few_rows.cu, more through cuBLASLt as bf16 products with float sums.
// x is split into high + low (an error of 2^-18 a number) and W is taken as stored; fp8 and int4 are unpacked to bf16 before,
// where code x scale is rounded once, to 8 bits. Nothing here is as exact as few_rows.cu, and a row's bits depend on m.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda/check.h"
#include "backend/cuda/load_weights.cuh"
#include "backend/cuda/matmul.h"

namespace draftboard::backend::cuda {

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr std::int64_t kUnpackedBytes = std::int64_t{64} << 20;
constexpr int kThreads = 256;

void check_blas(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

/// Columns of x as they are laid out for cuBLASLt: W's rows are padded with zeros to 64 bytes, x is to a multiple of 8 numbers.
std::int64_t padded(std::int64_t columns) { return (columns + 7) / 8 * 8; }

/// high = bf16(x), low = bf16(x - high), rows m .. 2 m of it. Bytes: 4 in, 2 or 4 out a number.
__global__ void __launch_bounds__(kThreads) split_kernel(const float* x, std::int64_t x_stride, int m, std::int64_t columns,
                                                         std::int64_t width, bool both, __nv_bfloat16* parts) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int row = static_cast<int>(blockIdx.y);
    if (column >= width) return;
    const float value = column < columns ? x[row * x_stride + column] : 0.0F;
    const __nv_bfloat16 high = __float2bfloat16_rn(value);
    parts[row * width + column] = high;
    const float taken = __bfloat162float(high);
    if (both) parts[(row + std::int64_t{m}) * width + column] = __float2bfloat16_rn(isfinite(taken) ? value - taken : 0.0F);
}

/// x itself, padded: for fp32 matrices. Bytes: 8 a number.
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const float* x, std::int64_t x_stride, std::int64_t columns, std::int64_t width, float* copy) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int row = static_cast<int>(blockIdx.y);
    if (column < width) copy[row * width + column] = column < columns ? x[row * x_stride + column] : 0.0F;
}

/// Rows first .. first + rows of w as bf16. Bytes: stored, and 2 a number.
template <Stored F>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const __grid_constant__ DeviceMatrix w, std::int64_t first, std::int64_t width, __nv_bfloat16* output) {
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8;
    if (column >= width) return;
    const std::int64_t row = first + blockIdx.y;
    float values[8];
    unpack_eight<F>(load_eight<F>(stored_row(w, row), column), w, row, column, values);
    uint4 bits;
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(&bits);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const float low = column + 2 * e < w.columns ? values[2 * e] : 0.0F;
        const float high = column + 2 * e + 1 < w.columns ? values[2 * e + 1] : 0.0F;
        pairs[e] = __floats2bfloat162_rn(low, high);
    }
    *reinterpret_cast<uint4*>(output + blockIdx.y * width + column) = bits;
}

/// y = high's products (+ low's) (+ bias). Bytes: 4 or 8 in, 4 out a number.
__global__ void __launch_bounds__(kThreads) add_kernel(const float* products, int m, std::int64_t rows, std::int64_t first,
                                                       bool both, const float* bias, float* y, std::int64_t y_stride) {
    const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int i = static_cast<int>(blockIdx.y);
    if (r >= rows) return;
    float sum = products[i * rows + r];
    if (both) sum += products[(i + std::int64_t{m}) * rows + r];
    y[i * y_stride + first + r] = bias != nullptr ? sum + bias[first + r] : sum;
}

dim3 grid_of(std::int64_t columns, std::int64_t rows) {
    return {static_cast<unsigned>((columns + kThreads - 1) / kThreads), static_cast<unsigned>(rows), 1};
}

/// One product, columns as cuBLASLt counts them: D (rows x n) = W^T (rows x columns) X (columns x n), all column-major.
struct Product {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
};

template <class T>
class Memory {
 public:
    explicit Memory(std::int64_t count) {
        check(cudaMalloc(&data_, static_cast<std::size_t>(count > 0 ? count : 1) * sizeof(T)), "cudaMalloc");
    }
    ~Memory() { cudaFree(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    [[nodiscard]] T* get() const { return static_cast<T*>(data_); }

 private:
    void* data_ = nullptr;
};

}  // namespace

struct DenseMath::State {
    State(int rows, std::int64_t columns, std::int64_t outputs, Precision wanted, DenseChoice chosen)
        : max_rows(rows),
          max_columns(columns),
          max_outputs(outputs),
          precision(wanted),
          choice(chosen),
          inputs(std::int64_t{2} * rows * padded(columns)),
          products(std::int64_t{2} * rows * outputs),
          unpacked_rows(
              std::max<std::int64_t>(1, std::min(outputs, kUnpackedBytes / (2 * padded(std::max<std::int64_t>(columns, 1)))))),
          unpacked(unpacked_rows * padded(columns)),
          workspace(kWorkspaceBytes) {
        check_blas(cublasLtCreate(&handle), "cublasLtCreate");
    }
    ~State() {
        for (auto& [key, product] : found) {
            cublasLtMatrixLayoutDestroy(product.w);
            cublasLtMatrixLayoutDestroy(product.x);
            cublasLtMatrixLayoutDestroy(product.d);
            cublasLtMatmulDescDestroy(product.operation);
        }
        cublasLtDestroy(handle);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    /// What the heuristic chose for these shapes the first time.
    const Product& product_of(bool fp32, int n, std::int64_t rows, std::int64_t columns, std::int64_t w_stride) {
        const auto key = std::make_tuple(fp32, n, rows, columns, w_stride);
        const auto known = found.find(key);
        if (known != found.end()) return known->second;
        Product product;
        const cudaDataType_t type = fp32 ? CUDA_R_32F : CUDA_R_16BF;
        check_blas(cublasLtMatmulDescCreate(&product.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
        const cublasOperation_t transposed = CUBLAS_OP_T;
        check_blas(cublasLtMatmulDescSetAttribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                   "cublasLtMatmulDescSetAttribute");
        const auto u = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
        check_blas(cublasLtMatrixLayoutCreate(&product.w, type, u(columns), u(rows), w_stride), "cublasLtMatrixLayoutCreate");
        check_blas(cublasLtMatrixLayoutCreate(&product.x, type, u(columns), u(n), columns), "cublasLtMatrixLayoutCreate");
        check_blas(cublasLtMatrixLayoutCreate(&product.d, CUDA_R_32F, u(rows), u(n), rows), "cublasLtMatrixLayoutCreate");
        cublasLtMatmulPreference_t preference = nullptr;
        check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
        const std::size_t bytes = kWorkspaceBytes;
        check_blas(
            cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
            "cublasLtMatmulPreferenceSetAttribute");
        cublasLtMatmulHeuristicResult_t result = {};
        int results = 0;
        const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, product.operation, product.w, product.x, product.d,
                                                                     product.d, preference, 1, &result, &results);
        cublasLtMatmulPreferenceDestroy(preference);
        check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
        if (results == 0) throw std::runtime_error("cublasLtMatmulAlgoGetHeuristic: no algorithm for this shape");
        product.algorithm = result.algo;
        return found.emplace(key, product).first->second;
    }

    /// products (n x rows) = x W^T
    void multiply(bool fp32, const void* w, std::int64_t w_stride, std::int64_t rows, std::int64_t columns, const void* x, int n,
                  cudaStream_t stream) {
        const Product& product = product_of(fp32, n, rows, columns, w_stride);
        const float one = 1;
        const float zero = 0;
        check_blas(cublasLtMatmul(handle, product.operation, &one, w, product.w, x, product.x, &zero, products.get(), product.d,
                                  products.get(), product.d, &product.algorithm, workspace.get(), kWorkspaceBytes, stream),
                   "cublasLtMatmul");
    }

    int max_rows;
    std::int64_t max_columns;
    std::int64_t max_outputs;
    Precision precision;
    DenseChoice choice;
    Memory<float> inputs;    ///< x split, 2 m rows of bf16; or x as it is
    Memory<float> products;  ///< 2 m rows
    std::int64_t unpacked_rows;
    Memory<__nv_bfloat16> unpacked;
    Memory<unsigned char> workspace;
    cublasLtHandle_t handle = nullptr;
    std::map<std::tuple<bool, int, std::int64_t, std::int64_t, std::int64_t>, Product> found;
};

DenseMath::DenseMath(int max_rows, std::int64_t max_columns, std::int64_t max_outputs, Precision precision, DenseChoice choice)
    : state_(std::make_unique<State>(max_rows, max_columns, max_outputs, precision, choice)) {}

DenseMath::~DenseMath() = default;

void DenseMath::matmul(const float* x, int m, std::int64_t x_stride, const DeviceMatrix& w, const float* bias, float* y,
                       std::int64_t y_stride, cudaStream_t stream) {
    if (m <= 0 || w.rows <= 0) return;
    State& s = *state_;
    if (s.choice == DenseChoice::few_rows && m <= kFewRows) return few_rows_matmul(x, m, x_stride, w, bias, y, y_stride, stream);
    const bool scaled = w.format == Stored::fp8_e4m3 || w.format == Stored::int4;
    if (scaled && s.precision == Precision::fp32) {  // code * scale has more digits than bf16: unpacking would round it
        for (int row = 0; row < m; row += kFewRows) {
            few_rows_matmul(x + row * x_stride, std::min(kFewRows, m - row), x_stride, w, bias, y + row * y_stride, y_stride, stream);
        }
        return;
    }
    if (m > s.max_rows || w.columns > s.max_columns || w.rows > s.max_outputs) {
        throw std::runtime_error("DenseMath::matmul: larger than its workspaces");
    }
    const std::int64_t width = padded(w.columns);
    const bool fp32 = w.format == Stored::fp32;
    const bool both = !fp32 && s.precision == Precision::fp32;
    const int n = both ? 2 * m : m;
    if (fp32) {
        pad_kernel<<<grid_of(width, m), kThreads, 0, stream>>>(x, x_stride, w.columns, width, s.inputs.get());
    } else {
        split_kernel<<<grid_of(width, m), kThreads, 0, stream>>>(x, x_stride, m, w.columns, width, both,
                                                                 reinterpret_cast<__nv_bfloat16*>(s.inputs.get()));
    }
    check_launch("DenseMath: split_kernel");
    const bool as_stored = fp32 || w.format == Stored::bf16;
    const std::int64_t step = as_stored ? w.rows : s.unpacked_rows;
    for (std::int64_t first = 0; first < w.rows; first += step) {
        const std::int64_t rows = std::min(step, w.rows - first);
        if (as_stored) {
            s.multiply(fp32, w.data, w.row_bytes / (fp32 ? 4 : 2), rows, width, s.inputs.get(), n, stream);
        } else {
            // Grids are at most 65535 blocks high.
            for (std::int64_t done = 0; done < rows; done += 32768) {
                const dim3 grid = grid_of(width / 8, std::min<std::int64_t>(32768, rows - done));
                __nv_bfloat16* target = s.unpacked.get() + done * width;
                if (w.format == Stored::fp8_e4m3) {
                    unpack_kernel<Stored::fp8_e4m3><<<grid, kThreads, 0, stream>>>(w, first + done, width, target);
                } else {
                    unpack_kernel<Stored::int4><<<grid, kThreads, 0, stream>>>(w, first + done, width, target);
                }
                check_launch("DenseMath: unpack_kernel");
            }
            s.multiply(false, s.unpacked.get(), width, rows, width, s.inputs.get(), n, stream);
        }
        add_kernel<<<grid_of(rows, m), kThreads, 0, stream>>>(s.products.get(), m, rows, first, both, bias, y, y_stride);
        check_launch("DenseMath: add_kernel");
    }
}

}  // namespace draftboard::backend::cuda
