// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/serving_validation.h"

#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftboard::calibration {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr double kDigits = 0.0051;  // of figures printed with two digits

ServingLog fixture(const std::string& name) {
    auto log = load_serving_log(std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/serving_logs/" + name);
    if (!log) throw std::runtime_error(log.error().to_text());
    return std::move(*log);
}

std::string decode(int running, double length, double rate, double throughput, const std::string& tag = "TP0") {
    return fmt::format(
        "[2026-03-01 10:00:00 {}] Decode batch, #running-req: {}, #token: {}, token usage: 0.01, accept len: {:.2f}, "
        "accept rate: {:.2f}, cuda graph: True, gen throughput (token/s): {:.2f}, #queue-req: 0\n",
        tag, running, 100 * running, length, rate, throughput);
}

std::string prefill() {
    return "[2026-03-01 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, #running-req: 0\n";
}

std::string engine(int running, double throughput, double prompt = 0, int index = 0) {
    return fmt::format(
        "(APIServer pid=1) INFO 03-01 10:00:00 [loggers.py:248] Engine {:03}: Avg prompt throughput: {:.1f} tokens/s, "
        "Avg generation throughput: {:.1f} tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 2.0%, "
        "Prefix cache hit rate: 0.0%\n",
        index, prompt, throughput, running);
}

std::string spec(const std::string& figures) {
    return "INFO 03-01 10:00:00 [metrics.py:100] SpecDecoding metrics: " + figures + "\n";
}

const char* const kCounted =
    "Mean acceptance length: 2.16, Accepted throughput: 15.00 tokens/s, Drafted throughput: 38.70 tokens/s, Accepted: 150 "
    "tokens, "
    "Drafted: 387 tokens, Per-position acceptance rate: 0.543, 0.357, 0.264, Avg Draft acceptance rate: 38.8%";

TEST(ServingLog, A_decode_line_of_SGLang_gives_its_figures) {
    const ServingLog log = fixture("sglang_eagle3.log");
    EXPECT_EQ(log.engine, ServingEngine::sglang);
    ASSERT_EQ(log.samples.size(), 29u);  // 14 of one request, 14 of four, one of another writer within a line
    const ServingSample& first = log.samples.front();
    EXPECT_EQ(first.running, 1);
    EXPECT_EQ(first.line, 5);
    EXPECT_EQ(first.tokens_per_second, 3.10);
    EXPECT_EQ(first.context_tokens, 1098);
    EXPECT_EQ(first.graph, std::optional<bool>(false));
    EXPECT_EQ(log.prefill_lines, 2);
    EXPECT_EQ(log.draft_steps, 3);
    EXPECT_EQ(log.draft_tokens, 4);
    EXPECT_EQ(log.top_k, 1);
}

TEST(ServingLog, A_broken_line_is_counted_and_its_place_kept) {
    const ServingLog log = fixture("sglang_eagle3.log");
    EXPECT_EQ(log.malformed_lines, 1);
    EXPECT_EQ(log.first_malformed, log.lines);
}

TEST(ServingLog, SGLang_of_2025_prints_a_full_stop_and_neither_rate_nor_graph) {
    const ServingLog log = fixture("sglang_2025.log");
    ASSERT_EQ(log.samples.size(), 7u);
    EXPECT_EQ(log.samples[0].acceptance_length, 0);
    EXPECT_NEAR(log.samples[1].acceptance_length, 2.50, 1e-9);
    EXPECT_FALSE(log.samples[1].graph.has_value());
    EXPECT_EQ(log.draft_tokens, 0);
}

TEST(ServingLog, Both_definitions_of_SGLangs_accept_rate_are_told_by_the_lines) {
    // n = 4: L / n, and (L - 1) / (n - 1)
    std::string with_bonus, without_bonus, neither;
    for (const double length : {1.50, 2.28, 2.70, 3.31}) {
        with_bonus += decode(1, length, length / 4, 60);
        without_bonus += decode(1, length, (length - 1) / 3, 60);
        neither += decode(1, length, 1 - length / 5, 60);
    }
    const auto a = parse_serving_log(with_bonus, "a.log");
    const auto b = parse_serving_log(without_bonus, "b.log");
    const auto c = parse_serving_log(neither, "c.log");
    ASSERT_TRUE(a && b && c);
    EXPECT_THAT(a->assumptions, Contains(HasSubstr("\"sglang_log\" with 4 tokens")));
    EXPECT_THAT(b->assumptions, Contains(HasSubstr("\"sglang_request\" with 4 tokens")));
    EXPECT_THAT(c->assumptions, Contains(HasSubstr("no definition")));
    EXPECT_EQ(a->draft_steps, 3);
    EXPECT_EQ(b->draft_steps, 3);
    EXPECT_EQ(c->draft_steps, 0);
    EXPECT_EQ(a->samples[1].acceptance_length, b->samples[1].acceptance_length);
}

TEST(ServingLog, Data_parallel_ranks_are_kept_apart) {
    const ServingLog log = fixture("sglang_ranks.log");
    EXPECT_EQ(log.ranks, 2);
    ASSERT_EQ(log.samples.size(), 16u);
    EXPECT_EQ(log.samples[1].rank, 1);
    EXPECT_EQ(log.samples[0].context_tokens, 16000);  // full attention's, not the sliding window's
    EXPECT_EQ(log.draft_tokens, 8);
    EXPECT_THAT(log.assumptions, Contains(HasSubstr("sglang_request")));
}

TEST(ServingLog, Lines_of_other_tensor_and_pipeline_ranks_are_passed_over) {
    const auto log = parse_serving_log(decode(1, 2, 0.5, 60) + decode(1, 2, 0.5, 61, "TP1") + decode(1, 2, 0.5, 62, "PP1 TP0") +
                                           decode(1, 2, 0.5, 63, "TP1] INFO [metrics.py:287") +
                                           decode(1, 2, 0.5, 64, "DP3 TP3] INFO [metrics.py:287"),
                                       "l");
    ASSERT_TRUE(log);
    ASSERT_EQ(log->samples.size(), 2u);
    EXPECT_EQ(log->samples[1].rank, 3);
}

TEST(ServingLog, vLLMs_two_lines_make_one_sample) {
    const ServingLog log = fixture("vllm_eagle3.log");
    EXPECT_EQ(log.engine, ServingEngine::vllm);
    EXPECT_EQ(log.version, "0.18.0");
    EXPECT_EQ(log.draft_steps, 3);
    EXPECT_EQ(log.idle_lines, 2);
    ASSERT_EQ(log.samples.size(), 13u);
    const ServingSample& first = log.samples.front();  // 180 drafts; 115, 70, 42 of them accepted so far
    EXPECT_EQ(first.running, 2);
    EXPECT_EQ(first.accepted, 227);
    EXPECT_EQ(first.drafted, 540);
    ASSERT_EQ(first.per_position.size(), 3u);
    EXPECT_NEAR(first.acceptance_length, 1 + 227.0 / 180, 3 * 0.0005);
    EXPECT_NEAR(first.cycles, 180, 0.3);
    EXPECT_NEAR(first.context_tokens, 0.003 * 686320, 1e-6);
    EXPECT_TRUE(first.prefill);
    EXPECT_FALSE(log.samples[1].prefill);
}

TEST(ServingLog, A_mean_length_without_the_bonus_token_gets_it) {
    // 0.543 + 0.357 + 0.264 = 1.164 is printed as the mean length: L = 2.164
    const ServingLog log = fixture("vllm_mean_without_bonus.log");
    ASSERT_FALSE(log.samples.empty());
    EXPECT_NEAR(log.samples[0].acceptance_length, 2.164, 1e-6);
    EXPECT_THAT(log.assumptions, Contains(HasSubstr("leave the bonus token out")));
    const auto with = parse_serving_log(engine(4, 300) + spec(kCounted), "l");
    ASSERT_TRUE(with);
    EXPECT_NEAR(with->samples[0].acceptance_length, 2.164, 1e-6);
    EXPECT_THAT(with->assumptions, Not(Contains(HasSubstr("leave the bonus token out"))));
}

TEST(ServingLog, A_rate_alone_needs_the_depth_of_the_start) {
    // L = 1 + k r = 1 + 4 * 30 / 80
    const std::string lines = engine(1, 90) + spec("Draft acceptance rate: 37.5%, Accepted: 30 tokens, Drafted: 80 tokens");
    const auto unknown = parse_serving_log(lines, "l");
    const auto known = parse_serving_log(
        "Initializing a V1 LLM engine (v0.8.2) with config: SpeculativeConfig(num_spec_tokens=4)\n" + lines, "l");
    ASSERT_TRUE(unknown && known);
    EXPECT_EQ(unknown->samples[0].acceptance_length, 0);
    EXPECT_THAT(unknown->assumptions, Contains(HasSubstr("no depth")));
    EXPECT_NEAR(known->samples[0].acceptance_length, 2.5, 1e-9);
}

TEST(ServingLog, Cumulative_counts_of_V0_are_differences) {
    // Each window: 1000 drafts of 4, 2550 emitted tokens.
    const ServingLog log = fixture("vllm_v0.log");
    ASSERT_EQ(log.samples.size(), 7u);
    for (const ServingSample& sample : log.samples) {
        EXPECT_NEAR(sample.acceptance_length, 2.55, 1e-9);
        EXPECT_NEAR(sample.cycles, 1000, 1e-9);
    }
}

TEST(ServingLog, A_line_of_acceptance_belongs_to_the_line_of_throughput_before_it) {
    const auto idle = parse_serving_log(engine(2, 100) + engine(0, 0) + spec(kCounted), "l");
    ASSERT_TRUE(idle);
    EXPECT_EQ(idle->samples[0].acceptance_length, 0);
    const auto twice = parse_serving_log(engine(2, 100) + spec(kCounted) + spec(kCounted), "l");
    ASSERT_TRUE(twice);
    EXPECT_EQ(twice->samples[0].accepted, 150);
}

TEST(ServingLog, Figures_that_can_not_be_are_counted_as_malformed) {
    for (const std::string figures :
         {"Mean acceptance length: 1e999, Accepted: 1 tokens, Drafted: 3 tokens",
          "Mean acceptance length: 2.0, Accepted: 9 tokens, Drafted: 3 tokens",
          "Mean acceptance length: 3.9, Accepted: 1 tokens, Drafted: 3 tokens, Per-position acceptance rate: 0.5",
          "Accepted: 1 tokens, Drafted: 3 tokens, Per-position acceptance rate: 0.2, 0.9",
          "Accepted: -1 tokens, Drafted: 3 tokens"}) {
        const auto log = parse_serving_log(engine(1, 50) + spec(figures), "l");
        ASSERT_TRUE(log);
        EXPECT_EQ(log->malformed_lines, 1) << figures;
        EXPECT_EQ(log->first_malformed, 2);
        EXPECT_EQ(log->samples[0].acceptance_length, 0);
    }
}

TEST(ServingLog, Errors_say_what_was_found_and_what_to_do) {
    const auto none = parse_serving_log("hello\n" + prefill() + "Decode batch, #running-req: x\n", "a.log");
    ASSERT_FALSE(none);
    EXPECT_THAT(none.error().to_text(), HasSubstr("a.log:3"));
    EXPECT_THAT(none.error().to_text(), HasSubstr("1 of prefill, 0 idle, 1 malformed"));
    const auto both = parse_serving_log(decode(1, 2, 0.5, 60) + engine(1, 60), "b.log");
    ASSERT_FALSE(both);
    EXPECT_THAT(both.error().to_text(), HasSubstr("line 2"));
    EXPECT_FALSE(load_serving_log("no such file.log"));
    EXPECT_FALSE(load_serving_log("/"));
    EXPECT_THAT(parse_serving_log("\x1f\x8b\x08", "c.log.gz").error().to_text(), HasSubstr("compressed"));
}

TEST(ServingLog, A_start_with_other_settings_is_an_error_with_its_line) {
    const std::string three = "server_args=ServerArgs(speculative_num_steps=3, speculative_num_draft_tokens=4)\n";
    const std::string five = "server_args=ServerArgs(speculative_num_steps=5, speculative_num_draft_tokens=6)\n";
    const std::string lines = decode(1, 2, 0.5, 60);
    EXPECT_TRUE(parse_serving_log(three + lines + three + lines, "l"));
    EXPECT_TRUE(parse_serving_log(three + five + lines, "l"));  // the first start gave no sample
    const auto mixed = parse_serving_log(three + lines + five + lines, "l");
    ASSERT_FALSE(mixed);
    EXPECT_THAT(mixed.error().to_text(), HasSubstr("l:3"));
}

TEST(ServingLog, Pieces_of_any_size_give_the_same_log) {
    const std::string text =
        decode(2, 2.5, 0.62, 100) + std::string(2 * kMaxLogLineBytes, 'x') + "\n" + decode(2, 2.6, 0.65, 101);
    for (const std::size_t step : {3u, 7u, 1000u, 1u << 20}) {
        ServingLogReader reader("l");
        for (std::size_t at = 0; at < text.size(); at += step) ASSERT_TRUE(reader.add(std::string_view(text).substr(at, step)));
        const auto log = reader.finish();
        ASSERT_TRUE(log);
        ASSERT_EQ(log->samples.size(), 2u) << step;
        EXPECT_EQ(log->samples[1].line, 3);
        EXPECT_EQ(log->samples[1].tokens_per_second, 101);
    }
}

TEST(ServingLog, A_stream_without_samples_ends) {
    ServingLogReader reader("endless");
    const std::string piece(1u << 20, 'x');
    std::size_t taken = 0;
    while (taken <= kMaxBytesBeforeSample + piece.size() && reader.add(piece)) taken += piece.size();
    EXPECT_EQ(taken, kMaxBytesBeforeSample);
}

TEST(ServingSummary, Warm_up_changes_and_prompts_are_left_out) {
    std::string text = prefill();
    for (int i = 0; i < 5; ++i) text += decode(1, 2, 0.5, 10 + i);  // 10, 11 are warm-up
    text += prefill() + decode(1, 2, 0.5, 90);                      // a prompt in it
    for (int i = 0; i < 4; ++i) text += decode(4, 2, 0.5, 40 + i);  // 40 began with another batch
    const auto log = parse_serving_log(text, "l");
    ASSERT_TRUE(log);
    const ServingSummary summary = summarize_serving_log(*log);
    EXPECT_EQ(summary.warm_up, 2);
    EXPECT_EQ(summary.changed, 1);
    EXPECT_EQ(summary.prefill, 1);
    EXPECT_EQ(summary.steady, 6);
    ASSERT_EQ(summary.batches.size(), 2u);
    EXPECT_EQ(summary.batches[0].tokens_per_second.value, 13);  // of 12, 13, 14
    EXPECT_EQ(summary.batches[1].tokens_per_second.value, 42);  // of 41, 42, 43
    EXPECT_EQ(summary.batches[1].context_tokens, 100);
    EXPECT_FALSE(summary.batches[0].prefill_inside);
}

TEST(ServingSummary, Windows_with_prompts_stand_in_where_there_are_too_few_others) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += engine(8, 400 + i, i < 4 ? 0 : 50);
    const auto log = parse_serving_log(text, "l");
    ASSERT_TRUE(log);
    const ServingSummary summary = summarize_serving_log(*log);
    ASSERT_EQ(summary.batches.size(), 1u);
    EXPECT_EQ(summary.batches[0].windows, 6);  // 402, 403 are steady
    EXPECT_TRUE(summary.batches[0].prefill_inside);
}

