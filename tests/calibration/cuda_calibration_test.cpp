// SPDX-License-Identifier: Apache-2.0
// The GPU's calibration with the CPU's engine in the GPU's place: everything around the device.
#include "calibration/cuda_calibration.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "calibration/validation.h"

namespace draftboard::calibration {
namespace {

CudaCalibrationOptions small_options() {
    CudaCalibrationOptions options;
    apply_preset(options, "quick");
    options.data_directory = DRAFTBOARD_SOURCE_DIR "/data";
    options.device = {};
    options.device.plays_gpu = true;
    for (const char* name : {"tiny-kimi", "tiny-qwen"}) {
        auto model = checkpoint_model(options.data_directory + "/models/" + name);
        EXPECT_TRUE(model.has_value());
        options.models.push_back(std::move(*model));
    }
    options.contexts = {40, 120};
    options.sequences = {1, 2};
    options.cycle_sequences = {1, 2};
    options.warm_cycles = 1;
    options.steady_cycles = 2;
    options.cycles = 4;
    return options;
}

TEST(CudaCalibration, IsMeasuredInStepsAndFittedWithoutADevice) {
    const CudaCalibrationOptions options = small_options();
    EngineProgress progress;
    progress.measurements.device_costs = {{"gpu", "a test's GPU"}, {"memory_read_gb_s", 1000}, {"l2_bytes", 1000}, {"graph_launch_us", 2}};
    bool complete = false;
    int calls = 0;
    // Stopped in the middle, kept as text, gone on from there: as after a kill.
    auto stopped = measure_cuda(options, progress, [&](const auto&, double, const std::string&, double) { return ++calls < 5; }, complete);
    ASSERT_TRUE(stopped.has_value()) << stopped.error().to_text();
    EXPECT_FALSE(complete);
    auto kept = parse_engine_progress(to_json(progress).dump(), "kept");
    ASSERT_TRUE(kept.has_value()) << kept.error().to_text();
    EXPECT_EQ(kept->done, progress.done);
    std::vector<std::string> later;
    auto finished = measure_cuda(options, *kept, [&](const auto&, double, const std::string& step, double) {
        later.push_back(step);
        return true;
    }, complete);
    ASSERT_TRUE(finished.has_value()) << finished.error().to_text();
    ASSERT_TRUE(complete);
    for (const std::string& step : progress.done) EXPECT_EQ(std::count(later.begin(), later.end(), step), 0) << step;

    const auto result = fit_measurements(options, *kept);
    ASSERT_TRUE(result.has_value()) << result.error().to_text();
    EXPECT_GT(result->calibration.kernels.entries.size(), 20U) << testing::PrintToString(result->fit.notes);
    EXPECT_TRUE(result->calibration.kernels.entries.contains("experts@moe.experts/bf16/cuda"));
    const std::string text = to_text(result->calibration);
    const auto read = parse_calibration(text, "written");
    ASSERT_TRUE(read.has_value()) << read.error().to_text();
    const auto terms = cuda_terms(*read);
    ASSERT_TRUE(terms.has_value()) << terms.error().to_text();
    EXPECT_TRUE(terms->engines.contains(std::string(kCudaEngine)));
    EXPECT_TRUE(terms->host.contains("host.chain_saving_us"));
    const std::string file = testing::TempDir() + "cuda_calibration_test.json";
    std::ofstream(file) << text;
    const auto suite = parse_suite(R"({"format": "draftboard.suite", "version": 1, "name": "s", "device": "cuda", "machine": "1x-h200",
        "prompts": ["code"], "rounds": 2, "prompts_per_round": 1, "tokens": 60, "groups": [
        {"model": "tiny-kimi", "context": 60, "drafters": [{"method": "none"}, {"method": "eagle3", "steps": 2, "held_out": true},
                                                           {"method": "scripted", "rates": [0.9, 0.8]}]},
        {"model": "tiny-qwen", "context": 60, "launch": "eager", "drafters": [{"method": "mtp", "steps": 1}]}]})", "suite");
    ASSERT_TRUE(suite.has_value()) << suite.error().to_text();
    ValidationOptions validation{options.device, file, options.data_directory, 10};
    const auto validated = validate_suite(*suite, validation, {});
    ASSERT_TRUE(validated.has_value()) << validated.error().to_text();
    ASSERT_EQ(validated->results.size(), 4U);
    EXPECT_EQ(validated->results[2].configuration.drafter(), "scripted x2");
    EXPECT_NEAR(validated->results[2].measured_length, 1 + 0.9 + 0.72, 0.7);
    for (const ConfigurationResult& one : validated->results) {
        EXPECT_GT(one.measured, 0) << one.configuration.name();
        EXPECT_GT(one.predicted.value, 0) << one.configuration.name();
    }
    EXPECT_TRUE(validated->results[1].unseen);
    EXPECT_FALSE(validated->results[0].unseen);

