// SPDX-License-Identifier: Apache-2.0
#include "planning/comparison.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planning/scenario_variants.h"

namespace draftboard::planning {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";

sim::Prediction made_of(std::vector<sim::Term> terms, double rate) {
    sim::Prediction p;
    p.terms = std::move(terms);
    p.tokens_per_second = {rate, rate, rate};
    p.acceptance_length = {1, 1, 1};
    return p;
}

TEST(Contest, The_worked_example_of_the_header) {
    // sigma = sqrt((0.6 x 0.3)^2 + ((1 - 0.4) x 0.1)^2) = 0.19; P = Phi(log 1.1 / 0.19) = Phi(0.502) = 0.692
    const auto a = made_of({{"verify.collectives.wait", 6, 0, 1.8}, {"verify.experts", 4, 0, 0.4}}, 100);
    const auto b = made_of({{"verify.experts", 9, 0, 0.9}}, 110);
    const Contest result = contest({}, a, {}, b);
    EXPECT_NEAR(result.sigma_times, 0.1897, 1e-4);
    EXPECT_NEAR(result.gain.value, 1.1, 1e-12);
    EXPECT_NEAR(result.confidence, 0.692, 1e-3);
    EXPECT_NEAR(result.gain.high, 1.1 * std::exp(1.645 * 0.1897), 1e-3);
}

TEST(Contest, What_both_get_wrong_alike_does_not_matter) {
    const auto a = made_of({{"verify.experts", 10, 0, 5}}, 100);
    const auto b = made_of({{"verify.experts", 9, 0, 4.5}}, 101);
    EXPECT_EQ(contest({}, a, {}, b).confidence, 1);
    EXPECT_EQ(contest({}, b, {}, a).confidence, 0);
    EXPECT_EQ(contest({}, a, {}, a).confidence, 0.5);
}

TEST(Contest, Another_engine_or_drafter_brings_its_own_uncertainty) {
    auto a = made_of({{"host", 1, 0, 0}}, 100);
    auto b = made_of({{"host", 1, 0, 0}}, 105);
    a.acceptance_length = b.acceptance_length = {2, 1.8, 2.2};
    model::Scenario mine;
    mine.speculation.method = model::SpeculationMethod::mtp;
    model::Scenario theirs = mine;
    EXPECT_EQ(contest(mine, a, theirs, b).sigma, 0);
    theirs.engine.name = "vLLM";
    EXPECT_NEAR(contest(mine, a, theirs, b).sigma, 0.08 * std::sqrt(2.0), 1e-12);
    theirs.speculation.acceptance.source = "another drafter";
    EXPECT_GT(contest(mine, a, theirs, b).sigma_length, 0.08);
}

TEST(Comparison, Terms_add_up_to_the_cycles_and_the_changed_field_is_named) {
    Variants variants(std::make_shared<SharedConstants>(kData), load_base("kimi-k2.5-eagle3-founding", kData, {}).value());
    std::vector<Compared> all;
    std::vector<model::Json> documents;
    for (const model::Edits& edits :
         {model::Edits{}, model::Edits{"constants.host.cycle_us=100"}, model::Edits{"layout.decode_context=2"}}) {
        all.push_back({"x", variants.scenario(edits).value(), variants.predict(edits).value()});
        documents.push_back(load_base("kimi-k2.5-eagle3-founding", kData, edits).value().document);
    }
    const Comparison result = compare(all, documents);
    for (std::size_t i = 0; i < all.size(); ++i) {
        double sum = 0;
        for (const ComparedTerm& term : result.terms) sum += term.ms[i];
        EXPECT_NEAR(sum, all[i].prediction.cycle_ms, 1e-6);
    }
    ASSERT_EQ(result.differences.size(), 2U);
    EXPECT_EQ(result.differences[0], "layout.decode_context: 1 | 1 | 2");
    EXPECT_EQ(result.differences[1], "constants.host.cycle_us: 600 | 100 | 600");
    const std::string html = to_html(comparison_document(result));
    EXPECT_NE(html.find("<svg"), std::string::npos);
    EXPECT_EQ(html.find("http"), std::string::npos);  // nothing is loaded from elsewhere
}

TEST(Document, What_a_user_named_is_escaped) {
    Document document{"<a> & b", {Table{{"x|y", "n"}, {{"p|q", "1"}}, 1}, Paragraph{"<script>"}}};
    EXPECT_EQ(to_html(document).find("<script>"), std::string::npos);
    EXPECT_NE(to_markdown(document).find("p\\|q"), std::string::npos);
}

}  // namespace
}  // namespace draftboard::planning
