// SPDX-License-Identifier: Apache-2.0
// The table of levers; lever.h says what a row is.

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "calibration/backtest_scenario.h"
#include "model/data_library.h"
#include "model/machine_json.h"
#include "planning/lever.h"

namespace draftboard::planning {

using model::Implementation;
using model::LaunchMode;
using model::Scenario;
using model::SpeculationMethod;

namespace {

constexpr std::int64_t kKiB = 1024;
constexpr int kDeepest = 7;  // drafters are trained and published for fewer

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

bool speculates(const Scenario& s) { return s.speculation.method != SpeculationMethod::none; }
bool drafts(const Scenario& s) { return speculates(s) && s.speculation.method != SpeculationMethod::ngram; }
bool several(const Scenario& s) { return s.layout.tensor > 1; }

Choice edits(std::string label, model::Edits list) {
    Choice choice;
    choice.label = std::move(label);
    choice.edits = std::move(list);
    return choice;
}

class Table {
 public:
    Table(const Scenario& scenario, const model::Json& document, const sim::CostConstants& constants, std::string data_directory)
        : s_(scenario), document_(document), constants_(constants), data_(std::move(data_directory)) {}

    std::vector<Lever> all() {
        launches();
        nccl();
        custom_all_reduce();
        collectives();
        host();
        speculation();
        layout();
        weights();
        box();
        known_dead_ends();
        return std::move(levers_);
    }

 private:
    Lever& add(std::string name, std::string title, std::string group, Effort effort, std::vector<Choice> choices) {
        Lever lever;
        lever.name = std::move(name);
        lever.title = std::move(title);
        lever.group = std::move(group);
        lever.effort = effort;
        lever.choices = std::move(choices);
        levers_.push_back(std::move(lever));
        return levers_.back();
    }

    void launches() {
        if (speculates(s_) && s_.engine.verify_launch != LaunchMode::graph) {
            Lever& l = add("verify_graph", "Verify pass in one full CUDA graph", "verify_graph", Effort::setting,
                           {edits("", {"engine.launch.verify=graph"})});
            l.risk = "memory of captured graphs; an attention backend that can't be captured falls back silently";
            l.sglang =
                "no --disable-cuda-graph; --cuda-graph-max-bs at least the number of users; an attention backend that captures "
                "verify";
            l.vllm = "--compilation-config '{\"cudagraph_mode\":\"FULL\"}'; capture sizes that hold users x draft tokens";
            l.measure =
                "whether verify is captured now: SGLang's decode log says cuda graph: True or False; nsys shows one "
                "cudaGraphLaunch a pass or a thousand launches";
        }
        if (drafts(s_) && s_.engine.draft_launch != LaunchMode::graph) {
            Lever& l = add("draft_graph", "Drafter in CUDA graphs", "draft_graph", Effort::setting,
                           {edits("", {"engine.launch.draft=graph"})});
            l.risk = "memory of captured graphs";
            l.sglang = "on by default where the draft attention backend can be captured";
            l.vllm = "on by default for one-token steps";
            l.measure = "nsys: launches between two verify passes";
        }
        if (s_.engine.decode_launch != LaunchMode::graph) {
            Lever& l = add("decode_graph", "Plain steps in CUDA graphs", "decode_graph", Effort::setting,
                           {edits("", {"engine.launch.decode=graph"})});
            l.risk = "memory of captured graphs";
            l.sglang = "leave --disable-cuda-graph out";
            l.vllm = "leave --enforce-eager out";
            l.measure = "the start log names the captured sizes";
        }
        if (!s_.engine.overlap_shared_experts) {
            Lever& l = add("shared_expert_stream", "Shared experts on a second stream", "streams", Effort::setting,
                           {edits("", {"engine.overlap_shared_experts=true"})});
            l.risk = "no gain where the pass is bound by memory or by launches";
            l.sglang = "on by default for small batches";
            l.vllm = "VLLM_DISABLE_SHARED_EXPERTS_STREAM=0";
            l.measure = "a trace of one layer: do the shared expert's kernels run beside the routed ones?";
        }
    }

