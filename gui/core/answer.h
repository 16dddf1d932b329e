// SPDX-License-Identifier: Apache-2.0
#pragma once
// A variant asked and answered: the same three calls as `draftboard predict` (load, constants, predict), so the same numbers.
// Answerer keeps what the next question is likely to share: calibrations by what selects them, and the simulated passes of the
// last prediction. It is not thread-safe; prediction_worker.h gives one to its thread, sweep.h one to each of its own.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gui/core/variant.h"
#include "model/scenario.h"
#include "sim/explanation.h"
#include "sim/prediction.h"

namespace draftboard::gui {

struct Answer {
    Variant variant;
    VariantDocument document;
    model::Scenario scenario;
    sim::Prediction prediction;
    std::vector<sim::SimulatedPass> passes;  ///< in cycle order, plain first
    std::string kernels;                     ///< calibration by name, or "datasheet"
    std::string collectives;
    sim::CollectiveConstants collective_constants;
    sim::HostConstants host;  ///< as they were used: defaults, the engine's, the scenario's own
    std::string json;         ///< what `predict --json` prints
    double milliseconds = 0;  ///< that it took to answer
};
using AnswerPointer = std::shared_ptr<const Answer>;

/// One question of a sweep: the answer without passes and reports.
struct QuickAnswer {
    model::Scenario scenario;
    sim::Prediction prediction;
};

class Answerer {
 public:
    explicit Answerer(std::string data_directory);
    ~Answerer();
    Answerer(Answerer&&) noexcept;

    [[nodiscard]] model::Expected<AnswerPointer> answer(const Variant& variant);
    [[nodiscard]] model::Expected<QuickAnswer> quick(const Variant& variant);
    /// Of the variant last asked: operations with formula, inputs and source.
    [[nodiscard]] model::Expected<sim::Explanation> explain() const;
    /// Of the variant last asked, as `predict --trace` writes it.
    [[nodiscard]] std::string trace() const;
    [[nodiscard]] const std::string& data_directory() const { return data_directory_; }

 private:
    struct Last;
    [[nodiscard]] model::Expected<void> ask(const Variant& variant);

    std::string data_directory_;
    std::unique_ptr<Last> last_;
};

}  // namespace draftboard::gui