TEST(ServingSummary, The_interval_of_a_median_lies_between_order_statistics) {
    // n = 16: half = 1.645 * 4 / 2 = 3.29: the 5th and the 12th value
    std::vector<double> values;
    for (int i = 16; i >= 1; --i) values.push_back(i);
    const model::Interval interval = median_interval(values);
    EXPECT_EQ(interval.value, 8.5);
    EXPECT_EQ(interval.low, 5);
    EXPECT_EQ(interval.high, 12);
    EXPECT_EQ(median_interval({3, 1}).low, 1);
}

TEST(ServingSummary, Rates_are_weighted_with_their_drafts) {
    // 150 / 1.164 = 128.9 drafts with (0.543, 0.357, 0.264), 30 / 0.6 = 50 with (0.6, 0, 0)
    const std::string other =
        "Mean acceptance length: 1.60, Accepted: 30 tokens, Drafted: 150 tokens, "
        "Per-position acceptance rate: 0.600, 0.000, 0.000";
    const auto log =
        parse_serving_log(engine(1, 9) + engine(1, 9) + engine(1, 9) + spec(kCounted) + engine(1, 9) + spec(other), "l");
    ASSERT_TRUE(log);
    const ServingSummary summary = summarize_serving_log(*log);
    ASSERT_EQ(summary.batches.size(), 1u);
    const BatchSummary& batch = summary.batches[0];
    const double first = 150 / 1.164;
    EXPECT_NEAR(batch.cycles, first + 50, 1e-3);
    EXPECT_NEAR(batch.acceptance_length, 1 + 180 / (first + 50), 1e-6);
    ASSERT_EQ(batch.per_position.size(), 3u);
    EXPECT_NEAR(batch.per_position[1], 0.357 * first / (first + 50), 1e-6);
    EXPECT_LT(batch.acceptance_interval.low, batch.acceptance_length);
}

