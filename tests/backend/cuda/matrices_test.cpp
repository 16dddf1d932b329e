// SPDX-License-Identifier: Apache-2.0
// Matrices, experts and vocabulary on the GPU against the CPU's kernels and float64. Inputs are fresh random numbers, outputs are
// NaN before.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "../cpu/sample_matrices.h"
#include "backend/cpu/experts.h"
#include "backend/cuda/check.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/vocabulary.h"

namespace draftboard::backend::cuda {
namespace {

using cpu::WeightMatrix;
using model::NumberFormat;
using model::WeightFormat;

/// Device memory; every byte 0xFF (NaN, -1) until written.
template <class T>
class Device {
 public:
    explicit Device(std::size_t count) : count_(count) {
        check(cudaMalloc(&data_, std::max<std::size_t>(1, count) * sizeof(T)), "cudaMalloc");
        poison();
    }
    explicit Device(const std::vector<T>& values) : Device(values.size()) {
        check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    ~Device() { cudaFree(data_); }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    void poison() { check(cudaMemset(data_, 0xFF, std::max<std::size_t>(1, count_) * sizeof(T)), "cudaMemset"); }
    [[nodiscard]] T* get() const { return static_cast<T*>(data_); }
    [[nodiscard]] std::vector<T> read() const {
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        std::vector<T> values(count_);
        check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return values;
    }

 private:
    void* data_ = nullptr;
    std::size_t count_;
};

Stored stored(NumberFormat format) {
    switch (format) {
        case NumberFormat::fp32: return Stored::fp32;
        case NumberFormat::fp8_e4m3: return Stored::fp8_e4m3;
        case NumberFormat::int4: return Stored::int4;
        default: return Stored::bf16;
    }
}

/// Matrices of one shape, one after the other in device memory.
struct OnDevice {
    explicit OnDevice(const std::vector<const WeightMatrix*>& matrices) {
        const WeightMatrix& first = *matrices[0];
        std::vector<std::byte> bytes;
        std::vector<float> all_scales;
        for (const WeightMatrix* matrix : matrices) {
            bytes.insert(bytes.end(), matrix->data.data(), matrix->data.data() + matrix->data.size());
            all_scales.insert(all_scales.end(), matrix->scales.begin(), matrix->scales.end());
        }
        data = std::make_unique<Device<std::byte>>(bytes);
        scales = std::make_unique<Device<float>>(all_scales);
        view.first.data = data->get();
        view.first.rows = first.rows;
        view.first.columns = first.columns;
        view.first.row_bytes = static_cast<std::int64_t>(first.row_bytes);
        view.first.format = stored(first.format.format);
        view.first.scales = first.scales.empty() ? nullptr : scales->get();
        view.first.scale_columns = static_cast<int>(first.scale_columns);
        view.first.block_rows = static_cast<int>(first.format.block_rows);
        view.first.block_columns = static_cast<int>(first.format.block_columns);
        view.first.row_offset = static_cast<int>(first.row_offset);
        view.first.column_offset = static_cast<int>(first.column_offset);
        view.stride_bytes = static_cast<std::int64_t>(first.data.size());
        view.scale_stride = static_cast<std::int64_t>(first.scales.size());
        view.experts = static_cast<int>(matrices.size());
    }
    explicit OnDevice(const WeightMatrix& matrix) : OnDevice(std::vector<const WeightMatrix*>{&matrix}) {}
    std::unique_ptr<Device<std::byte>> data;
    std::unique_ptr<Device<float>> scales;
    ExpertMatrices view;
};

/// Worst |y - x W^T - bias| as a share of `unit` x the sum of the terms' magnitudes. NaN gives infinity.
double worst_error(const std::vector<float>& y, std::int64_t y_stride, const std::vector<float>& x, std::int64_t m,
                   std::int64_t x_stride, const std::vector<float>& weights, std::int64_t rows, std::int64_t columns,
                   const float* bias, double unit) {
    double worst = 0;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t r = 0; r < rows; ++r) {
            double sum = bias != nullptr ? static_cast<double>(bias[r]) : 0;
            double magnitude = std::abs(sum) + 1e-30;
            for (std::int64_t c = 0; c < columns; ++c) {
                const double term = static_cast<double>(x[static_cast<std::size_t>(i * x_stride + c)]) *
                                    static_cast<double>(weights[static_cast<std::size_t>(r * columns + c)]);
                sum += term;
                magnitude += std::abs(term);
            }
            const double error =
                std::abs(static_cast<double>(y[static_cast<std::size_t>(i * y_stride + r)]) - sum) / (unit * magnitude);
            worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
        }
    }
    return worst;
}

/// A float sum of k terms in any order is within (k + 4) 2^-24 of the sum of magnitudes. Tensor cores cut off where the others
/// round, which doubles it, and few terms leave the three products of each: 16.
double float_unit(std::int64_t terms) { return static_cast<double>(2 * std::min<std::int64_t>(terms, 256) + 16) * 0x1p-24; }

struct Shape {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_offset = 0;
    std::int64_t column_offset = 0;
};

class CudaMatrices : public testing::Test {
 protected:
    void SetUp() override {
        int devices = 0;
        if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    }

