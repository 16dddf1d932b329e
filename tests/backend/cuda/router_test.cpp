// SPDX-License-Identifier: Apache-2.0
// Kernels that take the norm along (experts.h): the same bits as one after the other, whatever rows stand beside a row. What the
// single kernels compute is held against the CPU in experts_test.cpp and elementwise_test.cpp.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/matmul.h"
#include "matrices_on_device.h"

namespace draftboard::backend::cuda {
namespace {

using cpu::WeightMatrix;
using model::NumberFormat;
using model::WeightFormat;

class CudaRouter : public CudaTest {};

constexpr float kEpsilon = 1e-6F;

std::vector<float> floats(std::int64_t count, std::uint64_t seed) { return cpu::random_floats(static_cast<std::size_t>(count), seed); }

TEST_F(CudaRouter, Combining_with_the_norm_has_the_bits_of_adding_combining_and_then_norming) {
    for (const int hidden : {64, 1000, 2048, 7168}) {
        const int m = 3, k = 9;
        const Device<float> outputs(floats(std::int64_t{m} * k * hidden, 1)), weights(floats(m * k, 2)), shared(floats(m * hidden, 3)),
            gate(floats(m, 4)), norm_weight(floats(hidden, 5)), waiting(floats(std::int64_t{m} * hidden, 7));
        const auto before = floats(std::int64_t{m} * hidden, 6);
        for (int with = 0; with < 4; ++with) {
            const float* of_shared = with > 0 ? shared.get() : nullptr;
            const float* of_gate = with > 1 ? gate.get() : nullptr;
            const float* of_block = with > 2 ? waiting.get() : nullptr;
            const Device<float> stream(before), stream_of_both(before);
            Device<float> block(before.size()), normed(before.size()), kept(before.size()), normed_of_both(before.size()),
                kept_of_both(before.size());
            if (of_block != nullptr) {
                add_rms_norm(stream.get(), of_block, norm_weight.get(), m, hidden, kEpsilon, normed.get(), hidden, nullptr, 0, nullptr);
            }
            combine(outputs.get(), weights.get(), m, k, hidden, of_shared, of_gate, block.get(), nullptr);
            add_rms_norm(stream.get(), block.get(), norm_weight.get(), m, hidden, kEpsilon, normed.get(), hidden, kept.get(), hidden,
                         nullptr);
            ASSERT_TRUE(can_norm_in_place(hidden));
            combine_add_norm(outputs.get(), weights.get(), m, k, hidden, of_shared, of_gate, of_block,
                             {stream_of_both.get(), norm_weight.get(), kEpsilon, normed_of_both.get(), hidden, kept_of_both.get(),
                              hidden},
                             nullptr);
            EXPECT_EQ(normed_of_both.read(), normed.read()) << hidden << " with " << with;
            EXPECT_EQ(stream_of_both.read(), stream.read()) << hidden << " with " << with;
            EXPECT_EQ(kept_of_both.read(), stream.read()) << hidden << " with " << with;
        }
    }
}

struct Scored {
    std::vector<float> scores, normed;
};

struct Router {
    OnDevice matrix;
    std::vector<float> stream, block, norm_weight;
    int hidden = 0;
    int experts = 0;

    /// Rows [first, first + m); with the norm in the kernel or before it.
    [[nodiscard]] Scored run(int first, int m, bool together) const {
        const auto rows = [&](const std::vector<float>& all) {
            return std::vector<float>(all.begin() + first * hidden, all.begin() + (first + m) * hidden);
        };
        const auto before = rows(stream);
        const Device<float> x(before), added(rows(block)), weight(norm_weight);
        Device<float> normed(before.size()), scores(static_cast<std::size_t>(m * experts));
        ResidualNorm norm{x.get(), weight.get(), kEpsilon, normed.get(), hidden, nullptr, 0};
        if (!together) {
            add_rms_norm(x.get(), added.get(), weight.get(), m, hidden, kEpsilon, normed.get(), hidden, nullptr, 0, nullptr);
            norm.weight = nullptr;
        }
        score_few_rows(norm, together ? added.get() : nullptr, m, matrix.view.first, scores.get(), nullptr);
        if (together) {
            EXPECT_EQ(x.read(), before) << "the stream is left alone";
        }
        return {scores.read(), normed.read()};
    }
};

TEST_F(CudaRouter, A_row_has_the_same_bits_with_the_norm_or_after_it_alone_or_beside_others_and_is_right) {
    for (const NumberFormat number : {NumberFormat::bf16, NumberFormat::fp32}) {
        for (const auto& [experts, hidden] : {std::pair{128, 2048}, std::pair{384, 7168}, std::pair{6, 40}, std::pair{130, 1000}}) {
            const WeightMatrix matrix = cpu::random_matrix(experts, hidden, WeightFormat{number, 0, 0, 0, 0}, 7);
            const Router router{OnDevice(matrix), floats(kFewRows * hidden, 8), floats(kFewRows * hidden, 9), floats(hidden, 10), hidden,
                                experts};
            const Scored apart = router.run(0, kFewRows, false);
            const Scored all = router.run(0, kFewRows, true);
            EXPECT_EQ(all.scores, apart.scores) << experts;
            EXPECT_EQ(all.normed, apart.normed) << experts;
            for (const int row : {0, 5, kFewRows - 1}) {
                const Scored one = router.run(row, 1, true);
                const auto begin = all.scores.begin() + row * experts;
                EXPECT_EQ(one.scores, std::vector<float>(begin, begin + experts)) << experts << " row " << row;
            }
            const auto weights = cpu::dequantised(matrix);
            double worst = 0, size = 0;
            for (int i = 0; i < kFewRows; ++i) {
                for (int e = 0; e < experts; ++e) {
                    double sum = 0;
                    for (int c = 0; c < hidden; ++c) {
                        sum += static_cast<double>(weights[static_cast<std::size_t>(e * hidden + c)]) *
                               static_cast<double>(all.normed[static_cast<std::size_t>(i * hidden + c)]);
                    }
                    worst = std::max(worst, std::abs(sum - static_cast<double>(all.scores[static_cast<std::size_t>(i * experts + e)])));
                    size = std::max(size, std::abs(sum));
                }
            }
            EXPECT_LT(worst, 1e-5 * size) << experts;
        }
    }
}

TEST(Router, What_does_not_fit_is_left_to_the_single_kernels) {
    DeviceMatrix router;
    router.rows = 128;
    router.columns = 2048;
    router.row_bytes = 4096;
    EXPECT_TRUE(can_score_few_rows(router));
    router.rows = 384;
    EXPECT_FALSE(can_score_few_rows(router)) << "every row would read 1.5 MB";
    router.rows = 128;
    router.format = Stored::int4;
    EXPECT_FALSE(can_score_few_rows(router));
    EXPECT_FALSE(can_norm_in_place(7));
    EXPECT_FALSE(can_norm_in_place(16384));
}

}  // namespace
}  // namespace draftboard::backend::cuda