TEST(ServingSummary, The_error_of_a_length_without_counts_is_its_scatter) {
    // lengths 2, 3, 2, 3: sd = sqrt(1/3), error of the mean = sd / 2; 90 %: 1.645 times that
    std::string text = decode(1, 2, 0.5, 60) + decode(1, 2, 0.5, 60);
    for (int i = 0; i < 4; ++i) text += decode(1, 2 + i % 2, 0.5 + 0.25 * (i % 2), 60);
    const auto log = parse_serving_log(text, "l");
    ASSERT_TRUE(log);
    const BatchSummary batch = summarize_serving_log(*log).batches.at(0);
    EXPECT_NEAR(batch.acceptance_length, 2.5, 1e-9);
    EXPECT_NEAR(batch.acceptance_interval.high - 2.5, 1.645 * std::sqrt(1.0 / 3) / 2, 1e-6);
    EXPECT_NEAR(batch.relative_error, std::sqrt(1.0 / 3) / 2 / 2.5, 1e-6);
}

ServingValidationOptions founding(model::Edits edits = {}) {
    ServingValidationOptions options;
    options.scenario = "kimi-k2.5-eagle3-founding";
    options.data_directory = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
    options.edits = std::move(edits);
    return options;
}

TEST(ServingValidation, A_batch_is_predicted_with_what_the_log_measured) {
    const auto validation = validate_serving_log(fixture("sglang_eagle3.log"), founding());
    ASSERT_TRUE(validation) << validation.error().to_text();
    ASSERT_EQ(validation->comparisons.size(), 2u);
    const ServingComparison& one = validation->comparisons[0];
    const ServingComparison& four = validation->comparisons[1];
    EXPECT_THAT(one.edits, Contains("workload.concurrency=1"));
    EXPECT_THAT(four.edits, Contains("workload.concurrency=4"));
    EXPECT_NEAR(one.predicted_length, one.measured.acceptance_length, 1e-6);
    // cycle = S L / tok/s
    EXPECT_NEAR(four.measured_cycle_ms, 4e3 * four.measured.acceptance_length / four.tokens_per_second.value, 1e-9);
    const auto by_hand = model::load_scenario("kimi-k2.5-eagle3-founding", founding().data_directory, one.edits);
    ASSERT_TRUE(by_hand);
    EXPECT_EQ(by_hand->workload.context_tokens, std::llround(one.measured.context_tokens));
    EXPECT_EQ(by_hand->engine.verify_launch, model::LaunchMode::eager);
}

