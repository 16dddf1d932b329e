// SPDX-License-Identifier: Apache-2.0
#include "sim/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "model/hash.h"
#include "sim/fingerprint.h"

namespace draftboard::sim {

using model::LaunchMode;
using model::Scenario;
using model::SpeculationMethod;

namespace {

/// The tensor-parallel group's GPUs. Groups are laid out over GPU ordinals; the first stands for all.
std::vector<int> first_group(const model::Layout& layout) {
    std::vector<int> gpus(static_cast<std::size_t>(layout.tensor));
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
}

void add_once(std::vector<std::string>& list, const std::string& text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

Term host_term(double ms, const HostConstants& host) {
    return {"host", ms, 0, ms * host.relative_uncertainty, host.coverage};
}

std::string verdict_of(const Scenario& scenario, const Prediction& p) {
    if (!p.memory.fits) return "Does not fit: " + p.memory.verdict;
    if (scenario.speculation.method == SpeculationMethod::none) {
        return fmt::format("Plain decoding: {:.1f} tok/s.", p.tokens_per_second.value);
    }
    const std::string figures = fmt::format(
        "a cycle costs {0:.2f} plain steps, so the break-even acceptance length is {0:.2f}; {1} gives {2:.2f}",
        p.break_even_acceptance_length, model::to_name(scenario.speculation.method),
        p.acceptance_length.value);
    if (p.speedup.low > 1) return "Speculate: " + figures + ".";
    if (p.speedup.high < 1) return "Do not speculate here: " + figures + ".";
    return "Too close to call: " + figures + ".";
}

/// Models of kernels and collectives on one machine under one engine's choices.
struct Prices {
    KernelModel kernels;
    std::map<model::Pass, KernelModel> pass_kernels;
    CollectiveModel collectives;
    bool rank_alone = false;

    Prices(const Scenario& scenario, const CostConstants& constants)
        : kernels(scenario.machine.gpu, constants.kernels, scenario.engine.implementations),
          collectives(scenario.machine, scenario.collective, constants.collectives),
          rank_alone(constants.rank_alone) {
        for (const auto& [pass, table] : constants.pass_kernels) {
            pass_kernels.try_emplace(pass, scenario.machine.gpu, table, scenario.engine.implementations);
        }
    }
};

/// One prediction in the making: prices and simulates passes, and keeps what they leave behind.
class Cycle {
   public:
    Cycle(const Scenario& scenario, const HostConstants& host, Prices& prices, const Fingerprint& surroundings,
          Prediction& p, std::vector<SimulatedPass>& passes)
        : scenario_(scenario),
          host_(host),
          p_(p),
          passes_(passes),
          previous_(std::move(passes)),
          surroundings_(surroundings),
          prices_(prices) {
        pricer_.collectives = &prices_.collectives;
        pricer_.gpus = first_group(scenario.layout);
        pricer_.rank_alone = prices_.rank_alone;
        if (prices_.rank_alone) pricer_.gpus = {0};
        pricer_.fused_all_reduce_norm = scenario.engine.fused_all_reduce_norm;
        pricer_.shared_context = scenario.workload.shared_context;
        pricer_.l2_bytes = scenario.machine.gpu.l2_bytes;
        pricer_.near_cache_bytes = model::is_cpu(scenario.machine.gpu) ? scenario.machine.gpu.l2_bytes : 0;
        pricer_.host_sync_after = scenario.engine.host_sync_after;
        passes_.clear();
    }

    model::Expected<PassCost> run(const std::string& name, int repeat, model::Plan plan,
                                  LaunchMode mode, int tokens) {
        if (plan.operations.empty() || repeat == 0) return PassCost{};
        const std::uint64_t key = fingerprint(name, plan, mode, tokens);
        const std::int64_t rows = rows_of(tokens);
        mode = allowed(mode, rows);
        if (SimulatedPass* known = find_known(key)) {
            known->repeat = repeat;
            for (const std::string& remark : known->priced.remarks) add_once(p_.warnings, remark);
            passes_.push_back(std::move(*known));
            return passes_.back().cost;
        }
        const int side_by_side = scenario_.engine.overlap_token_limit;
        pricer_.overlap_shared_experts = scenario_.engine.overlap_shared_experts &&
                                         (side_by_side == 0 || rows <= side_by_side);
        const auto own = prices_.pass_kernels.find(plan.pass);
        pricer_.kernels = own != prices_.pass_kernels.end() ? &own->second : &prices_.kernels;
        auto priced = pricer_.price(std::move(plan), mode);
        if (!priced) return tl::unexpected(priced.error());
        SimulatedPass pass;
        pass.name = name;
        pass.repeat = repeat;
        pass.fingerprint = key;
        // The draws depend on the pass's name alone: a changed depth does not reshuffle the verify pass.
        pass.times = simulate_pass(priced->operations, static_cast<int>(pricer_.gpus.size()), mode,
                                   host_, Random(scenario_.seed).fork(model::fnv1a(name)));
        for (const std::string& remark : priced->remarks) add_once(p_.warnings, remark);
        pass.priced = std::move(*priced);
        pass.cost = pass_cost(pass.priced, pass.times, host_);
        passes_.push_back(std::move(pass));
        return passes_.back().cost;
    }

    /// Of all that the pass's times depend on.
    [[nodiscard]] std::uint64_t fingerprint(std::string_view name, const model::Plan& plan, LaunchMode mode, int tokens) const {
        Fingerprint fingerprint = surroundings_;
        add_plan(fingerprint, plan);
        fingerprint.add(name).add(static_cast<int>(allowed(mode, rows_of(tokens))));
        return fingerprint.value();
    }

   private:
    [[nodiscard]] std::int64_t rows_of(int tokens) const {
        return std::int64_t{tokens} * scenario_.sequences_per_replica();
    }

    /// The launch mode of a pass of so many rows: what was not captured runs otherwise.
    [[nodiscard]] LaunchMode allowed(LaunchMode mode, std::int64_t rows) const {
        const int limit = scenario_.engine.graph_token_limit;
        const int full = scenario_.engine.full_graph_token_limit;
        if (full > 0 && rows > full && mode == LaunchMode::graph) mode = LaunchMode::piecewise;
        if (limit > 0 && rows > limit) mode = LaunchMode::eager;
        return mode;
    }

    /// A pass of the last prediction that this one would repeat.
    SimulatedPass* find_known(std::uint64_t fingerprint) {
        for (SimulatedPass& pass : previous_) {
            if (pass.fingerprint == fingerprint) return &pass;
        }
        return nullptr;
    }

    const Scenario& scenario_;
    const HostConstants& host_;
    Prediction& p_;
    std::vector<SimulatedPass>& passes_;
    std::vector<SimulatedPass> previous_;
    Fingerprint surroundings_;
    Prices& prices_;
    PassPricer pricer_;
};

/// Host work of a cycle that the GPUs wait for.
double host_ms_of(const Scenario& scenario, const HostConstants& host, int draft_calls, double gpu_ms,
                  std::vector<std::string>& warnings) {
    const double work_ms = (host.cycle_us + host.draft_call_us * draft_calls +
                            host.sequence_us * scenario.sequences_per_replica()) *
                           1e-3;
    if (!scenario.engine.overlap_scheduling) return work_ms;
    if (scenario.speculation.top_k > 1 ||
        scenario.speculation.method == SpeculationMethod::ngram) {
        add_once(warnings,
                 "overlap scheduling needs top_k = 1 and a drafter other than n-gram; host work is "
                 "counted in full");
        return work_ms;
    }
    return std::max(0.0, work_ms - gpu_ms);  // beside this cycle's GPU work, the host prepares the next
}

/// Terms, times and acceptance length of the speculative cycle, from its passes.
void fill_cycle(const Scenario& scenario, const HostConstants& host, const PassCost& extend,
                const PassCost& draft, int draft_steps, Prediction& p) {
    const model::Speculation& speculation = scenario.speculation;
    // A missed n-gram lookup drafts nothing; engines that do not pad then run a plain step.
    const bool plain_on_miss =
        speculation.method == SpeculationMethod::ngram && !speculation.pad_misses;
    const double verify_share = plain_on_miss ? speculation.acceptance.hit : 1.0;
    p.verify_ms = p.verify.total_ms * verify_share + p.plain.total_ms * (1 - verify_share);
    p.draft_ms = extend.total_ms + draft.total_ms * draft_steps;
    p.host_ms = host_ms_of(scenario, host, draft_steps + (extend.kernels > 0 ? 1 : 0), p.verify_ms + p.draft_ms, p.warnings);
    append_terms(p.terms, "draft", extend, 1);
    append_terms(p.terms, "draft", draft, draft_steps);
    append_terms(p.terms, "verify", p.verify, verify_share);
    append_terms(p.terms, "plain", p.plain, 1 - verify_share);
    if (p.host_ms > 0) p.terms.push_back(host_term(p.host_ms, host));
    p.cycle_ms = p.draft_ms + p.verify_ms + p.host_ms;
    p.acceptance_length = model::acceptance_length_interval(
        speculation.acceptance, speculation.acceptance_length(), speculation.steps);
}

void fill_rates(const Scenario& scenario, const HostConstants& host, Prediction& p) {
    const TimeUncertainty sigma = combine(p.terms, p.plain_terms);
    const double length_sigma = log_sigma_of(p.acceptance_length);
    const double rate_sigma = std::hypot(sigma.cycle, length_sigma, host.run_sigma);
    const double sequences = scenario.workload.concurrency;
    const double per_user = p.acceptance_length.value / p.cycle_ms * 1e3;
    const double plain_per_user = 1e3 / p.plain_step_ms;
    p.per_user_tokens_per_second = interval_around(per_user, rate_sigma);
    p.tokens_per_second = interval_around(per_user * sequences, rate_sigma);
    p.plain_tokens_per_second =
        interval_around(plain_per_user * sequences, std::hypot(sigma.plain, host.run_sigma));
    p.speedup = interval_around(per_user / plain_per_user, std::hypot(sigma.ratio, length_sigma));
    p.break_even_acceptance_length = p.cycle_ms / p.plain_step_ms;
    p.coverage = overall_coverage(p.terms);
}

/// Roles of a pass's kernels, each once.
std::vector<std::string_view> kernel_roles(const model::Plan& plan) {
    std::vector<std::string_view> roles;
    for (const model::Operation& operation : plan.operations) {
        if (model::is_collective(operation.kind)) continue;
        if (std::find(roles.begin(), roles.end(), operation.role) == roles.end()) roles.push_back(operation.role);
    }
    return roles;
}

/// The passes of a cycle, once each is known.
struct CycleCosts {
    PassCost plain;
    PassCost extend;
    PassCost draft;
    PassCost verify;
    int draft_steps = 0;
    std::vector<std::string_view> kernel_roles;  ///< only if the scenario asks for syncs
};

model::MemoryFit fit_memory(const Scenario& scenario) {
    model::MemoryDemand demand;
    demand.sequences = scenario.sequences_per_replica();
    demand.context = scenario.workload.context_tokens;
    demand.kv_format = scenario.kv_format();
    demand.capacity_bytes = scenario.machine.gpu.memory_bytes;
    demand.usable_fraction = scenario.memory.usable_fraction;
    return model::memory_fit(scenario.architecture, scenario.layout, scenario.speculation, demand);
}

}  // namespace

namespace {

/// The answer from its passes; `p` holds the warnings so far.
void complete(const Scenario& scenario, const HostConstants& host, const CycleCosts& costs, Prediction& p) {
    const model::Speculation& speculation = scenario.speculation;
    p.plain = costs.plain;
    append_terms(p.plain_terms, "plain", p.plain, 1);
    const double step_host_ms = (host.step_us + host.sequence_us * scenario.sequences_per_replica()) * 1e-3;
    p.plain_terms.push_back(host_term(step_host_ms, host));
    p.plain_step_ms = p.plain.total_ms + step_host_ms;
    if (speculation.method == SpeculationMethod::none) {
        p.terms = p.plain_terms;
        p.host_ms = step_host_ms;
        p.cycle_ms = p.plain_step_ms;
        p.acceptance_length = {1, 1, 1};
    } else {
        p.verify = costs.verify;
        fill_cycle(scenario, host, costs.extend, costs.draft, costs.draft_steps, p);
    }
    set_shares(p.terms);
    set_shares(p.plain_terms);
    fill_rates(scenario, host, p);
    for (const std::string& note : speculation.notes()) add_once(p.warnings, note);
    for (const std::string& role : scenario.engine.host_sync_after) {
        if (std::find(costs.kernel_roles.begin(), costs.kernel_roles.end(), role) == costs.kernel_roles.end()) {
            add_once(p.warnings, "engine.host_sync_after: no kernel of any pass is called " + role);
        }
    }
    for (const std::string& path : scenario.unknown_fields) {
        add_once(p.warnings, "the scenario's field " + path + " is not known and was ignored");
    }
}

void add_launch_modes(Fingerprint& fingerprint, const model::EngineSettings& engine) {
    for (const LaunchMode mode : {engine.decode_launch, engine.verify_launch, engine.draft_launch}) {
        fingerprint.add(static_cast<int>(mode));
    }
    fingerprint.add(engine.graph_token_limit).add(engine.full_graph_token_limit);
}

std::uint64_t memory_key(const Scenario& scenario, std::uint64_t shape) {
    Fingerprint fingerprint;
    fingerprint.add(shape).add(scenario.architecture.name).add(scenario.machine.gpu.memory_bytes);
    fingerprint.add(scenario.memory.usable_fraction);
    return fingerprint.value();
}

}  // namespace

struct Predictor::Impl {
    CostConstants constants;
    std::shared_ptr<PassStore> store;
    std::vector<SimulatedPass> passes;
    std::map<std::uint64_t, Prices> prices;  // by surroundings
    std::uint64_t shape_key = 0;             // of the last question to a store

