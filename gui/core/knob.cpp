// SPDX-License-Identifier: Apache-2.0
#include "gui/core/knob.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "gui/core/box_edit.h"
#include "model/data_library.h"
#include "sim/host_constants.h"

namespace draftboard::gui {

using model::Json;

double Knob::position_of(double value) const {
    if (!(high > low)) return 0;
    const double at = logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return std::isfinite(at) ? std::clamp(at, 0.0, 1.0) : 0;
}

double Knob::value_at(double position) const {
    const double at = std::clamp(position, 0.0, 1.0);
    double value = logarithmic ? low * std::pow(high / low, at) : low + at * (high - low);
    if (whole()) return std::round(value);
    // Three significant digits: what a hand can mean.
    if (value == 0) return 0;
    const double scale = std::pow(10.0, 2 - std::floor(std::log10(std::fabs(value))));
    return std::clamp(std::round(value * scale) / scale, low, high);
}

namespace {

Knob choice(std::string path, std::string label, std::string group, std::vector<std::string> choices, std::string meaning) {
    return {std::move(path), std::move(label),   std::move(group),  KnobKind::choice, "", 0, 0,
            false,           std::move(choices), std::move(meaning)};
}
Knob toggle(std::string path, std::string label, std::string group, std::string meaning) {
    return {std::move(path), std::move(label), std::move(group), KnobKind::toggle, "", 0, 1, false, {}, std::move(meaning)};
}
Knob number(KnobKind kind, std::string path, std::string label, std::string group, std::string unit, double low, double high,
            bool logarithmic, std::string meaning) {
    return {std::move(path),   std::move(label), std::move(group), kind, std::move(unit), low, high, logarithmic, {},
            std::move(meaning)};
}

/// "host.eager_launch_us" -> "eager launch", "us"
std::pair<std::string, std::string> label_of(const std::string& constant) {
    std::string label = constant.substr(constant.find('.') + 1);
    std::string unit;
    if (label.ends_with("_us")) {
        unit = "us";
        label.resize(label.size() - 3);
    }
    std::replace(label.begin(), label.end(), '_', ' ');
    if (!label.empty()) label[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(label[0])));
    return {label, unit};
}

std::vector<std::string> with_empty(std::vector<std::string> names) {
    names.insert(names.begin(), "");
    return names;
}

}  // namespace