TEST(ServingValidation, Rates_by_position_and_their_counts_reach_the_scenario) {
    const auto validation = validate_serving_log(fixture("vllm_eagle3.log"), founding());
    ASSERT_TRUE(validation) << validation.error().to_text();
    ASSERT_EQ(validation->comparisons.size(), 1u);
    const auto scenario =
        model::load_scenario("kimi-k2.5-eagle3-founding", founding().data_directory, validation->comparisons[0].edits);
    ASSERT_TRUE(scenario) << scenario.error().to_text();
    const BatchSummary& measured = validation->comparisons[0].measured;
    ASSERT_EQ(scenario->speculation.acceptance.per_position.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(scenario->speculation.acceptance.per_position[i], measured.per_position[i], 1e-12);
    EXPECT_NEAR(scenario->speculation.acceptance.observed_cycles, measured.cycles, 1e-6);
    EXPECT_NEAR(measured.acceptance_length, 2.28, 0.03);
}

TEST(ServingValidation, A_graph_in_the_log_overrules_the_scenario_and_an_edit_overrules_both) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += decode(1, 1.85, 1.85 / 4, 60);
    const auto graph = validate_serving_log(*parse_serving_log(text, "l"), founding());
    const auto eager = validate_serving_log(*parse_serving_log(text, "l"), founding({"engine.launch.verify=eager"}));
    ASSERT_TRUE(graph && eager);
    EXPECT_THAT(graph->comparisons[0].edits, Contains("engine.launch.verify=graph"));
    EXPECT_GT(graph->comparisons[0].predicted.value, 1.1 * eager->comparisons[0].predicted.value);
}

