// SPDX-License-Identifier: Apache-2.0
// Causes that were put in are found again; the founding case; properties of the shares and of what is worth measuring.
#include "calibration/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibration/cost_constants.h"
#include "calibration/diagnosis_candidates.h"
#include "calibration/diagnosis_report.h"

namespace draftboard::calibration {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
constexpr const char* kFounding = "kimi-k2.5-eagle3-founding";
const model::Edits kGraph = {"engine.launch.verify=graph"};

struct Setting {
    model::Scenario scenario;
    sim::CostConstants constants;
};

Setting setting_of(const std::string& name, const model::Edits& edits = {}) {
    auto scenario = model::load_scenario(name, kData, edits);
    EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().to_text());
    auto constants = load_cost_constants(*scenario, kData);
    EXPECT_TRUE(constants) << (constants ? "" : constants.error().to_text());
    return {std::move(*scenario), std::move(*constants)};
}

Measured measured_of(const std::string& text) {
    const auto measured = parse_measured(text, "text");
    EXPECT_TRUE(measured) << (measured ? "" : measured.error().to_text());
    return measured.value_or(Measured{});
}

Diagnosis diagnose(const Setting& setting, const Measured& measured) {
    auto diagnosis = calibration::diagnose(setting.scenario, setting.constants, measured);
    EXPECT_TRUE(diagnosis) << (diagnosis ? "" : diagnosis.error().to_text());
    return diagnosis.value_or(Diagnosis{});
}

/// What one would measure where `candidate` is the cause; nothing: it does not apply here.
std::optional<Measured> as_measured(const Setting& setting, const Candidate& candidate, double factor) {
    sim::Predictor predictor(setting.constants);
    model::Scenario scenario = setting.scenario;
    if (candidate.change && !candidate.change(scenario, factor)) return std::nullopt;
    const auto prediction = predictor.predict(scenario);
    if (!prediction) return std::nullopt;
    Outcome outcome = outcome_of(scenario, *prediction, 0.08);
    if (candidate.scale && !candidate.scale(outcome, factor)) return std::nullopt;
    Measured measured;
    measured.noise = 0.02;
    for (const MeasuredField& field : measured_fields()) {
        if (const auto value = observe(outcome, std::string(field.name))) measured.values[std::string(field.name)] = value->value;
    }
    for (const sim::Term& term : outcome.terms) measured.values["terms." + term.name] = term.ms;
    return measured;
}

const WeighedCandidate* find(const Diagnosis& diagnosis, const std::string& name) {
    const auto found = std::ranges::find(diagnosis.candidates, name, &WeighedCandidate::name);
    return found == diagnosis.candidates.end() ? nullptr : &*found;
}

TEST(Diagnosis, The_founding_case_is_a_verify_pass_outside_of_a_graph_or_its_all_reduces) {
    // An engineer expects a graph. 30 ms where 16 are predicted, and a plain step that is as predicted.
    const Diagnosis diagnosis = diagnose(setting_of(kFounding, kGraph), measured_of("verify 30 ms, 60 tok/s, plain 82 tok/s"));
    ASSERT_GE(diagnosis.candidates.size(), 3u);
    EXPECT_EQ(diagnosis.candidates[0].name, "verify_eager");
    const auto* collectives = find(diagnosis, "verify_collectives_slower");
    ASSERT_NE(collectives, nullptr);
    EXPECT_GT(diagnosis.candidates[0].share + collectives->share, 0.8);
    EXPECT_GT(collectives->share, 0.02);
    ASSERT_FALSE(diagnosis.next.empty());
    // What tells an eager launch from slow all-reduces: their time alone, the launches, or a look at the launches.
    EXPECT_THAT(diagnosis.next[0].name, testing::AnyOf("all_reduce_us", "terms.launch", "look for verify_eager"));
    EXPECT_GT(diagnosis.next[0].bits, 0.1);
    // Its time shows in the collectives, as wait: ranks whose hosts are ahead stand in the all-reduces.
    ASSERT_FALSE(diagnosis.candidates[0].changes.empty());
    EXPECT_EQ(diagnosis.candidates[0].changes[0].name, "verify.collectives.wait");
}

TEST(Diagnosis, The_all_reduce_time_alone_settles_the_founding_case) {
    const Setting setting = setting_of(kFounding, kGraph);
    const Diagnosis before = diagnose(setting, measured_of("verify 30 ms, 60 tok/s, plain 82 tok/s"));
    const Diagnosis fast = diagnose(setting, measured_of("verify 30 ms, 60 tok/s, plain 82 tok/s, all-reduce 26 us"));
    const Diagnosis slow = diagnose(setting, measured_of("verify 30 ms, 60 tok/s, plain 82 tok/s, all-reduce 140 us"));
    EXPECT_EQ(fast.candidates[0].name, "verify_eager");
    EXPECT_GT(fast.candidates[0].share, before.candidates[0].share);
    EXPECT_EQ(slow.candidates[0].name, "verify_collectives_slower");
}

