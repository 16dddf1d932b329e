// SPDX-License-Identifier: Apache-2.0
#include "calibration/cost_constants.h"

#include <algorithm>
#include <optional>

#include "calibration/calibration.h"
#include "calibration/cpu_terms.h"
#include "calibration/cuda_terms.h"
#include "calibration/engine_terms.h"
#include "calibration/imported_terms.h"
#include "model/data_library.h"

namespace draftboard::calibration {

namespace {

constexpr std::string_view kCollectivePrefix = "collectives-";  // shipped files of that kind

}  // namespace

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

namespace {

/// `calibration` nullptr: datasheet.
model::Expected<sim::CostConstants> constants_with(const Calibration* calibration, const model::Scenario& scenario,
                                                   const std::string& data_directory) {
    sim::CostConstants constants;
    std::vector<sim::SharedMemoryConstants> shared_memory;
    std::optional<sim::CollectiveConstants> imported_collectives;
    if (calibration != nullptr) {
        constants.kernels = calibration->kernels;
        constants.kernel_calibration = calibration->name;
        const auto terms = load_engine_terms(calibration->name, data_directory);
        if (!terms) return tl::unexpected(terms.error());
        apply(*terms, constants);
        const auto cpu = cpu_terms(*calibration);
        if (!cpu) return tl::unexpected(cpu.error());
        shared_memory = cpu->collectives;
        const auto cuda = cuda_terms(*calibration);
        if (!cuda) return tl::unexpected(cuda.error());
        if (auto applied = apply(*cuda, constants); !applied) return tl::unexpected(applied.error());
        if (auto applied = apply(*cpu, scenario.layout.tensor, constants); !applied) return tl::unexpected(applied.error());
        auto imported = imported_terms(*calibration);
        if (!imported) return tl::unexpected(imported.error());
        if (auto applied = apply(*imported, constants); !applied) return tl::unexpected(applied.error());
        imported_collectives = std::move(imported->collectives);
    }
    // Collectives that came with the kernels are this box's own, where they name its machine.
    const bool own = scenario.collective_calibration.empty() && imported_collectives &&
                     std::find(imported_collectives->machines.begin(), imported_collectives->machines.end(),
                               scenario.machine.name) != imported_collectives->machines.end();
    auto collectives =
        own ? model::Expected<sim::CollectiveConstants>(std::move(*imported_collectives))
            : load_collective_constants(scenario.machine, scenario.collective_calibration,
                                        data_directory, scenario.directory);
    if (!collectives) return tl::unexpected(collectives.error());
    if (!collectives->entries.empty()) constants.collective_calibration = collectives->name;
    constants.collectives = std::move(*collectives);
    constants.collectives.shared_memory = std::move(shared_memory);
    return constants;
}

}  // namespace

model::Expected<sim::CostConstants> cost_constants_of(const Calibration& calibration, const model::Scenario& scenario,
                                                      const std::string& data_directory) {
    return constants_with(&calibration, scenario, data_directory);
}

model::Expected<sim::CostConstants> load_cost_constants(const model::Scenario& scenario,
                                                        const std::string& data_directory) {
    const bool from_machine = scenario.calibration.empty();
    const std::string& kernels =
        from_machine ? scenario.machine.calibration : scenario.calibration;
    if (kernels.empty()) return constants_with(nullptr, scenario, data_directory);
    auto calibration = find_calibration(kernels, data_directory,
                                        from_machine ? std::string() : scenario.directory);
    if (!calibration) return tl::unexpected(calibration.error());
    return constants_with(&*calibration, scenario, data_directory);
}

}  // namespace draftboard::calibration