std::vector<Knob> knob_table(const std::string& data) {
    using K = KnobKind;
    std::vector<std::string> kernels;
    std::vector<std::string> collectives;
    for (const std::string& name : model::shipped_names("calibrations", data)) {
        if (name.starts_with("collectives-"))
            collectives.push_back(name);
        else if (!name.starts_with("engines-"))
            kernels.push_back(name);
    }
    const std::vector<std::string> launches{"eager", "piecewise", "graph"};
    std::vector<Knob> knobs{
        choice("architecture", "Target model", "Model and box", model::shipped_names("architectures", data),
               "The model that verifies: parameters, experts and attention come from its config.json."),
        choice("machine", "Box", "Model and box", model::shipped_names("machines", data),
               "GPUs, switches, root ports, sockets and the links between them."),
        choice("calibration", "Kernel calibration", "Model and box", with_empty(kernels),
               "Measured kernel times. Empty: the box's own, else the datasheet."),
        choice("collective_calibration", "Collective calibration", "Model and box", with_empty(collectives),
               "Measured constants of collectives. Empty: the one that lists the box, else published ones."),
        number(K::pcie_generation, "machine.pcie_generation", "PCIe generation of GPUs", "Model and box", "", 3, 6, false,
               "All PCIe links at this generation: capacities scale with the lane rate, which doubles from one to the next."),
        number(K::pcie_width, "machine.pcie_width", "PCIe lanes of GPUs", "Model and box", "", 1, 16, true,
               "All links that end at a GPU with this many lanes: capacities scale with them."),
        number(K::integer, "layout.tensor", "Tensor parallel", "Layout", "GPUs", 1, 16, true,
               "TP: each layer's matrices split over this many GPUs; every layer ends in all-reduces."),
        number(K::integer, "layout.expert", "Expert parallel", "Layout", "GPUs", 1, 16, true,
               "EP: whole experts spread over this many ranks (1 or the tensor-parallel degree)."),
        number(K::integer, "layout.pipeline", "Pipeline stages", "Layout", "", 1, 8, false,
               "PP: layers split over stages, one after the other."),
        number(K::integer, "layout.replicas", "Replicas", "Layout", "", 1, 8, false, "Independent copies of the whole layout."),
        number(K::integer, "layout.attention_data", "Data-parallel attention", "Layout", "", 1, 16, true,
               "DP attention: sequences split over ranks of the TP group."),
        toggle("layout.all_to_all", "All-to-all experts", "Layout", "EP with an all-to-all backend in place of the all-reduce."),
        toggle("layout.parallel_blocks", "Parallel blocks", "Layout",
               "What if attention and feed-forward shared one all-reduce? Another function: a model has to be trained for it."),
        choice("speculation.method", "Drafter", "Drafter", {"none", "eagle3", "mtp", "ngram", "draft_model"}, "Who drafts."),
        number(K::integer, "speculation.steps", "Depth", "Drafter", "tokens", 1, 12, false,
               "Draft tokens in a chain, or levels of the tree."),
        number(K::integer, "speculation.top_k", "Tree width", "Drafter", "branches", 1, 10, false,
               "Branches kept a step; 1 is a chain."),
        number(K::integer, "speculation.draft_tokens", "Verified tokens", "Drafter", "tokens", 0, 64, false,
               "Tokens a sequence in the verify pass, root included; 0: depth + 1."),
        choice("speculation.head", "EAGLE-3 head", "Drafter", {"llama_style", "mla_style"},
               "Shape of the EAGLE-3 head's attention."),
        toggle("speculation.pad_misses", "Missed lookups verify in full", "Drafter",
               "n-gram: a missed lookup still verifies the captured width."),
        number(K::acceptance_length, "speculation.acceptance.acceptance_length", "Acceptance length", "Drafter", "tokens", 1, 8,
               false, "Mean tokens a cycle, bonus token included, spread over positions with one conditional rate."),
        number(K::integer, "workload.concurrency", "Sequences at once", "Load", "", 1, 256, true,
               "Sequences decoded together, over all replicas."),
        number(K::integer, "workload.context_tokens", "Context", "Load", "tokens", 128, 131072, true,
               "Cached tokens a sequence."),
        toggle("workload.shared_context", "Shared context", "Load", "All sequences go on from one context and share its cache."),
        number(K::real, "memory.usable_fraction", "Usable memory", "Load", "of a GPU", 0.5, 1, false,
               "What the engine may fill."),
        choice("collective.implementation", "All-reduce", "Collectives",
               {"nccl", "one_shot", "two_shot", "hierarchical", "host_staged"}, "Who runs the all-reduces."),
        choice("collective.algorithm", "NCCL algorithm", "Collectives", {"auto", "ring", "tree"}, "NCCL_ALGO."),
        choice("collective.protocol", "NCCL protocol", "Collectives", {"auto", "ll", "ll128", "simple"}, "NCCL_PROTO."),
        number(K::integer, "collective.channels", "NCCL channels", "Collectives", "", 0, 32, false, "0: NCCL's own choice."),
        toggle("collective.peer_to_peer", "GPU peer access", "Collectives",
               "Off: NCCL_P2P_DISABLE=1, all goes through host memory."),
        choice("collective.peer_level", "Peer level", "Collectives", {"NVL", "PIX", "PXB", "PHB", "NODE", "SYS"},
               "NCCL_P2P_LEVEL: the farthest path over which NCCL uses peer access."),
        toggle("collective.graph_file", "Graph file", "Collectives", "NCCL_GRAPH_FILE given: the search for rings can't fail."),
        toggle("engine.fused_all_reduce_norm", "Fused all-reduce and norm", "Collectives",
               "Residual add and norm inside the all-reduce kernel."),
        choice("engine.launch.verify", "Verify launch", "Launch", launches, "How the verify pass reaches the GPU."),
        choice("engine.launch.draft", "Draft launch", "Launch", launches, "How the drafter's passes reach the GPU."),
        choice("engine.launch.decode", "Plain launch", "Launch", launches, "How the plain step reaches the GPU."),
        toggle("engine.overlap_scheduling", "Overlap scheduling", "Launch",
               "Host work of a cycle hidden behind the next (SGLang spec v2)."),
        toggle("engine.overlap_shared_experts", "Shared experts on a side stream", "Launch",
               "Beside the router and the routed experts."),
    };
    for (const sim::HostConstantInfo& info : sim::host_constant_table()) {
        const auto [label, unit] = label_of(info.name);
        const double value = sim::HostConstants{}.*info.field;
        // A slider spans what is met in the field: to ten times the default, within the admissible range.
        const double high = std::min(info.high, value > 0 ? 10 * value : std::max(1.0, info.high / 100));
        knobs.push_back(number(K::real, "constants." + info.name, label, "Host", unit, std::min(info.low, value), high, false,
                               info.meaning + ". " + info.source + "."));
    }
    return knobs;
}