TEST(Diagnosis, The_shipped_founding_scenario_explains_the_documents_figures_as_it_stands) {
    const Diagnosis diagnosis = diagnose(setting_of(kFounding), measured_of("verify 30 ms, 60 tok/s, plain 82 tok/s"));
    ASSERT_FALSE(diagnosis.candidates.empty());
    EXPECT_EQ(diagnosis.candidates[0].name, "as_predicted");
    ASSERT_FALSE(diagnosis.largest_terms.empty());
    EXPECT_EQ(diagnosis.largest_terms[0].name, "verify.collectives.wait");
}

TEST(Diagnosis, Nothing_is_wrong_where_the_prediction_is_given_back) {
    for (const char* name : {kFounding, "kimi-k2.5-ngram-founding", "qwen3.5-397b-founding", "qwen3.5-397b-mtp-founding"}) {
        const Setting setting = setting_of(name);
        const auto measured = as_measured(setting, candidate_table().front(), 1);
        ASSERT_TRUE(measured) << name;
        const Diagnosis diagnosis = diagnose(setting, *measured);
        ASSERT_FALSE(diagnosis.candidates.empty()) << name;
        EXPECT_EQ(diagnosis.candidates[0].name, "as_predicted") << name;
        EXPECT_NEAR(diagnosis.candidates[0].distance, 0, 1e-6) << name;
        for (const ComparedValue& value : diagnosis.compared) EXPECT_NEAR(value.sigmas, 0, 1e-6) << name << value.name;
    }
}

TEST(Diagnosis, Each_cause_that_was_put_in_is_found) {
    const Setting settings[] = {setting_of(kFounding, kGraph), setting_of(kFounding), setting_of("qwen3.5-397b-mtp-founding"),
                                setting_of(kFounding, {"collective.implementation=one_shot"})};
    for (const Candidate& candidate : candidate_table()) {
        if (candidate.name == "none_of_these") continue;
        bool applied = false;
        for (const Setting& setting : settings) {
            // The largest factor that applies: smaller ones may stay within a prediction's interval, and should.
            std::optional<Measured> measured;
            for (auto factor = candidate.factors.rbegin(); factor != candidate.factors.rend() && !measured; ++factor) {
                measured = as_measured(setting, candidate, *factor);
            }
            if (!measured) continue;
            const Diagnosis diagnosis = diagnose(setting, *measured);
            ASSERT_FALSE(diagnosis.candidates.empty());
            applied = true;
            EXPECT_EQ(diagnosis.candidates[0].name, candidate.name) << "in " << setting.scenario.name << "\n"
                                                                    << diagnosis_text(diagnosis);
            break;
        }
        EXPECT_TRUE(applied) << candidate.name << " applies to none of the settings";
    }
}

TEST(Diagnosis, Totals_alone_put_each_cause_among_the_first_three) {
    const Setting setting = setting_of(kFounding, kGraph);
    for (const Candidate& candidate : candidate_table()) {
        std::optional<Measured> measured;
        for (auto factor = candidate.factors.rbegin(); factor != candidate.factors.rend() && !measured; ++factor) {
            measured = as_measured(setting, candidate, *factor);
        }
        if (!measured || candidate.name == "none_of_these") continue;
        std::erase_if(measured->values,
                      [](const auto& value) { return value.first.starts_with("terms.") || value.first == "all_reduce_us"; });
        const Diagnosis diagnosis = diagnose(setting, *measured);
        const auto found = std::ranges::find(diagnosis.candidates, candidate.name, &WeighedCandidate::name);
        EXPECT_LT(found - diagnosis.candidates.begin(), 3) << candidate.name << "\n" << diagnosis_text(diagnosis);
    }
}

TEST(Diagnosis, A_factor_between_two_that_are_tried_is_found_from_totals_and_two_terms) {
    const Setting setting = setting_of(kFounding, kGraph);
    for (const char* name : {"experts_slower", "verify_collectives_slower", "host_slower"}) {
        const auto table = candidate_table();
        const auto candidate = std::ranges::find(table, name, &Candidate::name);
        ASSERT_NE(candidate, table.end());
        Measured measured = *as_measured(setting, *candidate, 4.3);  // tried: 1.25^6 = 3.8 and 1.25^7 = 4.8
        std::erase_if(measured.values, [](const auto& value) {
            return value.first.starts_with("terms.") && value.first != "terms.verify.experts" &&
                   value.first != "terms.verify.collectives.latency";
        });
        const Diagnosis diagnosis = diagnose(setting, measured);
        ASSERT_FALSE(diagnosis.candidates.empty());
        EXPECT_EQ(diagnosis.candidates[0].name, name) << diagnosis_text(diagnosis);
        EXPECT_NEAR(std::log(diagnosis.candidates[0].factor / 4.3), 0, 0.24) << name;
    }
}

