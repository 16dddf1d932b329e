// SPDX-License-Identifier: Apache-2.0
// What the desktop asks and shows, without Qt: variants and projects, knobs, sweeps, levers, and that answers are the command
// line's.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "gui/core/box_edit.h"
#include "gui/core/levers.h"
#include "gui/core/measured_points.h"
#include "gui/core/project.h"
#include "gui/core/sweep.h"
#include "gui/core/validation_file.h"
#include "model/data_library.h"
#include "model/machine_json.h"
#include "tests/gui/founding.h"
#include "tests/support/process.h"

namespace draftboard::gui {
namespace {

using model::Json;

/// What the command line prints for the variant, run as its own process.
std::string command_line_json(const Variant& variant) {
    std::vector<std::string> arguments{DRAFTBOARD_PROGRAM, "--json", "predict", variant.base};
    for (const std::string& edit : variant.edit_texts()) arguments.insert(arguments.end(), {"--set", edit});
    const auto result = tests::run_process(arguments);
    EXPECT_EQ(result.exit_status, 0) << result.errors;
    return result.output;
}

TEST(Variant, AnswersAreByteForByteWhatTheCommandLinePrints) {
    const std::vector<Variant> variants{
        founding(),
        founding({{"speculation.steps", 5}, {"engine.launch.verify", "graph"}, {"collective.implementation", "one_shot"}}),
        founding({{"speculation.acceptance", Json{{"per_position", {0.8, 0.5, 0.25}}, {"source", "a hand's, it said"}}}}),
        founding({{"constants.host.eager_launch_us", 12.5}, {"workload.concurrency", 8}, {"collective_calibration", ""}}),
    };
    for (const Variant& variant : variants) {
        const AnswerPointer answer = answered(variant);
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->json + "\n", command_line_json(variant)) << command_line(variant);
    }
}

TEST(Variant, AnEditedBoxGivesTheSameOnTheCommandLine) {
    const AnswerPointer before = answered(founding());
    auto moved = with_pcie(before->scenario.machine, {4, 16});
    ASSERT_TRUE(moved);
    const Variant variant = founding({machine_edit(*moved)});
    const AnswerPointer answer = answered(variant);
    EXPECT_EQ(answer->json + "\n", command_line_json(variant));
    EXPECT_LT(answer->prediction.tokens_per_second.value, before->prediction.tokens_per_second.value);
}

TEST(Variant, AnAnswererThatHasAnsweredOthersGivesTheSameAnswer) {
    Answerer used(kData);
    for (const int steps : {1, 5, 2}) ASSERT_TRUE(used.answer(founding({{"speculation.steps", steps}})));
    ASSERT_TRUE(used.answer({"other", "qwen3.5-397b-mtp-founding", {}, ""}));
    EXPECT_EQ(used.answer(founding()).value()->json, answered(founding())->json);
}

TEST(Variant, TextsThatLookLikeOtherValuesKeepTheirQuotes) {
    EXPECT_EQ((Edit{"engine.name", "SGLang"}).to_text(), "engine.name=SGLang");
    EXPECT_EQ((Edit{"engine.name", "12"}).to_text(), "engine.name=\"12\"");
    EXPECT_EQ((Edit{"engine.name", "a,b"}).to_text(), "engine.name=\"a,b\"");
    EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_quoted("a=b"), "a=b");
}

TEST(Variant, ResettingAFieldTakesWhatIsBelowItAlong) {
    Variant variant = founding({{"machine.links.0.width", 8}, {"machine", "8x-h200-nvlink"}, {"machinery", 1}});
    variant.reset("machine");
    ASSERT_EQ(variant.edits.size(), 1u);
    EXPECT_EQ(variant.edits[0].path, "machinery");
}

TEST(Project, WrittenAndReadAgainIsTheSame) {
    Project project = project_of(kFounding);
    project.variants.push_back(
        founding({{"speculation.steps", 4}, {"speculation.acceptance", Json{{"acceptance_length", 2.5}}}}));
    project.current = 1;
    project.baseline = 0;
    project.unknown["later"] = "kept";
    const std::string text = to_text(project);
    const auto again = parse_project(text, "test");
    ASSERT_TRUE(again) << again.error().to_text();
    EXPECT_EQ(*again, project);
    EXPECT_EQ(to_text(*again), text);
}

