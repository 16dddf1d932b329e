// SPDX-License-Identifier: Apache-2.0
// Logs of other tools into a calibration: logs written from known constants give these constants back, what a log can't tell is
// said, and a prediction with the result is the one that the constants give.

#include "calibration/log_import.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibration/cost_constants.h"
#include "calibration/imported_terms.h"
#include "model/machine_json.h"
#include "sim/collective.h"

namespace draftboard::calibration {
namespace {

const std::string kSource = DRAFTBOARD_SOURCE_DIR;
const std::string kData = kSource + "/data";

class LogImportTest : public testing::Test {
 protected:
    LogImportTest()
        : folder_(std::filesystem::path(testing::TempDir()) /
                  ("log_import_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
        std::filesystem::create_directories(folder_);
    }
    ~LogImportTest() override { std::filesystem::remove_all(folder_); }

    std::string write(const std::string& name, const std::string& text) const {
        const std::string path = (folder_ / name).string();
        std::ofstream(path, std::ios::binary) << text;
        return path;
    }
    static LogImportOptions options(std::vector<std::string> logs) {
        LogImportOptions out;
        out.logs = std::move(logs);
        out.data_directory = kData;
        return out;
    }
    std::filesystem::path folder_;
};

std::string fixture(const std::string& name) { return kSource + "/tests/fixtures/" + name; }

/// nccl-tests' text of all-reduces over `gpus` GPUs, timed by the model itself under `constants`.
std::string nccl_text(const model::Machine& machine, const sim::CollectiveConstants& constants, int gpus,
                      const std::vector<std::int64_t>& sizes) {
    std::string text =
        "# nccl-tests version 2.17.8 nccl-headers=22809 nccl-library=22809\n# Collective test starting: all_reduce_perf\n# Using "
        "devices\n";
    for (int i = 0; i < gpus; ++i)
        text += fmt::format("#  Rank {:2} Group  0 Pid   4000 on   box device {:2} [0000:{:02}:00] Board\n", i, i, 10 + i);
    text +=
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
    sim::CollectiveModel model(machine, {}, constants);
    for (const std::int64_t bytes : sizes) {
        CollectiveMeasurement row{machine.name, "nccl", model::OperationKind::all_reduce, gpus, bytes, 0};
        const double us = sim::to_us(model.time(request_of(row)).value().total);
        const double algorithm = static_cast<double>(bytes) / us * 1e-3;
        const double bus = algorithm * 2 * (gpus - 1) / gpus;
        text += fmt::format("{:12} {:13} {:>9} {:>7} {:>7} {:8.2f} {:7.2f} {:7.2f} {:>6} {:8.2f} {:7.2f} {:7.2f} {:>6}\n", bytes,
                            bytes / 2, "bfloat16", "sum", -1, us, algorithm, bus, 0, us, algorithm, bus, 0);
    }
    return text;
}

std::vector<std::int64_t> sizes(std::int64_t from, std::int64_t to, int factor) {
    std::vector<std::int64_t> out;
    for (std::int64_t size = from; size <= to; size *= factor) out.push_back(size);
    return out;
}

TEST_F(LogImportTest, Collectives_of_known_constants_are_met_also_at_sizes_that_no_log_has) {
    const auto machine = model::find_machine("8x-l40s", kData).value();
    sim::CollectiveConstants truth;
    for (const sim::NamedConstant& constant : sim::named_constants()) {
        if (constant.name == "staged.ll_trip_us" || constant.name == "peer.ll_trip_us")
            constant.set(truth, 1.4 * constant.get(truth));
        if (constant.name == "kernel_us") constant.set(truth, 6.5);
    }
    std::vector<std::string> logs;
    for (const int gpus : {2, 4, 8})
        logs.push_back(write(fmt::format("{}.txt", gpus), nccl_text(machine, truth, gpus, sizes(8192, 32 << 20, 4))));
    LogImportOptions asked = options(logs);
    asked.machine = "8x-l40s";
    asked.leave_out = false;
    const auto result = import_logs(asked);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    ASSERT_TRUE(result->collectives.has_value());
    EXPECT_EQ(result->collectives->points.size(), 21U);
    EXPECT_LT(result->collectives->mean_error, 0.03);
    // A file that predict takes: written, read, and used for this machine alone.
    const auto read = parse_calibration(to_text(result->calibration), "imported.json");
    ASSERT_TRUE(read.has_value()) << read.error().to_text();
    model::Scenario scenario;
    scenario.machine = machine;
    const auto priced = cost_constants_of(*read, scenario, kData);
    ASSERT_TRUE(priced.has_value()) << priced.error().to_text();
    EXPECT_EQ(priced->collective_calibration, "collectives-8x-l40s");
    for (const std::int64_t bytes : {std::int64_t{20480}, std::int64_t{200000}, std::int64_t{3} << 20}) {
        const auto request = request_of({machine.name, "nccl", model::OperationKind::all_reduce, 4, bytes, 0});
        const double wanted = sim::to_us(sim::CollectiveModel(machine, {}, truth).time(request).value().total);
        EXPECT_NEAR(sim::to_us(sim::CollectiveModel(machine, {}, priced->collectives).time(request).value().total) / wanted, 1,
                    0.06)
            << bytes;
    }
    scenario.machine.name = "another";
    EXPECT_NE(cost_constants_of(*read, scenario, kData)->collective_calibration, "collectives-8x-l40s");
}

TEST_F(LogImportTest, A_constant_that_few_rows_do_not_determine_is_said_to_be_so) {
    const auto machine = model::find_machine("8x-l40s", kData).value();
    LogImportOptions asked = options({write("two.txt", nccl_text(machine, {}, 8, {16384, 32768}))});
    asked.machine = "8x-l40s";
    asked.leave_out = false;
    const auto result = import_logs(asked);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    // Two rows and more constants than that.
    EXPECT_GE(result->collectives->fitted.size(), 3U);
    EXPECT_FALSE(result->undetermined.empty());
    EXPECT_THAT(to_text(*result), testing::HasSubstr("not determined by these rows"));
}

TEST_F(LogImportTest, Pairs_scale_the_links_that_limit_them_and_others_are_said_to_be_untouched) {
    LogImportOptions asked = options({fixture("logs/nvbandwidth.json")});
    asked.machine = "8x-rtx-pro-6000-direct";
    const auto result = import_logs(asked);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    // Twelve pairs of the first socket: 50.25 .. 53.5 of 55.5 GB/s, median 51.875.
    ASSERT_EQ(result->links.factors.size(), 1U);
    EXPECT_EQ(result->links.factors[0].pairs, 12);
    EXPECT_NEAR(result->links.factors[0].factor, 51.875 / 55.5, 1e-9);
    ASSERT_TRUE(result->machine.has_value());
    EXPECT_TRUE(result->machine->validate().empty());
    const auto before = model::Router(model::find_machine(asked.machine, kData).value())
                            .gpu_to_gpu(0, 1, model::TransferKind::write)
                            ->bottleneck_gb_s;
    EXPECT_NEAR(model::Router(*result->machine).gpu_to_gpu(0, 1, model::TransferKind::write)->bottleneck_gb_s,
                before * 51.875 / 55.5, 1e-9);
    EXPECT_THAT(result->notes, testing::Contains(testing::HasSubstr("inter_socket links: these logs do not determine")));
}

TEST_F(LogImportTest, Launch_costs_of_a_recording_are_taken_where_there_are_enough_of_them) {
    LogImportOptions asked = options({fixture("nsight/eager_and_graph.sqlite")});
    asked.base = "rtx-pro-6000";
    const auto result = import_logs(asked);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    const auto terms = imported_terms(result->calibration);
    ASSERT_TRUE(terms.has_value());
    EXPECT_DOUBLE_EQ(terms->host.at("host.stream_gap_us"), 1.0);
    // Three graph launches are too few.
    EXPECT_EQ(terms->host.count("host.graph_launch_us"), 0U);
    model::Scenario scenario;
    EXPECT_DOUBLE_EQ(cost_constants_of(result->calibration, scenario, kData)->host.stream_gap_us, 1.0);
    // Engines' terms go by the base's name, and come along.
    EXPECT_GT(terms->engines.at("SGLang").at("host.cycle_us"), 0);
}

/// A log of SGLang whose windows are what the simulator says with kernels `factor` times as slow and this host time.
std::string served(const std::string& scenario, const model::Edits& edits, double host_us, double factor,
                   const std::vector<int>& batches) {
    std::string text;
    for (const int batch : batches) {
        model::Edits all = edits;
        all.push_back(fmt::format("workload.concurrency={}", batch));
        all.push_back("workload.context_tokens=1024");
        all.push_back("speculation.acceptance={\"acceptance_length\":1.85}");
        const auto asked = model::load_scenario(scenario, kData, all).value();
        auto constants = load_cost_constants(asked, kData).value();
        constants.kernels = scaled_kernels(std::move(constants.kernels), factor);
        constants.engines[asked.engine.name]["host.cycle_us"] = host_us;
        const double cycle_ms = sim::Predictor(std::move(constants)).predict(asked).value().cycle_ms;
        for (int window = 0; window < 8; ++window) {
            text += fmt::format(
                "[2026-03-01 10:00:{:02} TP0] Decode batch, #running-req: {}, #token: {}, token usage: 0.01, accept len: 1.85, "
                "accept rate: 0.46, "
                "cuda graph: False, gen throughput (token/s): {:.2f}, #queue-req: 0\n",
                window, batch, batch * 1024, 1e3 * batch * 1.85 / cycle_ms);
        }
    }
    return text;
}

TEST_F(LogImportTest, Host_work_and_kernels_of_a_served_model_are_found_from_batches_of_many_sizes) {
    const std::string scenario = "kimi-k2.5-eagle3-founding";
    // The shipped scenario sets its host terms; without them they are free.
    const model::Edits edits = {"constants={}"};
    const auto base = model::load_scenario(scenario, kData, edits);
    ASSERT_TRUE(base.has_value()) << base.error().to_text();
    const std::string log = write("server.log", served(scenario, edits, 4000, 1.15, {1, 2, 8, 32, 64}));
    LogImportOptions asked = options({log});
    asked.scenario = scenario;
    asked.edits = edits;
    const auto result = import_logs(asked);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    ASSERT_TRUE(result->serving.has_value());
    for (const ServingTerm& term : result->serving->terms) EXPECT_TRUE(term.determined) << to_text(*result);
    // What was assumed before pulls a little.
    EXPECT_NEAR(result->serving->kernel_factor, 1.15, 0.05) << to_text(*result);
    EXPECT_NEAR(result->serving->host_us("host.cycle_us"), 4000, 1500);
    for (const ServingResidual& row : result->serving->residuals) EXPECT_LT(std::abs(row.error()), 0.03);
    EXPECT_EQ(imported_terms(result->calibration)->engines.at("SGLang").at("host.cycle_us"),
              result->serving->host_us("host.cycle_us"));
}

TEST_F(LogImportTest, A_term_that_the_scenario_sets_is_left_alone) {
    LogImportOptions asked = options({fixture("serving_logs/sglang_eagle3.log")});
    asked.scenario = "kimi-k2.5-eagle3-founding";
    const auto result = import_logs(asked);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    EXPECT_EQ(result->serving->terms[0].why_not, "the scenario sets it");
    EXPECT_LT(result->serving->host_us("host.cycle_us"), 0);
    for (const ServingResidual& row : result->serving->residuals) {
        EXPECT_LE(std::abs(row.error()), std::abs(row.before_ms / row.measured_cycle_ms - 1) + 1e-6);
    }
}

TEST_F(LogImportTest, What_is_missing_is_said_with_what_to_give) {
    const auto message = [](const LogImportOptions& asked) { return import_logs(asked).error().to_text(); };
    EXPECT_THAT(message(options({})), testing::HasSubstr("no log to import"));
    EXPECT_THAT(message(options({fixture("logs/nccl_tests.txt")})), testing::HasSubstr("--machine"));
    EXPECT_THAT(message(options({fixture("serving_logs/vllm_eagle3.log")})), testing::HasSubstr("--scenario"));
    EXPECT_THAT(message(options({write("prose.txt", "Dear diary\n")})), testing::HasSubstr("no known tool wrote this"));
    EXPECT_THAT(message(options({(folder_ / "absent.txt").string()})), testing::HasSubstr("absent.txt"));
    // NCCL's own beliefs are none of the box's measurements.
    LogImportOptions tuning = options({fixture("logs/nccl_tuning.txt")});
    tuning.machine = "8x-l40s";
    EXPECT_THAT(message(tuning), testing::HasSubstr("determine nothing"));
}

TEST_F(LogImportTest, The_same_logs_give_the_same_bytes) {
    LogImportOptions asked = options(
        {fixture("logs/nvbandwidth.json"), fixture("nsight/eager_and_graph.sqlite"), fixture("serving_logs/sglang_eagle3.log")});
    asked.scenario = "kimi-k2.5-eagle3-founding";
    EXPECT_EQ(to_text(import_logs(asked)->calibration), to_text(import_logs(asked)->calibration));
}

}  // namespace
}  // namespace draftboard::calibration
