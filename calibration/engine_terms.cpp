// SPDX-License-Identifier: Apache-2.0
#include "calibration/engine_terms.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/data_library.h"

namespace draftboard::calibration {

using model::Expected;
using model::JsonReader;

namespace {

constexpr std::string_view kPrefix = "engines-";
constexpr double kMaxHostUs = 1e6;

using KernelField = double sim::KernelConstants::*;
constexpr std::array<std::pair<std::string_view, KernelField>, 7> kFields{{
    {"floor_us", &sim::KernelConstants::floor_us},
    {"fixed_us", &sim::KernelConstants::fixed_us},
    {"per_item_us", &sim::KernelConstants::per_item_us},
    {"serial_us", &sim::KernelConstants::serial_us},
    {"verify_serial_us", &sim::KernelConstants::verify_serial_us},
    {"bandwidth_gb_s", &sim::KernelConstants::bandwidth_gb_s},
    {"rate_tflops", &sim::KernelConstants::rate_tflops},
}};

void read_hosts(const JsonReader& engines, EngineTerms& terms) {
    if (!engines.expect_object()) return;
    for (const auto& engine : engines.value().items()) {
        const JsonReader values = engines.at(engine.key());
        if (!values.expect_object()) continue;
        for (const auto& item : values.value().items()) {
            if (!item.value().is_number()) continue;  // remarks beside the numbers
            terms.engines[engine.key()][item.key()] = values.number(item.key(), 0, kMaxHostUs);
        }
    }
}

}  // namespace

Expected<EngineTerms> engine_terms(const Calibration& calibration) {
    EngineTerms terms;
    terms.kernels = calibration.kernels;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (reader.has("engines")) read_hosts(reader.at("engines"), terms);
    if (reader.has("traffic")) {
        const JsonReader traffic = reader.at("traffic");
        terms.traffic.kind = model::RoutingKind::power_law;
        terms.traffic.alpha = traffic.number("alpha", 0.01, 10);
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, calibration.name));
    return terms;
}

Expected<EngineTerms> load_engine_terms(const std::string& kernel_calibration,
                                        const std::string& data_directory) {
    const std::string name = std::string(kPrefix) + kernel_calibration;
    const auto shipped = model::shipped_names("calibrations", data_directory);
    if (std::find(shipped.begin(), shipped.end(), name) == shipped.end()) return EngineTerms{};
    auto calibration = find_calibration(name, data_directory);
    if (!calibration) return tl::unexpected(calibration.error());
    return engine_terms(*calibration);
}

void apply(const EngineTerms& terms, sim::CostConstants& constants) {
    for (const auto& [key, kernel] : terms.kernels.entries) constants.kernels.entries[key] = kernel;
    constants.engines = terms.engines;
}

double* find_term(EngineTerms& terms, const std::string& name) {
    if (name == "traffic.alpha") return &terms.traffic.alpha;
    const std::string_view view = name;
    constexpr std::string_view kEngines = "engines.";
    constexpr std::string_view kKernels = "kernels.";
    if (view.starts_with(kEngines)) {
        const auto dot = name.find('.', kEngines.size());
        if (dot == std::string::npos) return nullptr;
        const auto engine = terms.engines.find(name.substr(kEngines.size(), dot - kEngines.size()));
        if (engine == terms.engines.end()) return nullptr;
        const auto value = engine->second.find(name.substr(dot + 1));
        return value == engine->second.end() ? nullptr : &value->second;
    }
    const auto last = name.rfind('.');
    if (!view.starts_with(kKernels) || last < kKernels.size()) return nullptr;
    const auto kernel = terms.kernels.entries.find(name.substr(kKernels.size(), last - kKernels.size()));
    if (kernel == terms.kernels.entries.end()) return nullptr;
    for (const auto& [field, member] : kFields) {
        if (view.substr(last + 1) == field) return &(kernel->second.*member);
    }
    return nullptr;
}

}  // namespace draftboard::calibration