const Knob* find_knob(const std::vector<Knob>& knobs, const std::string& path) {
    const auto at = std::find_if(knobs.begin(), knobs.end(), [&](const Knob& knob) { return knob.path == path; });
    return at == knobs.end() ? nullptr : &*at;
}

namespace {

bool applies(const Knob& knob, const Answer& answer) {
    using M = model::SpeculationMethod;
    const M method = answer.scenario.speculation.method;
    if (knob.path == "speculation.method") return true;
    if (knob.path == "speculation.head") return method == M::eagle3;
    if (knob.path == "speculation.top_k") return method != M::none && method != M::ngram;
    if (knob.path == "speculation.pad_misses") return method == M::ngram;
    if (knob.path.starts_with("speculation.") || knob.path == "engine.launch.verify") return method != M::none;
    if (knob.path == "engine.launch.draft") return method != M::none && method != M::ngram;
    const bool nccl = answer.scenario.collective.implementation == model::Implementation::nccl;
    if (knob.path == "collective.algorithm" || knob.path == "collective.protocol" || knob.path == "collective.channels" ||
        knob.path == "collective.graph_file") {
        return nccl;
    }
    if (knob.path == "layout.all_to_all") return answer.scenario.layout.expert > 1;
    return true;
}

std::string reference_name(const Json& value, const std::string& resolved) {
    return value.is_string() ? value.get<std::string>() : resolved + " (edited)";
}

KnobState constant_state(const Knob& knob, const Answer& answer, KnobState state) {
    const std::string name = knob.path.substr(std::string("constants.").size());
    for (const sim::HostConstantInfo& info : sim::host_constant_table()) {
        if (info.name != name) continue;
        state.value = answer.host.*info.field;
        if (state.initial.is_null()) state.initial = sim::HostConstants{}.*info.field;
        const auto set = answer.scenario.constants.find(name);
        const auto reason = answer.scenario.constant_reasons.find(name);
        if (state.edited)
            state.source = "set here";
        else if (set != answer.scenario.constants.end()) {
            state.source = reason == answer.scenario.constant_reasons.end() ? "the scenario" : "the scenario: " + reason->second;
        } else {
            state.source = answer.host.*info.field == sim::HostConstants{}.*info.field ? info.source : "the engine's calibration";
        }
    }
    return state;
}

}  // namespace

std::string reset_path(const Knob& knob) {
    if (knob.kind == KnobKind::pcie_generation || knob.kind == KnobKind::pcie_width) return "machine";
    if (knob.kind == KnobKind::acceptance_length) return "speculation.acceptance";
    return knob.path;
}

