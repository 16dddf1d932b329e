// SPDX-License-Identifier: Apache-2.0
#include "calibration/diagnosis_candidates.h"

#include <algorithm>
#include <string_view>

namespace draftboard::calibration {

using model::LaunchMode;
using model::Scenario;
using model::SpeculationMethod;

namespace {

/// From `low` in steps of 1.25, so that a true factor is never further than 12 % from a tried one.
std::vector<double> steps_from(double low, double high) {
    std::vector<double> factors;
    for (double factor = low; factor < high * 1.01; factor *= 1.25) factors.push_back(factor);
    return factors;
}

bool speculates(const Scenario& scenario) { return scenario.speculation.method != SpeculationMethod::none; }

bool drafts(const Scenario& scenario) { return speculates(scenario) && scenario.speculation.method != SpeculationMethod::ngram; }

bool several_gpus(const Scenario& scenario) { return scenario.layout.tensor > 1 && !model::is_cpu(scenario.machine.gpu); }

bool launches(Scenario& scenario, LaunchMode& field, LaunchMode mode) {
    if (model::is_cpu(scenario.machine.gpu) || field == mode) return false;
    field = mode;
    return true;
}

bool is_kind(const std::string& name, std::string_view kind) {
    const std::size_t dot = name.find('.');
    return (dot == std::string::npos ? std::string_view(name) : std::string_view(name).substr(dot + 1)) == kind;
}

/// Multiplies the terms of one kind in every pass; false where they take no time.
bool scale_kinds(Outcome& outcome, std::initializer_list<std::string_view> kinds, double factor, bool plain_too = true,
                 std::string_view pass = "") {
    bool any = false;
    const auto scale = [&](std::vector<sim::Term>& terms) {
        for (sim::Term& term : terms) {
            if (!term.name.starts_with(pass)) continue;
            if (!std::ranges::any_of(kinds, [&](std::string_view kind) { return is_kind(term.name, kind); })) continue;
            any = any || term.ms > 0;
            term.ms *= factor;
            term.sigma_ms *= factor;
        }
    };
    scale(outcome.terms);
    if (plain_too) scale(outcome.plain_terms);
    return any;
}

/// A kernel that is several times slower than the calibration says.
Candidate slower_kernel(std::string name, std::string meaning, double prior, std::string kind, std::string fix) {
    Candidate candidate;
    candidate.name = std::move(name);
    candidate.meaning = std::move(meaning);
    candidate.prior = prior;
    candidate.factors = steps_from(1.25, 6);
    candidate.edit = "terms *." + kind + " x {}";
    candidate.fix = std::move(fix);
    candidate.scale = [kind](Outcome& outcome, double factor) { return scale_kinds(outcome, {kind}, factor); };
    return candidate;
}

void add_launches(std::vector<Candidate>& table) {
    table.push_back({"verify_eager",
                     "the verify pass is launched kernel by kernel, not as a CUDA graph",
                     0.10,
                     {1},
                     "--set engine.launch.verify=eager",
                     "capture the verify pass: the engine's graph sizes have to include sequences x draft tokens",
                     "profile one cycle (nsys): one cudaGraphLaunch a verify pass, or a thousand cudaLaunchKernel",
                     [](Scenario& s, double) { return speculates(s) && launches(s, s.engine.verify_launch, LaunchMode::eager); },
                     {}});
    table.push_back(
        {"verify_piecewise",
         "the verify pass runs in graph pieces with attention between them",
         0.04,
         {1},
         "--set engine.launch.verify=piecewise",
         "ask the engine for full graphs of the verify pass",
         "profile one cycle (nsys): a cudaGraphLaunch a layer",
         [](Scenario& s, double) { return speculates(s) && launches(s, s.engine.verify_launch, LaunchMode::piecewise); },
         {}});
    table.push_back({"verify_graph",
                     "the verify pass runs as a CUDA graph although the scenario says otherwise",
                     0.04,
                     {1},
                     "--set engine.launch.verify=graph",
                     "correct the scenario",
                     "profile one cycle (nsys): one cudaGraphLaunch a verify pass",
                     [](Scenario& s, double) { return speculates(s) && launches(s, s.engine.verify_launch, LaunchMode::graph); },
                     {}});
    table.push_back({"decode_eager",
                     "plain steps are launched kernel by kernel",
                     0.04,
                     {1},
                     "--set engine.launch.decode=eager",
                     "turn CUDA graphs on for decoding",
                     "the server's start log says whether graphs were captured, and for which sizes",
                     [](Scenario& s, double) { return launches(s, s.engine.decode_launch, LaunchMode::eager); },
                     {}});
    table.push_back({"draft_eager",
                     "the drafter is launched kernel by kernel",
                     0.05,
                     {1},
                     "--set engine.launch.draft=eager",
                     "capture the drafter's steps",
                     "profile one cycle (nsys): launches before the verify pass",
                     [](Scenario& s, double) { return drafts(s) && launches(s, s.engine.draft_launch, LaunchMode::eager); },
                     {}});
    table.push_back({"host_slower",
                     "the host's work between passes takes longer",
                     0.06,
                     steps_from(1.25, 10),
                     "term host x {}",
                     "scheduler and detokenizer on a busy or slow core; overlap scheduling hides it",
                     "",
                     {},
                     [](Outcome& o, double factor) { return scale_kinds(o, {"host"}, factor); }});
    table.push_back({"launch_slower",
                     "launching a kernel costs the host more",
                     0.04,
                     steps_from(1.25, 4),
                     "terms *.launch x {}",
                     "CPU frequency governor, hypervisor, a profiler left on, pinning of the rank processes",
                     "",
                     {},
                     [](Outcome& o, double factor) { return scale_kinds(o, {"launch"}, factor); }});
}

void add_transport(std::vector<Candidate>& table) {
    table.push_back({"p2p_off",
                     "GPUs do not reach each other directly: bytes go through host memory",
                     0.06,
                     {1},
                     "--set collective.peer_to_peer=false",
                     "NCCL_P2P_LEVEL=SYS, the driver's peer access, ACS and IOMMU settings",
                     "NCCL_DEBUG=INFO: channels say \"via P2P\" or \"via SHM\"",
                     [](Scenario& s, double) {
                         if (!several_gpus(s) || !s.collective.peer_to_peer || !s.machine.peer.enabled) return false;
                         s.collective.peer_to_peer = false;
                         return true;
                     },
                     {}});
    table.push_back({"link_degraded",
                     "PCIe links run at part of their rate: half the lanes or a generation down",
                     0.04,
                     {2, 4},
                     "machine: capacities of pcie links / {}",
                     "reseat, riser, BIOS bifurcation; a link that idles down is no fault",
                     "under load: nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv",
                     [](Scenario& s, double factor) {
                         if (!several_gpus(s)) return false;
                         bool any = false;
                         for (model::MachineLink& link : s.machine.links) {
                             if (link.kind != model::LinkKind::pcie) continue;
                             any = true;
                             for (model::LinkCapacity* side : {&link.forward, &link.backward}) {
                                 side->write_gb_s /= factor;
                                 side->read_gb_s /= factor;
                             }
                             link.flow_gb_s /= factor;
                         }
                         return any;
                     },
                     {}});
    table.push_back({"nccl_simple",
                     "NCCL takes the Simple protocol",
                     0.03,
                     {1},
                     "--set collective.protocol=simple",
                     "NCCL_PROTO left unset, or a tuner file",
                     "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING: the protocol of each call",
                     [](Scenario& s, double) {
                         if (!several_gpus(s) || s.collective.implementation != model::Implementation::nccl) return false;
                         if (s.collective.protocol == model::Protocol::simple) return false;
                         s.collective.protocol = model::Protocol::simple;
                         return true;
                     },
                     {}});
    table.push_back({"nccl_instead",
                     "all-reduces fall back to NCCL from the custom kernel",
                     0.06,
                     {1},
                     "--set collective.implementation=nccl",
                     "the engine's log says why its custom all-reduce is off",
                     "profile one cycle (nsys): names of the all-reduce kernels",
                     [](Scenario& s, double) {
                         if (!several_gpus(s) || s.collective.implementation == model::Implementation::nccl) return false;
                         s.collective.implementation = model::Implementation::nccl;
                         return true;
                     },
                     {}});
    table.push_back({"collectives_slower",
                     "each all-reduce takes longer than modelled, in graphs and outside",
                     0.08,
                     steps_from(1.25, 10),
                     "terms *.collectives.latency and transport x {}",
                     "another algorithm or fewer channels, traffic of others on the links, NUMA placement",
                     "",
                     {},
                     [](Outcome& o, double factor) {
                         return scale_kinds(o, {"collectives.latency", "collectives.transport"}, factor);
                     }});
    table.push_back(
        {"verify_collectives_slower",
         "all-reduces of the verify pass take longer than modelled, those of plain steps do not",
         0.06,
         steps_from(1.25, 10),
         "terms verify.collectives.latency and transport x {}",
         "messages of several tokens take another algorithm or protocol, or pass the custom kernel's size limit",
         "",
         {},
         [](Outcome& o, double factor) {
             return o.speculates && scale_kinds(o, {"collectives.latency", "collectives.transport"}, factor, false, "verify.");
         }});
    table.push_back({"ranks_apart",
                     "ranks reach the collectives at different times",
                     0.05,
                     steps_from(1.5625, 30),
                     "terms *.collectives.wait x {}",
                     "one rank on a slow or shared core, uneven experts, one GPU throttled",
                     "",
                     {},
                     [](Outcome& o, double factor) { return scale_kinds(o, {"collectives.wait"}, factor); }});
}

void add_work(std::vector<Candidate>& table) {
    const auto length = [](Outcome& outcome, double factor) {
        if (!outcome.speculates || outcome.length <= 1) return false;
        outcome.length = 1 + (outcome.length - 1) * factor;
        return outcome.length <= outcome.max_length;
    };
    table.push_back({"acceptance_lower",
                     "fewer draft tokens are accepted than assumed",
                     0.10,
                     {0.85, 0.7, 0.55, 0.4, 0.25, 0.1},
                     "speculation.acceptance: (acceptance length - 1) x {}",
                     "another kind of text, sampling temperature, a drafter of another checkpoint or quantization",
                     "",
                     {},
                     length});
    table.push_back({"acceptance_higher",
                     "more draft tokens are accepted than assumed",
                     0.05,
                     {1.2, 1.4, 1.6, 1.8, 2, 2.3, 2.6, 3},
                     "speculation.acceptance: (acceptance length - 1) x {}",
                     "repetitive prompts; a better drafter",
                     "",
                     {},
                     length});
    table.push_back(slower_kernel("experts_slower", "the experts' kernel is slower than calibrated", 0.06, "experts",
                                  "another MoE backend was chosen, or its tuned configuration is missing"));
    table.push_back(slower_kernel("attention_slower", "the attention kernel is slower than calibrated", 0.05, "attention",
                                  "another attention backend, or a verify mask that keeps the fast one away"));
    table.push_back(slower_kernel("gemm_slower", "the dense products are slower than calibrated", 0.04, "dense",
                                  "another GEMM backend, or weights unpacked to a wider format"));
    table.push_back(slower_kernel("delta_net_slower", "the gated delta net kernel is slower than calibrated", 0.03, "delta_net",
                                  "a fallback kernel for this GPU"));
    table.push_back(
        {"more_distinct_experts",
         "verified tokens touch more experts than assumed",
         0.03,
         steps_from(1.25, 2.5),
         "term verify.experts x {}",
         "measure a routing trace: draftboard acceptance writes one",
         "",
         {},
         [](Outcome& o, double factor) { return o.speculates && scale_kinds(o, {"experts"}, factor, false, "verify."); }});
    table.push_back({"batch_larger",
                     "more sequences decode at once",
                     0.03,
                     {2, 4, 8},
                     "workload.concurrency x {}",
                     "requests of other clients; a benchmark's concurrency",
                     "the server's log: running requests",
                     [](Scenario& s, double factor) {
                         s.workload.concurrency *= static_cast<int>(factor);
                         return s.validate().empty();
                     },
                     {}});
    table.push_back({"context_longer",
                     "the context is longer",
                     0.03,
                     {4, 16, 64},
                     "workload.context_tokens x {}",
                     "prompts or a chat history longer than the scenario's",
                     "the server's log: tokens in use",
                     [](Scenario& s, double factor) {
                         s.workload.context_tokens *= static_cast<std::int64_t>(factor);
                         return s.validate().empty();
                     },
                     {}});
}

}  // namespace

std::vector<Candidate> candidate_table() {
    std::vector<Candidate> table;
    table.push_back({kAsPredicted,
                     "nothing is wrong: the difference is within the intervals",
                     0.30,
                     {1},
                     "",
                     "",
                     "",
                     {},
                     [](Outcome&, double) { return true; }});
    table.push_back({kNoneOfThese,
                     "several causes at once, or one that is not in this list: each quantity off by a factor of about e",
                     0.05,
                     {1},
                     "",
                     "",
                     "",
                     {},
                     [](Outcome& outcome, double) {
                         outcome.unknown_sigma = 1;
                         return true;
                     }});
    add_launches(table);
    add_transport(table);
    add_work(table);
    return table;
}

}  // namespace draftboard::calibration