    static constexpr std::size_t kMostPrices = 64;  // some 100 KB each

    Prices& prices_of(const Scenario& scenario, std::uint64_t surroundings) {
        auto known = prices.find(surroundings);
        if (known == prices.end()) {
            if (prices.size() >= kMostPrices) prices.clear();
            known = prices.try_emplace(surroundings, scenario, constants).first;
        }
        return known->second;
    }

    /// Plan the passes of a cycle, price and simulate each on its ranks.
    model::Expected<CycleCosts> simulate(const Scenario& scenario, const HostConstants& host, Prediction& p) {
        const model::Speculation& speculation = scenario.speculation;
        const model::EngineSettings& engine = scenario.engine;
        auto plans = plan(scenario);
        if (!plans) return tl::unexpected(plans.error());
        Fingerprint surroundings;
        add_surroundings(surroundings, scenario);
        Prices& priced_by = prices_of(scenario, surroundings.value());
        add_launch_costs(surroundings, host);
        Cycle cycle(scenario, host, priced_by, surroundings, p, passes);
        CycleCosts costs;
        p.all_reduces_per_verify = plans->verify.count(model::OperationKind::all_reduce);
        costs.draft_steps = plans->draft_steps;
        const auto plain = cycle.run("plain", 1, std::move(plans->plain), engine.decode_launch, 1);
        const auto extend = cycle.run("draft_extend", 1, std::move(plans->draft_extend), engine.draft_launch,
                                      speculation.steps + 1);
        const auto draft = cycle.run("draft", plans->draft_steps, std::move(plans->draft), engine.draft_launch,
                                     speculation.top_k);
        const auto verify = cycle.run("verify", 1, std::move(plans->verify), engine.verify_launch,
                                      speculation.verify_tokens());
        for (const auto* pass : {&plain, &extend, &draft, &verify}) {
            if (!*pass) return tl::unexpected(pass->error());
        }
        costs.plain = *plain;
        costs.extend = *extend;
        costs.draft = *draft;
        costs.verify = *verify;
        if (!engine.host_sync_after.empty()) {
            for (const SimulatedPass& pass : passes) {
                const auto roles = kernel_roles(pass.priced.plan);
                costs.kernel_roles.insert(costs.kernel_roles.end(), roles.begin(), roles.end());
            }
        }
        return costs;
    }

