// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a publisher's words to a scenario: which shipped model and machine a published row names, what its
// notes say about collectives, graphs and speculation, and whose acceptance figures stand in where it has
// none. Rows that can't be told are skipped with a reason; nothing here knows a row by its id. What comes
// of the scenario is backtest.h; docs/backtest.md lists the rules with their sources.

#include <map>
#include <optional>
#include <string>

#include "calibration/published_grid.h"
#include "model/scenario.h"

namespace draftboard::calibration {

/// A short prompt ("context 0"): tokens that a sequence holds on average while it is measured. Assumed:
/// a prompt of a few dozen tokens and half of what a cell of 10 to 30 s generates.
inline constexpr std::int64_t kShortContextTokens = 512;
/// Relative standard deviation of the acceptance length between measurement windows: rates of 30 to 60 s
/// windows scatter by 0.07 (Kimi-K2.6 tables, rtx6kpro@e2c2b95, models/kimi-k26-v4.md), 0.2 of 2.3 tokens.
inline constexpr double kAcceptanceSpread = 0.09;

/// What the collectives of a row ran on, as a group of the report.
enum class ReduceFamily { nccl, one_shot };
[[nodiscard]] std::string_view to_name(ReduceFamily family);

/// Acceptance by position of the drafter that has been published for a family of models, with its source; none: unknown.
[[nodiscard]] std::optional<model::Acceptance> published_acceptance(const std::string& model, model::SpeculationMethod method);

struct BacktestCase {
    model::Scenario scenario;
    ReduceFamily family = ReduceFamily::nccl;
    std::string group;  ///< "Kimi-K2.6 INT4 vLLM 8 one_shot"
    std::string twin;   ///< equal for rows that differ in speculation only
    bool stated_acceptance = false;  ///< from the row, not from a shared profile
};

/// Loads what rows refer to, once each.
class BacktestLibrary {
   public:
    explicit BacktestLibrary(std::string data_directory);

    /// The scenario; the error's message is the reason to skip the row (without the row's place).
    [[nodiscard]] model::Expected<BacktestCase> scenario_of(const PublishedRow& row);

   private:
    [[nodiscard]] model::Expected<const model::Architecture*> architecture(const std::string& name);
    [[nodiscard]] model::Expected<const model::Machine*> machine(const std::string& name);
    std::string data_directory_;
    std::map<std::string, model::Architecture> architectures_;
    std::map<std::string, model::Machine> machines_;
};

}  // namespace draftboard::calibration
