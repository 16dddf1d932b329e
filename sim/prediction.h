// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answer: from a scenario and the constants that price it to tokens per second, with an interval, a
// break-even point and the terms that make up the cycle.
//
//   cycle             = draft_extend + (draft steps) + verify + host       (what overlaps is left out)
//   tokens per second = sequences * E[tokens per cycle] / E[cycle]         renewal-reward
//   break-even acceptance length = cycle / plain step
//   speed-up          = acceptance length / break-even acceptance length
//
// n-gram without padding: a missed lookup runs a plain step instead of a verify pass, so
//   E[cycle] = hit * verify + (1 - hit) * plain + host.
//
// Intervals are 90 %; term.h says how errors combine. The acceptance length enters with its own interval, and rates
// (not speed-ups, where it cancels) with kRunSigma: what no term holds.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/memory.h"
#include "model/scenario.h"
#include "sim/collective_constants.h"
#include "sim/host_constants.h"
#include "sim/pass_cost.h"
#include "sim/pass_store.h"
#include "sim/term.h"

namespace draftboard::sim {

/// Everything that prices, from calibrations or datasheets.
struct CostConstants {
    KernelTable kernels;                ///< empty: datasheet
    /// Kernels of passes that find the caches otherwise than the others do (CPU: plain steps, a drafter's further steps).
    std::map<model::Pass, KernelTable> pass_kernels;
    CollectiveConstants collectives;
    HostConstants host;
    bool rank_alone = false;            ///< see PassPricer
    /// Host constants that differ between engines, by EngineSettings::name and constant; a scenario's own
    /// overrides come after them.
    std::map<std::string, std::map<std::string, double>> engines;
    std::string kernel_calibration;     ///< names, for provenance; empty: datasheet
    std::string collective_calibration;
};

struct Prediction {
    std::string scenario;
    model::Interval tokens_per_second;        ///< all sequences together
    model::Interval per_user_tokens_per_second;
    model::Interval plain_tokens_per_second;
    model::Interval speedup;
    model::Interval acceptance_length;
    double break_even_acceptance_length = 1;
    double cycle_ms = 0;
    double verify_ms = 0;   ///< 0 without speculation
    double draft_ms = 0;
    double host_ms = 0;
    double plain_step_ms = 0;
    model::MemoryFit memory;
    std::vector<Term> terms;        ///< of the cycle (of the plain step without speculation)
    std::vector<Term> plain_terms;
    PassCost verify;
    PassCost plain;
    Coverage coverage = Coverage::datasheet;
    std::string verdict;
    std::vector<std::string> warnings;
    int all_reduces_per_verify = 0;
};

/// What `explain` and `--trace` need beyond the answer: the priced passes as simulated.
struct SimulatedPass {
    std::string name;  ///< "plain", "draft_extend", "draft", "verify"
    int repeat = 1;
    PricedPass priced;
    PassTimes times;
    PassCost cost;
    std::uint64_t fingerprint = 0;  ///< of all that times depend on; equal ones are not simulated again
};

/// Keeps the passes of its last prediction: a question that differs in acceptance or in host work alone
/// is answered from them. Not thread-safe; one a thread.
///
/// With a store, passes are taken from and left in it, and answers are the same to the last bit: many predictors with equal
/// constants share one. passes() then stays empty.
class Predictor {
   public:
    explicit Predictor(CostConstants constants, std::shared_ptr<PassStore> store = nullptr);
    ~Predictor();
    Predictor(Predictor&&) noexcept;

    /// Errors: a layout that does not fit the architecture or machine, unknown constants. A scenario
    /// that does not fit in memory is predicted all the same, with memory.fits = false.
    [[nodiscard]] model::Expected<Prediction> predict(const model::Scenario& scenario);

    /// The passes of the last predict(), in cycle order, plain first.
    [[nodiscard]] const std::vector<SimulatedPass>& passes() const;

    /// The constants that a prediction of this scenario uses: defaults, the engine's, the scenario's own.
    [[nodiscard]] model::Expected<HostConstants> host_constants(const model::Scenario& scenario) const;

    [[nodiscard]] const CostConstants& constants() const;
    /// What CostConstants::engines says of the scenario's engine; empty: nothing.
    [[nodiscard]] const std::map<std::string, double>& engine_constants(const model::Scenario& scenario) const;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftboard::sim