    static model::Expected<model::CyclePlan> plan(const Scenario& scenario) {
        return model::plan_cycle(scenario.architecture, scenario.layout, scenario.speculation,
                                 scenario.sequences_per_replica(), scenario.workload.context_tokens,
                                 scenario.kv_format(), scenario.routing, scenario.seed);
    }

    /// The same from the store; what it lacks is simulated and left there.
    model::Expected<CycleCosts> recall(const Scenario& scenario, const HostConstants& host, Prediction& p) {
        Fingerprint surroundings;
        add_surroundings(surroundings, scenario);
        const std::uint64_t prices_key = surroundings.value();
        add_launch_costs(surroundings, host);
        Fingerprint shape_alone;
        add_cycle_shape(shape_alone, scenario);
        shape_key = shape_alone.value();
        Fingerprint shape = surroundings;
        shape.add(shape_key);
        add_launch_modes(shape, scenario.engine);
        // A trace's choices are too many to hash for each question: its plans are built and compared instead.
        const bool traced = scenario.routing.kind == model::RoutingKind::trace;
        std::shared_ptr<const KnownCycle> known = traced ? nullptr : store->cycle(shape.value());
        if (!known) {
            auto simulated = simulate_missing(scenario, host, surroundings, prices_key);
            if (!simulated) return tl::unexpected(simulated.error());
            known = std::make_shared<const KnownCycle>(std::move(*simulated));
            if (!traced) store->keep(shape.value(), known);
        }
        CycleCosts costs;
        p.all_reduces_per_verify = known->all_reduces_per_verify;
        costs.draft_steps = known->draft_steps;
        const auto take = [&](const PassPointer& pass, PassCost& cost) {
            if (!pass) return;
            cost = pass->cost;
            for (const std::string& remark : pass->remarks) add_once(p.warnings, remark);
            if (scenario.engine.host_sync_after.empty()) return;
            costs.kernel_roles.insert(costs.kernel_roles.end(), pass->kernel_roles.begin(), pass->kernel_roles.end());
        };
        take(known->plain, costs.plain);
        take(known->draft_extend, costs.extend);
        take(known->draft, costs.draft);
        take(known->verify, costs.verify);
        return costs;
    }

