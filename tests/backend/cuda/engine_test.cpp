// SPDX-License-Identifier: Apache-2.0
// The GPU engine against the reference fixtures of tests/reference (made by Hugging Face transformers), against the CPU engine,
// and against itself in other layouts, launch modes and in pieces. Without a GPU these tests are skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_engines.h"
#include "backend/cuda/cuda_engines.h"
#include "tests/backend/cuda/gpu_engines.h"
#include "tests/backend/reference_fixture.h"

namespace draftboard::backend::cuda {
namespace {

using model::Pass;

EngineRequest request() {
    EngineRequest request;
    request.max_length = 256;
    return request;
}

/// A target and the factory that its drafter comes from.
struct Made {
    std::unique_ptr<EngineFactory> engines;
    std::unique_ptr<backend::Engine> target;
};

Made make(std::unique_ptr<EngineFactory> engines, const Checkpoint& checkpoint, const EngineRequest& wanted = request()) {
    Made made{std::move(engines), nullptr};
    auto target = made.engines->target(checkpoint, wanted);
    EXPECT_TRUE(target.has_value()) << (target ? "" : target.error().to_text());
    if (target) made.target = std::move(*target);
    return made;
}

std::vector<float> decode_all(LanguageModel& model, const std::vector<int>& tokens) {
    std::vector<float> out;
    for (const int token : tokens) {
        const std::vector<float> row = forward(model, Pass::decode, {token});
        out.insert(out.end(), row.begin(), row.end());
    }
    return out;
}

class GpuFamily : public testing::TestWithParam<std::string> {
   protected:
    void SetUp() override {
        if (gpus() == 0) GTEST_SKIP() << "no GPU";
    }
};

TEST_P(GpuFamily, Gives_the_logits_of_transformers_and_of_the_CPU_engine) {
    const Fixture fixture = load(GetParam());
    Made cpu = make(cpu::cpu_engines({}), fixture.checkpoint);
    ASSERT_NE(cpu.target, nullptr);
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    const std::vector<float> of_cpu = forward(*cpu.target, Pass::verify, prompt);
    for (const int ranks : {1, 2}) {
        if (!divides(fixture.checkpoint, ranks)) continue;
        Made gpu = make(cuda_engines(settings_of(ranks)), fixture.checkpoint);
        ASSERT_NE(gpu.target, nullptr);
        const std::vector<float> expected = fixture.floats("prefill_logits");
        const std::vector<float> verified = forward(*gpu.target, Pass::verify, prompt);
        gpu.target->discard(0);
        const double all_rows = share_of_tolerance(verified, expected);
        const double beside_cpu = share_of_tolerance(verified, of_cpu);
        (void)forward(*gpu.target, Pass::prefill, {prompt.begin(), prompt.begin() + 10});
        const auto vocabulary = static_cast<std::ptrdiff_t>(gpu.target->vocabulary());
        const double last_row = share_of_tolerance(forward(*gpu.target, Pass::prefill, {prompt.begin() + 10, prompt.end()}),
                                                   {expected.end() - vocabulary, expected.end()});
        const double tree = share_of_tolerance(
            forward(*gpu.target, Pass::verify, fixture.integers("tree_tokens"), fixture.integers("tree_parents")),
            fixture.floats("tree_logits"));
        gpu.target->discard(0);
        const double decode =
            share_of_tolerance(decode_all(*gpu.target, fixture.integers("decode_ids")), fixture.floats("decode_logits"));
        std::printf(
            "%-28s ranks %d  error as a share of the tolerance: prompt %.4f prefill %.4f tree %.4f decode %.4f, beside the CPU "
            "%.4f\n",
            GetParam().c_str(), ranks, all_rows, last_row, tree, decode, beside_cpu);
        EXPECT_LE(all_rows, 1.0);
        EXPECT_LE(last_row, 1.0);
        EXPECT_LE(tree, 1.0);
        EXPECT_LE(decode, 1.0);
        EXPECT_LE(beside_cpu, 1.0);
    }
}

TEST_P(GpuFamily, Chooses_the_experts_of_transformers) {
    const Fixture fixture = load(GetParam());
    if (!fixture.has("prefill_experts")) GTEST_SKIP() << "a dense family";
    Made gpu = make(cuda_engines(settings_of(1)), fixture.checkpoint);
    ASSERT_NE(gpu.target, nullptr);
    std::vector<std::uint16_t> routing;
    gpu.target->set_routing_record(&routing);
    (void)forward(*gpu.target, Pass::verify, fixture.integers("prompt_ids"));
    expect_experts_of_transformers(std::move(routing), fixture);
}

TEST_P(GpuFamily, Verifies_rows_exactly_as_it_decodes_them_in_every_launch_mode) {
    // One pass over the rows gives bit for bit what single steps give; eager, in pieces and as a graph alike. The first run of a
    // shape is eager whatever the mode, so each is run three times.
    const Fixture fixture = load(GetParam());
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    const std::vector<int> tokens = fixture.integers("decode_ids");
    std::vector<float> first;
    for (const LaunchMode mode : {LaunchMode::eager, LaunchMode::piecewise, LaunchMode::full}) {
        CudaSettings settings = settings_of(1);
        settings.launch = {mode, mode, mode};
        Made gpu = make(cuda_engines(settings), fixture.checkpoint);
        ASSERT_NE(gpu.target, nullptr);
        for (int run = 0; run < 3; ++run) {
            gpu.target->clear(0);
            (void)forward(*gpu.target, Pass::prefill, prompt);
            const std::vector<float> verified = forward(*gpu.target, Pass::verify, tokens);
            gpu.target->discard(0);
            EXPECT_EQ(verified, decode_all(*gpu.target, tokens)) << to_name(mode) << " run " << run;
            if (first.empty()) first = verified;
            EXPECT_EQ(verified, first) << to_name(mode) << " run " << run;
        }
    }
}

TEST_P(GpuFamily, Rolls_back_exactly) {
    const Fixture fixture = load(GetParam());
    Made gpu = make(cuda_engines(settings_of(1)), fixture.checkpoint);
    ASSERT_NE(gpu.target, nullptr);
    const std::vector<int> tokens = fixture.integers("decode_ids");
    (void)forward(*gpu.target, Pass::prefill, fixture.integers("prompt_ids"));
    (void)forward(*gpu.target, Pass::verify, tokens);
    gpu.target->commit(0, std::vector<int>{0, 1});
    const std::vector<float> after_rollback = forward(*gpu.target, Pass::decode, {tokens[3]});

    gpu.target->clear(0);
    (void)forward(*gpu.target, Pass::prefill, fixture.integers("prompt_ids"));
    (void)forward(*gpu.target, Pass::decode, {tokens[0]});
    (void)forward(*gpu.target, Pass::decode, {tokens[1]});
    EXPECT_EQ(after_rollback, forward(*gpu.target, Pass::decode, {tokens[3]}));
}

TEST_P(GpuFamily, Keeps_a_branch_of_a_tree_exactly) {
    // Tree: node 0, its children 1 and 2, 2's child 3. Keeping 0, 2, 3 equals decoding these three tokens, bit for bit.
    const Fixture fixture = load(GetParam());
    Made gpu = make(cuda_engines(settings_of(divides(fixture.checkpoint, 2) ? 2 : 1)), fixture.checkpoint);
    ASSERT_NE(gpu.target, nullptr);
    const std::vector<int> tokens = fixture.integers("decode_ids");
    (void)forward(*gpu.target, Pass::prefill, fixture.integers("prompt_ids"));
    (void)forward(*gpu.target, Pass::verify, {tokens[0], tokens[4], tokens[1], tokens[2]}, {-1, 0, 0, 2});
    gpu.target->commit(0, std::vector<int>{0, 2, 3});
    const std::vector<float> after = forward(*gpu.target, Pass::decode, {tokens[3]});

    gpu.target->clear(0);
    (void)forward(*gpu.target, Pass::prefill, fixture.integers("prompt_ids"));
    const std::vector<float> plain = decode_all(*gpu.target, {tokens[0], tokens[1], tokens[2], tokens[3]});
    EXPECT_EQ(after, std::vector<float>(plain.end() - static_cast<std::ptrdiff_t>(after.size()), plain.end()));
}

TEST_P(GpuFamily, Chooses_on_the_GPU_what_the_host_would_choose) {
    const Fixture fixture = load(GetParam());
    Made gpu = make(cuda_engines(settings_of(1)), fixture.checkpoint);
    ASSERT_NE(gpu.target, nullptr);
    Batch batch;
    batch.pass = Pass::verify;
    batch.sequences = {0};
    batch.token_ids = fixture.integers("prompt_ids");
    batch.tokens = static_cast<int>(batch.token_ids.size());
    ForwardOutput with_logits;
    ASSERT_TRUE(gpu.target->forward(batch, {}, with_logits).has_value());
    gpu.target->discard(0);
    batch.greedy = true;
    ForwardOutput choices;
    ASSERT_TRUE(gpu.target->forward(batch, {}, choices).has_value());
    ASSERT_EQ(choices.choices.size(), batch.token_ids.size());
    const auto vocabulary = static_cast<std::size_t>(gpu.target->vocabulary());
    for (std::size_t row = 0; row < batch.token_ids.size(); ++row) {
        const GreedyChoice expected = greedy_choice(with_logits, row, vocabulary);
        EXPECT_EQ(choices.choices[row].token, expected.token);
        EXPECT_DOUBLE_EQ(choices.choices[row].gap, expected.gap);
    }
}

TEST_P(GpuFamily, Spreads_experts_over_ranks_with_the_same_result) {
    const Fixture fixture = load(GetParam());
    if (!fixture.has("prefill_experts")) GTEST_SKIP() << "a dense family";
    if (!divides(fixture.checkpoint, 2, true)) GTEST_SKIP() << "its matrices do not divide over two ranks";
    Made alone = make(cuda_engines(settings_of(1)), fixture.checkpoint);
    CudaSettings spread_settings = settings_of(2);
    spread_settings.expert_parallel = true;
    Made spread = make(cuda_engines(spread_settings), fixture.checkpoint);
    ASSERT_NE(spread.target, nullptr);
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    EXPECT_LE(share_of_tolerance(forward(*spread.target, Pass::verify, prompt), forward(*alone.target, Pass::verify, prompt)),
              0.1);
}

/// Median over rows of |got - expected| / |expected|.
double median_row_error(const std::vector<float>& got, const std::vector<float>& expected, std::size_t width) {
    std::vector<double> errors;
    for (std::size_t at = 0; at + width <= std::min(got.size(), expected.size()); at += width) {
        double difference = 0;
        double size = 0;
        for (std::size_t c = at; c < at + width; ++c) {
            difference += std::pow(static_cast<double>(got[c]) - static_cast<double>(expected[c]), 2);
            size += std::pow(static_cast<double>(expected[c]), 2);
        }
        errors.push_back(std::sqrt(difference / size));
    }
    EXPECT_FALSE(errors.empty());
    std::ranges::nth_element(errors, errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2));
    return errors[errors.size() / 2];
}

TEST_P(GpuFamily, Runs_in_bf16_within_the_error_of_bf16) {
    // Inputs of matrices rounded to 8 bits: relative errors of 2^-9 each, which add up over a few layers to a percent or so.
    // Where rounding turns the choice of an expert a row is another function's, so the median row is what counts.
    const Fixture fixture = load(GetParam());
    CudaSettings settings = settings_of(1);
    settings.bf16_activations = true;
    settings.bf16_cache = true;
    settings.cublaslt_for_all = true;
    Made gpu = make(cuda_engines(settings), fixture.checkpoint);
    ASSERT_NE(gpu.target, nullptr);
    const double error = median_row_error(forward(*gpu.target, Pass::verify, fixture.integers("prompt_ids")),
                                          fixture.floats("prefill_logits"), static_cast<std::size_t>(gpu.target->vocabulary()));
    std::printf("%-28s bf16     error of the median row: %.4f\n", GetParam().c_str(), error);
    EXPECT_LE(error, 0.05);
    EXPECT_GT(error, 1e-4);  // else it did not run in bf16
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GpuFamily, testing::ValuesIn(families()), [](const auto& instance) { return instance.param; });

TEST(GpuDrafter, Drafts_as_the_CPU_engine_from_the_targets_states) {
    if (gpus() == 0) GTEST_SKIP() << "no GPU";
    for (const std::string family : {"deepseek_v3", "qwen3_5_moe"}) {
        const Fixture fixture = load(family);
        const bool eagle3 = family == "deepseek_v3";
        const auto architecture = fixture.checkpoint.architecture();
        ASSERT_TRUE(architecture.has_value());
        EngineRequest wanted = request();
        wanted.hidden_read = true;
        model::Speculation speculation;
        speculation.method = eagle3 ? model::SpeculationMethod::eagle3 : model::SpeculationMethod::mtp;
        speculation.steps = 3;
        speculation.acceptance = *model::acceptance_from_conditional({0.5, 0.5, 0.5});
        std::optional<Checkpoint> head;
        if (eagle3) {
            auto opened = Checkpoint::open(kFixtures + family + "/eagle3");
            ASSERT_TRUE(opened.has_value());
            head = std::move(*opened);
            const auto description = head->eagle3(*architecture);
            ASSERT_TRUE(description.has_value());
            wanted.feature_layers = description->aux_layers;
            speculation.head = description->head;
        }
        for (const int ranks : {1, 2}) {
            std::vector<std::vector<float>> logits;  // of the devices, in order
            for (const bool on_gpu : {false, true}) {
                Made made =
                    make(on_gpu ? cuda_engines(settings_of(ranks)) : cpu::cpu_engines({ranks}), fixture.checkpoint, wanted);
                ASSERT_NE(made.target, nullptr);
                EngineRequest own = request();
                auto drafter = eagle3 ? made.engines->eagle3(*head, speculation, own)
                                      : made.engines->mtp(fixture.checkpoint, speculation, own);
                ASSERT_TRUE(drafter.has_value()) << drafter.error().to_text();
                ForwardOutput output;
                (void)forward(*made.target, Pass::verify, fixture.integers("prompt_ids"), {}, {}, &output);
                const std::string name = eagle3 ? "eagle3" : "mtp";
                const std::vector<float> features = eagle3 ? output.features : output.hidden;
                std::vector<float> of_device =
                    forward(**drafter, Pass::draft_extend, fixture.integers(name + "_input_ids"), {}, features, &output);
                const auto hidden = static_cast<std::ptrdiff_t>((*drafter)->hidden());
                for (const int token : fixture.integers(name + "_step_tokens")) {
                    ASSERT_GE(static_cast<std::ptrdiff_t>(output.hidden.size()), hidden);
                    const std::vector<float> row = forward(**drafter, Pass::draft, {token}, {},
                                                           {output.hidden.end() - hidden, output.hidden.end()}, &output);
                    of_device.insert(of_device.end(), row.begin(), row.end());
                }
                logits.push_back(std::move(of_device));
            }
            const double share = share_of_tolerance(logits[1], logits[0]);
            std::printf("%-28s ranks %d  drafter's error beside the CPU as a share of the tolerance: %.4f\n", family.c_str(),
                        ranks, share);
            EXPECT_LE(share, 1.0);
        }
    }
}

TEST(GpuEngine, Refuses_more_GPUs_than_there_are) {
    const Fixture fixture = load("qwen3_moe");
    CudaSettings settings;
    settings.ranks = 2;
    settings.devices = {0, 100};
    const auto engine = cuda_engines(settings)->target(fixture.checkpoint, request());
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().code, model::ErrorCode::unavailable);  // no GPU at all, or not that many
}

