// SPDX-License-Identifier: Apache-2.0
#include "sim/explanation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

namespace draftboard::sim {

using model::Operation;

namespace {

std::string shape_of(const Operation& operation) {
    if (model::is_collective(operation.kind)) {
        return fmt::format("{} ranks, {} bytes", operation.group, operation.message_bytes);
    }
    std::string text = fmt::format("m {}", operation.m);
    if (operation.n > 0) text += fmt::format(", n {}", operation.n);
    if (operation.k > 0) text += fmt::format(", k {}", operation.k);
    if (operation.distinct_experts > 0) {
        text += fmt::format(", {:.1f} distinct experts", operation.distinct_experts);
    }
    if (operation.batch > 1 && operation.distinct_experts == 0) {
        text += fmt::format(", batch {}", operation.batch);
    }
    if (operation.weight_bytes > 0) text += ", " + operation.weight_format.name();
    return text;
}

/// What makes two operations of a pass one row.
using RowKey = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, double, double, double>;

RowKey row_key(const Operation& operation) {
    return {std::string(operation.role), operation.m, operation.n, operation.k,
            operation.weight_bytes, operation.cache_bytes,
            static_cast<double>(operation.message_bytes)};
}

class Explainer {
   public:
    Explainer(const model::Scenario& scenario, const CostConstants& constants)
        : kernels_(scenario.machine.gpu, constants.kernels, scenario.engine.implementations),
          collectives_(scenario.machine, scenario.collective, constants.collectives),
          constants_(constants),
          near_cache_bytes_(model::is_cpu(scenario.machine.gpu) ? scenario.machine.gpu.l2_bytes : 0) {
        for (const auto& [pass, table] : constants.pass_kernels) {
            pass_kernels_.try_emplace(pass, scenario.machine.gpu, table, scenario.engine.implementations);
        }
    }

    ExplainedPass explain(const SimulatedPass& pass) {
        ExplainedPass out;
        out.name = pass.name;
        out.repeat = pass.repeat;
        out.total_ms = to_ms(pass.times.total);
        append_terms(out.terms, pass.name, pass.cost, 1);
        set_shares(out.terms);
        std::map<RowKey, std::size_t> rows;
        for (std::size_t i = 0; i < pass.priced.plan.operations.size(); ++i) {
            const Operation& operation = pass.priced.plan.operations[i];
            const auto [row, fresh] = rows.try_emplace(row_key(operation), out.operations.size());
            if (fresh) {
                out.operations.push_back(describe(pass, i));
                out.operations.back().count = 0;
            }
            ExplainedOperation& entry = out.operations[row->second];
            ++entry.count;
            entry.total_ms = entry.us * entry.count * 1e-3;
        }
        std::stable_sort(out.operations.begin(), out.operations.end(),
                         [](const ExplainedOperation& a, const ExplainedOperation& b) {
                             return a.total_ms > b.total_ms;
                         });
        return out;
    }

   private:
    /// The time is the pass's own; the models are asked again for the formula behind it.
    ExplainedOperation describe(const SimulatedPass& pass, std::size_t index) {
        const Operation& operation = pass.priced.plan.operations[index];
        const PricedOperation& priced = pass.priced.operations[index];
        const PricedOperationInfo& info = pass.priced.info[index];
        ExplainedOperation out;
        out.key = operation.key(pass.priced.plan.pass);
        out.role = operation.role;
        out.shape = shape_of(operation);
        if (priced.stream != 0) out.shape += ", on the side stream";
        out.flops = operation.flops;
        out.us = to_us(priced.collective ? priced.latency + priced.transport : priced.kernel);
        out.coverage = info.coverage;
        out.relative_uncertainty = info.relative_uncertainty;
        if (!priced.collective) {
            const auto own = pass_kernels_.find(pass.priced.plan.pass);
            const KernelModel& kernels = own != pass_kernels_.end() ? own->second : kernels_;
            const KernelTime time = kernels.explain(operation, near_share(pass.priced.plan, near_cache_bytes_));
            out.bytes = operation.weight_bytes + operation.activation_bytes + operation.cache_bytes;
            out.formula = priced.fused ? "inside the all-reduce before it" : time.formula;
            const auto own_table = constants_.pass_kernels.find(pass.priced.plan.pass);
            const KernelTable& table = own_table != constants_.pass_kernels.end() ? own_table->second : constants_.kernels;
            const auto entry = table.entries.find(time.key);
            out.source = entry != table.entries.end() ? entry->second.source : "datasheet: " + time.key;
            return out;
        }
        out.bytes = static_cast<double>(operation.message_bytes);
        CollectiveRequest request;
        request.operation = operation.kind;
        request.gpus.resize(static_cast<std::size_t>(operation.group));
        std::iota(request.gpus.begin(), request.gpus.end(), 0);
        request.bytes = operation.message_bytes;
        if (auto time = collectives_.time(request)) out.formula = time->formula;
        out.source = constants_.collective_calibration.empty() ? "published constants"
                                                               : constants_.collective_calibration;
        return out;
    }