    /// few_rows_matmul for m rows of x, with every row and every m checked against float64 and for equal bits.
    static void expect_few_rows(const Shape& shape, const WeightFormat& format) {
        const std::string where =
            std::string(format.name()) + " " + std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
        const WeightMatrix matrix =
            cpu::random_matrix(shape.rows, shape.columns, format, 1, shape.row_offset, shape.column_offset);
        const OnDevice device(matrix);
        const std::int64_t x_stride = shape.columns % 4 == 0 ? shape.columns + 4 : shape.columns + 1;
        const auto x = cpu::random_floats(static_cast<std::size_t>(kFewRows * x_stride), 2);
        const auto bias = cpu::random_floats(static_cast<std::size_t>(shape.rows), 3);
        const Device<float> device_x(x);
        const Device<float> device_bias(bias);
        const std::int64_t y_stride = shape.rows + 3;
        Device<float> y(static_cast<std::size_t>(kFewRows * y_stride));
        few_rows_matmul(device_x.get(), kFewRows, x_stride, device.view.first, device_bias.get(), y.get(), y_stride, nullptr);
        const auto all = y.read();
        const auto weights = cpu::dequantised(matrix);
        EXPECT_LT(worst_error(all, y_stride, x, kFewRows, x_stride, weights, shape.rows, shape.columns, bias.data(),
                              float_unit(shape.columns)),
                  1)
            << where;
        for (std::int64_t i = 0; i < kFewRows; ++i) {
            for (std::int64_t r = shape.rows; r < y_stride; ++r) {
                ASSERT_TRUE(std::isnan(all[static_cast<std::size_t>(i * y_stride + r)])) << where << ": wrote beyond a row";
            }
        }
        for (int m = 1; m < kFewRows; ++m) {
            y.poison();
            // Rows from the end, so that each lies at another place in its pass.
            const int first = kFewRows - m;
            few_rows_matmul(device_x.get() + first * x_stride, m, x_stride, device.view.first, device_bias.get(), y.get(),
                            y_stride, nullptr);
            const auto some = y.read();
            for (std::int64_t i = 0; i < m; ++i) {
                ASSERT_EQ(std::memcmp(some.data() + i * y_stride, all.data() + (first + i) * y_stride,
                                      static_cast<std::size_t>(shape.rows) * 4),
                          0)
                    << where << " m " << m << " row " << i;
            }
        }
    }
};

TEST_F(CudaMatrices, Few_rows_match_float64_in_every_format_and_a_row_has_the_same_bits_in_a_pass_of_any_width) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        for (const Shape& shape : {Shape{1, 8}, Shape{40, 64}, Shape{33, 256}, Shape{50, 1000}, Shape{16, 77}, Shape{300, 520},
                                   Shape{256, 2048}, Shape{130, 4096}, Shape{64, 7168}}) {
            expect_few_rows(shape, format);
        }
    }
}

TEST_F(CudaMatrices, Few_rows_match_where_a_share_begins_inside_a_block_of_scales) {
    const WeightFormat blocks{NumberFormat::fp8_e4m3, 128, 128, 32, 0};
    expect_few_rows({200, 512, 100, 64}, blocks);
    expect_few_rows({200, 512, 3, 96}, blocks);  // no fast path: a scale changes within a step
    expect_few_rows({100, 256, 0, 32}, {NumberFormat::int4, 1, 32, 16, 0});
}

TEST_F(CudaMatrices, Few_rows_of_wide_and_tall_matrices_match) {
    expect_few_rows({2112, 1536}, WeightFormat::plain(NumberFormat::bf16));
    expect_few_rows({40, 18432}, {NumberFormat::fp8_e4m3, 128, 128, 32, 0});
    expect_few_rows({5000, 128}, {NumberFormat::int4, 1, 32, 16, 0});
}