    void nccl() {
        if (!several(s_) || s_.collective.implementation != Implementation::nccl) return;
        const auto environment = [&](std::string name, std::string title, std::vector<Choice> choices, std::string variables,
                                     std::string risk, std::string measure) {
            Lever& l = add(std::move(name), std::move(title), "", Effort::setting, std::move(choices));
            l.group = l.name;
            l.environment = std::move(variables);
            l.risk = std::move(risk);
            l.measure = std::move(measure);
        };
        const std::string tests = "all_reduce_perf at the pass's message sizes, captured and not: docs/collectives.md";
        if (s_.collective.algorithm != model::Algorithm::tree) {
            environment("nccl_tree", "NCCL tree", {edits("", {"collective.algorithm=tree"})}, "NCCL_ALGO=Tree",
                        "may fail in graph capture", tests);
        }
        if (!s_.collective.ll128 && s_.collective.protocol == model::Protocol::automatic) {
            environment("nccl_ll128", "NCCL protocol LL128",
                        {edits("offered", {"collective.ll128=true"}), edits("forced", {"collective.protocol=ll128"})},
                        "NCCL_PROTO=LL,LL128,Simple (offered) or NCCL_PROTO=LL128 (forced)",
                        "NCCL's documentation: may corrupt data where 128-byte stores are not kept whole",
                        "answers of a fixed prompt, bit by bit, beside " + tests);
        }
        std::vector<Choice> channels;
        for (const int count : {1, 2, 4, 8, 16, 32}) {
            if (count != s_.collective.channels)
                channels.push_back(edits(fmt::format("{} channels", count), {fmt::format("collective.channels={}", count)}));
        }
        environment("nccl_channels", "Number of NCCL channels", std::move(channels), "NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS",
                    "prefill wants many, decode few", tests);
        if (!s_.collective.graph_file) {
            environment("nccl_graph_file", "NCCL graph file (or a repaired search)", {edits("", {"collective.graph_file=true"})},
                        "NCCL_GRAPH_FILE=graph.xml, or NCCL with PR 2127", "a file of another box is worse than none",
                        "NCCL_DEBUG=INFO: the ring's speed that the search believes in");
        }
        if (s_.collective.peer_level != model::PathType::sys) {
            environment("p2p_level", "Peer access across sockets", {edits("", {"collective.peer_level=SYS"})},
                        "NCCL_P2P_LEVEL=SYS", "hangs with a translating IOMMU or ACS", "p2pBandwidthLatencyTest between sockets");
        }
        if (!s_.collective.peer_to_peer) {
            environment("p2p_on", "Peer access on", {edits("", {"collective.peer_to_peer=true"})}, "no NCCL_P2P_DISABLE",
                        "hangs with a translating IOMMU or ACS", "p2pBandwidthLatencyTest");
        }
    }

    /// The choices of a custom all-reduce: reading or writing, with NCCL above a size.
    std::vector<Choice> custom(const std::string& name, bool ways) const {
        std::vector<Choice> choices;
        for (const std::int64_t limit : {std::int64_t{0}, 56 * kKiB, 120 * kKiB, 256 * kKiB}) {
            for (const bool pull : {true, false}) {
                if (!ways && !pull) continue;
                const std::string label =
                    (limit == 0 ? std::string("all sizes") : fmt::format("up to {} KiB, NCCL above", limit / kKiB)) +
                    (ways ? (pull ? ", reading" : ", writing") : "");
                choices.push_back(
                    edits(label, {"collective.implementation=" + name, fmt::format("collective.custom_limit_bytes={}", limit),
                                  fmt::format("collective.pull={}", pull)}));
            }
        }
        return choices;
    }

