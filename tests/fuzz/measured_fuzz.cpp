// SPDX-License-Identifier: Apache-2.0
// Measurements: any bytes give values within their bounds or an error; what was read is diagnosed with shares that sum to one.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "calibration/cost_constants.h"
#include "calibration/diagnosis_report.h"

using namespace draftboard;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

struct Setting {
    model::Scenario scenario;
    sim::CostConstants constants;
};

const Setting& setting() {
    static const Setting kSetting = [] {
        const std::string data = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
        auto scenario = model::load_scenario("kimi-k2.5-eagle3-founding", data);
        require(scenario.has_value());
        auto constants = calibration::load_cost_constants(*scenario, data);
        require(constants.has_value());
        return Setting{std::move(*scenario), std::move(*constants)};
    }();
    return kSetting;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto measured = calibration::parse_measured(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    if (!measured) {
        require(!measured.error().message.empty());
        return 0;
    }
    require(!measured->values.empty());
    require(measured->noise > 0 && measured->noise <= 1);
    for (const auto& [name, value] : measured->values) require(std::isfinite(value) && value >= 0);
    const auto diagnosis = calibration::diagnose(setting().scenario, setting().constants, *measured);
    if (!diagnosis) {
        require(!diagnosis.error().message.empty());
        return 0;
    }
    double shares = 0;
    for (const auto& candidate : diagnosis->candidates) {
        require(candidate.share >= 0);
        shares += candidate.share;
    }
    require(std::abs(shares - 1) < 1e-6);
    for (const auto& next : diagnosis->next) require(std::isfinite(next.bits) && next.bits >= 0);
    require(!calibration::diagnosis_text(*diagnosis).empty());
    return 0;
}