TEST(GpuEngine, Refuses_a_pass_wider_than_its_buffers_and_goes_on) {
    if (gpus() == 0) GTEST_SKIP() << "no GPU";
    const Fixture fixture = load("qwen3_moe");
    EngineRequest narrow = request();
    narrow.max_rows = 4;
    Made gpu = make(cuda_engines(settings_of(1)), fixture.checkpoint, narrow);
    ASSERT_NE(gpu.target, nullptr);
    Batch batch;
    batch.pass = Pass::prefill;
    batch.sequences = {0};
    batch.tokens = 5;
    batch.token_ids = {1, 2, 3, 4, 5};
    ForwardOutput output;
    const auto refused = gpu.target->forward(batch, {}, output);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, model::ErrorCode::too_large);
    batch.tokens = 4;
    batch.token_ids.pop_back();
    EXPECT_TRUE(gpu.target->forward(batch, {}, output).has_value());
}

TEST(GpuEngine, Runs_one_ranks_share_of_a_layout_with_made_up_weights) {
    if (gpus() == 0) GTEST_SKIP() << "no GPU";
    const Fixture fixture = load("kimi_k2");
    auto architecture = fixture.checkpoint.architecture();
    ASSERT_TRUE(architecture.has_value());
    CudaSettings settings = settings_of(1);
    settings.tensor_rank_of = 2;
    if (!divides(fixture.checkpoint, 2)) GTEST_SKIP() << "it does not divide over two ranks";
    auto engines = cuda_engines(settings);
    auto target = engines->random_target(*architecture, request());
    ASSERT_TRUE(target.has_value()) << target.error().to_text();
    const std::vector<float> logits = forward(**target, Pass::prefill, {1, 2, 3});
    EXPECT_EQ(logits.size(), static_cast<std::size_t>(architecture->vocabulary / 2));
    EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
    EXPECT_NE(logits.front(), logits.back());
}

}  // namespace
}  // namespace draftboard::backend::cuda