    void custom_all_reduce() {
        if (!several(s_) || model::is_cpu(s_.machine.gpu)) return;
        const auto kernel = [&](std::string name, std::string title, std::vector<Choice> choices, std::string sglang,
                                std::string vllm) -> Lever& {
            Lever& l = add(std::move(name), std::move(title), "all_reduce", Effort::engine, std::move(choices));
            l.sglang = std::move(sglang);
            l.vllm = std::move(vllm);
            l.environment = "driver: NVreg_RegistryDwords ForceP2P keys, IOMMU off or passthrough, ACS off";
            l.risk =
                "a missing end barrier corrupts hidden states unseen but for the acceptance; writes out of several switches can "
                "collapse";
            l.measure =
                "the kernel alone against NCCL at the pass's message sizes (draftboard collective names them), with all ranks; "
                "then acceptance";
            return l;
        };
        if (s_.collective.implementation != Implementation::one_shot) {
            kernel("one_shot", "One-shot all-reduce over peer access", custom("one_shot", true),
                   "a patched image (b12x or PCIe one-shot); upstream turns it off over PCIe",
                   "VLLM_ENABLE_PCIE_ALLREDUCE=1 in the published images");
        }
        if (s_.collective.implementation != Implementation::two_shot) {
            kernel("two_shot", "Two-shot all-reduce over peer access", custom("two_shot", true), "as one-shot",
                   "the same kernel above its one-shot limit");
        }
        if (s_.collective.implementation != Implementation::hierarchical) {
            kernel("hierarchical", "All-reduce by islands, one a socket", custom("hierarchical", true), "", "").effort =
                Effort::engine;
        }
        if (s_.collective.implementation != Implementation::host_staged) {
            Lever& l = kernel("host_staged", "All-reduce staged in host memory", custom("host_staged", false), "", "");
            l.environment = "no peer access needed";
        }
        if (s_.layout.tensor == 8 || s_.layout.tensor == 16) {
            Lever& l = kernel("mscclpp", "MSCCL++ all-reduce",
                              {edits("", {"collective.implementation=two_shot", "collective.custom_limit_bytes=1048576",
                                          "collective.pull=false"})},
                              "--enable-mscclpp", "");
            l.effort = Effort::setting;
            l.assumption =
                "priced as a two-shot kernel that writes, up to its 1 MB, NCCL above; it picks among several kernels when it "
                "starts";
        }
        Lever& l =
            kernel("symmetric_memory", "torch symmetric memory",
                   {edits("", {"collective.implementation=two_shot", "collective.custom_limit_bytes=0", "collective.pull=true"})},
                   "--enable-torch-symm-mem", "VLLM_ALLREDUCE_USE_SYMM_MEM=1");
        l.effort = Effort::setting;
        l.assumption = "priced as its two-shot kernel without multicast";
        if (!s_.machine.peer.force_p2p) {
            Lever& driver = add("force_p2p", "ForceP2P driver keys", "force_p2p", Effort::setting,
                                {edits("", {"machine.peer.force_p2p=true"})});
            driver.environment = "kernel module option NVreg_RegistryDwords with the ForceP2P keys";
            driver.risk = "outside of what the driver's vendor supports on this board";
            driver.measure = "a kernel's own peer loads (one-shot at 114 KB), not copies";
        }
    }

    void collectives() {
        if (!several(s_)) return;
        if (!s_.engine.fused_all_reduce_norm) {
            Lever& l = add("fused_all_reduce_norm", "All-reduce fused with residual add and norm", "fusion", Effort::engine,
                           {edits("", {"engine.fused_all_reduce_norm=true"})});
            l.sglang = "--enable-flashinfer-allreduce-fusion";
            l.vllm = "--compilation-config '{\"pass_config\":{\"fuse_allreduce_rms\":true}}'";
            l.risk = "a one-stage fused kernel loses to NCCL at many users";
            l.measure = "the fused kernel against all-reduce + norm at the pass's sizes, captured";
        }
        Choice half;
        half.scale = [](sim::Prediction& p) { scale_kind(p, "collectives.transport", 0.5); };
        Lever& q = add("quantized_all_reduce", "All-reduce payload in 8 bits", "payload", Effort::engine, {half});
        q.risk = "rounding in every layer: check answers and acceptance";
        q.measure = "share of transport in the all-reduces: latency and wait stay";
        q.assumption = "half of the transport, quantising itself free";
        if (!s_.layout.parallel_blocks) {
            Lever& l = add("parallel_blocks", "One all-reduce a layer (attention and MLP side by side)", "blocks",
                           Effort::training, {edits("", {"layout.parallel_blocks=true"})});
            l.risk = "another function of the input";
            l.measure = "nothing: no such checkpoint of this family exists";
        }
    }

    void host() {
        if (s_.engine.overlap_scheduling || (!speculates(s_) && s_.architecture.mtp.empty())) return;
        Lever& l = add("overlap_scheduling", "Host work beside GPU work (spec v2)", "overlap", Effort::setting,
                       {edits("", {"engine.overlap_scheduling=true"})});
        l.sglang = "SGLANG_ENABLE_SPEC_V2=1 (top-k 1)";
        l.vllm = "--async-scheduling";
        l.risk = "chains only; n-gram turns it off";
        l.measure = "gaps between cycles in a trace: the host's share of the cycle";
    }