    model::Expected<KnownCycle> simulate_missing(const Scenario& scenario, const HostConstants& host,
                                                 const Fingerprint& surroundings, std::uint64_t prices_key) {
        const model::Speculation& speculation = scenario.speculation;
        const model::EngineSettings& engine = scenario.engine;
        auto plans = plan(scenario);
        if (!plans) return tl::unexpected(plans.error());
        Prices& priced_by = prices_of(scenario, prices_key);
        KnownCycle known;
        known.draft_steps = plans->draft_steps;
        known.all_reduces_per_verify = plans->verify.count(model::OperationKind::all_reduce);
        std::optional<model::Error> error;
        const auto pass = [&](const char* name, int repeat, model::Plan& plan, LaunchMode mode, int tokens) -> PassPointer {
            if (error || plan.operations.empty() || repeat == 0) return nullptr;
            Prediction remarks;
            std::vector<SimulatedPass> simulated;
            Cycle cycle(scenario, host, priced_by, surroundings, remarks, simulated);
            const std::uint64_t key = cycle.fingerprint(name, plan, mode, tokens);
            if (PassPointer stored = store->pass(key)) return stored;
            KnownPass made;
            made.kernel_roles = kernel_roles(plan);
            const auto cost = cycle.run(name, repeat, std::move(plan), mode, tokens);
            if (!cost) {
                error = cost.error();
                return nullptr;
            }
            made.cost = *cost;
            made.remarks = std::move(remarks.warnings);
            auto kept = std::make_shared<const KnownPass>(std::move(made));
            store->keep(key, kept);
            return kept;
        };
        known.plain = pass("plain", 1, plans->plain, engine.decode_launch, 1);
        known.draft_extend = pass("draft_extend", 1, plans->draft_extend, engine.draft_launch, speculation.steps + 1);
        known.draft = pass("draft", plans->draft_steps, plans->draft, engine.draft_launch, speculation.top_k);
        known.verify = pass("verify", 1, plans->verify, engine.verify_launch, speculation.verify_tokens());
        if (error) return tl::unexpected(*error);
        return known;
    }

