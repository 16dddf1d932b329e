// SPDX-License-Identifier: Apache-2.0
#include "calibration/validation.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibration/configuration_run.h"
#include "calibration/cpu_texts.h"
#include "calibration/cuda_calibration.h"
#include "calibration/parity_plot.h"
#include "calibration/timeline_plot.h"
#include "calibration/validation_report.h"
#include "model/machine_json.h"

namespace draftboard::calibration {
namespace {

using testing::HasSubstr;
using testing::Not;

ConfigurationResult result(int group, model::SpeculationMethod method, int steps, double measured, double predicted) {
    ConfigurationResult one;
    one.configuration.model = "tiny<kimi>";
    one.configuration.group = group;
    one.configuration.method = method;
    one.configuration.steps = steps;
    one.unseen = steps % 2 == 0;
    one.measured = measured;
    one.measured_cycle_us = 1000;
    one.predicted_cycle_us = 1050;
    one.predicted = {predicted, predicted * 0.9, predicted * 1.1};
    one.operations = {{"verify/L01/moe.experts", "target", 12, 10, 0.1}, {"verify/L02/moe.experts", "target", 8, 10, 0.2}};
    one.measured_terms = {{"verify.experts", 300}};
    one.terms = {{"verify.experts", 0.32, 0, 0, sim::Coverage::measured}};
    one.timeline = {{"verify/L01/moe.experts", "experts", 12, 10, 0}, {"verify/L01/<reduce>", "collectives", 5, 6, 2}};
    return one;
}

Validation sample() {
    Validation validation;
    validation.suite.name = "sample";
    validation.results = {result(0, model::SpeculationMethod::none, 0, 1000, 1020), result(0, model::SpeculationMethod::eagle3, 1, 1500, 1420),
                          result(0, model::SpeculationMethod::eagle3, 3, 1400, 1700)};
    validation.results[0].repeated = 1010;
    validation.groups = group_results(validation.results);
    return validation;
}

TEST(Validation, Summarises_errors_coverage_and_regret) {
    const auto summary = sample().summary();
    // |1020/1000 - 1| = 2 %, |1420/1500 - 1| = 5.33 %, |1700/1400 - 1| = 21.4 %: the middle one
    EXPECT_NEAR(summary.median_error, 80.0 / 1500, 1e-12);
    EXPECT_NEAR(summary.worst_error, 300.0 / 1400, 1e-12);
    EXPECT_EQ(summary.configurations, 3);
    EXPECT_EQ(summary.unseen, 1);
    // 1000 and 1500 lie within 10 % of their predictions, 1400 does not of 1700
    EXPECT_NEAR(summary.coverage_90, 2.0 / 3, 1e-12);
    // the predicted best (three steps, 1400 tok/s measured) against the measured best (one step, 1500)
    EXPECT_NEAR(summary.worst_regret, 1 - 1400.0 / 1500, 1e-12);
    EXPECT_NEAR(summary.noise_floor, std::log(1.01), 1e-12);
    // |12/10 - 1| = |8/10 - 1| = 20 %; log 1.2 = 0.18 > 1.645 x 0.1, |log 0.8| = 0.22 < 1.645 x 0.2
    EXPECT_NEAR(summary.median_operation_error, 0.2, 1e-12);
    EXPECT_NEAR(summary.operation_coverage_90, 0.5, 1e-12);
}

TEST(Validation, Is_outside_its_bound_exactly_where_the_median_error_is_above_it) {
    Validation validation = sample();
    validation.bound = 0.054;
    EXPECT_TRUE(validation.within_bound());
    validation.bound = 0.053;
    EXPECT_FALSE(validation.within_bound());
}

TEST(ValidationReport, Names_every_configuration_and_escapes_what_files_say) {
    const Validation validation = sample();
    const std::string html = validation_html(validation);
    for (const ConfigurationResult& one : validation.results) {
        EXPECT_THAT(html, HasSubstr(html_escaped(one.configuration.name())));
        EXPECT_THAT(validation_text(validation), HasSubstr(one.configuration.name()));
    }
    EXPECT_THAT(html, Not(HasSubstr("tiny<kimi>")));
    EXPECT_THAT(html, Not(HasSubstr("<script")));
    EXPECT_THAT(html, Not(HasSubstr("http")));
    EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
    // The worst case is 3 steps: its terms are drawn.
    EXPECT_THAT(html, HasSubstr("eagle3 x3</h2>"));
    EXPECT_EQ(validation_json(validation)["configurations"].size(), 3u);
    EXPECT_FALSE(validation_json(validation)["within_bound"].get<bool>() && validation.summary().median_error > validation.bound);
}

TEST(ValidationReport, Puts_the_layers_of_one_role_into_one_row) {
    const auto rows = operation_rows(sample());
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].key, "target verify/moe.experts");
    EXPECT_EQ(rows[0].count, 6);
    EXPECT_NEAR(rows[0].share, 1, 1e-12);
    EXPECT_NEAR(rows[0].bias, 0, 1e-12);
    // of each pair one lies in its interval, see above
    EXPECT_NEAR(rows[0].coverage_90, 0.5, 1e-12);
}

