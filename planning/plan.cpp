// SPDX-License-Identifier: Apache-2.0
#include "planning/plan.h"

#include <algorithm>
#include <filesystem>
#include <map>

namespace draftboard::planning {

namespace {

/// Which choice of which lever is pulled; -1: none.
using Pulled = std::vector<int>;

class Planner {
 public:
    Planner(Variants& variants, LeverPlan& plan, std::vector<PlannedLever>& levers, const FeasibilityTable& table,
            const PlanOptions& options)
        : variants_(variants), plan_(plan), levers_(levers), table_(table), options_(options) {}

    struct Outcome {
        model::Scenario scenario;
        sim::Prediction prediction;
    };

    /// The scenario with some levers pulled.
    model::Expected<Outcome> outcome(const Pulled& pulled) {
        model::Edits edits;
        for (std::size_t i = 0; i < levers_.size(); ++i) {
            if (pulled[i] < 0) continue;
            const Choice& choice = chosen(i, pulled[i]);
            edits.insert(edits.end(), choice.edits.begin(), choice.edits.end());
        }
        auto scenario = variants_.scenario(edits);
        if (!scenario) return tl::unexpected(scenario.error());
        for (std::size_t i = 0; i < levers_.size(); ++i) {
            if (pulled[i] >= 0 && chosen(i, pulled[i]).change) chosen(i, pulled[i]).change(*scenario);
        }
        auto prediction = variants_.predict(*scenario);
        if (!prediction) return tl::unexpected(prediction.error());
        for (std::size_t i = 0; i < levers_.size(); ++i) {
            if (pulled[i] >= 0 && chosen(i, pulled[i]).scale) chosen(i, pulled[i]).scale(*prediction);
        }
        ++plan_.predictions;
        return Outcome{std::move(*scenario), std::move(*prediction)};
    }

    Feasibility feasibility(std::size_t lever, std::size_t choice) const {
        const std::string& own = levers_[lever].lever.choices[choice].feasibility;
        return table_.of(own.empty() ? levers_[lever].lever.name : own, plan_.place);
    }

    /// Each lever's best choice, by itself.
    void alone() {
        const Pulled none(levers_.size(), -1);
        for (std::size_t i = 0; i < levers_.size(); ++i) {
            PlannedLever& planned = levers_[i];
            planned.feasibility = table_.of(planned.lever.name, plan_.place);
            double best = 0;
            bool best_allowed = false;
            for (std::size_t c = 0; c < planned.lever.choices.size(); ++c) {
                Pulled pulled = none;
                pulled[i] = static_cast<int>(c);
                const auto result = outcome(pulled);
                if (!result) {
                    if (planned.refusal.empty()) planned.refusal = result.error().message;
                    continue;
                }
                const bool fits = result->prediction.memory.fits;
                const bool allowed = fits && !ruled_out(feasibility(i, c).state);
                const double rate = result->prediction.tokens_per_second.value;
                if (planned.prediction && (best_allowed > allowed || (best_allowed == allowed && rate <= best))) continue;
                best = rate;
                best_allowed = allowed;
                planned.choice = c;
                planned.fits = fits;
                planned.prediction = result->prediction;
                planned.alone = contest(plan_.scenario, plan_.base, result->scenario, result->prediction);
            }
            if (planned.prediction) {
                planned.refusal.clear();
                if (!planned.lever.choices[planned.choice].feasibility.empty())
                    planned.feasibility = feasibility(i, planned.choice);
                if (!planned.fits) planned.refusal = planned.prediction->memory.verdict;
            }
        }
    }

    /// Greedy, then exchange; the result and its scenario.
    model::Expected<Outcome> combine() {
        pulled_.assign(levers_.size(), -1);
        auto best = outcome(pulled_);
        if (!best) return best;
        for (int round = 0; round < 40; ++round) {
            Pulled next = pulled_;
            double rate = best->prediction.tokens_per_second.value * (1 + kLeastGain);
            std::optional<Outcome> found;
            for (std::size_t i = 0; i < levers_.size(); ++i) {
                if (!eligible(i)) continue;
                for (int c = -1; c < static_cast<int>(levers_[i].lever.choices.size()); ++c) {
                    if (c == pulled_[i]) continue;
                    if (c >= 0 && ruled_out(feasibility(i, static_cast<std::size_t>(c)).state)) continue;
                    Pulled tried = pulled_;
                    // Of one group one lever; taking this one puts the other back.
                    for (std::size_t j = 0; c >= 0 && j < levers_.size(); ++j) {
                        if (levers_[j].lever.group == levers_[i].lever.group) tried[j] = -1;
                    }
                    tried[i] = c;
                    auto result = outcome(tried);
                    if (!result || !result->prediction.memory.fits || result->prediction.tokens_per_second.value <= rate)
                        continue;
                    rate = result->prediction.tokens_per_second.value;
                    next = tried;
                    found = std::move(*result);
                }
            }
            if (!found) break;
            pulled_ = std::move(next);
            best = std::move(*found);
        }
        return best;
    }