    model::MemoryFit memory(const Scenario& scenario) const {
        if (!store) return fit_memory(scenario);
        const std::uint64_t key = memory_key(scenario, shape_key);
        if (const auto known = store->memory(key)) return *known;
        auto fit = std::make_shared<const model::MemoryFit>(fit_memory(scenario));
        store->keep(key, fit);
        return *fit;
    }
};

Predictor::Predictor(CostConstants constants, std::shared_ptr<PassStore> store) : impl_(std::make_unique<Impl>()) {
    impl_->constants = std::move(constants);
    impl_->store = std::move(store);
}
Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;

const std::vector<SimulatedPass>& Predictor::passes() const { return impl_->passes; }
const CostConstants& Predictor::constants() const { return impl_->constants; }

const std::map<std::string, double>& Predictor::engine_constants(const Scenario& scenario) const {
    static const std::map<std::string, double> kNone;
    const auto known = impl_->constants.engines.find(scenario.engine.name);
    return known == impl_->constants.engines.end() ? kNone : known->second;
}

model::Expected<HostConstants> Predictor::host_constants(const Scenario& scenario) const {
    auto host = with_overrides(impl_->constants.host, engine_constants(scenario));
    if (host) host = with_overrides(*host, scenario.constants);
    return host;
}

model::Expected<Prediction> Predictor::predict(const Scenario& scenario) {
    // Plan the passes of a cycle, price and simulate each on its ranks, add the host, divide tokens by time.
    const auto host = host_constants(scenario);
    if (!host) return tl::unexpected(host.error());
    Prediction p;
    p.scenario = scenario.name;
    const auto costs = impl_->store ? impl_->recall(scenario, *host, p) : impl_->simulate(scenario, *host, p);
    if (!costs) return tl::unexpected(costs.error());
    complete(scenario, *host, *costs, p);
    p.memory = impl_->memory(scenario);
    p.verdict = verdict_of(scenario, p);
    return p;
}

}  // namespace draftboard::sim