TEST_F(CudaMatrices, A_NaN_code_of_fp8_reaches_its_own_output_only_and_an_infinity_stays_one) {
    const WeightFormat format = WeightFormat::plain(NumberFormat::fp8_e4m3);
    WeightMatrix matrix = cpu::random_matrix(48, 320, format, 5);
    matrix.data.data()[17 * matrix.row_bytes + 201] = std::byte{0xFF};
    auto x = cpu::random_floats(2 * 320, 6);
    const OnDevice device(matrix);
    Device<float> y(2 * 48);
    const Device<float> device_x(x);
    few_rows_matmul(device_x.get(), 2, 320, device.view.first, nullptr, y.get(), 48, nullptr);
    auto result = y.read();
    for (std::size_t r = 0; r < 48; ++r) {
        EXPECT_EQ(std::isnan(result[r]), r == 17) << r;
        EXPECT_EQ(std::isnan(result[48 + r]), r == 17) << r;
    }
    const WeightMatrix ones = cpu::matrix_from_floats(std::vector<float>(32 * 64, 1.0F), 32, 64, NumberFormat::bf16);
    const OnDevice device_ones(ones);
    x[3] = std::numeric_limits<float>::infinity();
    const Device<float> infinite(x);
    few_rows_matmul(infinite.get(), 2, 320, device_ones.view.first, nullptr, y.get(), 48, nullptr);
    result = y.read();
    for (std::size_t r = 0; r < 32; ++r) {
        EXPECT_EQ(result[r], std::numeric_limits<float>::infinity());
        EXPECT_TRUE(std::isfinite(result[48 + r]));
    }
}

TEST_F(CudaMatrices, Matrices_of_heads_match_float64_in_both_directions) {
    // kv_b of MLA: heads x (nope + v) rows of latent columns.
    constexpr int kHeads = 3, kNope = 24, kValue = 40;
    constexpr std::int64_t kLatent = 136;
    for (const WeightFormat& format : cpu::sample_formats()) {
        const WeightMatrix matrix = cpu::random_matrix(kHeads * (kNope + kValue), kLatent, format, 7);
        const auto weights = cpu::dequantised(matrix);
        const OnDevice device(matrix);
        for (const int m : {1, 2, 3, 5, 8, 11}) {
            const std::int64_t wide = kHeads * kLatent + 4;
            const std::int64_t narrow = kHeads * (kNope + kValue);
            const auto x = cpu::random_floats(static_cast<std::size_t>(m * wide), 8);
            const auto q = cpu::random_floats(static_cast<std::size_t>(m * narrow), 9);
            const Device<float> device_x(x), device_q(q);
            Device<float> values(static_cast<std::size_t>(m * narrow)), latents(static_cast<std::size_t>(m * wide));
            head_rows_matmul(device_x.get(), m, kHeads, wide, kLatent, device.view.first, kNope + kValue, kNope, kValue,
                             values.get(), narrow, kNope + kValue, nullptr);
            head_columns_matmul(device_q.get(), m, kHeads, narrow, kNope + kValue, device.view.first, kNope + kValue, 0, kNope,
                                latents.get(), wide, kLatent, nullptr);
            const auto y = values.read();
            const auto z = latents.read();
            for (int i = 0; i < m; ++i) {
                for (int h = 0; h < kHeads; ++h) {
                    for (int r = 0; r < kValue; ++r) {
                        double sum = 0, magnitude = 0;
                        for (std::int64_t c = 0; c < kLatent; ++c) {
                            const double term =
                                static_cast<double>(x[static_cast<std::size_t>(i * wide + h * kLatent + c)]) *
                                weights[static_cast<std::size_t>((h * (kNope + kValue) + kNope + r) * kLatent + c)];
                            sum += term;
                            magnitude += std::abs(term);
                        }
                        ASSERT_NEAR(y[static_cast<std::size_t>(i * narrow + h * (kNope + kValue) + r)], sum,
                                    float_unit(kLatent) * magnitude)
                            << format.name() << " m " << m;
                    }
                    for (std::int64_t c = 0; c < kLatent; ++c) {
                        double sum = 0, magnitude = 0;
                        for (int r = 0; r < kNope; ++r) {
                            const double term =
                                static_cast<double>(q[static_cast<std::size_t>(i * narrow + h * (kNope + kValue) + r)]) *
                                weights[static_cast<std::size_t>((h * (kNope + kValue) + r) * kLatent + c)];
                            sum += term;
                            magnitude += std::abs(term);
                        }
                        ASSERT_NEAR(z[static_cast<std::size_t>(i * wide + h * kLatent + c)], sum, float_unit(kNope) * magnitude)
                            << format.name() << " m " << m;
                    }
                }
            }
        }
    }
}

