// SPDX-License-Identifier: Apache-2.0
// The plan on the founding cases, the facts behind it, and the sign of one lever that turns around.
#include "planning/plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "planning/document.h"

namespace draftboard::planning {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";

LeverPlan plan_of(const std::string& scenario, const model::Edits& edits = {}, const PlanOptions& options = {}) {
    auto plan = plan_levers(scenario, edits, options, kData);
    EXPECT_TRUE(plan) << (plan ? "" : plan.error().to_text());
    return plan ? std::move(*plan) : LeverPlan{};
}

const PlannedLever* find(const std::vector<PlannedLever>& levers, const std::string& name) {
    const auto at = std::find_if(levers.begin(), levers.end(), [&](const PlannedLever& one) { return one.lever.name == name; });
    return at == levers.end() ? nullptr : &*at;
}

TEST(Plan, Of_the_founding_case_begins_with_the_verify_pass_in_a_full_graph) {
    const LeverPlan plan = plan_of("kimi-k2.5-eagle3-founding");
    ASSERT_FALSE(plan.ranked.empty());
    const PlannedLever& first = plan.ranked.front();
    EXPECT_EQ(first.lever.name, "verify_graph");
    EXPECT_EQ(first.feasibility.state, FeasibilityState::works);
    EXPECT_TRUE(first.in_combination);
    // Published on the same family and box class at 2k tokens: 75.0 -> 116.6, that is 1.55 times.
    EXPECT_LT(first.alone->gain.low, 1.55);
    EXPECT_GT(first.alone->gain.high, 1.55);
    EXPECT_GT(first.alone->confidence, 0.95);
}

TEST(Plan, Rules_out_what_is_known_not_to_work_on_this_gpu_with_its_evidence) {
    const LeverPlan kimi = plan_of("kimi-k2.5-eagle3-founding");
    for (const char* name : {"fused_all_reduce_norm", "symmetric_memory", "nccl_tree", "one_shot", "two_shot", "trtllm_mla",
                             "deep_gemm", "flash_attention_3"}) {
        const PlannedLever* lever = find(kimi.ruled_out, name);
        ASSERT_NE(lever, nullptr) << name;
        EXPECT_FALSE(lever->feasibility.facts.front().source.empty()) << name;
        EXPECT_FALSE(lever->in_combination) << name;
    }
    const LeverPlan qwen = plan_of("qwen3.5-397b-founding");
    const PlannedLever* cutedsl = find(qwen.ruled_out, "fp4_cutedsl");
    ASSERT_NE(cutedsl, nullptr);
    EXPECT_EQ(cutedsl->feasibility.state, FeasibilityState::wrong_results);
    ASSERT_NE(find(qwen.ruled_out, "fp4_trtllm_gen"), nullptr);
    EXPECT_EQ(qwen.ranked.front().lever.name, "mtp");  // the module is in the checkpoint
}

TEST(Plan, A_combination_brings_at_least_what_its_best_lever_brings) {
    for (const char* name :
         {"kimi-k2.5-eagle3-founding", "kimi-k2.5-ngram-founding", "qwen3.5-397b-founding", "qwen3.5-397b-mtp-founding"}) {
        const LeverPlan plan = plan_of(name);
        double best = 1;
        for (const PlannedLever& lever : plan.ranked) {
            EXPECT_FALSE(lever.ruled_out()) << name;
            if (!lever.in_combination) continue;
            best = std::max(best, lever.alone->gain.value);
            EXPECT_GT(lever.together->gain.value, 1) << name << " " << lever.lever.name;
        }
        EXPECT_GE(plan.combination_gain.gain.value, best) << name;
        EXPECT_TRUE(plan.combination.memory.fits) << name;
    }
}

TEST(Plan, The_combination_s_edits_give_its_rate) {
    for (const char* name : {"kimi-k2.5-eagle3-founding", "qwen3.5-397b-founding"}) {
        const LeverPlan plan = plan_of(name);
        BaseDocument base = load_base(name, kData, {}).value();
        (void)pin_acceptance(base, kData);
        Variants variants(std::make_shared<SharedConstants>(kData), base);
        EXPECT_EQ(variants.predict(plan.combination_edits)->tokens_per_second.value, plan.combination.tokens_per_second.value);
    }
}

TEST(Plan, Is_the_same_each_time_and_in_all_forms) {
    const LeverPlan a = plan_of("kimi-k2.5-eagle3-founding");
    const LeverPlan b = plan_of("kimi-k2.5-eagle3-founding");
    EXPECT_EQ(plan_json(a).dump(), plan_json(b).dump());
    EXPECT_EQ(to_html(plan_document(a)), to_html(plan_document(b)));
    EXPECT_NE(to_markdown(plan_document(a)).find("## Ruled out"), std::string::npos);
}

TEST(Plan, On_an_nvlink_box_other_facts_hold) {
    const LeverPlan plan = plan_of("kimi-k2.5-eagle3-founding", {"machine=8x-h200-nvlink"});
    EXPECT_EQ(find(plan.ruled_out, "fused_all_reduce_norm"), nullptr);
    EXPECT_EQ(find(plan.ruled_out, "one_shot"), nullptr);
}

TEST(Feasibility, A_closer_fact_decides_and_versions_bound_it) {
    const auto table = FeasibilityTable::load(std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/feasibility/two.json");
    ASSERT_TRUE(table) << table.error().to_text();
    EXPECT_EQ(table->of("a", {"12.0", "SGLang", "0.5.4"}).state, FeasibilityState::crashes);
    EXPECT_EQ(table->of("a", {"12.0", "SGLang", ""}).state, FeasibilityState::crashes);
    EXPECT_EQ(table->of("a", {"12.0", "SGLang", "0.5.10"}).state, FeasibilityState::works);
    EXPECT_EQ(table->of("a", {"12.0", "vLLM", "0.5.4"}).state, FeasibilityState::works);
    EXPECT_EQ(table->of("a", {"9.0", "SGLang", "0.5.4"}).state, FeasibilityState::works);
    EXPECT_EQ(table->of("b", {"9.0", "SGLang", ""}).state, FeasibilityState::unknown);
    EXPECT_EQ(compare_versions("0.5.9", "0.5.10"), -1);
    EXPECT_EQ(compare_versions("1.0", "1.0.0"), 0);
}

TEST(Feasibility, A_fact_without_source_or_with_an_unknown_state_is_refused_with_its_place) {
    const auto table = FeasibilityTable::from_json(
        model::Json::parse(
            R"({"format": "draftboard.feasibility", "version": 1, "entries": [{"lever": "a", "architectures": ["any"],
                "engine": "any", "state": "maybe", "evidence": "", "source": ""}]})"),
        "file");
    ASSERT_FALSE(table);
    EXPECT_NE(table.error().to_text().find("/entries/0/state"), std::string::npos) << table.error().to_text();
}