TEST(ValidationReport, Draws_both_timelines_of_the_worst_case_and_says_where_the_rest_goes) {
    const std::string html = validation_html(sample());
    // 1050 us predicted, of which operations take 12 + 5; 1000 measured, 10 + 6 + 2 waiting.
    EXPECT_THAT(html, HasSubstr("launch, waiting and host: 1033 us"));
    EXPECT_THAT(html, HasSubstr("launch and host: 982 us"));
    EXPECT_THAT(html, HasSubstr("verify/L01/&lt;reduce&gt;, waiting: 2 us"));
    // 320 us predicted of 300: +6.7 %, and 2 % of the cycle.
    EXPECT_THAT(html, HasSubstr("<td>verify.experts</td><td>320.0</td><td>300.0</td><td>+6.7 %</td><td>+2.0 %</td><td>measured</td>"));
}

TEST(TimelinePlot, Joins_what_is_too_narrow_to_be_seen_and_keeps_the_sum) {
    TimelineLane lane{"predicted", {}};
    for (int i = 0; i < 20000; ++i) lane.blocks.push_back({"a", i % 2 == 0 ? "experts" : "dense", 1});
    const std::string svg = timeline_plot({lane}, "us");
    EXPECT_LT(svg.size(), 600'000U);
    EXPECT_THAT(svg, HasSubstr(">2e+04</text>"));
    EXPECT_THAT(timeline_plot({}, "us"), HasSubstr("no timeline"));
}

TEST(ValidationProgress, Is_read_as_it_was_written_and_refused_where_it_is_broken) {
    ValidationProgress progress;
    progress.settings = "s";
    progress.box = {{"cpu", "x"}};
    progress.failed = {"a r1 full none: out of memory"};
    progress.acceptance["k"] = {{3, 4, {2, 1}}};
    progress.configurations["0: c"].rounds = {{10, 5, 0.1, {{3, 4, {2}}}}};
    progress.configurations["0: c"].profiles = {{{{"target", model::Pass::verify, 1, 3}, {{1, 2}, {0, 0.5}}}}};
    const auto text = to_json(progress).dump();
    const auto read = parse_validation_progress(text, "p");
    ASSERT_TRUE(read) << read.error().to_text();
    EXPECT_EQ(to_json(*read).dump(), text);
    EXPECT_TRUE(read->has_failed("a r1 full none"));
    EXPECT_FALSE(read->has_failed("a r1"));
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"verify\"", "\"guess\""}, {"[2.0]", "[-2.0]"}, {"\"cycles\":5.0", "\"cycles\":\"5\""}}) {
        std::string broken = text;
        ASSERT_NE(broken.find(from), std::string::npos) << from;
        broken.replace(broken.find(from), from.size(), to);
        EXPECT_FALSE(parse_validation_progress(broken, "p")) << to;
    }
}