TEST(ServingValidation, Another_depth_in_the_log_becomes_the_scenarios) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += decode(1, 2 + 0.1 * i, (2 + 0.1 * i) / 6, 60);
    const auto validation = validate_serving_log(*parse_serving_log(text, "l"), founding());
    ASSERT_TRUE(validation) << validation.error().to_text();
    EXPECT_THAT(validation->comparisons[0].edits, Contains("speculation.steps=5"));
    EXPECT_THAT(validation->assumptions, Contains(HasSubstr("5 draft steps")));
}

TEST(ServingValidation, A_tree_has_the_scenarios_shape_where_the_log_prints_none_and_the_logs_length) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += decode(1, 2 + 0.1 * i, (2 + 0.1 * i) / 8, 60);
    const model::Edits tree{"speculation.top_k=4", "speculation.draft_tokens=8"};
    const auto validation = validate_serving_log(*parse_serving_log(text, "l"), founding(tree));
    ASSERT_TRUE(validation) << validation.error().to_text();
    const ServingComparison& comparison = validation->comparisons.at(0);
    EXPECT_THAT(comparison.edits, Not(Contains(HasSubstr("speculation.steps"))));
    EXPECT_NEAR(comparison.predicted_length, comparison.measured.acceptance_length, 1e-6);  // 2.45, of windows 3 to 8
    const std::string start =
        "server_args=ServerArgs(speculative_num_steps=5, speculative_eagle_topk=4, speculative_num_draft_tokens=8)\n";
    const auto printed = validate_serving_log(*parse_serving_log(start + text, "l"), founding());
    ASSERT_TRUE(printed) << printed.error().to_text();
    EXPECT_THAT(printed->comparisons.at(0).edits, Contains("speculation.steps=5"));
    EXPECT_THAT(printed->comparisons.at(0).edits, Contains("speculation.top_k=4"));
    EXPECT_NEAR(printed->comparisons.at(0).predicted_length, comparison.measured.acceptance_length, 1e-6);
}