    void speculation() {
        if (speculates(s_)) {
            Lever& l =
                add("no_speculation", "No speculation", "drafter", Effort::setting, {edits("", {"speculation.method=none"})});
            l.sglang = l.vllm = "leave the speculative flags out";
            l.risk = "none";
            l.measure = "plain decoding on the same box";
        }
        if (drafts(s_)) depth();
        drafter_swap();
        if (!s_.architecture.mtp.empty() && s_.speculation.method != SpeculationMethod::mtp) mtp();
        if (s_.speculation.method != SpeculationMethod::ngram) {
            Lever& l = add("ngram", "n-gram lookup, alone or where the drafter is unsure", "drafter", Effort::setting, {});
            l.sglang = "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4";
            l.vllm = "--speculative-config '{\"method\":\"ngram\",\"num_speculative_tokens\":3,\"prompt_lookup_max\":5}'";
            l.risk = "verifies 12 tokens by default; a hit is worth little on free text";
            l.measure = "draftboard acceptance --speculation ngram on your own texts: hit rate and length";
            l.unpredicted = "pays by how much of the text repeats, which the scenario does not say";
        }
    }

    void depth() {
        std::vector<Choice> depths;
        for (int k = 1; k <= kDeepest; ++k) {
            if (k == s_.speculation.steps && s_.speculation.top_k == 1) continue;
            depths.push_back(edits(fmt::format("{} draft token{}", k, k == 1 ? "" : "s"),
                                   {fmt::format("speculation.steps={}", k), "speculation.top_k=1",
                                    fmt::format("speculation.draft_tokens={}", k + 1)}));
        }
        Lever& l = add("draft_depth", "Draft depth", "depth", Effort::setting, std::move(depths));
        l.sglang = "--speculative-num-steps K --speculative-eagle-topk 1 --speculative-num-draft-tokens K+1";
        l.vllm = "\"num_speculative_tokens\": K in --speculative-config";
        l.risk = "acceptance beyond the measured depth is extrapolated";
        l.measure = "acceptance by position at the larger depth";
        std::vector<Choice> trees;
        for (const int top_k : {2, 4}) {
            for (const int tokens : {6, 8, 12, 16}) {
                trees.push_back(
                    edits(fmt::format("top-k {}, {} tokens", top_k, tokens),
                          {fmt::format("speculation.steps={}", std::max(3, s_.speculation.steps)),
                           fmt::format("speculation.top_k={}", top_k), fmt::format("speculation.draft_tokens={}", tokens)}));
            }
        }
        Lever& t = add("draft_tree", "Draft tree", "depth", Effort::setting, std::move(trees));
        t.sglang = "--speculative-eagle-topk N --speculative-num-draft-tokens M";
        t.risk = "turns overlap scheduling (spec v2) off; siblings' acceptance is modelled, not measured";
        t.measure = "acceptance length of the tree (tree_length in the scenario)";
        t.assumption = "siblings as model/acceptance.h has them";
    }

    /// Published drafters of the family whose acceptance is higher than the scenario's.
    void drafter_swap() {
        const auto published = calibration::published_acceptance(s_.architecture.name, s_.speculation.method);
        if (!published || !drafts(s_)) return;
        model::Acceptance theirs = *published;
        const int k = s_.speculation.depth();
        if (model::chain_acceptance_length(theirs, k) <= model::chain_acceptance_length(s_.speculation.acceptance, k) * 1.02)
            return;
        model::Json acceptance{{"per_position", theirs.per_position},
                               {"relative_spread", calibration::kAcceptanceSpread},
                               {"source", theirs.source}};
        Lever& l = add("drafter_swap",
                       fmt::format("A drafter with the best published acceptance ({:.2f} tokens at this depth)",
                                   model::chain_acceptance_length(theirs, k)),
                       "drafter", Effort::drafter, {edits("", {"speculation.acceptance=" + acceptance.dump()})});
        l.sglang = "--speculative-draft-model-path PATH";
        l.vllm = "\"model\": PATH in --speculative-config";
        l.risk = "acceptance depends on the texts; train or choose for yours";
        l.measure = "acceptance by position of both drafters on your texts, at temperature 0 and as served";
        l.assumption = "acceptance: " + theirs.source;
    }