KnobState knob_state(const Knob& knob, const Answer& answer) {
    KnobState state;
    state.edited = answer.variant.find(reset_path(knob)) != nullptr;
    state.applies = applies(knob, answer);
    state.value = value_at(answer.document.document, knob.path);
    state.initial = value_at(answer.document.base, knob.path);
    const bool given = !state.initial.is_null() && state.initial != Json("");
    state.source = state.edited ? "set here" : given ? "scenario " + answer.variant.base : "default";
    if (knob.path == "architecture" || knob.path == "machine") {
        const std::string& resolved = knob.path == "machine" ? answer.scenario.machine.name : answer.scenario.architecture.name;
        state.value = reference_name(state.value, resolved);
        state.initial = reference_name(state.initial, resolved);
    } else if (knob.kind == KnobKind::pcie_generation) {
        state.value = pcie_of(answer.scenario.machine).generation;
        state.initial = nullptr;
        state.applies = pcie_of(answer.scenario.machine).generation > 0;
        if (!state.edited) state.source = "box " + answer.scenario.machine.name;
    } else if (knob.kind == KnobKind::pcie_width) {
        state.value = pcie_of(answer.scenario.machine).width;
        state.initial = nullptr;
        state.applies = pcie_of(answer.scenario.machine).generation > 0;
        if (!state.edited) state.source = "box " + answer.scenario.machine.name;
    } else if (knob.kind == KnobKind::acceptance_length) {
        state.value = answer.prediction.acceptance_length.value;
        state.initial = nullptr;
        const std::string& source = answer.scenario.speculation.acceptance.source;
        if (!state.edited && !source.empty()) state.source = source;
    } else if (knob.path == "speculation.head") {
        state.value = answer.document.document["speculation"]["head"];
        if (!state.value.is_string()) {
            state.value = answer.scenario.speculation.head ? answer.scenario.speculation.head->name : std::string();
        }
    } else if (knob.path == "speculation.steps") {
        state.value = answer.scenario.speculation.steps;
    } else if (knob.path.starts_with("constants.")) {
        return constant_state(knob, answer, std::move(state));
    }
    return state;
}

model::Expected<std::vector<Edit>> knob_edits(const Knob& knob, const Json& value, const Answer& answer) {
    if (knob.kind == KnobKind::pcie_generation || knob.kind == KnobKind::pcie_width) {
        PcieLinks links = pcie_of(answer.scenario.machine);
        (knob.kind == KnobKind::pcie_generation ? links.generation : links.width) =
            static_cast<int>(std::lround(value.get<double>()));
        auto machine = with_pcie(answer.scenario.machine, links);
        if (!machine) return tl::unexpected(machine.error());
        return std::vector<Edit>{machine_edit(*machine)};
    }
    if (knob.kind == KnobKind::acceptance_length) {
        const model::Acceptance& now = answer.scenario.speculation.acceptance;
        const double most = 1.0 + answer.scenario.speculation.steps;
        Json acceptance{{"acceptance_length", std::clamp(value.get<double>(), 1.0, most)}};
        if (now.relative_spread > 0) acceptance["relative_spread"] = now.relative_spread;
        acceptance["source"] = "set by hand";
        return std::vector<Edit>{{"speculation.acceptance", std::move(acceptance)}};
    }
    if (knob.whole() && value.is_number())
        return std::vector<Edit>{{knob.path, static_cast<std::int64_t>(std::llround(value.get<double>()))}};
    return std::vector<Edit>{{knob.path, value}};
}

Edit acceptance_edit(std::vector<double> rates, std::size_t changed, const Answer& answer) {
    for (double& rate : rates) rate = std::clamp(rate, 0.0, 1.0);
    for (std::size_t i = changed; i-- > 0;) rates[i] = std::max(rates[i], rates[i + 1]);
    for (std::size_t i = changed + 1; i < rates.size(); ++i) rates[i] = std::min(rates[i], rates[i - 1]);
    const model::Acceptance& now = answer.scenario.speculation.acceptance;
    Json acceptance{{"per_position", rates}};
    if (now.hit < 1) acceptance["hit"] = now.hit;
    if (now.observed_cycles > 0) acceptance["observed_cycles"] = now.observed_cycles;
    if (now.relative_spread > 0) acceptance["relative_spread"] = now.relative_spread;
    acceptance["source"] = "set by hand";
    return {"speculation.acceptance", std::move(acceptance)};
}

}  // namespace draftboard::gui