    KernelModel kernels_;
    std::map<model::Pass, KernelModel> pass_kernels_;
    CollectiveModel collectives_;
    const CostConstants& constants_;
    double near_cache_bytes_ = 0;
};

std::vector<std::string> equations(const model::Scenario& scenario, const Prediction& p) {
    std::vector<std::string> lines;
    const model::Speculation& speculation = scenario.speculation;
    if (speculation.method == model::SpeculationMethod::none) {
        lines.push_back(fmt::format("tokens per second = {} / {:.4f} ms = {:.2f}",
                                    scenario.workload.concurrency, p.plain_step_ms,
                                    p.tokens_per_second.value));
        return lines;
    }
    std::string positions;
    for (const double m : speculation.acceptance.positions(speculation.steps)) {
        positions += fmt::format("{}{:.4g}", positions.empty() ? "" : " + ", m);
    }
    lines.push_back(fmt::format(
        "acceptance length = {} = {:.4f} ({})",
        speculation.top_k > 1 ? (speculation.acceptance.tree_length > 0 ? "measured with this tree"
                                                                        : "1 + sum of path probabilities of the draft tree")
                              : fmt::format("1 + {:.4g} x ({})", speculation.acceptance.hit, positions),
        p.acceptance_length.value,
        speculation.acceptance.source.empty() ? "no source given" : speculation.acceptance.source));
    lines.push_back(fmt::format("cycle = draft {:.4f} + verify {:.4f} + host {:.4f} = {:.4f} ms",
                                p.draft_ms, p.verify_ms, p.host_ms, p.cycle_ms));
    lines.push_back(fmt::format("tokens per second = {} x {:.4f} / {:.4f} ms = {:.2f}",
                                scenario.workload.concurrency, p.acceptance_length.value, p.cycle_ms,
                                p.tokens_per_second.value));
    lines.push_back(fmt::format("break-even acceptance length = {:.4f} / {:.4f} ms = {:.4f}",
                                p.cycle_ms, p.plain_step_ms, p.break_even_acceptance_length));
    return lines;
}

}  // namespace

model::Expected<Explanation> explain(const model::Scenario& scenario, const Prediction& prediction,
                                     const Predictor& predictor, const std::string& pass) {
    const auto host = predictor.host_constants(scenario);
    if (!host) return tl::unexpected(host.error());
    Explanation out;
    out.scenario = scenario.name;
    out.equations = equations(scenario, prediction);
    Explainer explainer(scenario, predictor.constants());
    std::string known;
    for (const SimulatedPass& simulated : predictor.passes()) {
        known += (known.empty() ? "" : ", ") + simulated.name;
        if (pass.empty() || pass == simulated.name) {
            out.passes.push_back(explainer.explain(simulated));
        }
    }
    if (out.passes.empty()) {
        return model::fail(model::ErrorCode::not_found, "this scenario has no such pass",
                           "--pass " + pass, "its passes are " + known);
    }
    for (const HostConstantInfo& info : host_constant_table()) {
        const auto reason = scenario.constant_reasons.find(info.name);
        std::string source = info.source;
        if (scenario.constants.contains(info.name)) {
            source = "set by the scenario";
            if (reason != scenario.constant_reasons.end()) source += ": " + reason->second;
        } else if (predictor.engine_constants(scenario).contains(info.name)) {
            source = "fitted for " + scenario.engine.name + " (data/calibrations/engines-*.json)";
        }
        out.constants.push_back({info.name, (*host).*(info.field), info.meaning, source});
    }
    for (const auto* list : {&scenario.sources, &scenario.machine.sources}) {
        out.sources.insert(out.sources.end(), list->begin(), list->end());
    }
    out.sources.push_back("architecture: " + scenario.architecture.source);
    return out;
}

model::Json explanation_json(const Explanation& explanation) {
    model::Json json;
    json["format"] = "draftboard.explanation";
    json["version"] = 1;
    json["scenario"] = explanation.scenario;
    json["equations"] = explanation.equations;
    json["passes"] = model::Json::array();
    for (const ExplainedPass& pass : explanation.passes) {
        model::Json operations = model::Json::array();
        for (const ExplainedOperation& operation : pass.operations) {
            operations.push_back({{"key", operation.key},
                                  {"role", operation.role},
                                  {"count", operation.count},
                                  {"shape", operation.shape},
                                  {"bytes", operation.bytes},
                                  {"flops", operation.flops},
                                  {"us", operation.us},
                                  {"total_ms", operation.total_ms},
                                  {"coverage", to_name(operation.coverage)},
                                  {"relative_uncertainty", operation.relative_uncertainty},
                                  {"formula", operation.formula},
                                  {"source", operation.source}});
        }
        model::Json terms = model::Json::array();
        for (const Term& term : pass.terms) {
            terms.push_back({{"name", term.name}, {"ms", term.ms}, {"share", term.share}});
        }
        json["passes"].push_back({{"name", pass.name},
                                  {"repeat", pass.repeat},
                                  {"total_ms", pass.total_ms},
                                  {"terms", terms},
                                  {"operations", operations}});
    }
    json["constants"] = model::Json::array();
    for (const ExplainedConstant& constant : explanation.constants) {
        json["constants"].push_back({{"name", constant.name},
                                     {"value", constant.value},
                                     {"meaning", constant.meaning},
                                     {"source", constant.source}});
    }
    json["sources"] = explanation.sources;
    return json;
}

std::string explanation_text(const Explanation& explanation) {
    std::string text = explanation.scenario + "\n\n";
    for (const std::string& line : explanation.equations) text += "  " + line + "\n";
    for (const ExplainedPass& pass : explanation.passes) {
        text += fmt::format("\nPass {}{}: {:.4f} ms\n", pass.name,
                            pass.repeat > 1 ? fmt::format(" (x {})", pass.repeat) : "",
                            pass.total_ms);
        for (const Term& term : pass.terms) {
            text += fmt::format("  {:<34} {:9.4f} ms {:5.1f} %\n", term.name, term.ms,
                                100 * term.share);
        }
        text += fmt::format("\n  {:<28} {:>5} {:>10} {:>10}  {:<12} {}\n", "operation", "count",
                            "us each", "ms in all", "coverage", "formula");
        for (const ExplainedOperation& operation : pass.operations) {
            text += fmt::format("  {:<28} {:>5} {:>10.2f} {:>10.4f}  {:<12} {}\n", operation.role,
                                operation.count, operation.us, operation.total_ms,
                                to_name(operation.coverage), operation.formula);
            text += fmt::format("  {:<28} {}; {}\n", "", operation.shape, operation.source);
        }
    }
    text += "\nConstants of the host\n";
    for (const ExplainedConstant& constant : explanation.constants) {
        text += fmt::format("  {:<28} {:>10}  {}; {}\n", constant.name, constant.value,
                            constant.meaning, constant.source);
    }
    text += "\nSources\n";
    for (const std::string& source : explanation.sources) text += "  " + source + "\n";
    return text;
}

}  // namespace draftboard::sim
