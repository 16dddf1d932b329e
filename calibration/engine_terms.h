// SPDX-License-Identifier: Apache-2.0
#pragma once
// What serving engines add to kernels and links, as shared, named terms: host work by engine, kernels that no
// table holds, how skewed the routing of real text is. A shipped calibration "engines-<name of the kernel
// calibration>" keeps them: its kernels join the others, its "engines" are host constants by engine, its
// "traffic" the routing. backtest_fit.h fits them on a published grid and writes the file.
//
// Names of single terms: "engines.vLLM.host.step_us", "kernels.experts/nvfp4_g16/b12x.fixed_us", "traffic.alpha".

#include <map>
#include <string>

#include "calibration/calibration.h"
#include "model/routing.h"
#include "sim/prediction.h"

namespace draftboard::calibration {

struct EngineTerms {
    sim::KernelTable kernels;
    std::map<std::string, std::map<std::string, double>> engines;
    model::Routing traffic;  ///< of real text
};

/// The shipped terms that go with a kernel calibration; none shipped: empty, uniform traffic.
[[nodiscard]] model::Expected<EngineTerms> load_engine_terms(const std::string& kernel_calibration,
                                                             const std::string& data_directory);
[[nodiscard]] model::Expected<EngineTerms> engine_terms(const Calibration& calibration);

/// Adds or replaces the terms in what prices.
void apply(const EngineTerms& terms, sim::CostConstants& constants);

/// The number of that name; nullptr: no such term. The pointer lives as long as `terms` keeps the entry.
[[nodiscard]] double* find_term(EngineTerms& terms, const std::string& name);

}  // namespace draftboard::calibration