TEST_F(CudaMatrices, Many_rows_match_to_the_rounding_that_their_precision_names) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        const bool exact = format.format == NumberFormat::fp32;
        // Codes of fp8 without scales are bf16 numbers; times a scale they are rounded to 2^-9.
        const bool rounded = format.block_rows > 0;
        for (const Shape& shape : {Shape{96, 256}, Shape{200, 300}, Shape{48, 77}}) {
            const WeightMatrix matrix = cpu::random_matrix(shape.rows, shape.columns, format, 11);
            const auto weights = cpu::dequantised(matrix);
            const OnDevice device(matrix);
            for (const Precision precision : {Precision::fp32, Precision::bf16}) {
                DenseMath math(64, shape.columns, shape.rows, precision, DenseChoice::library);
                for (const int m : {1, 17, 64}) {
                    const auto x = cpu::random_floats(static_cast<std::size_t>(m * shape.columns), 12);
                    const auto bias = cpu::random_floats(static_cast<std::size_t>(shape.rows), 13);
                    const Device<float> device_x(x), device_bias(bias);
                    Device<float> y(static_cast<std::size_t>(m * shape.rows));
                    math.matmul(device_x.get(), m, shape.columns, device.view.first, device_bias.get(), y.get(), shape.rows,
                                nullptr);
                    const double of_x = exact ? 0 : precision == Precision::bf16 ? 0x1p-8 : 0x1p-16;
                    const double unit = float_unit(shape.columns) + of_x + (rounded ? 0x1p-8 : 0);
                    EXPECT_LT(worst_error(y.read(), shape.rows, x, m, shape.columns, weights, shape.rows, shape.columns,
                                          bias.data(), unit),
                              1)
                        << format.name() << " m " << m << " rows " << shape.rows;
                }
            }
        }
    }
}

