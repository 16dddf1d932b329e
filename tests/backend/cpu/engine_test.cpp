// SPDX-License-Identifier: Apache-2.0
// The CPU engine against the reference fixtures of tests/reference (made by Hugging Face transformers), and against itself
// in other layouts and in pieces.
#include "backend/cpu/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace draftboard::backend::cpu {
namespace {

using model::Pass;

const std::string kFixtures = std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/reference/";

std::vector<std::string> families() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) {
        if (std::filesystem::exists(entry.path() / "expected.safetensors")) names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
}

struct Fixture {
    Checkpoint checkpoint;
    SafetensorsFile expected;

    [[nodiscard]] std::vector<int> integers(const std::string& name) const {
        const TensorView& tensor = expected.tensors().find(name)->second;
        std::vector<std::int64_t> wide(static_cast<std::size_t>(tensor.elements()));
        std::memcpy(wide.data(), tensor.bytes.data(), tensor.bytes.size());
        return {wide.begin(), wide.end()};
    }
    [[nodiscard]] std::vector<float> floats(const std::string& name) const {
        const TensorView& tensor = expected.tensors().find(name)->second;
        std::vector<float> numbers(static_cast<std::size_t>(tensor.elements()));
        std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
        return numbers;
    }
    [[nodiscard]] bool has(const std::string& name) const { return expected.tensors().contains(name); }
};

Fixture load(const std::string& family) {
    auto checkpoint = Checkpoint::open(kFixtures + family);
    EXPECT_TRUE(checkpoint.has_value()) << (checkpoint ? "" : checkpoint.error().to_text());
    auto expected = SafetensorsFile::open(kFixtures + family + "/expected.safetensors");
    EXPECT_TRUE(expected.has_value()) << (expected ? "" : expected.error().to_text());
    return {std::move(*checkpoint), std::move(*expected)};
}

std::unique_ptr<Engine> engine_of(const Checkpoint& checkpoint, Team& team, EngineOptions options = {}) {
    options.max_length = 256;
    auto engine = load_target(checkpoint, options, team);
    EXPECT_TRUE(engine.has_value()) << (engine ? "" : engine.error().to_text());
    return engine ? std::move(*engine) : nullptr;
}

std::vector<float> forward(LanguageModel& model, Pass pass, std::vector<int> tokens, std::vector<int> parents = {},
                           std::vector<float> features = {}, ForwardOutput* whole = nullptr) {
    Batch batch;
    batch.pass = pass;
    batch.sequences = {0};
    batch.tokens = static_cast<int>(tokens.size());
    batch.token_ids = std::move(tokens);
    batch.parents = std::move(parents);
    batch.features = std::move(features);
    ForwardOutput output;
    const auto done = model.forward(batch, {}, output);
    EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().to_text());
    if (whole != nullptr) *whole = output;
    return output.logits;
}

std::vector<int> chain(std::size_t count) {
    std::vector<int> path(count);
    std::iota(path.begin(), path.end(), 0);
    return path;
}

/// Largest error as a share of the tolerance 2e-3 max(1, standard deviation of the expected logits).
double share_of_tolerance(const std::vector<float>& got, const std::vector<float>& expected) {
    EXPECT_EQ(got.size(), expected.size());
    const double count = static_cast<double>(expected.size());
    const double mean = std::accumulate(expected.begin(), expected.end(), 0.0) / count;
    double squares = 0;
    double worst = 0;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        squares += (expected[i] - mean) * (expected[i] - mean);
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
        if (!std::isfinite(got[i])) worst = INFINITY;
    }
    return worst / (2e-3 * std::max(1.0, std::sqrt(squares / count)));
}

class ReferenceFamily : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceFamily, Gives_the_logits_of_transformers_in_prefill_decode_and_tree_verify) {
    const Fixture fixture = load(GetParam());
    for (const int ranks : {1, 2}) {
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
    const std::vector<int> expected = fixture.integers("prefill_experts");
    ASSERT_EQ(routing.size(), expected.size());
    const auto k = static_cast<std::size_t>(fixture.expected.tensors().find("prefill_experts")->second.shape.back());
    for (std::size_t at = 0; at < routing.size(); at += k) std::sort(routing.begin() + static_cast<std::ptrdiff_t>(at), routing.begin() + static_cast<std::ptrdiff_t>(at + k));
    EXPECT_TRUE(std::equal(routing.begin(), routing.end(), expected.begin()));
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
    Team team(2, false);
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
    auto alone = engine_of(fixture.checkpoint, one);
    auto spread = engine_of(fixture.checkpoint, two, options);
    ASSERT_NE(spread, nullptr);
    const std::vector<int> prompt = fixture.integers("prompt_ids");
    EXPECT_LE(share_of_tolerance(forward(*spread, Pass::verify, prompt), forward(*alone, Pass::verify, prompt)), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ReferenceFamily, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace draftboard::backend::cpu
