// SPDX-License-Identifier: Apache-2.0
#include "calibration/cuda_fit.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "calibration/gpu_facts.h"

namespace draftboard::calibration {
namespace {

/// T = launch + sum of (k - min(s, f k)) + 5 MB, without noise.
GraphPass pass_of(int kernels, double us, double launch, double saving, double share, double mb) {
    GraphPass pass;
    pass.moved_mb = mb;
    pass.total_us = launch + 5 * mb;
    for (int i = 0; i < kernels; ++i) {
        pass.kernel_us.push_back(us);
        pass.total_us += us - (i > 0 ? std::min(saving, share * us) : 0);
    }
    return pass;
}

TEST(GraphFit, Finds_launch_and_chain_saving_and_the_price_of_states_that_travel) {
    std::vector<GraphPass> passes;
    for (const int kernels : {20, 100, 600}) {
        passes.push_back(pass_of(kernels, 2, 10, 1.5, 0.6, 0));  // no more than the share is saved
        passes.push_back(pass_of(kernels, 8, 10, 1.5, 0.6, 0.3));
    }
    const GraphCosts costs = fit_graph(passes);
    EXPECT_NEAR(costs.chain_saving_us, 1.5, 0.05);
    EXPECT_NEAR(costs.chain_share, 0.6, 0.03);
    EXPECT_NEAR(costs.launch_us, 10, 0.5);
    EXPECT_NEAR(costs.kernel_gap_us, 0, 0.05);
    EXPECT_NEAR(costs.us_per_mb, 5, 1);
    EXPECT_LT(costs.relative_error, 0.01);
}

TEST(GraphFit, Finds_a_gap_where_graphs_add_to_their_kernels) {
    std::vector<GraphPass> passes;
    for (const int kernels : {20, 100, 600}) {
        passes.push_back(pass_of(kernels, 4, 10, 0, 0.5, 0));
        passes.back().total_us += 0.7 * (kernels - 1);
    }
    const GraphCosts costs = fit_graph(passes);
    EXPECT_NEAR(costs.kernel_gap_us - costs.chain_saving_us, 0.7, 0.05);
    EXPECT_EQ(fit_graph({}).launch_us, 0);
}

// A library of our own making in NVML's place: two boards, the second on half of its lanes.
int ok() { return 0; }
int driver(char* text, unsigned) { std::strcpy(text, "580.1"); return 0; }
int count(unsigned* boards) { *boards = 2; return 0; }
std::array<int, 2> boards = {0, 1};
int by_index(unsigned index, void** handle) { *handle = &boards[index]; return 0; }
int name(void*, char* text, unsigned) { std::strcpy(text, "A GPU"); return 0; }
int width(void* handle, unsigned* value) { *value = handle == &boards[0] ? 16 : 8; return 0; }
int refuses(void*, unsigned*) { return 3; }

void* find(const char* wanted) {
    const std::string_view function = wanted;
    if (function == "nvmlInit_v2" || function == "nvmlShutdown") return reinterpret_cast<void*>(&ok);
    if (function == "nvmlSystemGetDriverVersion") return reinterpret_cast<void*>(&driver);
    if (function == "nvmlDeviceGetCount_v2") return reinterpret_cast<void*>(&count);
    if (function == "nvmlDeviceGetHandleByIndex_v2") return reinterpret_cast<void*>(&by_index);
    if (function == "nvmlDeviceGetName") return reinterpret_cast<void*>(&name);
    if (function == "nvmlDeviceGetCurrPcieLinkWidth") return reinterpret_cast<void*>(&width);
    if (function == "nvmlDeviceGetMaxPcieLinkWidth") return reinterpret_cast<void*>(&refuses);
    return nullptr;
}

TEST(GpuFacts, AreReadAndWrittenAndComparedAndSayWhatChanged) {
    const auto facts = probe_gpus(find);
    ASSERT_TRUE(facts.has_value());
    EXPECT_EQ(facts->driver, "580.1");
    ASSERT_EQ(facts->boards.size(), 2U);
    EXPECT_EQ(facts->boards[1].pcie_width, 8);
    EXPECT_EQ(facts->boards[1].most_pcie_width, 0);  // the library refused
    std::vector<model::Problem> problems;
    const GpuFacts again = gpu_facts_from_json(model::JsonReader(to_json(*facts), problems));
    EXPECT_TRUE(problems.empty());
    EXPECT_EQ(again, *facts);
    EXPECT_TRUE(differences(*facts, again).empty());
    GpuFacts other = *facts;
    other.driver = "590.2";
    other.boards[0].pcie_width = 4;
    EXPECT_EQ(differences(*facts, other), (std::vector<std::string>{"the driver was 580.1, is 590.2", "the link width of GPU 0 was 16, is 4"}));
    other.boards[0].sm_mhz = 300;  // a clock at rest is no other box
    EXPECT_EQ(differences(*facts, other).size(), 2U);
}

TEST(GpuFacts, WithoutTheLibrarySaySo) {
    const auto facts = probe_gpus([](const char*) -> void* { return nullptr; });
    ASSERT_FALSE(facts.has_value());
    EXPECT_EQ(facts.error().code, model::ErrorCode::unavailable);
}

}  // namespace
}  // namespace draftboard::calibration