TEST(Feasibility, Every_shipped_fact_speaks_of_a_lever_that_exists) {
    const auto table = FeasibilityTable::load(kData + "/feasibility.json").value();
    std::vector<std::string> known;
    for (const char* name : {"kimi-k2.5-eagle3-founding", "qwen3.5-397b-founding"}) {
        for (const model::Edits& edits :
             {model::Edits{},
              model::Edits{"engine.launch.draft=eager", "engine.launch.decode=eager", "workload.concurrency=8",
                           "collective.graph_file=false", "collective.peer_level=PXB", "machine.peer.force_p2p=false"}}) {
            const LeverPlan plan = plan_of(name, edits);
            for (const auto* list : {&plan.ranked, &plan.ruled_out, &plan.unpredicted}) {
                for (const PlannedLever& lever : *list) known.push_back(lever.lever.name);
            }
        }
    }
    for (const FeasibilityFact& fact : table.facts()) {
        if (fact.lever.starts_with("moe_kernel_")) continue;
        EXPECT_NE(std::find(known.begin(), known.end(), fact.lever), known.end()) << fact.lever;
    }
}

/// Gain of a one-shot all-reduce that reads its peers over NCCL, GLM-5 with TP8.
double one_shot_gain(const std::string& machine, const model::Edits& speculation) {
    model::Edits edits = {"architecture=glm-5-nvfp4", "machine=" + machine, "collective.peer_level=SYS",
                          "collective.graph_file=true", "collective.pull=true"};
    edits.insert(edits.end(), speculation.begin(), speculation.end());
    Variants variants(std::make_shared<SharedConstants>(kData), load_base("qwen3.5-397b-founding", kData, edits).value());
    return variants.predict(model::Edits{"collective.implementation=one_shot"})->tokens_per_second.value /
           variants.predict(model::Edits{})->tokens_per_second.value;
}

TEST(Plan, One_shot_all_reduce_helps_GLM_5_without_MTP_and_hurts_with_it_behind_switches) {
    // Published: 52.8 -> 56.6 tok/s without MTP, 92.3 -> 87.5 and 84.6 -> 71.3 with it. A token's all-reduce is 12 KiB and bound
    // by latency, where one-shot wins; a verify pass's is four or more of them, and each rank reads them from seven peers.
    const auto mtp = [](int k) {
        return model::Edits{"speculation.method=mtp", "speculation.steps=" + std::to_string(k), "speculation.draft_tokens=0",
                            R"(speculation.acceptance={"per_position":[0.8,0.51,0.26]})"};
    };
    EXPECT_GT(one_shot_gain("8x-rtx-pro-6000-flat", {}), 1.05);
    EXPECT_LT(one_shot_gain("8x-rtx-pro-6000-flat", mtp(3)), 0.99);
    // Behind Broadcom's switches the sign turns one draft token later.
    EXPECT_GT(one_shot_gain("8x-rtx-pro-6000-switches", {}), 1.05);
    EXPECT_LT(one_shot_gain("8x-rtx-pro-6000-switches", mtp(4)), 0.995);
    EXPECT_LT(one_shot_gain("8x-rtx-pro-6000-switches", mtp(5)), 0.985);
}

}  // namespace
}  // namespace draftboard::planning
