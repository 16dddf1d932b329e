// SPDX-License-Identifier: Apache-2.0
#include "gui/core/measure_here.h"

#include <algorithm>
#include <filesystem>

#include "calibration/cpu_calibration.h"
#include "calibration/cpu_machine.h"
#include "calibration/validation.h"
#include "calibration/validation_report.h"

namespace draftboard::gui {

namespace fs = std::filesystem;

namespace {

/// Ends a validation between two of its steps: its callback has no other way to say so.
struct Stopped {};

std::vector<std::string> shipped_models(const std::string& data_directory) {
    std::vector<std::string> folders;
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(fs::path(data_directory) / "models", ec)) {
        const bool head = entry.path().filename().string().ends_with("-eagle3");
        if (!head && fs::exists(entry.path() / "config.json", ec)) folders.push_back(entry.path().string());
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

}  // namespace

model::Expected<std::optional<std::string>> calibrate_here(const std::string& data_directory, const std::stop_token& stop,
                                                           const MeasureProgress& progress) {
    calibration::CpuCalibrationOptions options;
    calibration::apply_preset(options, "quick");
    options.models = shipped_models(data_directory);
    options.data_directory = data_directory;
    const auto facts = calibration::probe_cpu();
    if (!facts) return tl::unexpected(facts.error());
    for (int ranks = 1; ranks <= std::min(facts->cores, 4); ranks *= 2) options.ranks.push_back(ranks);
    calibration::EngineProgress so_far;
    const auto result = calibration::calibrate_cpu(options, so_far, [&](const auto&, double share, const std::string& step) {
        progress(share, step);
        return !stop.stop_requested();
    });
    if (!result) return tl::unexpected(result.error());
    if (!result->complete) return std::optional<std::string>();
    return std::optional<std::string>(calibration::to_text(result->calibration));
}

model::Expected<std::optional<std::string>> validate_here(const std::string& suite, const std::string& calibration,
                                                          const std::string& data_directory, const std::stop_token& stop,
                                                          const MeasureProgress& progress) {
    const auto found = calibration::find_suite(suite, data_directory);
    if (!found) return tl::unexpected(found.error());
    calibration::ValidationOptions options;
    options.calibration = calibration;
    options.data_directory = data_directory;
    try {
        const auto validation = calibration::validate_suite(*found, options, [&](double share, const std::string& what) {
            if (stop.stop_requested()) throw Stopped{};
            progress(share, what);
        });
        if (!validation) return tl::unexpected(validation.error());
        return std::optional<std::string>(calibration::validation_json(*validation).dump(2));
    } catch (const Stopped&) {
        return std::optional<std::string>();
    }
}

}  // namespace draftboard::gui
