// SPDX-License-Identifier: Apache-2.0
// Sampled text with a drafter is distributed as the target alone would write it: tokens 2 to 4 of 20000 texts against their
// exact joint distribution, computed here and not by the code under test.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "backend/decode_loop.h"
#include "tests/backend/loop/chi_square.h"
#include "tests/backend/loop/toy_setup.h"

namespace draftboard::backend {
namespace {

constexpr int kVocabulary = 8;
constexpr int kTexts = 20000;
const std::vector<int> kPrompt{1, 2, 3, 1, 2, 3, 1, 2};

std::vector<double> exact(const ToyLanguage& language, int previous, int last, std::int64_t position,
                          const Sampling& sampling) {
    const std::vector<float> logits = language.logits(previous, last, position);
    std::vector<double> p;
    for (const float logit : logits) p.push_back(std::exp(static_cast<double>(logit) / sampling.temperature));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
    double mass = 0;
    for (const std::size_t v : order) {
        if (mass >= sampling.top_p) p[v] = 0;
        mass += p[v];
    }
    const double kept = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= kept;
    return p;
}

/// P(x2, x3, x4): the first token comes from the prompt, the others from speculative cycles.
std::vector<double> joint(const ToyLanguage& language, const Sampling& sampling) {
    std::vector<double> out(kVocabulary * kVocabulary * kVocabulary, 0.0);
    const auto n = static_cast<std::int64_t>(kPrompt.size());
    const auto p1 = exact(language, kPrompt[kPrompt.size() - 2], kPrompt.back(), n - 1, sampling);
    for (int a = 0; a < kVocabulary; ++a) {
        const auto p2 = exact(language, kPrompt.back(), a, n, sampling);
        for (int b = 0; b < kVocabulary; ++b) {
            const auto p3 = exact(language, a, b, n + 1, sampling);
            for (int c = 0; c < kVocabulary; ++c) {
                const auto p4 = exact(language, b, c, n + 2, sampling);
                for (int d = 0; d < kVocabulary; ++d) {
                    out[static_cast<std::size_t>((b * kVocabulary + c) * kVocabulary + d)] +=
                        p1[static_cast<std::size_t>(a)] * p2[static_cast<std::size_t>(b)] *
                        p3[static_cast<std::size_t>(c)] * p4[static_cast<std::size_t>(d)];
                }
            }
        }
    }
    return out;
}

struct Drawn {
    std::vector<double> counts;
    AcceptanceCounter acceptance;
};

Drawn draw_texts(ToyMethod method, const ToySetup& setup, const Sampling& sampling) {
    ToyPair pair = make_pair_of(method, setup);
    DecodeLoop loop(*pair.target, pair.drafter.get(), {.seed = 2024});
    for (int i = 0; i < kTexts; ++i) EXPECT_TRUE(loop.submit({kPrompt, sampling, 4, {}}));
    EXPECT_TRUE(loop.run());
    Drawn out{std::vector<double>(kVocabulary * kVocabulary * kVocabulary, 0.0), loop.acceptance()};
    for (int i = 0; i < kTexts; ++i) {
        const auto& t = loop.result(i).tokens;
        ++out.counts[static_cast<std::size_t>((t[1] * kVocabulary + t[2]) * kVocabulary + t[3])];
    }
    return out;
}

class Lossless : public testing::TestWithParam<std::tuple<ToyMethod, Sampling>> {};

TEST_P(Lossless, Sampled_text_is_distributed_as_the_targets_own) {
    const auto& [method, sampling] = GetParam();
    ToySetup setup;
    setup.language.vocabulary = kVocabulary;
    setup.language.sharpness = 1.2;
    setup.draft_tokens = 7;
    setup.top_k = 2;
    const Drawn drawn = draw_texts(method, setup, sampling);
    const ChiSquare test = chi_square(drawn.counts, joint(setup.language, sampling));
    RecordProperty("chi_square", std::to_string(test.statistic));
    RecordProperty("critical", std::to_string(test.critical));
    EXPECT_TRUE(test.fits()) << test.statistic << " > " << test.critical;
    // The drafts mattered: some were accepted, some rejected.
    if (method != ToyMethod::none) {
        EXPECT_GT(drawn.acceptance.accepted(), kTexts / 5);
        EXPECT_LT(drawn.acceptance.reached(1), drawn.acceptance.hits() * 19 / 20);
    }
    // And the test would notice a target that is a tenth warmer.
    EXPECT_FALSE(chi_square(drawn.counts,
                            joint(setup.language, {.temperature = sampling.temperature * 1.1, .top_p = sampling.top_p}))
                     .fits());
}

std::string name_of(const testing::TestParamInfo<Lossless::ParamType>& info) {
    std::string name = to_text(std::get<0>(info.param)) + (std::get<1>(info.param).top_p < 1 ? " in a nucleus" : "");
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(
    Methods, Lossless,
    testing::Combine(testing::Values(ToyMethod::none, ToyMethod::eagle3_chain, ToyMethod::eagle3_tree, ToyMethod::mtp_chain,
                                     ToyMethod::draft_chain, ToyMethod::draft_tree, ToyMethod::ngram,
                                     ToyMethod::ngram_plain_misses),
                     testing::Values(Sampling{.temperature = 1.0}, Sampling{.temperature = 0.8, .top_p = 0.8})),
    name_of);

TEST(LosslessWithASmallDraftVocabulary, Sampled_text_is_distributed_as_the_targets_own) {
    ToySetup setup;
    setup.language.vocabulary = kVocabulary;
    setup.language.sharpness = 1.2;
    setup.draft_vocabulary = {6, 1, 3};
    const Sampling sampling{.temperature = 1.0};
    const Drawn drawn = draw_texts(ToyMethod::eagle3_chain, setup, sampling);
    const ChiSquare test = chi_square(drawn.counts, joint(setup.language, sampling));
    EXPECT_TRUE(test.fits()) << test.statistic << " > " << test.critical;
    EXPECT_GT(drawn.acceptance.accepted(), kTexts / 5);
}

}  // namespace
}  // namespace draftboard::backend