TEST_F(CudaMatrices, Many_rows_of_a_large_quantised_matrix_are_unpacked_a_block_at_a_time) {
    // 64 MiB hold 8192 rows of 4096 columns: the last 100 rows are a block of their own.
    const WeightFormat format{NumberFormat::int4, 1, 32, 16, 0};
    const std::int64_t rows = 8292, columns = 4096;
    const WeightMatrix matrix = cpu::random_matrix(rows, columns, format, 14);
    const OnDevice device(matrix);
    const int m = 17;
    const auto x = cpu::random_floats(static_cast<std::size_t>(m * columns), 15);
    const Device<float> device_x(x);
    Device<float> y(static_cast<std::size_t>(m * rows)), exact(static_cast<std::size_t>(kFewRows * rows));
    DenseMath math(m, columns, rows, Precision::fp32, DenseChoice::few_rows);
    math.matmul(device_x.get(), m, columns, device.view.first, nullptr, y.get(), rows, nullptr);
    math.matmul(device_x.get(), kFewRows, columns, device.view.first, nullptr, exact.get(), rows, nullptr);
    const auto a = y.read();
    const auto b = exact.read();
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        norm += std::pow(static_cast<double>(b[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 3e-3);
    EXPECT_THROW(math.matmul(device_x.get(), m + 1, columns, device.view.first, nullptr, y.get(), rows, nullptr),
                 std::runtime_error);
}

/// Experts first .. first + count on the CPU and on the GPU.
struct Experts {
    Experts(int count, int first, std::int64_t hidden, std::int64_t width, const WeightFormat& format,
            std::int64_t width_offset = 0) {
        host.first_expert = first;
        for (int e = 0; e < count; ++e) {
            cpu::DenseWeights expert;
            const auto seed = static_cast<std::uint64_t>(100 + 3 * (e + first));
            expert.gate_up.parts.push_back(cpu::random_matrix(width, hidden, format, seed, width_offset, 0));
            expert.gate_up.parts.push_back(cpu::random_matrix(width, hidden, format, seed + 1, width_offset, 0));
            expert.down = cpu::random_matrix(hidden, width, format, seed + 2, 0, width_offset);
            // Outputs of the order of 1: plain formats hold N(0, 1).
            host.experts.push_back(std::move(expert));
        }
        std::vector<const WeightMatrix*> gates, ups, downs;
        for (const cpu::DenseWeights& expert : host.experts) {
            gates.push_back(&expert.gate_up.parts[0]);
            ups.push_back(&expert.gate_up.parts[1]);
            downs.push_back(&expert.down);
        }
        gate = std::make_unique<OnDevice>(gates);
        up = std::make_unique<OnDevice>(ups);
        down = std::make_unique<OnDevice>(downs);
        layer = {gate->view, up->view, down->view, first};
    }
    cpu::MoeWeights host;
    std::unique_ptr<OnDevice> gate, up, down;
    ExpertLayer layer;
};

std::vector<float> run_on_device(const Experts& experts, const std::vector<float>& x, int m, std::int64_t hidden,
                                 std::int64_t width, const std::vector<std::int32_t>& ids, int k) {
    const Device<float> device_x(x);
    const Device<std::int32_t> device_ids(ids);
    Device<float> output(static_cast<std::size_t>(m * k * hidden));
    const Device<std::byte> workspace(
        static_cast<std::size_t>(experts_workspace_bytes(m * k, width, static_cast<int>(experts.host.experts.size()))));
    run_experts(device_x.get(), m, hidden, experts.layer, device_ids.get(), k, output.get(), workspace.get(), nullptr);
    return output.read();
}

/// k different experts of `all` a row.
std::vector<std::int32_t> random_ids(int m, int k, int all, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<std::int32_t> ids, order(static_cast<std::size_t>(all));
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < m; ++i) {
        std::shuffle(order.begin(), order.end(), generator);
        ids.insert(ids.end(), order.begin(), order.begin() + k);
    }
    return ids;
}

struct ExpertCase {
    std::int64_t hidden = 0;
    std::int64_t width = 0;
    int held = 0;   ///< by this rank,
    int first = 0;  ///< from here on,
    int all = 0;    ///< of so many
    int k = 1;
    int m = 1;
    std::int64_t width_offset = 0;
};

TEST_F(CudaMatrices, Experts_match_float64_and_other_ranks_pairs_are_zero_and_a_token_has_the_same_bits_alone) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        for (const ExpertCase& c :
             {ExpertCase{64, 32, 3, 4, 8, 2, 5}, ExpertCase{256, 24, 8, 0, 8, 2, 40}, ExpertCase{200, 72, 6, 0, 6, 3, 9, 32},
              ExpertCase{2048, 96, 5, 0, 5, 4, 16}, ExpertCase{1000, 8, 4, 2, 7, 4, 70}}) {
            const std::string where = std::string(format.name()) + " hidden " + std::to_string(c.hidden);
            const Experts experts(c.held, c.first, c.hidden, c.width, format, c.width_offset);
            const auto x = cpu::random_floats(static_cast<std::size_t>(c.m * c.hidden), 20);
            const auto ids = random_ids(c.m, c.k, c.all, 21);
            const auto output = run_on_device(experts, x, c.m, c.hidden, c.width, ids, c.k);
            std::vector<std::vector<float>> gates, ups, downs;
            for (const cpu::DenseWeights& expert : experts.host.experts) {
                gates.push_back(cpu::dequantised(expert.gate_up.parts[0]));
                ups.push_back(cpu::dequantised(expert.gate_up.parts[1]));
                downs.push_back(cpu::dequantised(expert.down));
            }
            double error = 0, norm = 0;
            for (std::size_t pair = 0; pair < ids.size(); ++pair) {
                const float* token = x.data() + static_cast<std::int64_t>(pair) / c.k * c.hidden;
                const float* result = output.data() + static_cast<std::int64_t>(pair) * c.hidden;
                const int local = ids[pair] - c.first;
                if (local < 0 || local >= c.held) {
                    for (std::int64_t i = 0; i < c.hidden; ++i) ASSERT_EQ(result[i], 0.0F) << where;
                    continue;
                }
                const auto dot = [](const float* a, const double* b, const float* b32, std::int64_t n) {
                    double sum = 0;
                    for (std::int64_t i = 0; i < n; ++i)
                        sum += static_cast<double>(a[i]) * (b != nullptr ? b[i] : static_cast<double>(b32[i]));
                    return sum;
                };
                std::vector<double> inner(static_cast<std::size_t>(c.width));
                for (std::int64_t r = 0; r < c.width; ++r) {
                    const double g = dot(gates[static_cast<std::size_t>(local)].data() + r * c.hidden, nullptr, token, c.hidden);
                    const double u = dot(ups[static_cast<std::size_t>(local)].data() + r * c.hidden, nullptr, token, c.hidden);
                    inner[static_cast<std::size_t>(r)] = g / (1 + std::exp(-g)) * u;
                }
                double pair_error = 0, pair_norm = 0;
                for (std::int64_t r = 0; r < c.hidden; ++r) {
                    const double expected =
                        dot(downs[static_cast<std::size_t>(local)].data() + r * c.width, inner.data(), nullptr, c.width);
                    pair_error += std::pow(static_cast<double>(result[r]) - expected, 2);
                    pair_norm += expected * expected;
                }
                ASSERT_LT(std::sqrt(pair_error), 2e-5 * std::sqrt(pair_norm) + 1e-20) << where << " pair " << pair;
                error += pair_error;
                norm += pair_norm;
            }
            EXPECT_LT(std::sqrt(error), 3e-6 * std::sqrt(norm)) << where;
            for (int i = 0; i < c.m; i += std::max(1, c.m / 6)) {
                const auto at = static_cast<std::ptrdiff_t>(i);
                const std::vector<float> row(x.begin() + at * c.hidden, x.begin() + (at + 1) * c.hidden);
                const std::vector<std::int32_t> row_ids(ids.begin() + at * c.k, ids.begin() + (at + 1) * c.k);
                const auto alone = run_on_device(experts, row, 1, c.hidden, c.width, row_ids, c.k);
                ASSERT_EQ(std::memcmp(alone.data(), output.data() + at * c.k * c.hidden, alone.size() * sizeof(float)), 0)
                    << where << " row " << i;
            }
        }
    }
}

