// SPDX-License-Identifier: Apache-2.0
#include "calibration/backtest.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "calibration/backtest_fit.h"

namespace draftboard::calibration {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
const std::string kGrid = std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/published/grid.csv";

std::vector<PublishedRow> fixture() {
    auto rows = load_published_grid(kGrid);
    EXPECT_TRUE(rows) << (rows ? "" : rows.error().to_text());
    return rows.value_or(std::vector<PublishedRow>{});
}

PublishedRow row(const std::string& id) {
    for (const PublishedRow& known : fixture()) {
        if (known.id == id) return known;
    }
    ADD_FAILURE() << "no row " << id;
    return {};
}

BacktestCase told(const PublishedRow& published) {
    BacktestLibrary library(kData);
    auto known = library.scenario_of(published);
    EXPECT_TRUE(known) << (known ? "" : known.error().to_text());
    return known.value_or(BacktestCase{});
}

std::string reason(const PublishedRow& published) {
    BacktestLibrary library(kData);
    const auto known = library.scenario_of(published);
    return known ? "predicted" : known.error().message;
}

/// A cell measured at 100 tok/s.
BacktestCell cell(double predicted, double low, double high, const std::string& twin = {}, bool speculates = false) {
    BacktestCell out;
    out.predicted = {predicted, low, high};
    out.measured = 100;
    out.twin = twin;
    out.speculates = speculates;
    return out;
}

bool everything(const BacktestCell&) { return true; }

TEST(PublishedGrid, Columns_are_found_by_name_and_lines_are_counted) {
    const auto rows = fixture();
    ASSERT_EQ(rows.size(), 8u);
    EXPECT_EQ(rows[0].line, 3);  // a remark and the header precede it
    EXPECT_EQ(rows[0].concurrency, 1);
    EXPECT_DOUBLE_EQ(*rows[0].tokens_per_second, 90);
    EXPECT_FALSE(rows[0].acceptance_rate);
    EXPECT_FALSE(rows[6].tokens_per_second);
    EXPECT_EQ(rows[4].per_position, (std::vector<double>{0.8, 0.5, 0.2}));
}

TEST(PublishedGrid, Malformed_fields_are_named_with_their_line) {
    const std::string header = "model,engine,gpus,concurrency,output_tok_s_total,per_position\n";
    const auto error_of = [&header](const std::string& line) {
        const auto rows = parse_published_grid(header + line, "grid.csv");
        return rows ? std::string("read") : rows.error().to_text();
    };
    EXPECT_EQ(error_of("m,e,8,1,100,\n"), "read");
    EXPECT_NE(error_of("m,e,8,one,100,\n").find("grid.csv:2"), std::string::npos);
    EXPECT_NE(error_of("m,e,8,one,100,\n").find("concurrency"), std::string::npos);
    EXPECT_NE(error_of("m,e,8,1,-3,\n").find("output_tok_s_total"), std::string::npos);
    EXPECT_NE(error_of("m,e,8,1,nan,\n").find("output_tok_s_total"), std::string::npos);
    EXPECT_NE(error_of("m,e,99999999999999999999,1,3,\n").find("gpus"), std::string::npos);
    EXPECT_NE(error_of("m,e,8,1,100,0.5;x\n").find("per_position"), std::string::npos);
    EXPECT_NE(error_of("m,e,8,1,100,0.5;1.5\n").find("per_position"), std::string::npos);
    EXPECT_FALSE(parse_published_grid("model,engine,gpus,concurrency\n", "grid.csv"));
}

RC_GTEST_PROP(PublishedGrid, Any_text_is_read_or_refused, (const std::string& text)) {
    const auto rows = parse_published_grid("model,engine,gpus,concurrency,output_tok_s_total\n" + text, "x");
    RC_ASSERT(rows || !rows.error().message.empty());
}

TEST(BacktestScenario, One_shot_holds_up_to_its_cutoff_or_to_a_number_of_rows) {
    // 8 rows x 7168 x 2 bytes = 114 688 exceed the 56 KiB that hold for all
    const BacktestCase known = told(row("A-1"));
    EXPECT_EQ(known.family, ReduceFamily::one_shot);
    EXPECT_EQ(known.scenario.collective.implementation, model::Implementation::one_shot);
    EXPECT_EQ(known.scenario.collective.custom_limit_bytes, 8 * 7168 * 2);
    PublishedRow stated = row("A-1");
    stated.allreduce_impl = "PCIe oneshot (512KB crossover)";
    EXPECT_EQ(told(stated).scenario.collective.custom_limit_bytes, 512 << 10);
    stated.allreduce_impl = "force 1-stage";
    EXPECT_EQ(told(stated).scenario.collective.custom_limit_bytes, 0);  // never NCCL
    stated.allreduce_impl = "PCIe custom AR on";  // vLLM's own change to two phases over eight GPUs
    EXPECT_EQ(told(stated).scenario.collective.custom_limit_bytes, 256 << 10);
}

TEST(BacktestScenario, NCCLs_environment_becomes_settings) {
    const model::CollectiveSettings patched = told(row("A-1")).scenario.collective;
    EXPECT_TRUE(patched.ll128);
    EXPECT_EQ(patched.protocol, model::Protocol::automatic);
    EXPECT_EQ(patched.peer_level, model::PathType::sys);
    EXPECT_TRUE(patched.graph_file);
    PublishedRow other = row("A-3");
    EXPECT_EQ(told(other).family, ReduceFamily::nccl);
    EXPECT_TRUE(told(other).scenario.collective.graph_file);
    other.nccl_env = "no XML; NCCL_PROTO=LL";
    EXPECT_FALSE(told(other).scenario.collective.graph_file);
    EXPECT_EQ(told(other).scenario.collective.protocol, model::Protocol::ll);
    other.nccl_env = "NCCL graph XML; NCCL_P2P_DISABLE=1";
    EXPECT_FALSE(told(other).scenario.collective.peer_to_peer);
    other.nccl_env = "custom AR off, default NCCL; before ForceP2P";
    EXPECT_FALSE(told(other).scenario.machine.peer.force_p2p);
}

TEST(BacktestScenario, The_topology_chooses_the_machine) {
    EXPECT_EQ(told(row("A-1")).scenario.machine.name, "8x-rtx-pro-6000-direct");
    EXPECT_EQ(told(row("A-4")).scenario.machine.name, "8x-rtx-pro-6000-switches");
    PublishedRow other = row("A-1");
    other.topology = "1-socket EPYC Turin, 2 flat c-payne switches";
    EXPECT_EQ(told(other).scenario.machine.name, "8x-rtx-pro-6000-flat");
    other.gpus = other.tp = 3;
    EXPECT_EQ(reason(other), "no shipped machine with this number of GPUs");
}

TEST(BacktestScenario, A_rows_own_acceptance_goes_before_the_shared_profile) {
    const BacktestCase by_position = told(row("A-5"));
    EXPECT_TRUE(by_position.stated_acceptance);
    EXPECT_DOUBLE_EQ(by_position.scenario.speculation.acceptance_length(), 2.5);  // 1 + 0.8 + 0.5 + 0.2
    PublishedRow other = row("A-5");
    other.per_position.clear();
    EXPECT_NEAR(told(other).scenario.speculation.acceptance_length(), 2.5, 1e-6);  // vLLM: 1 + 3 x 0.50
    other.accept_length = 2.2;
    EXPECT_NEAR(told(other).scenario.speculation.acceptance_length(), 2.2, 1e-6);
    const BacktestCase shared = told(row("A-2"));
    EXPECT_FALSE(shared.stated_acceptance);
    EXPECT_NEAR(shared.scenario.speculation.acceptance_length(), 1 + 0.655 + 0.40 + 0.25, 1e-9);
    EXPECT_EQ(told(row("A-4")).scenario.speculation.steps, 3);  // SGLang's automatic choice
}

TEST(BacktestScenario, What_cannot_be_told_is_skipped_with_a_reason) {
    EXPECT_EQ(reason(row("A-6")), "no shipped architecture for the model Unheard-1T");
    EXPECT_EQ(reason(row("A-7")), "no tok/s published");
    PublishedRow other = row("A-1");
    other.gpu_model = "H200";
    EXPECT_EQ(reason(other), "no calibration of the GPU");
    other = row("A-1");
    other.spec_method = "dflash2";
    EXPECT_EQ(reason(other), "no model of the drafter dflash2");
    other = row("A-1");
    other.tp = 5;
    EXPECT_EQ(reason(other).substr(0, 20), "the layout does not ");
}

TEST(Backtest, Medians_coverage_and_bias_follow_from_the_cells) {
    // errors -10 %, +20 %, +40 %: median +20 %; two of three intervals hold 100
    BacktestReport report;
    report.cells = {cell(90, 80, 101), cell(120, 99, 140), cell(140, 110, 170)};
    const BacktestSummary all = summarise(report, "all", everything);
    EXPECT_EQ(all.cells, 3u);
    EXPECT_NEAR(all.median_absolute_error, 0.2, 1e-12);
    EXPECT_NEAR(all.median_error, 0.2, 1e-12);
    EXPECT_NEAR(all.coverage_90, 2.0 / 3, 1e-12);
    // of two the mean: |-10 %| and |+20 %|
    const BacktestSummary two =
        summarise(report, "two", [](const BacktestCell& one) { return one.predicted.value < 130; });
    EXPECT_NEAR(two.median_absolute_error, 0.15, 1e-12);
    EXPECT_EQ(summarise(report, "none", [](const BacktestCell&) { return false; }).cells, 0u);
}

TEST(Backtest, Pairs_within_the_noise_do_not_count_for_the_sign) {
    // measured 1.04 is noise; 1.3 predicted 1.1 is right and 15 % low; 0.8 predicted 1.2 is wrong and 50 % high
    BacktestReport report;
    report.cells = {cell(100, 90, 110)};
    report.pairs = {{0, 0, 1.04, 0.9}, {0, 0, 1.3, 1.1}, {0, 0, 0.8, 1.2}};
    const BacktestSummary all = summarise(report, "all", everything);
    EXPECT_EQ(all.pairs, 3u);
    EXPECT_EQ(all.sign_pairs, 2u);
    EXPECT_NEAR(all.sign_right, 0.5, 1e-12);
    EXPECT_NEAR(all.speedup_error, std::abs(1.1 / 1.3 - 1), 1e-12);  // the middle of 0.13, 0.15, 0.50
}

TEST(Backtest, What_repeats_of_one_measurement_differ_by_is_no_gain) {
    // Repeats: equal scenarios, so equal predictions. Plain 100, 110: sigma = ln 1.1 / (sqrt 2 x 0.6745) = 0.0999;
    // speculating 100, 120: 0.1911. Nine pairs of ten lie within 1.645 x hypot = 0.355: a factor 1.426.
    BacktestReport report;
    for (const double measured : {100.0, 110.0, 100.0, 120.0}) {
        report.cells.push_back(cell(105, 90, 120));
        report.cells.back().measured = measured;
        report.cells.back().speculates = report.cells.size() > 2;
    }
    const RepeatNoise noise = repeat_noise(report.cells, everything);
    EXPECT_EQ(noise.plain_pairs, 1u);
    EXPECT_NEAR(noise.plain, std::log(1.1) / (std::sqrt(2.0) * 0.67449), 1e-5);
    EXPECT_NEAR(noise.speculating, std::log(1.2) / (std::sqrt(2.0) * 0.67449), 1e-5);
    EXPECT_NEAR(noise.limit(), 1.64485 * std::hypot(noise.plain, noise.speculating), 1e-4);
    report.noise = noise;  // too few repeats in a group of its own: those of all
    report.pairs = {{0, 2, 1.3, 0.9}, {0, 2, 1.5, 1.1}};
    const BacktestSummary all = summarise(report, "all", everything);
    EXPECT_EQ(all.sign_pairs, 2u);
    EXPECT_NEAR(all.sign_right, 0.5, 1e-12);
    EXPECT_EQ(all.repeat_pairs, 1u);
    EXPECT_NEAR(all.repeat_right, 1.0, 1e-12);
    // Without repeats the limit is that of a gain at all.
    EXPECT_NEAR(RepeatNoise{}.limit(), std::log1p(kNoise), 1e-12);
}

TEST(Backtest, The_fixture_is_predicted_and_its_pair_is_found) {
    const auto report = backtest(fixture(), kData);
    ASSERT_TRUE(report) << report.error().to_text();
    EXPECT_EQ(report->rows, 8u);
    EXPECT_EQ(report->cells.size(), 6u);
    EXPECT_EQ(report->skipped.size(), 2u);
    ASSERT_EQ(report->pairs.size(), 1u);  // are equal but for the drafter
    EXPECT_EQ(report->cells[report->pairs[0].plain].row.id, "A-1");
    EXPECT_NEAR(report->pairs[0].measured, 120.0 / 90, 1e-12);
    for (const BacktestCell& one : report->cells) {
        EXPECT_GT(one.predicted.value, 0.3 * one.measured) << one.row.id;
        EXPECT_LT(one.predicted.value, 3 * one.measured) << one.row.id;
        EXPECT_LT(one.predicted.low, one.predicted.value) << one.row.id;
    }
    const model::Json json = backtest_json(*report);
    EXPECT_EQ(json["groups"].size(), report->groups.size());
    EXPECT_EQ(json["skipped"].size(), 2u);
    EXPECT_NEAR(json["median_absolute_error"].get<double>(), report->overall.median_absolute_error, 1e-12);
    EXPECT_EQ(backtest_text(*report, 2), backtest_text(*backtest(fixture(), kData), 2));  // the same bytes
}

TEST(Backtest, A_fit_looks_at_even_lines_only) {
    auto rows = fixture();
    const auto first = Backtest::prepare(rows, kData);
    ASSERT_TRUE(first);
    for (PublishedRow& one : rows) {
        if (one.line % 2 != 0 && one.tokens_per_second) *one.tokens_per_second *= 3;
    }
    const auto second = Backtest::prepare(rows, kData);
    const auto quiet = [](const std::string&) {};
    const auto fit = fit_backtest(*first, first->shipped_terms(), 1, quiet);
    const auto again = fit_backtest(*second, second->shipped_terms(), 1, quiet);
    ASSERT_TRUE(fit && again);
    EXPECT_LE(fit->fitted.cells, 4u);
    EXPECT_DOUBLE_EQ(fit->terms.traffic.alpha, again->terms.traffic.alpha);
    EXPECT_EQ(fit->terms.engines, again->terms.engines);
    EXPECT_NE(fit->checked.median_absolute_error, again->checked.median_absolute_error);
}

TEST(Backtest, Every_fitted_term_is_shipped_within_its_bounds) {
    auto terms = load_engine_terms("rtx-pro-6000", kData);
    ASSERT_TRUE(terms) << terms.error().to_text();
    for (const FitTerm& term : fit_terms()) {
        const double* value = find_term(*terms, term.name);
        ASSERT_NE(value, nullptr) << term.name;
        EXPECT_GE(*value, term.low) << term.name;
        EXPECT_LE(*value, term.high) << term.name;
    }
    EXPECT_EQ(find_term(*terms, "kernels.nothing.fixed_us"), nullptr);
    EXPECT_EQ(find_term(*terms, "engines.vLLM"), nullptr);
    EXPECT_EQ(find_term(*terms, ""), nullptr);
}

TEST(Backtest, The_published_grid_is_met) {
    const std::string path = std::string(DRAFTBOARD_SHARED_DIR) + "/published/decode_grid.csv";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "the published grid is not here";
    const auto rows = load_published_grid(path);
    ASSERT_TRUE(rows) << rows.error().to_text();
    const auto report = backtest(*rows, kData);
    ASSERT_TRUE(report) << report.error().to_text();
    EXPECT_GT(report->overall.cells, rows->size() * 9 / 10);
    EXPECT_LE(report->overall.median_absolute_error, 0.10);
    EXPECT_GE(report->overall.coverage_90, 0.80);
    EXPECT_LE(report->overall.coverage_90, 0.97);
    EXPECT_GE(report->overall.sign_right, 0.90);
}

}  // namespace
}  // namespace draftboard::calibration
