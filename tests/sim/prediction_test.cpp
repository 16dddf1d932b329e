// SPDX-License-Identifier: Apache-2.0
// The whole predictor on the shipped scenarios, priced from datasheets and published constants.
#include "sim/prediction.h"

#include <cmath>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "sim/explanation.h"
#include "sim/prediction_report.h"
#include "sim/trace.h"

namespace draftboard::sim {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
const char* const kScenarios[] = {"kimi-k2.5-eagle3-founding", "kimi-k2.5-ngram-founding",
                                  "qwen3.5-397b-founding", "qwen3.5-397b-mtp-founding"};

model::Scenario scenario_of(const std::string& name, const model::Edits& edits = {}) {
    auto scenario = model::load_scenario(name, kData, edits);
    EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().to_text());
    return scenario.value_or(model::Scenario{});
}

Prediction predict(const std::string& name, const model::Edits& edits = {}) {
    auto prediction = Predictor(CostConstants{}).predict(scenario_of(name, edits));
    EXPECT_TRUE(prediction) << (prediction ? "" : prediction.error().to_text());
    return prediction.value_or(Prediction{});
}

double sum_ms(const std::vector<Term>& terms) {
    double sum = 0;
    for (const Term& term : terms) sum += term.ms;
    return sum;
}

TEST(Prediction, Terms_sum_to_the_cycle_and_shares_to_one) {
    for (const char* name : kScenarios) {
        const Prediction p = predict(name);
        EXPECT_NEAR(sum_ms(p.terms), p.cycle_ms, 1e-6) << name;
        EXPECT_NEAR(sum_ms(p.plain_terms), p.plain_step_ms, 1e-6) << name;
        double shares = 0;
        for (const Term& term : p.terms) shares += term.share;
        EXPECT_NEAR(shares, 1, 1e-9) << name;
    }
}

TEST(Prediction, A_shared_expert_on_its_own_stream_saves_at_most_its_own_time) {
    const Prediction one = predict("kimi-k2.5-eagle3-founding", {"engine.launch.verify=graph"});
    const model::Edits edits = {"engine.launch.verify=graph", "engine.overlap_shared_experts=true"};
    const Prediction two = predict("kimi-k2.5-eagle3-founding", edits);
    EXPECT_NEAR(sum_ms(two.terms), two.cycle_ms, 1e-6);
    EXPECT_NEAR(sum_ms(two.plain_terms), two.plain_step_ms, 1e-6);
    EXPECT_LT(two.verify_ms, one.verify_ms);
    // 60 layers x (two GEMMs and an activation, below 20 us each on one stream, and their gaps)
    EXPECT_GT(two.verify_ms, one.verify_ms - 60 * 3 * 0.0205);
    // Passes of more tokens than the limit stay on one stream: 4 tokens of a verify pass, 1 of a plain step.
    const Prediction limited = predict("kimi-k2.5-eagle3-founding", {edits[0], edits[1], "engine.overlap_token_limit=3"});
    EXPECT_EQ(limited.verify_ms, one.verify_ms);
    EXPECT_EQ(limited.plain_step_ms, two.plain_step_ms);
}

TEST(Prediction, A_host_that_waits_behind_every_router_launches_each_layer_anew) {
    // 60 layers: the host returns, launches a graph and its first kernel starts, less the gap that was there anyway
    const HostConstants host;
    const Prediction free = predict("qwen3.5-397b-founding");
    const Prediction waits = predict("qwen3.5-397b-founding", {"engine.host_sync_after=[\"moe.top_k\"]"});
    const double layer_us = host.sync_us + host.graph_launch_us + host.launch_latency_us - host.kernel_gap_us;
    EXPECT_NEAR(waits.plain_step_ms - free.plain_step_ms, 60 * layer_us * 1e-3, 0.25 * 60 * layer_us * 1e-3);
    EXPECT_NEAR(sum_ms(waits.plain_terms), waits.plain_step_ms, 1e-6);
    const Prediction none = predict("qwen3.5-397b-founding", {"engine.host_sync_after=[\"moe.topk\"]"});
    EXPECT_EQ(none.plain_step_ms, free.plain_step_ms);
    ASSERT_FALSE(none.warnings.empty());
    EXPECT_NE(none.warnings.back().find("moe.topk"), std::string::npos);
}