TEST(ValidationProgress, Profiles_of_several_rounds_are_joined_by_their_medians) {
    const ProfiledPasses::key_type key{"target", model::Pass::verify, 1, 3};
    const auto both = joined({{{key, {{1, 10}, {0, 0}}}}, {{key, {{3, 20}, {0, 2}}}}});
    EXPECT_EQ(both.at(key).us, (std::vector<double>{2, 15}));
    EXPECT_EQ(both.at(key).wait_us, (std::vector<double>{0, 1}));
}

TEST(ParityPlot, Draws_each_point_that_can_be_drawn) {
    const std::string svg = parity_plot({{10, 11, 9, 13, true, "a"}, {0, 5, 0, 0, false, "b"}, {20, 18, 0, 0, false, "c"}}, "us", 0.1);
    EXPECT_THAT(svg, HasSubstr("a: measured 10, predicted 11 us"));
    EXPECT_THAT(svg, HasSubstr("c: measured 20, predicted 18 us"));
    EXPECT_THAT(svg, Not(HasSubstr("b: measured")));
    EXPECT_THAT(parity_plot({}, "us", 0.1), HasSubstr("no points"));
}

TEST(Suite, Reads_groups_and_refuses_trees_without_a_size) {
    const auto suite = parse_suite(R"({"format": "draftboard.suite", "version": 1, "name": "s", "prompts": ["code"], "tokens": 20,
        "groups": [{"model": "tiny-kimi", "ranks": 2, "batch": 4, "context": 100, "drafters": [{"method": "none"},
        {"method": "eagle3", "steps": 3, "top_k": 3, "draft_tokens": 8, "held_out": true}]}]})", "s.json");
    ASSERT_TRUE(suite) << suite.error().to_text();
    ASSERT_EQ(suite->configurations.size(), 2u);
    EXPECT_EQ(suite->configurations[0].name(), "tiny-kimi r2 b4 c100 none");
    EXPECT_EQ(suite->configurations[1].drafter(), "eagle3 x3 top 3 of 8");
    EXPECT_EQ(suite->configurations[1].verify_tokens(), 8);
    EXPECT_TRUE(suite->configurations[1].held_out);
    const auto bad = parse_suite(R"({"format": "draftboard.suite", "version": 1, "name": "s", "prompts": ["../x"],
        "groups": [{"model": "m", "drafters": [{"method": "eagle3", "steps": 3, "top_k": 3}]}]})", "s.json");
    ASSERT_FALSE(bad);
    EXPECT_THAT(bad.error().to_text(), HasSubstr("draft_tokens"));
    EXPECT_THAT(bad.error().to_text(), HasSubstr("prompts"));
}

TEST(Suite, The_shipped_ones_hold_out_half_of_their_configurations) {
    for (const auto& [name, least] : {std::pair<const char*, std::size_t>{"cpu-default", 24}, {"cpu-quick", 6}}) {
        const auto suite = find_suite(name, DRAFTBOARD_SOURCE_DIR "/data");
        ASSERT_TRUE(suite) << suite.error().to_text();
        EXPECT_GE(suite->configurations.size(), least);
        std::size_t held_out = 0;
        for (const SuiteConfiguration& one : suite->configurations) held_out += one.held_out ? 1 : 0;
        // the quick suite follows the quick calibration, which measures less: it holds out what that leaves
        EXPECT_GE(held_out, least >= 24 ? (suite->configurations.size() + 1) / 2 : 3u);
    }
}