TEST(Project, BadFilesAreRefusedWithTheirPlace) {
    const std::pair<const char*, const char*> bad[] = {
        {"{", "file:1:1"},
        {"[]", "object"},
        {R"({"format":"draftboard.scenario","version":1,"variants":[]})", "format"},
        {R"({"format":"draftboard.project","version":1,"variants":[]})", "/variants"},
        {R"({"format":"draftboard.project","version":1,"variants":[{"name":"a","base":"b"}],"current":1})", "/current"},
        {R"({"format":"draftboard.project","version":1,"variants":[{"name":"a","base":"b"}],"baseline":7})", "/baseline"},
        {R"({"format":"draftboard.project","version":1,"variants":[{"name":"a","base":"b","edits":[["x"]]}]})",
         "/variants/0/edits/0"},
        {R"({"format":"draftboard.project","version":9,"variants":[{"name":"a","base":"b"}]})", "/version"},
    };
    for (const auto& [text, place] : bad) {
        const auto project = parse_project(text, "file");
        ASSERT_FALSE(project) << text;
        EXPECT_NE(project.error().to_text().find(place), std::string::npos) << project.error().to_text();
    }
}

TEST(Project, TheShippedSampleIsAnsweredInAllItsVariants) {
    const auto project = load_project("founding-case", kData);
    ASSERT_TRUE(project) << project.error().to_text();
    for (const Variant& variant : project->variants) EXPECT_TRUE(answered(variant)) << variant.name;
}

TEST(ValidationFile, BadFilesAreRefusedWithTheirPlace) {
    const std::pair<const char*, const char*> bad[] = {
        {"[]", "object"},
        {R"({"suite":"s"})", "/configurations"},
        {R"({"suite":"s","configurations":[]})", "/configurations"},
        {R"({"suite":"s","configurations":[{"name":"a"}]})", "/configurations/0/measured_tokens_per_second"},
        {R"({"suite":"s","configurations":[{"name":"a","measured_tokens_per_second":0,"predicted_tokens_per_second":{"value":1}}]})",
         "measured"},
        {R"({"suite":"s","configurations":[{"name":"a","measured_tokens_per_second":1,"predicted_tokens_per_second":2}]})",
         "predicted"},
    };
    for (const auto& [text, place] : bad) {
        const auto file = parse_validation_file(text, "file");
        ASSERT_FALSE(file) << text;
        EXPECT_NE(file.error().to_text().find(place), std::string::npos) << file.error().to_text();
    }
}

TEST(Knob, SliderPositionsAndValuesAreInverse) {
    for (const Knob& knob : knob_table(kData)) {
        if (!knob.numeric()) continue;
        EXPECT_DOUBLE_EQ(knob.position_of(knob.low), 0) << knob.path;
        EXPECT_DOUBLE_EQ(knob.position_of(knob.high), 1) << knob.path;
        for (const double at : {0.0, 0.25, 0.5, 1.0}) {
            const double value = knob.value_at(at);
            EXPECT_GE(value, knob.low) << knob.path;
            EXPECT_LE(value, knob.high) << knob.path;
            // Rounding moves a value by half a unit, or half a unit of its third digit.
            EXPECT_NEAR(knob.value_at(knob.position_of(value)), value, 0.01 * std::max(1.0, value)) << knob.path;
        }
    }
}

TEST(Knob, EachHasAGroupAMeaningAndASource) {
    const AnswerPointer answer = answered(founding());
    std::set<std::string> paths;
    for (const Knob& knob : knob_table(kData)) {
        EXPECT_FALSE(knob.meaning.empty()) << knob.path;
        EXPECT_FALSE(knob_state(knob, *answer).source.empty()) << knob.path;
        EXPECT_FALSE(knob_state(knob, *answer).value.is_null()) << knob.path;
        EXPECT_TRUE(paths.insert(knob.path).second) << knob.path;
    }
}

TEST(Knob, SettingAKnobToItsOwnValueChangesNoNumber) {
    const AnswerPointer answer = answered(founding());
    for (const Knob& knob : knob_table(kData)) {
        if (knob.kind == KnobKind::pcie_generation || knob.kind == KnobKind::pcie_width) continue;  // the box gets a new name
        const KnobState state = knob_state(knob, *answer);
        const auto edits = knob_edits(knob, state.value, *answer);
        ASSERT_TRUE(edits) << knob.path;
        const AnswerPointer again = answered(founding(*edits));
        ASSERT_TRUE(again) << knob.path;
        EXPECT_NEAR(again->prediction.tokens_per_second.value, answer->prediction.tokens_per_second.value, 1e-9) << knob.path;
    }
}