TEST(Prediction, The_trace_has_a_row_for_each_stream) {
    const model::Scenario scenario =
        scenario_of("kimi-k2.5-eagle3-founding", {"engine.overlap_shared_experts=true"});
    Predictor predictor(CostConstants{});
    ASSERT_TRUE(predictor.predict(scenario));
    const auto trace = model::parse_json(chrome_trace(scenario, predictor), "trace");
    ASSERT_TRUE(trace) << trace.error().to_text();
    std::map<int, std::string> rows;  // of the cycle
    std::map<int, int> shared_slices;
    for (const auto& event : (*trace)["traceEvents"]) {
        if (event["pid"] != 2) continue;
        if (event["ph"] == "M" && event.contains("tid")) rows[event["tid"]] = event["args"]["name"];
        if (event["ph"] != "X") continue;
        const std::string name = event["name"];
        if (name.find("verify/") == 0 && name.find("moe.shared_") != std::string::npos) ++shared_slices[event["tid"]];
    }
    EXPECT_EQ(rows.size(), 16U);  // 8 ranks, two streams
    ASSERT_EQ(shared_slices.size(), 8U);
    for (const auto& [row, slices] : shared_slices) {
        EXPECT_NE(rows[row].find("side stream"), std::string::npos);
        EXPECT_EQ(slices, 60 * 3);  // gate and up, activation, down of each MoE layer
    }
}

TEST(Prediction, Host_work_grows_with_sequences_and_drafter_calls_and_differs_between_engines) {
    // plain: step + 4 sequences; cycle: cycle + 3 drafter calls + 4 sequences, nothing overlapped
    CostConstants constants;
    constants.engines["SGLang"] = {{"host.step_us", 50}, {"host.cycle_us", 400}, {"host.draft_call_us", 100},
                                   {"host.sequence_us", 20}};
    Predictor predictor(constants);
    const auto p = predictor.predict(scenario_of("qwen3.5-397b-mtp-founding", {"workload.concurrency=4"}));
    ASSERT_TRUE(p);
    EXPECT_NEAR(p->host_ms, 0.400 + 3 * 0.100 + 4 * 0.020, 1e-9);
    const auto other = predictor.predict(
        scenario_of("qwen3.5-397b-mtp-founding", {"workload.concurrency=4", "engine.name=vLLM"}));
    ASSERT_TRUE(other);
    EXPECT_NEAR(other->host_ms, HostConstants{}.cycle_us * 1e-3, 1e-9);
    const auto own = predictor.predict(scenario_of(
        "qwen3.5-397b-mtp-founding", {"workload.concurrency=4", "constants.host.cycle_us=900"}));
    ASSERT_TRUE(own);  // the scenario's word is the last
    EXPECT_NEAR(own->host_ms, 0.900 + 3 * 0.100 + 4 * 0.020, 1e-9);
}

TEST(Prediction, Passes_beyond_the_full_graphs_run_in_pieces) {
    const model::Edits within = {"workload.concurrency=4", "engine.full_graph_token_limit=4"};
    const model::Edits beyond = {"workload.concurrency=5", "engine.full_graph_token_limit=4"};
    // one piece a layer: 60 layers x 700 us bound the pass
    EXPECT_LT(predict("qwen3.5-397b-founding", within).plain_step_ms, 60 * 0.7);
    EXPECT_GT(predict("qwen3.5-397b-founding", beyond).plain_step_ms, 60 * 0.65);
}

TEST(Prediction, The_rates_follow_from_the_times) {
    // tok/s = sequences x acceptance length / cycle; break-even = cycle / plain; speed-up = length / break-even
    const Prediction p = predict("kimi-k2.5-eagle3-founding", {"workload.concurrency=4"});
    EXPECT_NEAR(p.tokens_per_second.value, 4 * p.acceptance_length.value / p.cycle_ms * 1e3, 1e-9);
    EXPECT_NEAR(p.per_user_tokens_per_second.value * 4, p.tokens_per_second.value, 1e-9);
    EXPECT_NEAR(p.break_even_acceptance_length, p.cycle_ms / p.plain_step_ms, 1e-12);
    EXPECT_NEAR(p.speedup.value, p.acceptance_length.value / p.break_even_acceptance_length, 1e-9);
    EXPECT_LT(p.tokens_per_second.low, p.tokens_per_second.value);
    EXPECT_GT(p.tokens_per_second.high, p.tokens_per_second.value);
}

TEST(Prediction, Kimi_verifies_with_122_decoder_all_reduces_and_one_for_the_embedding) {
    EXPECT_EQ(predict("kimi-k2.5-eagle3-founding").all_reduces_per_verify, 123);
    EXPECT_EQ(predict("qwen3.5-397b-mtp-founding").all_reduces_per_verify, 121);
}