TEST(Suite, Of_GPUs_name_their_machine_and_hold_out_shapes_that_no_calibration_measures) {
    CudaCalibrationOptions measured;  // the widest grid
    for (const char* name : {"h200-1", "h200-2-nvlink", "h200-2-p2p-off"}) {
        const auto suite = find_suite(name, DRAFTBOARD_SOURCE_DIR "/data");
        ASSERT_TRUE(suite) << suite.error().to_text();
        EXPECT_EQ(suite->device, "cuda");
        EXPECT_EQ(suite->peer_access, std::string_view(name) != "h200-2-p2p-off");
        const auto machine = model::find_machine(suite->machine, DRAFTBOARD_SOURCE_DIR "/data", "");
        ASSERT_TRUE(machine) << machine.error().to_text();
        int held_out = 0;
        for (const SuiteConfiguration& one : suite->configurations) {
            EXPECT_LE(one.ranks, static_cast<int>(machine->gpus().size()));
            if (one.random_weights) {
                const auto model = random_model(one.model, one.layers, one.tensor_rank_of, DRAFTBOARD_SOURCE_DIR "/data");
                ASSERT_TRUE(model) << model.error().to_text();
                EXPECT_EQ(model->name, one.model_label());  // measured shapes go by this name
            }
            if (!one.held_out) continue;
            ++held_out;
            const auto has = [](const std::vector<int>& list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); };
            const bool width = one.verify_tokens() == 1 || has(measured.tokens, one.verify_tokens());
            EXPECT_FALSE(width && has(measured.sequences, one.batch)) << one.name();
        }
        EXPECT_GT(held_out, static_cast<int>(suite->configurations.size()) / 3);
    }
}

TEST(MeasuredAcceptance, Is_truncated_to_fewer_steps_and_spread_from_text_to_text) {
    // Two texts of 10 cycles: one accepts 1 draft always and a second half of the time, the other none.
    const std::vector<TextAcceptance> texts = {{10, 10, {10, 5}}, {10, 10, {0, 0}}};
    const auto two = acceptance_of(texts, 2);
    // L = (20 + 15) / 20; m = 10/20, 5/20
    EXPECT_DOUBLE_EQ(two.length, 1.75);
    EXPECT_DOUBLE_EQ(two.acceptance.per_position[0], 0.5);
    EXPECT_DOUBLE_EQ(two.acceptance.per_position[1], 0.25);
    EXPECT_DOUBLE_EQ(acceptance_of(texts, 1).length, 1.5);
    // residuals 25 - 17.5 and 10 - 17.5: sd = sqrt(2 x 7.5^2 x 2 / 1) / 35
    EXPECT_NEAR(two.acceptance.relative_spread, 15.0 / 35, 1e-12);
}

TEST(CpuTexts, End_with_a_whole_prompt_and_have_the_asked_length) {
    const auto tokenizer = backend::ByteTokenizer::parse(R"({"format": "draftboard.byte_tokenizer", "version": 1, "bos": 256})", "t");
    ASSERT_TRUE(tokenizer);
    const auto texts = texts_of_length({{"abc", "defgh"}, {"xy"}}, 8, *tokenizer);
    ASSERT_EQ(texts.size(), 3u);
    for (const auto& text : texts) {
        EXPECT_EQ(text.size(), 8u);
        EXPECT_EQ(text.front(), 256);
    }
    // 7 bytes: the end of "defgh\nabc"
    EXPECT_EQ(backend::ByteTokenizer::decode(texts[0]), "fgh\nabc");
    EXPECT_EQ(backend::ByteTokenizer::decode(texts[1]), "y\nxy\nxy");
    EXPECT_EQ(backend::ByteTokenizer::decode(texts[2]), "c\ndefgh");
}

TEST(CpuTexts, Calibration_and_validation_never_share_a_prompt) {
    const std::string data = DRAFTBOARD_SOURCE_DIR "/data";
    const auto even = read_prompt_sets({"code", "prose"}, PromptHalf::calibration, data);
    const auto odd = read_prompt_sets({"code", "prose"}, PromptHalf::validation, data);
    ASSERT_TRUE(even && odd);
    for (std::size_t set = 0; set < 2; ++set) {
        for (const std::string& prompt : (*even)[set]) EXPECT_THAT((*odd)[set], Not(testing::Contains(prompt)));
    }
    EXPECT_FALSE(read_prompt_sets({"nothing"}, PromptHalf::calibration, data));
}

}  // namespace
}  // namespace draftboard::calibration