    void mtp() {
        const auto published = calibration::published_acceptance(s_.architecture.name, SpeculationMethod::mtp);
        if (!published) return;
        model::Json acceptance{{"per_position", published->per_position},
                               {"relative_spread", calibration::kAcceptanceSpread},
                               {"source", published->source}};
        std::vector<Choice> choices;
        for (int k = 1; k <= 5; ++k) {
            choices.push_back(
                edits(fmt::format("{} draft token{}", k, k == 1 ? "" : "s"),
                      {"speculation.method=mtp", fmt::format("speculation.steps={}", k), "speculation.top_k=1",
                       fmt::format("speculation.draft_tokens={}", k + 1), "speculation.acceptance=" + acceptance.dump()}));
        }
        Lever& l = add("mtp", "MTP (NEXTN) with the checkpoint's own module", "drafter", Effort::setting, std::move(choices));
        l.sglang =
            "--speculative-algorithm NEXTN --speculative-num-steps K --speculative-eagle-topk 1 --speculative-num-draft-tokens "
            "K+1";
        l.vllm = "--speculative-config '{\"method\":\"mtp\",\"num_speculative_tokens\":K}'";
        l.risk = "some versions load the target twice without spec v2";
        l.measure = "acceptance by position on your texts";
        l.assumption = "acceptance: " + published->source;
    }

    void layout() {
        const int ranks = s_.layout.tensor;
        if (ranks > 1 && s_.layout.expert == 1) {
            Lever& l = add("expert_parallel", "Experts whole on ranks (EP) instead of cut (TP)", "experts", Effort::setting,
                           {edits(fmt::format("EP{}", ranks), {fmt::format("layout.expert={}", ranks)})});
            l.sglang = fmt::format("--ep-size {}", ranks);
            l.vllm = "--enable-expert-parallel";
            l.risk = "the busiest rank sets the time";
            l.measure = "a routing trace (draftboard acceptance writes one): distinct experts on the busiest rank";
        }
        std::vector<Choice> contexts;
        for (int dcp = 2; dcp <= ranks; dcp *= 2) {
            if (dcp != s_.layout.decode_context)
                contexts.push_back(edits(fmt::format("DCP{}", dcp), {fmt::format("layout.decode_context={}", dcp)}));
        }
        if (!contexts.empty()) {
            Lever& l = add("decode_context_parallel", "KV cache split along the context (DCP)", "dcp", Effort::setting,
                           std::move(contexts));
            l.vllm = "--decode-context-parallel-size N";
            l.risk = "more collectives a layer: pays for long contexts or many users only";
            l.measure = "tok/s at your context, not at 1k";
        }
        if (ranks >= 4 && ranks % 2 == 0 && s_.layout.replicas == 1 && s_.workload.concurrency >= 2) {
            Lever& l = add("two_replicas", fmt::format("Two replicas of TP{}", ranks / 2), "replicas", Effort::setting,
                           {edits("", {fmt::format("layout.tensor={}", ranks / 2), "layout.replicas=2"})});
            l.sglang = fmt::format("two servers with --tp {}, --base-gpu-id 0 and {}, behind the router", ranks / 2, ranks / 2);
            l.vllm = fmt::format("--tensor-parallel-size {} --data-parallel-size 2", ranks / 2);
            l.risk = "each GPU holds twice the weights";
            l.measure = "memory left for the cache";
        }
        if (ranks > 1 && s_.layout.attention_data == 1 && s_.workload.concurrency >= ranks) {
            Lever& l = add("attention_data_parallel", "Attention by users instead of by heads (DP attention)", "attention_data",
                           Effort::setting, {edits("", {fmt::format("layout.attention_data={}", ranks)})});
            l.sglang = fmt::format("--enable-dp-attention --dp-size {}", ranks);
            l.vllm = fmt::format("--data-parallel-size {} --enable-expert-parallel", ranks);
            l.risk = "attention's weights whole on each GPU";
            l.measure = "tok/s at your number of users";
        }
    }

    void weights() {
        other_formats();
        expert_kernels();
        if (s_.kv_format() == model::NumberFormat::bf16 && !model::is_cpu(s_.machine.gpu)) {
            Lever& l = add("kv_fp8", "KV cache in fp8", "kv", Effort::weights, {edits("", {"memory.kv_format=fp8_e4m3"})});
            l.sglang = "--kv-cache-dtype fp8_e4m3";
            l.vllm = "--kv-cache-dtype fp8";
            l.risk = "quality at long contexts; needs an attention kernel that reads it";
            l.measure = "quality on long prompts; attention's share of the cycle";
        }
    }