TEST(Prediction, The_same_scenario_gives_the_same_bytes_on_any_number_of_threads) {
    for (const char* name : kScenarios) {
        const model::Scenario scenario = scenario_of(name);
        const auto json = [&scenario] {
            Predictor predictor(CostConstants{});
            const auto prediction = predictor.predict(scenario);
            return prediction_json(scenario, *prediction, predictor.constants()).dump() +
                   chrome_trace(scenario, predictor);
        };
        const std::string expected = json();
        EXPECT_EQ(json(), expected);
        std::vector<std::string> results(4);
        std::vector<std::thread> threads;
        for (std::string& result : results) threads.emplace_back([&] { result = json(); });
        for (std::thread& thread : threads) thread.join();
        for (const std::string& result : results) EXPECT_EQ(result, expected);
    }
}

TEST(Prediction, A_verify_pass_in_a_graph_is_faster_than_an_eager_one) {
    EXPECT_LT(predict("kimi-k2.5-eagle3-founding", {"engine.launch.verify=graph"}).verify_ms,
              predict("kimi-k2.5-eagle3-founding", {"engine.launch.verify=eager"}).verify_ms);
}

TEST(Prediction, A_better_drafter_changes_the_tokens_and_not_the_times) {
    const auto with = [](const char* length) {
        return predict("kimi-k2.5-eagle3-founding",
                       {std::string("speculation.acceptance={\"acceptance_length\":") + length + "}"});
    };
    const Prediction poor = with("1.5");
    const Prediction good = with("3.0");
    EXPECT_EQ(poor.cycle_ms, good.cycle_ms);
    EXPECT_NEAR(good.tokens_per_second.value / poor.tokens_per_second.value, 2, 1e-9);
}

TEST(Prediction, Too_few_GPUs_for_the_weights_is_a_verdict_and_not_an_error) {
    const Prediction p = predict("kimi-k2.5-eagle3-founding", {"layout.tensor=4"});
    EXPECT_FALSE(p.memory.fits);
    EXPECT_TRUE(p.verdict.starts_with("Does not fit")) << p.verdict;
}

TEST(Prediction, A_padded_miss_verifies_the_full_width_and_an_unpadded_one_runs_a_plain_step) {
    const model::Edits half{"speculation.acceptance={\"per_position\":[0.9,0.8],\"hit\":0.5}",
                            "speculation.steps=2", "speculation.draft_tokens=3"};
    model::Edits unpadded = half;
    unpadded.push_back("speculation.pad_misses=false");
    const Prediction padded = predict("kimi-k2.5-ngram-founding", half);
    const Prediction lean = predict("kimi-k2.5-ngram-founding", unpadded);
    EXPECT_NEAR(lean.verify_ms, 0.5 * padded.verify_ms + 0.5 * padded.plain.total_ms, 1e-6);
    EXPECT_NEAR(sum_ms(lean.terms), lean.cycle_ms, 1e-6);
}

TEST(Prediction, Overlap_hides_host_work_of_a_chain_and_is_refused_for_n_gram) {
    EXPECT_EQ(predict("kimi-k2.5-eagle3-founding", {"engine.overlap_scheduling=true"}).host_ms, 0);
    const Prediction ngram = predict("kimi-k2.5-ngram-founding", {"engine.overlap_scheduling=true"});
    EXPECT_GT(ngram.host_ms, 0);
    EXPECT_FALSE(ngram.warnings.empty());
}

TEST(Prediction, A_misspelt_field_of_a_file_is_a_warning) {
    std::string directory;
    auto document = model::load_scenario_document("qwen3.5-397b-founding", kData, {}, directory);
    ASSERT_TRUE(document);
    (*document)["layout"]["tenser"] = 4;
    const auto scenario = model::scenario_from_document(*document, "test", kData, directory);
    ASSERT_TRUE(scenario);
    const auto prediction = Predictor(CostConstants{}).predict(*scenario);
    ASSERT_TRUE(prediction);
    ASSERT_FALSE(prediction->warnings.empty());
    EXPECT_NE(prediction->warnings.back().find("layout.tenser"), std::string::npos);
}

TEST(Prediction, An_unknown_constant_is_an_error_that_names_a_near_one) {
    const auto result = Predictor(CostConstants{})
                            .predict(scenario_of("qwen3.5-397b-founding", {"constants.host.eager_launch=3"}));
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().hint.find("host.eager_launch_us"), std::string::npos) << result.error().to_text();
}