    // Stopped after five measurements, kept as text, gone on from there: nothing is measured twice.
    std::string kept_text;
    int measured = 0;
    validation.keep = [&](const ValidationProgress& so_far) {
        kept_text = to_json(so_far).dump();
        return ++measured < 5;
    };
    const auto broken_off = validate_suite(*suite, validation, {});
    ASSERT_TRUE(broken_off.has_value()) << broken_off.error().to_text();
    EXPECT_FALSE(broken_off->complete);
    validation.progress = parse_validation_progress(kept_text, "kept").value();
    const ValidationProgress before = validation.progress;
    int more = 0;
    ValidationProgress last;
    validation.keep = [&](const ValidationProgress& so_far) {
        last = so_far;
        ++more;
        return true;
    };
    const auto gone_on = validate_suite(*suite, validation, {});
    ASSERT_TRUE(gone_on.has_value()) << gone_on.error().to_text();
    EXPECT_TRUE(gone_on->complete);
    EXPECT_EQ(gone_on->results.size(), 4U);
    // Each of 4 configurations: 2 rounds and 1 profile; 3 of them draft.
    EXPECT_EQ(measured + more, 4 * 3 + 3);
    for (const auto& [name, one] : before.configurations) {
        for (std::size_t i = 0; i < one.rounds.size(); ++i) EXPECT_EQ(last.configurations.at(name).rounds[i].cycle_us, one.rounds[i].cycle_us) << name;
    }

    // A model that can't be opened is written down; the others are run, and it is not tried again.
    Suite with_failure = *suite;
    with_failure.configurations[3].model = "no-such-model";
    validation.progress = {};
    const auto partly = validate_suite(with_failure, validation, {});
    ASSERT_TRUE(partly.has_value()) << partly.error().to_text();
    EXPECT_EQ(partly->results.size(), 3U);
    ASSERT_EQ(last.failed.size(), 1U);
    EXPECT_NE(last.failed[0].find("no-such-model"), std::string::npos);
    validation.progress = last;
    more = 0;
    const auto again = validate_suite(with_failure, validation, {});
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->results.size(), 3U);
    EXPECT_EQ(more, 0);
    EXPECT_FALSE(validate_suite(*suite, validation, {}).has_value());  // another suite
    // The same measurements give the same bytes.
    EXPECT_EQ(text, to_text(fit_measurements(options, *kept)->calibration));
}

TEST(CudaCalibration, PlansThePassesOfEveryModelThatItMeasuresByDefault) {
    const auto models = default_gpu_models(DRAFTBOARD_SOURCE_DIR "/data");
    ASSERT_TRUE(models.has_value()) << models.error().to_text();
    ASSERT_EQ(models->size(), 5U);
    for (const MeasuredModel& model : *models) {
        const auto planners = planners_of(model, measured_gpu(1));
        ASSERT_TRUE(planners.has_value()) << planners.error().to_text();
        for (const auto& [drafter, pass] : {std::pair(false, model::Pass::decode), {false, model::Pass::verify},
                                            {true, model::Pass::draft_extend}, {true, model::Pass::draft}}) {
            const auto plan = planners->plan(drafter, pass, 4, pass == model::Pass::verify ? 4 : 1, 2200);
            ASSERT_TRUE(plan.has_value()) << model.name << ": " << plan.error().to_text();
            EXPECT_GT(plan->operations.size(), 10U) << model.name;
        }
        // A rank's share of Kimi-K2.5 in four layers is larger than any L2, so its weights are found cold.
        double bytes = 0;
        const auto plan = planners->plan(false, model::Pass::decode, 1, 1, 160);
        for (const auto& operation : plan->operations) bytes += operation.weight_bytes;
        EXPECT_GT(bytes, model.architecture ? 2e8 : 1e6) << model.name;
    }
}

}  // namespace
}  // namespace draftboard::calibration