TEST(ServingValidation, A_log_without_acceptance_is_predicted_without_speculation) {
    const auto validation = validate_serving_log(fixture("vllm_aggregated.log"), founding());
    ASSERT_TRUE(validation) << validation.error().to_text();
    EXPECT_THAT(validation->comparisons[0].edits, Contains("speculation.method=none"));
    EXPECT_EQ(validation->comparisons[0].predicted_length, 1);
    EXPECT_THAT(validation->assumptions, Contains(HasSubstr("sums over the engines")));
}

TEST(ServingValidation, A_log_that_speculates_needs_a_scenario_that_does) {
    const auto validation = validate_serving_log(fixture("vllm_eagle3.log"), founding({"speculation.method=none"}));
    ASSERT_FALSE(validation);
    EXPECT_THAT(validation.error().to_text(), HasSubstr("the scenario does not"));
}

TEST(ServingValidation, Ranks_multiply_batch_and_throughput) {
    const auto validation = validate_serving_log(fixture("sglang_ranks.log"), founding());
    ASSERT_TRUE(validation) << validation.error().to_text();
    const ServingComparison& comparison = validation->comparisons.at(0);
    EXPECT_EQ(comparison.sequences, 16);
    EXPECT_NEAR(comparison.tokens_per_second.value, 2 * comparison.measured.tokens_per_second.value, 1e-9);
}

TEST(ServingValidation, Too_few_steady_windows_are_an_error_that_counts_them) {
    const auto validation = validate_serving_log(*parse_serving_log(decode(1, 2, 0.5, 60), "l"), founding());
    ASSERT_FALSE(validation);
    EXPECT_THAT(validation.error().to_text(), HasSubstr("1 are warm-up"));
}

TEST(ServingValidation, The_report_shows_every_batch_and_the_bound_decides) {
    auto options = founding();
    options.bound = 0.05;
    const auto validation = validate_serving_log(fixture("sglang_eagle3.log"), options);
    ASSERT_TRUE(validation);
    const model::Json json = serving_validation_json(*validation);
    EXPECT_EQ(json["batches"].size(), 2u);
    EXPECT_EQ(json["within_bound"], validation->median_error() <= 0.05);
    EXPECT_NEAR(json["batches"][0]["measured_cycle_ms"].get<double>(), validation->comparisons[0].measured_cycle_ms, kDigits);
    EXPECT_THAT(serving_validation_text(*validation), HasSubstr("bound 5.0 %"));
}

}  // namespace
}  // namespace draftboard::calibration