    void other_formats() {
        if (!document_.contains("architecture") || !document_["architecture"].is_string()) return;
        const std::string own = document_["architecture"].get<std::string>();
        std::string stem = own;
        for (const char* suffix : {"-nvfp4", "-awq", "-fp8"}) {
            if (stem.ends_with(suffix)) stem.resize(stem.size() - std::string_view(suffix).size());
        }
        std::vector<Choice> choices;
        for (const std::string& name : model::shipped_names("architectures", data_)) {
            const bool same_model = name == stem || name == stem + "-nvfp4" || name == stem + "-awq" || name == stem + "-fp8";
            if (same_model && name != own) choices.push_back(edits(name, {"architecture=" + name}));
        }
        if (choices.empty()) return;
        Lever& l = add("weight_format", "Another quantization of the same model", "weights", Effort::weights, std::move(choices));
        l.sglang = l.vllm = "another checkpoint: --model-path / --model";
        l.risk = "quality, and kernels that this GPU lacks";
        l.measure = "quality on your tasks";
    }

    /// Other kernels of the experts' format that the calibration has measured.
    void expert_kernels() {
        std::string format;
        for (const model::Layer& layer : s_.architecture.layers) {
            if (model::moe_of(layer) != nullptr) format = layer.formats.routed_experts.name();
        }
        if (format.empty()) return;
        const auto bare = [](const std::string& name) { return name.substr(0, name.find('@')); };
        const auto chosen = s_.engine.implementations.find("experts/" + format);
        const std::string now = chosen == s_.engine.implementations.end() ? std::string() : bare(chosen->second);
        std::vector<Choice> choices;
        for (const auto& [key, constants] : constants_.kernels.entries) {
            const auto parts = sim::parse_kernel_key(key);
            if (!parts || parts->subkind != "experts" || parts->format != format || !parts->role.empty()) continue;
            const std::string& name = parts->implementation;
            const auto at = name.find('@');
            if (at != std::string::npos && !s_.engine.name.empty() && name.substr(at + 1) != lower(s_.engine.name)) continue;
            if (name == "any" || bare(name) == now || now.empty()) continue;
            Choice choice = edits(name, {fmt::format("engine.implementations.experts/{}={}", format, name)});
            choice.feasibility = "moe_kernel_" + bare(name);
            choices.push_back(std::move(choice));
        }
        if (choices.empty()) return;
        Lever& l = add("moe_kernel", "Another kernel for the experts", "moe_kernel", Effort::setting, std::move(choices));
        l.sglang = "--moe-runner-backend NAME";
        l.vllm = "VLLM_USE_FLASHINFER_MOE_FP4 and the like; a patched image for b12x";
        l.risk = "kernels of one or two tokens and of many are not the same race";
        l.measure = "the expert kernel alone at 1, 4 and users x draft tokens rows, weights cold";
    }

    void box() {
        if (model::is_cpu(s_.machine.gpu)) return;
        std::vector<Choice> boxes;
        for (const std::string& name : model::shipped_names("machines", data_)) {
            const auto machine = model::find_machine(name, data_);
            if (!machine || machine->gpu.name != s_.machine.gpu.name || machine->name == s_.machine.name) continue;
            if (machine->gpus().size() < static_cast<std::size_t>(s_.layout.gpus())) continue;
            boxes.push_back(edits(name, {"machine=" + name}));
        }
        if (!boxes.empty()) {
            Lever& l = add("other_box", "The same GPUs in another box (sockets, switches)", "machine", Effort::hardware,
                           std::move(boxes));
            l.risk = "money; a switch's uplink is shared";
            l.measure = "nvbandwidth and all_reduce_perf on the other box";
        }
        Choice faster;
        faster.label = "twice the speed of every PCIe link";
        faster.change = [](Scenario& scenario) {
            for (model::MachineLink& link : scenario.machine.links) {
                if (link.kind != model::LinkKind::pcie) continue;
                ++link.generation;
                link.flow_gb_s *= 2;
                for (model::LinkCapacity* capacity : {&link.forward, &link.backward}) {
                    capacity->write_gb_s *= 2;
                    capacity->read_gb_s *= 2;
                }
            }
        };
        Lever& l = add("link_generation", "PCIe of the next generation", "links", Effort::hardware, {faster});
        l.risk = "needs other GPUs and another board";
        l.measure = "transport's share of the all-reduces: latency stays";
    }