TEST(Diagnosis, Shares_and_priors_sum_to_one_and_bits_are_within_the_doubt) {
    for (const char* text :
         {"60 tok/s", "verify 30 ms", "verify 300 ms, plain 82 tok/s", "collectives 25 ms, acceptance length 1.2"}) {
        const Diagnosis diagnosis = diagnose(setting_of(kFounding, kGraph), measured_of(text));
        double shares = 0;
        double priors = 0;
        for (const WeighedCandidate& candidate : diagnosis.candidates) {
            EXPECT_GE(candidate.share, 0);
            shares += candidate.share;
            priors += candidate.prior;
        }
        EXPECT_NEAR(shares, 1, 1e-9) << text;
        EXPECT_NEAR(priors, 1, 1e-9) << text;
        EXPECT_LE(diagnosis.next.size(), 3u);
        for (std::size_t i = 0; i < diagnosis.next.size(); ++i) {
            EXPECT_GT(diagnosis.next[i].bits, 0) << text;
            if (!diagnosis.unexplained) {
                EXPECT_LE(diagnosis.next[i].bits, diagnosis.entropy_bits) << text;
            }
            EXPECT_LE(diagnosis.next[i].bits, diagnosis.next[i > 0 ? i - 1 : 0].bits) << text;
        }
    }
}

TEST(Diagnosis, What_no_candidate_explains_is_said_to_be_none_of_these) {
    // A verify pass of 2 ms: nothing in the table makes it eight times faster.
    const Diagnosis diagnosis = diagnose(setting_of(kFounding, kGraph), measured_of("verify 2 ms, plain 82 tok/s"));
    ASSERT_FALSE(diagnosis.candidates.empty());
    EXPECT_EQ(diagnosis.candidates[0].name, "none_of_these");
    // The list is certain to hold no cause; that is no reason to measure nothing more.
    EXPECT_TRUE(diagnosis.unexplained);
    EXPECT_EQ(diagnosis.next.size(), 3u);
    for (const NextMeasurement& next : diagnosis.next) EXPECT_GT(next.bits, 0.1) << next.name;
}

TEST(Diagnosis, The_order_of_measurements_does_not_matter_and_the_same_input_gives_the_same_bytes) {
    const Setting setting = setting_of(kFounding, kGraph);
    const auto text = [&](const char* sentence) { return diagnosis_json(diagnose(setting, measured_of(sentence))).dump(); };
    const std::string first = text("verify 30 ms, 60 tok/s, plain 82 tok/s, collectives 25 ms");
    EXPECT_EQ(first, text("collectives 25 ms, plain 82 tok/s, verify 30 ms, 60 tok/s"));
    EXPECT_EQ(first, text("60 tok/s, collectives 25 ms, verify 30 ms, plain 82 tok/s"));
    EXPECT_EQ(first, text("verify 30 ms, 60 tok/s, plain 82 tok/s, collectives 25 ms"));
}

TEST(Diagnosis, A_measurement_that_follows_from_others_is_not_counted_twice) {
    // cycle = length / rate: with the run's own spread in common, the third figure adds next to nothing.
    const Setting setting = setting_of(kFounding);
    const double two = find(diagnose(setting, measured_of("40 tok/s, acceptance length 1.85")), "as_predicted")->distance;
    const double three =
        find(diagnose(setting, measured_of("40 tok/s, acceptance length 1.85, cycle 46.25 ms")), "as_predicted")->distance;
    EXPECT_LT(three, 1.35 * two);
    EXPECT_GE(three, two - 1e-9);
}

TEST(Diagnosis, Quantities_that_the_scenario_does_not_have_are_named) {
    const Setting plain = setting_of("qwen3.5-397b-founding");
    const auto verify = calibration::diagnose(plain.scenario, plain.constants, measured_of("verify 30 ms"));
    ASSERT_FALSE(verify);
    EXPECT_THAT(verify.error().to_text(), testing::AllOf(testing::HasSubstr("/verify_ms"), testing::HasSubstr("speculate")));
    const auto term =
        calibration::diagnose(plain.scenario, plain.constants,
                              measured_of(R"({"format": "draftboard.measured", "version": 1, "terms": {"experst": 3}})"));
    ASSERT_FALSE(term);
    EXPECT_THAT(term.error().to_text(),
                testing::AllOf(testing::HasSubstr("/terms/experst"), testing::HasSubstr("plain.experts")));
}

}  // namespace
}  // namespace draftboard::calibration
