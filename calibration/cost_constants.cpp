// SPDX-License-Identifier: Apache-2.0
#include "calibration/cost_constants.h"

#include <algorithm>

#include "calibration/calibration.h"
#include "model/data_library.h"

namespace draftboard::calibration {

namespace {

constexpr std::string_view kCollectivePrefix = "collectives-";  // shipped files of that kind
constexpr std::string_view kEnginesPrefix = "engines-";

/// The engines' own terms that are shipped for a kernel calibration: further kernels, and host constants by
/// engine under "engines". No such file: nothing to add.
model::Expected<void> add_engines(const std::string& data_directory, sim::CostConstants& constants) {
    const std::string name = std::string(kEnginesPrefix) + constants.kernel_calibration;
    const auto shipped = model::shipped_names("calibrations", data_directory);
    if (std::find(shipped.begin(), shipped.end(), name) == shipped.end()) return {};
    auto engines = find_calibration(name, data_directory);
    if (!engines) return tl::unexpected(engines.error());
    for (auto& [key, kernel] : engines->kernels.entries) {
        constants.kernels.entries[key] = std::move(kernel);
    }
    auto hosts = engine_hosts(*engines);
    if (!hosts) return tl::unexpected(hosts.error());
    constants.engines = std::move(*hosts);
    return {};
}

}  // namespace

model::Expected<std::map<std::string, std::map<std::string, double>>> engine_hosts(
    const Calibration& calibration) {
    std::map<std::string, std::map<std::string, double>> hosts;
    if (!calibration.unknown.contains("engines")) return hosts;
    std::vector<model::Problem> problems;
    const model::JsonReader reader(calibration.unknown, problems);
    const model::JsonReader engines = reader.at("engines");
    if (engines.expect_object()) {
        for (const auto& engine : engines.value().items()) {
            const model::JsonReader values = engines.at(engine.key());
            if (!values.expect_object()) continue;
            for (const auto& item : values.value().items()) {
                if (!item.value().is_number()) continue;  // "source" and what later versions add
                hosts[engine.key()][item.key()] = values.number(item.key(), 0, 1e9);
            }
        }
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, calibration.name));
    return hosts;
}

model::Expected<sim::CollectiveConstants> load_collective_constants(
    const model::Machine& machine, const std::string& name_or_path,
    const std::string& data_directory, const std::string& relative_to) {
    if (!name_or_path.empty()) {
        auto path =
            model::find_data_file(name_or_path, "calibrations", data_directory, relative_to);
        if (!path) return tl::unexpected(path.error());
        return sim::load_collective_constants(*path);
    }
    for (const std::string& name : model::shipped_names("calibrations", data_directory)) {
        if (!name.starts_with(kCollectivePrefix)) continue;
        auto path = model::find_data_file(name, "calibrations", data_directory);
        if (!path) return tl::unexpected(path.error());
        auto constants = sim::load_collective_constants(*path);
        if (!constants) return tl::unexpected(constants.error());
        const auto& machines = constants->machines;
        if (std::find(machines.begin(), machines.end(), machine.name) != machines.end()) {
            return constants;
        }
    }
    return sim::default_collective_constants();
}

model::Expected<sim::CostConstants> load_cost_constants(const model::Scenario& scenario,
                                                        const std::string& data_directory) {
    sim::CostConstants constants;
    const bool from_machine = scenario.calibration.empty();
    const std::string& kernels =
        from_machine ? scenario.machine.calibration : scenario.calibration;
    if (!kernels.empty()) {
        auto calibration = find_calibration(kernels, data_directory,
                                            from_machine ? std::string() : scenario.directory);
        if (!calibration) return tl::unexpected(calibration.error());
        constants.kernels = std::move(calibration->kernels);
        constants.kernel_calibration = calibration->name;
        if (auto engines = add_engines(data_directory, constants); !engines) {
            return tl::unexpected(engines.error());
        }
    }
    auto collectives =
        load_collective_constants(scenario.machine, scenario.collective_calibration,
                                  data_directory, scenario.directory);
    if (!collectives) return tl::unexpected(collectives.error());
    if (!collectives->entries.empty()) constants.collective_calibration = collectives->name;
    constants.collectives = std::move(*collectives);
    return constants;
}

}  // namespace draftboard::calibration
