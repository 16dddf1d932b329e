// SPDX-License-Identifier: Apache-2.0
// The GPU's calibration with the CPU's engine in the GPU's place: everything around the device.
#include "calibration/cuda_calibration.h"

#include <algorithm>

#include <gtest/gtest.h>

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
    // The same measurements give the same bytes.
    EXPECT_EQ(text, to_text(fit_measurements(options, *kept)->calibration));
}

}  // namespace
}  // namespace draftboard::calibration