TEST(Prediction, A_predictor_that_answered_before_gives_the_answer_of_a_fresh_one) {
    const model::Edits changes[] = {{},
                                    {"speculation.steps=2"},
                                    {"speculation.acceptance={\"acceptance_length\":3}"},
                                    {"constants.host.cycle_us=900"},
                                    {"constants.host.kernel_gap_us=2"},
                                    {"collective.peer_level=PXB"},
                                    {"workload.context_tokens=9000"},
                                    {"engine.launch.verify=graph"},
                                    {"machine.gpu.memory_gb_s=900"},
                                    {"seed=5"},
                                    {}};
    Predictor veteran(CostConstants{});
    for (const model::Edits& edits : changes) {
        const model::Scenario scenario = scenario_of("kimi-k2.5-eagle3-founding", edits);
        const auto again = veteran.predict(scenario);
        const auto fresh = Predictor(CostConstants{}).predict(scenario);
        ASSERT_TRUE(again && fresh);
        EXPECT_EQ(prediction_json(scenario, *again, veteran.constants()),
                  prediction_json(scenario, *fresh, veteran.constants()));
    }
}

TEST(Explanation, Rows_add_up_to_the_kernels_and_collectives_of_the_pass) {
    const model::Scenario scenario =
        scenario_of("qwen3.5-397b-mtp-founding", {"constants.host.kernel_jitter=0"});
    Predictor predictor(CostConstants{});
    const auto prediction = predictor.predict(scenario);
    ASSERT_TRUE(prediction);
    const auto explanation = explain(scenario, *prediction, predictor, "");
    ASSERT_TRUE(explanation);
    ASSERT_EQ(explanation->passes.size(), predictor.passes().size());
    for (const ExplainedPass& pass : explanation->passes) {
        double rows = 0;
        for (const ExplainedOperation& row : pass.operations) rows += row.total_ms;
        double terms = 0;  // without launch gaps and waiting, which belong to no operation
        for (const Term& term : pass.terms) {
            const bool between = term.name.ends_with(".launch") || term.name.ends_with(".wait");
            if (!between) terms += term.ms;
        }
        EXPECT_NEAR(rows, terms, 1e-3 * terms) << pass.name;
    }
    EXPECT_FALSE(explain(scenario, *prediction, predictor, "nonsense"));
}

TEST(Explanation, States_the_constants_and_times_that_the_prediction_used) {
    CostConstants costs;
    costs.engines["SGLang"] = {{"host.cycle_us", 4321.0}};
    const model::Scenario scenario =
        scenario_of("qwen3.5-397b-mtp-founding", {"engine.fused_all_reduce_norm=true"});
    Predictor predictor(costs);
    const auto prediction = predictor.predict(scenario);
    ASSERT_TRUE(prediction);
    const auto explanation = explain(scenario, *prediction, predictor, "verify");
    ASSERT_TRUE(explanation);
    for (const ExplainedConstant& constant : explanation->constants) {
        if (constant.name != "host.cycle_us") continue;
        EXPECT_EQ(constant.value, 4321.0);
    }
    int fused = 0;
    for (const ExplainedOperation& row : explanation->passes.front().operations) {
        if (row.role != "feed_forward.norm") continue;
        ++fused;
        EXPECT_EQ(row.us, 0);  // it runs inside the all-reduce before it
    }
    EXPECT_EQ(fused, 1);
}

TEST(Trace, Is_one_json_document_whose_slices_end_with_the_cycle) {
    const model::Scenario scenario = scenario_of("qwen3.5-397b-mtp-founding");
    Predictor predictor(CostConstants{});
    const auto prediction = predictor.predict(scenario);
    ASSERT_TRUE(prediction);
    const auto trace = model::parse_json(chrome_trace(scenario, predictor), "trace");
    ASSERT_TRUE(trace) << trace.error().to_text();
    double last_us = 0;
    int counters = 0;
    for (const auto& event : (*trace)["traceEvents"]) {
        if (event["ph"] == "C") ++counters;
        if (event["ph"] == "X" && event["pid"] == 2) {
            last_us = std::max(last_us, event["ts"].get<double>() + event["dur"].get<double>());
        }
    }
    EXPECT_NEAR(last_us, (prediction->cycle_ms - prediction->host_ms) * 1e3, 0.01);
    EXPECT_GT(counters, 0);
}

}  // namespace
}  // namespace draftboard::sim