TEST_F(CudaMatrices, Experts_of_full_width_match_the_CPU) {
    // The shapes of Kimi-K2.5 and Qwen3-30B-A3B at a rank, with few experts.
    for (const auto& [hidden, width, format] :
         {std::tuple<std::int64_t, std::int64_t, WeightFormat>{7168, 256, {NumberFormat::int4, 1, 32, 16, 0}},
          {2048, 768, WeightFormat::plain(NumberFormat::bf16)},
          {4096, 128, {NumberFormat::fp8_e4m3, 128, 128, 32, 0}}}) {
        const Experts experts(4, 0, hidden, width, format);
        const int m = 12;
        const auto x = cpu::random_floats(static_cast<std::size_t>(m * hidden), 22);
        const auto ids = random_ids(m, 2, 4, 23);
        const auto output = run_on_device(experts, x, m, hidden, width, ids, 2);
        std::vector<float> expected(output.size());
        cpu::Scratch scratch;
        cpu::run_experts(x.data(), m, hidden, experts.host, ids.data(), 2, expected.data(), scratch);
        double error = 0, norm = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            error += std::pow(static_cast<double>(output[i]) - static_cast<double>(expected[i]), 2);
            norm += std::pow(static_cast<double>(expected[i]), 2);
        }
        EXPECT_LT(std::sqrt(error), 3e-6 * std::sqrt(norm)) << format.name();
    }
}

TEST_F(CudaMatrices, Captured_into_a_graph_products_and_experts_give_what_they_gave) {
    const std::int64_t hidden = 512, width = 64;
    const Experts experts(6, 0, hidden, width, {NumberFormat::int4, 1, 32, 16, 0});
    const WeightMatrix matrix = cpu::random_matrix(hidden, hidden, WeightFormat::plain(NumberFormat::bf16), 25);
    const OnDevice device(matrix);
    const int m = 20, k = 3;
    const auto x = cpu::random_floats(static_cast<std::size_t>(m * hidden), 26);
    const Device<float> device_x(x);
    const Device<std::int32_t> ids(random_ids(m, k, 6, 27));
    Device<float> y(static_cast<std::size_t>(m * hidden)), z(static_cast<std::size_t>(m * hidden)),
        output(static_cast<std::size_t>(m * k * hidden));
    const Device<std::byte> workspace(static_cast<std::size_t>(experts_workspace_bytes(m * k, width, 6)));
    DenseMath math(m, hidden, hidden, Precision::fp32, DenseChoice::few_rows);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    const auto enqueue = [&] {
        // Each reads what the one before wrote.
        math.matmul(device_x.get(), m, hidden, device.view.first, nullptr, y.get(), hidden, stream);
        math.matmul(y.get(), 4, hidden, device.view.first, nullptr, z.get(), hidden, stream);
        math.matmul(z.get(), 4, hidden, device.view.first, nullptr, y.get(), hidden, stream);
        run_experts(y.get(), m, hidden, experts.layer, ids.get(), k, output.get(), workspace.get(), stream);
    };
    enqueue();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const auto eager = output.read();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    enqueue();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < 20; ++replay) {
        output.poison();
        y.poison();
        z.poison();
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        const auto replayed = output.read();
        ASSERT_EQ(std::memcmp(replayed.data(), eager.data(), eager.size() * sizeof(float)), 0) << "replay " << replay;
    }
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void expect_routes_as_the_cpu(const std::vector<float>& logits, const model::MoeFeedForward& moe, const Numerics& numerics,
                              const std::vector<float>& bias, const char* what) {
    const auto m = static_cast<int>(logits.size()) / moe.experts;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(m * moe.experts_per_token));
    std::vector<float> weights(ids.size());
    cpu::Scratch scratch;
    cpu::route(logits.data(), m, moe, numerics, bias.empty() ? nullptr : bias.data(), ids.data(), weights.data(), scratch);
    const Device<float> device_logits(logits), device_bias(bias);
    Device<std::int32_t> device_ids(ids.size());
    Device<float> device_weights(ids.size());
    RouterRule rule;
    rule.experts = moe.experts;
    rule.k = moe.experts_per_token;
    rule.sigmoid = moe.scoring == model::RouterScoring::sigmoid;
    rule.groups = moe.groups;
    rule.top_groups = moe.top_groups;
    rule.normalise = numerics.normalise_top_k;
    rule.scaling = static_cast<float>(numerics.routed_scaling);
    rule.correction_bias = bias.empty() ? nullptr : device_bias.get();
    route(device_logits.get(), m, rule, device_ids.get(), device_weights.get(), nullptr);
    EXPECT_EQ(device_ids.read(), ids) << what;
    const auto found = device_weights.read();
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (std::isnan(weights[i])) {
            EXPECT_TRUE(std::isnan(found[i])) << what;
        } else {
            EXPECT_NEAR(found[i], weights[i], 1e-5 * std::abs(weights[i]) + 1e-30) << what;
        }
    }
}

