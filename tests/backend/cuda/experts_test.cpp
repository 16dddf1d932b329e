// SPDX-License-Identifier: Apache-2.0
// Routing and experts on the GPU against the CPU's kernels and float64. Inputs are fresh random numbers, outputs are NaN before.
#include "backend/cuda/experts.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "backend/cpu/experts.h"
#include "backend/cuda/matmul.h"
#include "matrices_on_device.h"

namespace draftboard::backend::cuda {
namespace {

using cpu::WeightMatrix;
using model::NumberFormat;
using model::WeightFormat;

class CudaExperts : public CudaTest {};

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

TEST_F(CudaExperts, Experts_match_float64_and_other_ranks_pairs_are_zero_and_a_token_has_the_same_bits_alone) {
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

TEST_F(CudaExperts, Experts_of_full_width_match_the_CPU) {
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

TEST_F(CudaExperts, Captured_into_a_graph_products_and_experts_give_what_they_gave) {
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

TEST_F(CudaExperts, Rows_are_routed_as_the_CPU_routes_them_ties_and_NaNs_included) {
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

TEST_F(CudaExperts, Combining_adds_the_weighted_experts_to_the_gated_shared_one) {
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

}  // namespace
}  // namespace draftboard::backend::cuda
