// SPDX-License-Identifier: Apache-2.0
// The CPU engine against the reference fixtures of tests/reference (made by Hugging Face transformers), and against itself
// in other layouts and in pieces.
#include "backend/cpu/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/backend/cpu/reference_fixture.h"

namespace draftboard::backend::cpu {
namespace {

class ReferenceFamily : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceFamily, Gives_the_logits_of_transformers_in_prefill_decode_and_tree_verify) {
    const Fixture fixture = load(GetParam());
    for (const int ranks : {1, 2}) {
        if (!divides(fixture.checkpoint, ranks)) continue;
        Team team(ranks, false);
        auto engine = engine_of(fixture.checkpoint, team);
        ASSERT_NE(engine, nullptr);
        const std::vector<int> prompt = fixture.integers("prompt_ids");
        const std::vector<float> expected = fixture.floats("prefill_logits");

        // All rows of the prompt, as one verify pass.
        const double all_rows = share_of_tolerance(forward(*engine, Pass::verify, prompt), expected);
        engine->discard(0);
        // The last row, as a prefill in two chunks.
        const std::vector<int> head(prompt.begin(), prompt.begin() + 10);
        const std::vector<int> tail(prompt.begin() + 10, prompt.end());
        (void)forward(*engine, Pass::prefill, head);
        const auto vocabulary = static_cast<std::size_t>(engine->vocabulary());
        const double last_row = share_of_tolerance(
            forward(*engine, Pass::prefill, tail),
            {expected.end() - static_cast<std::ptrdiff_t>(vocabulary), expected.end()});

        const double tree = share_of_tolerance(
            forward(*engine, Pass::verify, fixture.integers("tree_tokens"), fixture.integers("tree_parents")),
            fixture.floats("tree_logits"));
        engine->discard(0);

        std::vector<float> decoded;
        for (const int token : fixture.integers("decode_ids")) {
            const std::vector<float> row = forward(*engine, Pass::decode, {token});
            decoded.insert(decoded.end(), row.begin(), row.end());
        }
        const double decode = share_of_tolerance(decoded, fixture.floats("decode_logits"));
        std::printf("%-28s ranks %d  error as a share of the tolerance: prompt %.4f prefill %.4f tree %.4f decode %.4f\n",
                    GetParam().c_str(), ranks, all_rows, last_row, tree, decode);
        EXPECT_LE(all_rows, 1.0);
        EXPECT_LE(last_row, 1.0);
        EXPECT_LE(tree, 1.0);
        EXPECT_LE(decode, 1.0);
    }
}

TEST_P(ReferenceFamily, Chooses_the_experts_of_transformers) {
    const Fixture fixture = load(GetParam());
    if (!fixture.has("prefill_experts")) GTEST_SKIP() << "a dense family";
    Team team(1, false);
    auto engine = engine_of(fixture.checkpoint, team);
    ASSERT_NE(engine, nullptr);
    std::vector<std::uint16_t> routing;
    engine->set_routing_record(&routing);
    (void)forward(*engine, Pass::verify, fixture.integers("prompt_ids"));
    expect_experts_of_transformers(std::move(routing), fixture);
}

TEST_P(ReferenceFamily, Verifies_rows_exactly_as_it_decodes_them) {
    // One pass over four rows gives bit for bit what four decoding steps give.
    const Fixture fixture = load(GetParam());
    Team team(1, false);
    auto engine = engine_of(fixture.checkpoint, team);
    ASSERT_NE(engine, nullptr);
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    const std::vector<int> tokens = fixture.integers("decode_ids");
    (void)forward(*engine, Pass::prefill, prompt);
    const std::vector<float> verified = forward(*engine, Pass::verify, tokens);
    engine->discard(0);
    std::vector<float> decoded;
    for (const int token : tokens) {
        const std::vector<float> row = forward(*engine, Pass::decode, {token});
        decoded.insert(decoded.end(), row.begin(), row.end());
    }
    EXPECT_EQ(verified, decoded);
}

TEST_P(ReferenceFamily, Rolls_back_exactly) {
    // Rows that were rejected leave no trace: verify six, keep two, go on as if only the two had been decoded.
    const Fixture fixture = load(GetParam());
    Team team(1, false);
    auto engine = engine_of(fixture.checkpoint, team);
    ASSERT_NE(engine, nullptr);
    const std::vector<int> tokens = fixture.integers("decode_ids");
    (void)forward(*engine, Pass::prefill, fixture.integers("prompt_ids"));
    (void)forward(*engine, Pass::verify, tokens);
    const std::vector<int> kept{0, 1};
    engine->commit(0, kept);
    const std::vector<float> after_rollback = forward(*engine, Pass::decode, {tokens[3]});

    engine->clear(0);
    (void)forward(*engine, Pass::prefill, fixture.integers("prompt_ids"));
    (void)forward(*engine, Pass::decode, {tokens[0]});
    (void)forward(*engine, Pass::decode, {tokens[1]});
    EXPECT_EQ(after_rollback, forward(*engine, Pass::decode, {tokens[3]}));
}

TEST_P(ReferenceFamily, Keeps_a_branch_of_a_tree) {
    // Tree: node 0, its children 1 and 2, 2's child 3. Keeping 0, 2, 3 equals decoding these three tokens.
    const Fixture fixture = load(GetParam());
    Team team(divides(fixture.checkpoint, 2) ? 2 : 1, false);
    auto engine = engine_of(fixture.checkpoint, team);
    ASSERT_NE(engine, nullptr);
    const std::vector<int> tokens = fixture.integers("decode_ids");
    (void)forward(*engine, Pass::prefill, fixture.integers("prompt_ids"));
    (void)forward(*engine, Pass::verify, {tokens[0], tokens[4], tokens[1], tokens[2]}, {-1, 0, 0, 2});
    const std::vector<int> kept{0, 2, 3};
    engine->commit(0, kept);
    const std::vector<float> after = forward(*engine, Pass::decode, {tokens[3]});
    const std::vector<float> expected = fixture.floats("decode_logits");
    const auto width = static_cast<std::ptrdiff_t>(engine->vocabulary());
    EXPECT_LE(share_of_tolerance(after, {expected.begin() + 3 * width, expected.begin() + 4 * width}), 1.0);
    EXPECT_EQ(engine->length(0), static_cast<std::int64_t>(fixture.integers("prompt_ids").size()) + 4);
}

TEST_P(ReferenceFamily, Expands_latents_to_the_same_prefill) {
    const Fixture fixture = load(GetParam());
    Team team(1, false);
    auto absorbed = engine_of(fixture.checkpoint, team);
    EngineOptions options;
    options.expand_latents_in_prefill = true;
    auto expanded = engine_of(fixture.checkpoint, team, options);
    ASSERT_NE(expanded, nullptr);
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    EXPECT_LE(share_of_tolerance(forward(*expanded, Pass::prefill, prompt), forward(*absorbed, Pass::prefill, prompt)), 0.1);
}

TEST_P(ReferenceFamily, Spreads_experts_over_ranks_with_the_same_result) {
    const Fixture fixture = load(GetParam());
    Team one(1, false);
    Team two(2, false);
    EngineOptions options;
    options.expert_parallel = true;
    options.all_reduce = AllReduceAlgorithm::ring;
    if (!fixture.has("prefill_experts")) GTEST_SKIP() << "a dense family";
    if (!divides(fixture.checkpoint, 2, true)) GTEST_SKIP() << "its matrices do not divide over two ranks";
    auto alone = engine_of(fixture.checkpoint, one);
    auto spread = engine_of(fixture.checkpoint, two, options);
    ASSERT_NE(spread, nullptr);
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    EXPECT_LE(share_of_tolerance(forward(*spread, Pass::verify, prompt), forward(*alone, Pass::verify, prompt)), 0.1);
}

TEST(Engine, Refuses_ranks_that_would_cut_a_quantization_block) {
    const Fixture fixture = load("deepseek_v3_fp8");
    Team team(2, false);
    const auto engine = load_target(fixture.checkpoint, {}, team);
    ASSERT_FALSE(engine.has_value());
    EXPECT_THAT(engine.error().to_text(), testing::HasSubstr("128-wide blocks"));
}

TEST(Engine, Runs_made_up_weights_as_the_same_function_on_one_rank_and_on_two) {
    const Fixture fixture = load("kimi_k2");
    const auto architecture = fixture.checkpoint.architecture();
    ASSERT_TRUE(architecture.has_value());
    EngineOptions options;
    options.max_length = 64;
    std::vector<std::vector<float>> logits;
    for (const int ranks : {1, 2}) {
        Team team(ranks, false);
        const auto engine = random_engine(*architecture, options, 1, team);
        ASSERT_TRUE(engine.has_value()) << engine.error().to_text();
        logits.push_back(forward(**engine, Pass::verify, {1, 2, 3, 4, 5}));
    }
    EXPECT_GT(*std::ranges::max_element(logits[0]), *std::ranges::min_element(logits[0]));
    EXPECT_LE(share_of_tolerance(logits[1], logits[0]), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ReferenceFamily, testing::ValuesIn(families()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace draftboard::backend::cpu