TEST_F(CudaMatrices, Rows_are_routed_as_the_CPU_routes_them_ties_and_NaNs_included) {
    const float nan = std::nanf("");
    const float infinity = std::numeric_limits<float>::infinity();
    for (const bool normalise : {true, false}) {
        Numerics numerics;
        numerics.normalise_top_k = normalise;
        numerics.routed_scaling = 2.5;
        for (const int experts : {1, 4, 40, 128, 384, 512}) {
            model::MoeFeedForward moe;
            moe.experts = experts;
            moe.experts_per_token = std::min(experts, 10);
            auto logits = cpu::random_floats(static_cast<std::size_t>(17 * experts), 30);
            // Row 1 has many equals, row 2 a NaN where its best would be, row 3 nothing else, row 4 negative infinities.
            for (int e = 0; e < experts; ++e) {
                logits[static_cast<std::size_t>(experts + e)] = static_cast<float>(e % 3);
                logits[static_cast<std::size_t>(3 * experts + e)] = nan;
                logits[static_cast<std::size_t>(4 * experts + e)] = e % 2 == 0 ? -infinity : (e % 5 == 0 ? 0.0F : -0.0F);
            }
            logits[static_cast<std::size_t>(2 * experts + experts / 2)] = nan;
            expect_routes_as_the_cpu(logits, moe, numerics, {}, "softmax");
            moe.scoring = model::RouterScoring::sigmoid;
            // The sigmoid of the CPU differs by a rounding, which would order near-equals another way: coarse logits.
            for (float& logit : logits) logit = std::isfinite(logit) ? std::round(logit * 16) / 16 : logit;
            std::vector<float> bias(static_cast<std::size_t>(experts));
            for (int e = 0; e < experts; ++e) bias[static_cast<std::size_t>(e)] = static_cast<float>(e % 7) * 0.01F;
            expect_routes_as_the_cpu(logits, moe, numerics, {}, "sigmoid");
            if (experts >= 40) {
                expect_routes_as_the_cpu(logits, moe, numerics, bias, "bias");
                moe.groups = 8;
                moe.top_groups = 4;
                expect_routes_as_the_cpu(logits, moe, numerics, bias, "groups");
                moe.top_groups = 1;
                moe.experts_per_token = 6;  // more than some groups hold: the others follow by index
                expect_routes_as_the_cpu(logits, moe, numerics, {}, "one group");
            }
        }
    }
}

TEST_F(CudaMatrices, Combining_adds_the_weighted_experts_to_the_gated_shared_one) {
    for (const std::int64_t hidden : {7, 64, 1000}) {
        const int m = 3, k = 5;
        const auto outputs = cpu::random_floats(static_cast<std::size_t>(m * k * hidden), 40);
        const auto weights = cpu::random_floats(static_cast<std::size_t>(m * k), 41);
        const auto shared = cpu::random_floats(static_cast<std::size_t>(m * hidden), 42);
        const auto gate = cpu::random_floats(static_cast<std::size_t>(m), 43);
        const Device<float> device_outputs(outputs), device_weights(weights), device_shared(shared), device_gate(gate);
        Device<float> block(static_cast<std::size_t>(m * hidden));
        for (int with = 0; with < 3; ++with) {
            block.poison();
            combine(device_outputs.get(), device_weights.get(), m, k, hidden, with > 0 ? device_shared.get() : nullptr,
                    with > 1 ? device_gate.get() : nullptr, block.get(), nullptr);
            const auto result = block.read();
            for (std::int64_t i = 0; i < m * hidden; ++i) {
                const std::int64_t row = i / hidden;
                double sum = with > 0 ? static_cast<double>(shared[static_cast<std::size_t>(i)]) : 0;
                if (with > 1) sum /= 1 + std::exp(-static_cast<double>(gate[static_cast<std::size_t>(row)]));
                for (int j = 0; j < k; ++j) {
                    sum += static_cast<double>(weights[static_cast<std::size_t>(row * k + j)]) *
                           static_cast<double>(outputs[static_cast<std::size_t>((row * k + j) * hidden + i % hidden)]);
                }
                ASSERT_NEAR(result[static_cast<std::size_t>(i)], sum, 1e-5) << hidden << " with " << with;
            }
        }
    }
}