TEST(Knob, TheStateOfAnEditedKnobSaysSoAndKeepsWhatTheScenarioHad) {
    const Knob* depth = nullptr;
    const auto knobs = knob_table(kData);
    ASSERT_TRUE(depth = find_knob(knobs, "speculation.steps"));
    const AnswerPointer answer = answered(founding({{"speculation.steps", 5}}));
    const KnobState state = knob_state(*depth, *answer);
    EXPECT_TRUE(state.edited);
    EXPECT_EQ(state.value, 5);
    EXPECT_EQ(state.initial, 3);
}

TEST(Acceptance, ADraggedBarTakesItsNeighboursAlongSoThatRatesNeverRise) {
    const AnswerPointer answer = answered(founding());
    const auto rates_after = [&](std::vector<double> rates, std::size_t changed) {
        return acceptance_edit(std::move(rates), changed, *answer).value["per_position"].get<std::vector<double>>();
    };
    EXPECT_EQ(rates_after({0.5, 0.9, 0.1}, 1), (std::vector<double>{0.9, 0.9, 0.1}));
    EXPECT_EQ(rates_after({0.5, 0.05, 0.1}, 1), (std::vector<double>{0.5, 0.05, 0.05}));
    EXPECT_EQ(rates_after({1.7, 0.4, 0.1}, 0), (std::vector<double>{1.0, 0.4, 0.1}));
}

TEST(Acceptance, TheLengthKnobGivesThatLength) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    const auto edits = knob_edits(*find_knob(knobs, "speculation.acceptance.acceptance_length"), 2.5, *answer);
    ASSERT_TRUE(edits);
    EXPECT_NEAR(answered(founding(*edits))->prediction.acceptance_length.value, 2.5, 1e-9);
}

// A cycle that does not depend on acceptance: tok/s = L / cycle, so speed-up is 1 exactly where L is the break-even length.
TEST(Sweep, OverAcceptanceCrossesPlainDecodingAtTheBreakEvenLength) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    const SweepAxis axis = sweep_axis(*find_knob(knobs, "speculation.acceptance.acceptance_length"), 25, *answer);
    const auto sweep = run_sweep(*answer, {axis}, kData, 2, {});
    ASSERT_TRUE(sweep);
    const auto crossings = break_even_points(*sweep);
    ASSERT_EQ(crossings.size(), 1u);
    EXPECT_NEAR(crossings[0], answer->prediction.break_even_acceptance_length, 1e-6);
}

TEST(Sweep, GoesThroughThePresentValue) {
    const AnswerPointer answer = answered(founding({{"workload.context_tokens", 5000}}));
    const auto knobs = knob_table(kData);
    const SweepAxis axis = sweep_axis(*find_knob(knobs, "workload.context_tokens"), 10, *answer);
    EXPECT_NE(std::find(axis.values.begin(), axis.values.end(), Json(5000)), axis.values.end());
}

TEST(Sweep, WhatCanNotBeAnsweredSaysWhy) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    const auto sweep = run_sweep(*answer, {sweep_axis(*find_knob(knobs, "layout.tensor"), 5, *answer)}, kData, 2, {});
    ASSERT_TRUE(sweep);
    EXPECT_FALSE(sweep->points.back().error.empty());  // 16 GPUs where there are 8
    EXPECT_TRUE(sweep->points[3].error.empty()) << sweep->points[3].error;
}

TEST(Sweep, CrossingsOfALevelAreInterpolated) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    const auto sweep = run_sweep(*answer, {sweep_axis(*find_knob(knobs, "speculation.steps"), 12, *answer)}, kData, 2, {});
    ASSERT_TRUE(sweep);
    std::vector<double> values;
    for (const SweepPoint& point : sweep->points) values.push_back(point.values[0].get<double>());
    EXPECT_EQ(crossings_of(*sweep, values, 4.5), std::vector<double>{4.5});
    EXPECT_EQ(crossings_of(*sweep, values, 7), std::vector<double>{7});
    EXPECT_TRUE(crossings_of(*sweep, values, 99).empty());
    values[4] = std::nan("");
    EXPECT_TRUE(crossings_of(*sweep, values, 4.5).empty());
}

