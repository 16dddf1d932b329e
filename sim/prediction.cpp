// SPDX-License-Identifier: Apache-2.0
#include "sim/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

/// One prediction in the making: prices and simulates passes, and keeps what they leave behind.
class Cycle {
   public:
    Cycle(const Scenario& scenario, const CostConstants& constants, const HostConstants& host,
          Prediction& p, std::vector<SimulatedPass>& passes)
        : scenario_(scenario),
          host_(host),
          p_(p),
          passes_(passes),
          previous_(std::move(passes)),
          kernels_(scenario.machine.gpu, constants.kernels, scenario.engine.implementations),
          collectives_(scenario.machine, scenario.collective, constants.collectives) {
        for (const auto& [pass, table] : constants.pass_kernels) {
            pass_kernels_.try_emplace(pass, scenario.machine.gpu, table, scenario.engine.implementations);
        }
        pricer_.collectives = &collectives_;
        pricer_.gpus = first_group(scenario.layout);
        pricer_.rank_alone = constants.rank_alone;
        if (constants.rank_alone) pricer_.gpus = {0};
        pricer_.fused_all_reduce_norm = scenario.engine.fused_all_reduce_norm;
        pricer_.shared_context = scenario.workload.shared_context;
        pricer_.l2_bytes = scenario.machine.gpu.l2_bytes;
        pricer_.near_cache_bytes = model::is_cpu(scenario.machine.gpu) ? scenario.machine.gpu.l2_bytes : 0;
        pricer_.host_sync_after = scenario.engine.host_sync_after;
        passes_.clear();
        add_surroundings(surroundings_, scenario);
        add_launch_costs(surroundings_, host);
    }

    model::Expected<PassCost> run(const std::string& name, int repeat, model::Plan plan,
                                  LaunchMode mode, int tokens) {
        if (plan.operations.empty() || repeat == 0) return PassCost{};
        const std::int64_t rows = std::int64_t{tokens} * scenario_.sequences_per_replica();
        const int limit = scenario_.engine.graph_token_limit;
        const int full = scenario_.engine.full_graph_token_limit;
        if (full > 0 && rows > full && mode == LaunchMode::graph) mode = LaunchMode::piecewise;
        if (limit > 0 && rows > limit) mode = LaunchMode::eager;
        Fingerprint fingerprint = surroundings_;
        add_plan(fingerprint, plan);
        fingerprint.add(name).add(static_cast<int>(mode));
        if (SimulatedPass* known = find_known(fingerprint.value())) {
            known->repeat = repeat;
            for (const std::string& remark : known->priced.remarks) add_once(p_.warnings, remark);
            passes_.push_back(std::move(*known));
            return passes_.back().cost;
        }
        const int side_by_side = scenario_.engine.overlap_token_limit;
        pricer_.overlap_shared_experts = scenario_.engine.overlap_shared_experts &&
                                         (side_by_side == 0 || rows <= side_by_side);
        const auto own = pass_kernels_.find(plan.pass);
        pricer_.kernels = own != pass_kernels_.end() ? &own->second : &kernels_;
        auto priced = pricer_.price(std::move(plan), mode);
        if (!priced) return tl::unexpected(priced.error());
        SimulatedPass pass;
        pass.name = name;
        pass.repeat = repeat;
        pass.fingerprint = fingerprint.value();
        // The draws depend on the pass's name alone: a changed depth does not reshuffle the verify pass.
        pass.times = simulate_pass(priced->operations, static_cast<int>(pricer_.gpus.size()), mode,
                                   host_, Random(scenario_.seed).fork(model::fnv1a(name)));
        for (const std::string& remark : priced->remarks) add_once(p_.warnings, remark);
        pass.priced = std::move(*priced);
        pass.cost = pass_cost(pass.priced, pass.times, host_);
        passes_.push_back(std::move(pass));
        return passes_.back().cost;
    }

   private:
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
    KernelModel kernels_;
    std::map<model::Pass, KernelModel> pass_kernels_;
    CollectiveModel collectives_;
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

bool runs_role(const std::vector<SimulatedPass>& passes, const std::string& role) {
    for (const SimulatedPass& pass : passes) {
        for (const model::Operation& operation : pass.priced.plan.operations) {
            if (operation.role == role && !model::is_collective(operation.kind)) return true;
        }
    }
    return false;
}

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

struct Predictor::Impl {
    CostConstants constants;
    std::vector<SimulatedPass> passes;
};

Predictor::Predictor(CostConstants constants) : impl_(std::make_unique<Impl>()) {
    impl_->constants = std::move(constants);
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
    const model::Speculation& speculation = scenario.speculation;
    auto plans = model::plan_cycle(scenario.architecture, scenario.layout, speculation,
                                   scenario.sequences_per_replica(),
                                   scenario.workload.context_tokens, scenario.kv_format(),
                                   scenario.routing, scenario.seed);
    if (!plans) return tl::unexpected(plans.error());

    Prediction p;
    p.scenario = scenario.name;
    Cycle cycle(scenario, impl_->constants, *host, p, impl_->passes);
    const model::EngineSettings& engine = scenario.engine;

    const auto plain = cycle.run("plain", 1, std::move(plans->plain), engine.decode_launch, 1);
    if (!plain) return tl::unexpected(plain.error());
    p.plain = *plain;
    append_terms(p.plain_terms, "plain", p.plain, 1);
    const double step_host_ms =
        (host->step_us + host->sequence_us * scenario.sequences_per_replica()) * 1e-3;
    p.plain_terms.push_back(host_term(step_host_ms, *host));
    p.plain_step_ms = p.plain.total_ms + step_host_ms;

    if (speculation.method == SpeculationMethod::none) {
        p.terms = p.plain_terms;
        p.host_ms = step_host_ms;
        p.cycle_ms = p.plain_step_ms;
        p.acceptance_length = {1, 1, 1};
    } else {
        p.all_reduces_per_verify = plans->verify.count(model::OperationKind::all_reduce);
        const auto extend = cycle.run("draft_extend", 1, std::move(plans->draft_extend),
                                      engine.draft_launch, speculation.steps + 1);
        const auto draft = cycle.run("draft", plans->draft_steps, std::move(plans->draft),
                                     engine.draft_launch, speculation.top_k);
        const auto verify = cycle.run("verify", 1, std::move(plans->verify), engine.verify_launch,
                                      speculation.verify_tokens());
        for (const auto* pass : {&extend, &draft, &verify}) {
            if (!*pass) return tl::unexpected(pass->error());
        }
        p.verify = *verify;
        fill_cycle(scenario, *host, *extend, *draft, plans->draft_steps, p);
    }
    set_shares(p.terms);
    set_shares(p.plain_terms);
    fill_rates(scenario, *host, p);
    for (const std::string& note : speculation.notes()) add_once(p.warnings, note);
    for (const std::string& role : engine.host_sync_after) {
        if (!runs_role(impl_->passes, role)) {
            add_once(p.warnings, "engine.host_sync_after: no kernel of any pass is called " + role);
        }
    }
    for (const std::string& path : scenario.unknown_fields) {
        add_once(p.warnings, "the scenario's field " + path + " is not known and was ignored");
    }
    p.memory = fit_memory(scenario);
    p.verdict = verdict_of(scenario, p);
    return p;
}

}  // namespace draftboard::sim