TEST_F(CudaMatrices, Embedding_takes_the_rows_of_this_rank_exactly_and_zeros_for_others) {
    for (const WeightFormat& format : cpu::sample_formats()) {
        for (const std::int64_t columns : {40, 77, 1032}) {
            const WeightMatrix table = cpu::random_matrix(20, columns, format, 50);
            const auto weights = cpu::dequantised(table);
            const OnDevice device(table);
            const std::vector<std::int32_t> tokens{100, 119, 99, 120, 107, 0};
            const Device<std::int32_t> device_tokens(tokens);
            Device<float> output(tokens.size() * static_cast<std::size_t>(columns));
            embed(device.view.first, 100, device_tokens.get(), static_cast<int>(tokens.size()), output.get(), nullptr);
            const auto result = output.read();
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                const std::int64_t row = tokens[i] - 100;
                for (std::int64_t c = 0; c < columns; ++c) {
                    const float expected = row >= 0 && row < 20 ? weights[static_cast<std::size_t>(row * columns + c)] : 0.0F;
                    ASSERT_EQ(result[i * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)], expected)
                        << format.name();
                }
            }
        }
    }
}

TEST_F(CudaMatrices, The_best_tokens_come_in_order_with_ties_to_the_lower_and_NaN_last) {
    for (const std::int64_t vocabulary : {5, 1000, 32001, 151936, 262144}) {
        const int rows = 4;
        const std::int64_t stride = vocabulary + 4;
        auto logits = cpu::random_floats(static_cast<std::size_t>(rows * stride), 60);
        for (float& value : logits) value *= 3;
        for (std::int64_t t = 0; t < vocabulary; ++t) {
            auto& tied = logits[static_cast<std::size_t>(stride + t)];
            tied = std::round(tied);  // many equals, zeros of both signs
            if (t % 2 == 0) logits[static_cast<std::size_t>(2 * stride + t)] = std::nanf("");
            logits[static_cast<std::size_t>(3 * stride + t)] =
                t == vocabulary / 2 ? std::nanf("") : -std::numeric_limits<float>::infinity();
        }
        const Device<float> device(logits);
        for (const int k : {1, 2, 4, 64}) {
            Device<std::int32_t> tokens(static_cast<std::size_t>(rows * k));
            Device<float> values(static_cast<std::size_t>(rows * k)), sums(rows);
            best_tokens(device.get(), rows, vocabulary, stride, k, tokens.get(), values.get(), sums.get(), nullptr);
            const auto found = tokens.read();
            const auto found_values = values.read();
            const auto found_sums = sums.read();
            for (int r = 0; r < rows; ++r) {
                const float* row = logits.data() + r * stride;
                std::vector<std::int32_t> order(static_cast<std::size_t>(vocabulary));
                std::iota(order.begin(), order.end(), 0);
                const auto count = std::min<std::int64_t>(k, vocabulary);
                std::partial_sort(order.begin(), order.begin() + count, order.end(), [row](std::int32_t a, std::int32_t b) {
                    if (std::isnan(row[a]) != std::isnan(row[b])) return std::isnan(row[b]);
                    if (!std::isnan(row[a]) && row[a] != row[b]) return row[a] > row[b];
                    return a < b;
                });
                for (std::int64_t j = 0; j < k; ++j) {
                    const std::int32_t token = found[static_cast<std::size_t>(r * k + j)];
                    if (j >= count) {
                        ASSERT_EQ(token, -1);
                        continue;
                    }
                    ASSERT_EQ(token, order[static_cast<std::size_t>(j)])
                        << "vocabulary " << vocabulary << " k " << k << " row " << r << " place " << j;
                    const float value = found_values[static_cast<std::size_t>(r * k + j)];
                    ASSERT_TRUE(value == row[token] || (std::isnan(value) && std::isnan(row[token])));
                }
                double sum = 0;
                const float best = row[order[0]];
                for (std::int64_t t = 0; t < vocabulary; ++t) {
                    if (row[t] == best) {
                        sum += 1;
                    } else if (!std::isnan(row[t])) {
                        sum += std::exp(static_cast<double>(row[t]) - static_cast<double>(best));
                    }
                }
                ASSERT_NEAR(found_sums[static_cast<std::size_t>(r)], sum, 1e-5 * sum)
                    << "vocabulary " << vocabulary << " row " << r;
            }
        }
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
