// SPDX-License-Identifier: Apache-2.0
// The shipped models on the GPU engine: the texts that transformers and the CPU engine write, whatever the drafter, the launch
// mode, the number of ranks and the collective. Without a GPU these tests are skipped.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/backend/cuda/gpu_engines.h"
#include "tests/backend/trained_models.h"

namespace draftboard::backend {
namespace {

struct GpuCase {
    std::string model;
    DraftMethod method;
    int steps;
    int ranks;
    int top_k = 1;
    cuda::LaunchMode launch = cuda::LaunchMode::full;
    bool fused = true;  ///< whole cycles on the GPU, where the launch mode and the drafter allow
};

InferenceSettings settings_of(const GpuCase& tried, int batch) {
    InferenceSettings settings = settings_of(tried.model, tried.method, tried.steps, tried.ranks);
    settings.top_k = tried.top_k;
    settings.batch = batch;
    settings.device = Device::cuda;
    settings.cuda = cuda::settings_of(tried.ranks);
    settings.cuda.launch = {tried.launch, tried.launch, tried.launch};
    settings.cuda.fused_cycles = tried.fused;
    return settings;
}

class TrainedModelOnGpu : public testing::TestWithParam<GpuCase> {};

TEST_P(TrainedModelOnGpu, Continues_greedily_as_transformers_does) {
    if (cuda::gpus() == 0) GTEST_SKIP() << "no GPU";
    const GpuCase& tried = GetParam();
    auto inference = Inference::open(settings_of(tried, 1));
    ASSERT_TRUE(inference.has_value()) << inference.error().to_text();
    expect_reference_continuations(*inference, tried.model);
}

std::string gpu_name_of(const testing::TestParamInfo<GpuCase>& instance) {
    const GpuCase& tried = instance.param;
    std::string name = tried.model + "_" + std::string(to_name(tried.method)) + "_steps_" + std::to_string(tried.steps) +
                       "_top_" + std::to_string(tried.top_k) + "_ranks_" + std::to_string(tried.ranks) + "_" +
                       std::string(to_name(tried.launch)) + (tried.fused ? "" : "_by_pass");
    for (char& letter : name) letter = letter == '-' ? '_' : letter;
    return name;
}

using cuda::LaunchMode;
INSTANTIATE_TEST_SUITE_P(
    Loop, TrainedModelOnGpu,
    testing::Values(
        GpuCase{"tiny-kimi", DraftMethod::none, 1, 1}, GpuCase{"tiny-kimi", DraftMethod::none, 1, 1, 1, LaunchMode::eager},
        GpuCase{"tiny-kimi", DraftMethod::none, 1, 2}, GpuCase{"tiny-kimi", DraftMethod::eagle3, 4, 1},
        GpuCase{"tiny-kimi", DraftMethod::eagle3, 4, 1, 1, LaunchMode::piecewise},
        GpuCase{"tiny-kimi", DraftMethod::eagle3, 3, 2}, GpuCase{"tiny-kimi", DraftMethod::eagle3, 3, 1, 3},
        GpuCase{"tiny-kimi", DraftMethod::ngram, 4, 1}, GpuCase{"tiny-kimi", DraftMethod::none, 1, 1, 1, LaunchMode::full, false},
        GpuCase{"tiny-kimi", DraftMethod::eagle3, 4, 2, 1, LaunchMode::full, false},
        GpuCase{"tiny-kimi", DraftMethod::eagle3, 1, 1}, GpuCase{"tiny-kimi", DraftMethod::eagle3, 2, 1},
        GpuCase{"tiny-qwen", DraftMethod::mtp, 1, 2}, GpuCase{"tiny-qwen", DraftMethod::mtp, 3, 1, 1, LaunchMode::full, false},
        GpuCase{"tiny-qwen", DraftMethod::none, 1, 1}, GpuCase{"tiny-qwen", DraftMethod::none, 1, 2},
        GpuCase{"tiny-qwen", DraftMethod::mtp, 4, 1}, GpuCase{"tiny-qwen", DraftMethod::mtp, 2, 2},
        GpuCase{"tiny-qwen", DraftMethod::mtp, 2, 1, 2}, GpuCase{"tiny-qwen", DraftMethod::mtp, 4, 1, 1, LaunchMode::piecewise},
        GpuCase{"tiny-qwen", DraftMethod::ngram, 3, 2}),
    gpu_name_of);

TEST_P(TrainedModelOnGpu, Writes_the_same_texts_in_a_batch) {
    // Four sequences at once, of which one after the other ends and another takes its slot: each text is the one that it is
    // alone.
    if (cuda::gpus() == 0) GTEST_SKIP() << "no GPU";
    const GpuCase& tried = GetParam();
    auto inference = Inference::open(settings_of(tried, 4));
    ASSERT_TRUE(inference.has_value()) << inference.error().to_text();
    const std::vector<std::string> prompts{"def main(",   "import os\n",       "The quick brown",
                                           "{\"name\": ", "class A:\n    def", "for i in range("};
    const auto run = [&](int batch, FusedCycle* fused) {
        LoopOptions options;
        options.batch = batch;
        options.fused = fused;
        DecodeLoop loop(inference->target(), inference->drafter(), options);
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            Request request;
            request.prompt = inference->tokenizer()->encode(prompts[i]);
            request.max_tokens = 20 + 7 * static_cast<int>(i);
            EXPECT_TRUE(loop.submit(std::move(request)).has_value());
        }
        const auto done = loop.run();
        EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().to_text());
        std::vector<std::vector<int>> texts;
        for (std::size_t i = 0; i < prompts.size(); ++i) texts.push_back(loop.result(static_cast<int>(i)).tokens);
        return std::pair{texts, loop.acceptance().histogram()};
    };
    const auto made = inference->fused_cycle();
    ASSERT_TRUE(made.has_value()) << made.error().to_text();
    FusedCycle* const fused = *made;
    const bool chain = tried.method == DraftMethod::none ||
                       (tried.top_k == 1 && (tried.method == DraftMethod::eagle3 || tried.method == DraftMethod::mtp));
    EXPECT_EQ(fused != nullptr, chain && tried.fused && tried.launch == cuda::LaunchMode::full);
    const auto together = run(4, fused);
    EXPECT_EQ(together.first, run(1, fused).first);
    // The host would draft and accept the same, cycle for cycle. The cycle is taken up again afterwards, on its graphs.
    EXPECT_EQ(together, run(4, nullptr));
    EXPECT_EQ(together, run(4, fused));
}

TEST(StandAloneDrafterOnGpu, Changes_nothing_of_the_text) {
    // The target drafts for itself: every draft is accepted, and the text is the target's.
    if (cuda::gpus() == 0) GTEST_SKIP() << "no GPU";
    const model::Json reference = read_json(kSource + "/tests/fixtures/trained/tiny-qwen.json");
    InferenceSettings settings = settings_of("tiny-qwen", DraftMethod::draft, 3, 1);
    settings.draft_model = settings.model;
    settings.device = Device::cuda;
    auto inference = Inference::open(settings);
    ASSERT_TRUE(inference.has_value()) << inference.error().to_text();
    AcceptanceCounter counter;
    const auto& entry = reference.at("cases")[0];
    const auto texts = continuations(*inference, {entry.at("prompt").get<std::string>()}, 48, &counter);
    EXPECT_EQ(texts[0], entry.at("continuation").get<std::vector<int>>());
    EXPECT_GT(counter.conditional(1).value, 0.97);
}

}  // namespace
}  // namespace draftboard::backend