    /// What this GPU is known not to run; nothing to predict, so that nobody tries twice.
    void known_dead_ends() {
        if (model::is_cpu(s_.machine.gpu)) return;
        const auto dead = [&](const char* name, const char* title, const char* sglang, const char* vllm) {
            Lever& l = add(name, title, name, Effort::setting, {});
            l.sglang = sglang;
            l.vllm = vllm;
            l.unpredicted = "listed for its feasibility alone";
            l.risk = "see the evidence";
            l.measure = "that the server answers a fixed prompt as before";
        };
        bool fp4 = false;
        bool mla = false;
        for (const model::Layer& layer : s_.architecture.layers) {
            fp4 = fp4 || layer.formats.routed_experts.format == model::NumberFormat::nvfp4;
            mla = mla || std::holds_alternative<model::MlaShape>(layer.mixer);
        }
        if (fp4) {
            dead("fp4_trtllm_gen", "FlashInfer TRT-LLM kernels for FP4", "--moe-runner-backend flashinfer_trtllm",
                 "VLLM_FLASHINFER_MOE_BACKEND=latency");
            dead("fp4_cutedsl", "FlashInfer CuteDSL kernels for FP4", "--moe-runner-backend flashinfer_cutedsl", "");
            dead("fp4_gemm_cutlass", "FlashInfer CUTLASS for dense FP4", "--fp4-gemm-backend flashinfer_cutlass", "");
            dead("fp4_gemm_cudnn", "cuDNN for dense FP4", "--fp4-gemm-backend flashinfer_cudnn", "");
        }
        if (mla) dead("trtllm_mla", "TRT-LLM MLA attention", "--attention-backend trtllm_mla", "");
        dead("flash_attention_3", "FlashAttention 3 or 4", "--attention-backend fa3", "VLLM_FLASH_ATTN_VERSION=3");
        dead("deep_gemm", "DeepGEMM", "--moe-runner-backend deep_gemm", "VLLM_USE_DEEP_GEMM=1");
        dead("nvls", "NVLink SHARP (NVLS)", "--enable-nccl-nvls", "");
    }

    const Scenario& s_;
    const model::Json& document_;
    const sim::CostConstants& constants_;
    std::string data_;
    std::vector<Lever> levers_;
};

}  // namespace

std::string_view to_name(Effort effort) {
    switch (effort) {
        case Effort::setting: return "a setting";
        case Effort::drafter: return "another drafter";
        case Effort::engine: return "a patched engine";
        case Effort::weights: return "other weights or formats";
        case Effort::hardware: return "work on the box";
        case Effort::training: return "training";
    }
    return "?";
}

std::vector<Lever> lever_table(const Scenario& scenario, const model::Json& document, const sim::CostConstants& constants,
                               const std::string& data_directory) {
    return Table(scenario, document, constants, data_directory).all();
}

void scale_kind(sim::Prediction& p, std::string_view kind, double factor) {
    const auto scale = [&](std::vector<sim::Term>& terms) {
        double saved = 0;
        for (sim::Term& term : terms) {
            if (!std::string_view(term.name).ends_with(kind)) continue;
            saved += term.ms * (1 - factor);
            term.ms *= factor;
            term.sigma_ms *= factor;
        }
        sim::set_shares(terms);
        return saved;
    };
    const double before = p.cycle_ms;
    const double plain_before = p.plain_step_ms;
    p.cycle_ms -= scale(p.terms);
    p.plain_step_ms -= scale(p.plain_terms);
    const auto faster = [](model::Interval& rate, double by) { rate = {rate.value * by, rate.low * by, rate.high * by}; };
    const double gain = before / p.cycle_ms;
    const double plain_gain = plain_before / p.plain_step_ms;
    faster(p.tokens_per_second, gain);
    faster(p.per_user_tokens_per_second, gain);
    faster(p.plain_tokens_per_second, plain_gain);
    faster(p.speedup, gain / plain_gain);
    p.break_even_acceptance_length = p.cycle_ms / p.plain_step_ms;
}

}  // namespace draftboard::planning