TEST(MeasuredPoints, AreReadByTheirColumnsAndRefusedWithTheLine) {
    const auto points = parse_points("# what\nvalue,x\n60,1\n55.5,2\n", "f");
    ASSERT_TRUE(points) << points.error().to_text();
    EXPECT_EQ(*points, (std::vector<std::pair<double, double>>{{1, 60}, {2, 55.5}}));
    for (const char* bad : {"", "x,y\n1,2\n", "x,value\n1,two\n", "x,value\n1\n"}) EXPECT_FALSE(parse_points(bad, "f")) << bad;
}

TEST(Sweep, TooManyPointsAreRefused) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    SweepAxis axis = sweep_axis(*find_knob(knobs, "workload.context_tokens"), 10, *answer);
    axis.values.assign(200, Json(1024));
    EXPECT_FALSE(run_sweep(*answer, {axis, axis}, kData, 1, {}));
    EXPECT_FALSE(run_sweep(*answer, {}, kData, 1, {}));
}

TEST(Levers, TheFoundingCaseGainsMostFromAVerifyPassInAGraph) {
    const AnswerPointer answer = answered(founding());
    const auto knobs = knob_table(kData);
    const auto levers = levers_of(*answer, knobs);
    const auto results = run_levers(*answer, levers, kData, {});
    ASSERT_EQ(results.size(), levers.size());
    const auto first =
        std::find_if(results.begin(), results.end(), [](const LeverResult& r) { return r.lever.kind == LeverKind::setting; });
    ASSERT_NE(first, results.end());
    EXPECT_EQ(first->lever.name, "Verify launch: graph");
    const AnswerPointer graph = answered(founding(first->lever.edits));
    EXPECT_DOUBLE_EQ(first->gain, graph->prediction.tokens_per_second.value / answer->prediction.tokens_per_second.value - 1);
    for (const Lever& lever : levers) EXPECT_FALSE(lever.edits.empty()) << lever.name;
    EXPECT_NE(levers_markdown(*answer, results).find("--set engine.launch.verify=graph"), std::string::npos);
}

TEST(BoxEdit, HalfTheLanesCarryHalfAsMuch) {
    const auto machine = model::find_machine("8x-rtx-pro-6000-direct", kData);
    ASSERT_TRUE(machine);
    int link = 0;
    while (machine->links[static_cast<std::size_t>(link)].kind != model::LinkKind::pcie) ++link;
    const auto narrow = with_link(*machine, link, 5, 8);
    ASSERT_TRUE(narrow) << narrow.error().to_text();
    const auto& before = machine->links[static_cast<std::size_t>(link)];
    const auto& after = narrow->links[static_cast<std::size_t>(link)];
    EXPECT_DOUBLE_EQ(after.forward.write_gb_s, before.forward.write_gb_s / 2);
    EXPECT_NE(after.source.find("scaled by 0.5"), std::string::npos);
    EXPECT_FALSE(with_link(*machine, link, 9, 8));
    EXPECT_FALSE(with_link(*machine, -1, 5, 8));
}

TEST(BoxEdit, GpusBelowOneNewSwitchArePixApart) {
    const auto machine = model::find_machine("8x-rtx-pro-6000-direct", kData);
    ASSERT_TRUE(machine);
    const auto gpus = machine->gpus();
    int port = 0;
    while (machine->nodes[static_cast<std::size_t>(port)].kind != model::NodeKind::root_port) ++port;
    EXPECT_EQ(model::Router(*machine).path_type(0, 1), model::PathType::node);
    const auto changed = with_switch(*machine, port, {gpus[0], gpus[1]});
    ASSERT_TRUE(changed) << changed.error().to_text();
    EXPECT_EQ(model::Router(*changed).path_type(0, 1), model::PathType::pix);
    EXPECT_EQ(model::Router(*changed).path_type(0, 2), model::PathType::node);
    EXPECT_FALSE(with_switch(*machine, gpus[0], {}));
    EXPECT_FALSE(with_moved_gpu(*machine, gpus[0], gpus[1]));
    EXPECT_FALSE(with_moved_gpu(*machine, port, port));
}

}  // namespace
}  // namespace draftboard::gui