    /// What each lever is worth beside the combination.
    void together(const Outcome& combination) {
        for (std::size_t i = 0; i < levers_.size(); ++i) {
            PlannedLever& planned = levers_[i];
            planned.in_combination = pulled_[i] >= 0;
            if (planned.in_combination) {
                planned.combination_choice = static_cast<std::size_t>(pulled_[i]);
                Pulled without = pulled_;
                without[i] = -1;
                if (const auto result = outcome(without)) {
                    planned.together =
                        contest(result->scenario, result->prediction, combination.scenario, combination.prediction);
                }
            } else if (planned.prediction && planned.fits) {
                Pulled with = pulled_;
                for (std::size_t j = 0; j < levers_.size(); ++j) {
                    if (levers_[j].lever.group == planned.lever.group) with[j] = -1;
                }
                with[i] = static_cast<int>(planned.choice);
                if (const auto result = outcome(with)) {
                    planned.together =
                        contest(combination.scenario, combination.prediction, result->scenario, result->prediction);
                }
            }
        }
    }

    [[nodiscard]] model::Edits edits() const {
        model::Edits all;
        for (std::size_t i = 0; i < levers_.size(); ++i) {
            if (pulled_[i] < 0) continue;
            const Choice& choice = chosen(i, pulled_[i]);
            all.insert(all.end(), choice.edits.begin(), choice.edits.end());
        }
        return all;
    }

 private:
    [[nodiscard]] const Choice& chosen(std::size_t lever, int choice) const {
        return levers_[lever].lever.choices[static_cast<std::size_t>(choice)];
    }

    [[nodiscard]] bool eligible(std::size_t i) const {
        const PlannedLever& planned = levers_[i];
        if (!planned.prediction || planned.ruled_out()) return false;
        if (options_.any_effort) return true;
        // A setting of which nobody knows is quickly tried; a kernel that nobody ships is not.
        const bool tried_easily = planned.lever.effort == Effort::setting || planned.lever.effort == Effort::drafter;
        return planned.lever.effort < Effort::weights && (tried_easily || planned.feasibility.state == FeasibilityState::works);
    }

    Variants& variants_;
    LeverPlan& plan_;
    std::vector<PlannedLever>& levers_;
    const FeasibilityTable& table_;
    const PlanOptions& options_;
    Pulled pulled_;
};

}  // namespace

model::Expected<LeverPlan> plan_levers(const std::string& scenario, const model::Edits& edits, const PlanOptions& options,
                                       const std::string& data_directory) {
    auto base = load_base(scenario, data_directory, edits);
    if (!base) return tl::unexpected(base.error());
    LeverPlan plan;
    auto whole = model::scenario_from_document(base->document, scenario, data_directory, base->directory);
    if (!whole) return tl::unexpected(whole.error());
    (void)pin_acceptance(*base, data_directory);  // depths vary
    const auto table = FeasibilityTable::load((std::filesystem::path(data_directory) / "feasibility.json").string());
    if (!table) return tl::unexpected(table.error());
    auto shared = std::make_shared<SharedConstants>(data_directory);
    const auto constants = shared->of(*whole);
    if (!constants) return tl::unexpected(constants.error());
    Variants variants(shared, *base);
    auto prediction = variants.predict(*whole);
    if (!prediction) return tl::unexpected(prediction.error());
    plan.scenario = std::move(*whole);
    plan.base = std::move(*prediction);
    plan.place = {plan.scenario.machine.gpu.compute_capability, plan.scenario.engine.name, options.engine_version};
    plan.kernels = (*constants)->constants.kernel_calibration;
    plan.collectives = (*constants)->constants.collective_calibration;

    std::vector<PlannedLever> levers;
    for (Lever& lever : lever_table(plan.scenario, base->document, (*constants)->constants, data_directory)) {
        levers.emplace_back();
        levers.back().lever = std::move(lever);
    }
    Planner planner(variants, plan, levers, *table, options);
    planner.alone();
    auto combined = planner.combine();
    if (!combined) return tl::unexpected(combined.error());
    planner.together(*combined);
    plan.combination_gain = contest(plan.scenario, plan.base, combined->scenario, combined->prediction);
    plan.combination = std::move(combined->prediction);
    plan.combination_edits = planner.edits();

    for (PlannedLever& planned : levers) {
        if (planned.ruled_out()) {
            plan.ruled_out.push_back(std::move(planned));
        } else if (!planned.prediction || !planned.fits) {
            plan.unpredicted.push_back(std::move(planned));
        } else {
            plan.ranked.push_back(std::move(planned));
        }
    }
    std::stable_sort(plan.ranked.begin(), plan.ranked.end(),
                     [](const PlannedLever& a, const PlannedLever& b) { return a.alone->gain.value > b.alone->gain.value; });
    return plan;
}

}  // namespace draftboard::planning
