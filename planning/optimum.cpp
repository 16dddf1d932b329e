// SPDX-License-Identifier: Apache-2.0
#include "planning/optimum.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include "calibration/backtest_scenario.h"
#include "model/acceptance_json.h"

namespace draftboard::planning {

using model::LaunchMode;
using model::Scenario;
using model::SpeculationMethod;

namespace {

constexpr std::size_t kShown = 10;
constexpr int kMostTreeTokens = 32;
constexpr int kMostChildren = 8;

/// One value of one dimension of the search.
struct Part {
    std::string label;
    model::Edits edits;
    int depth = 0;

    Part(std::string the_label, model::Edits the_edits, int the_depth = 0)
        : label(std::move(the_label)), edits(std::move(the_edits)), depth(the_depth) {}
};

class Search {
 public:
    Search(const Scenario& scenario, const FeasibilityTable& table, const OptimizeOptions& options, Optimum& out)
        : s_(scenario),
          table_(table),
          options_(options),
          out_(out),
          place_{scenario.machine.gpu.compute_capability, scenario.engine.name, options.engine_version} {}

    [[nodiscard]] std::vector<Part> drafters() {
        std::vector<Part> parts{Part("none", {"speculation.method=none"})};
        const SpeculationMethod own = s_.speculation.method;
        if (own != SpeculationMethod::none) add_depths(parts, std::string(model::to_name(own)) + " of the scenario", {});
        for (const SpeculationMethod method : {SpeculationMethod::eagle3, SpeculationMethod::mtp}) {
            if (method == SpeculationMethod::mtp && s_.architecture.mtp.empty()) continue;
            if (method == SpeculationMethod::eagle3 && !s_.speculation.head) continue;
            const auto published = calibration::published_acceptance(s_.architecture.name, method);
            if (!published || !allowed(method == SpeculationMethod::mtp ? "mtp" : "drafter_swap",
                                       fmt::format("published {} drafter", model::to_name(method))))
                continue;
            add_depths(parts, fmt::format("published {} drafter", model::to_name(method)),
                       {fmt::format("speculation.method={}", model::to_name(method)),
                        "speculation.acceptance=" + model::acceptance_to_json(*published).dump()});
        }
        return parts;
    }

    [[nodiscard]] std::vector<Part> layouts() {
        std::vector<Part> parts{Part("as it is: " + s_.layout.name(), {})};
        if (options_.keep_layout) return parts;
        const int gpus = static_cast<int>(s_.machine.gpus().size());
        for (int tensor = 1; tensor <= gpus; tensor *= 2) {
            for (int replicas = 1; tensor * replicas <= gpus && replicas <= s_.workload.concurrency; replicas *= 2) {
                if (tensor * replicas * 2 <= gpus && replicas * 2 <= s_.workload.concurrency) continue;  // idle GPUs, for nothing
                for (const int expert : {1, tensor}) {
                    if (expert == 1 || tensor > 1) add_contexts(parts, tensor, replicas, expert);
                    if (tensor == 1) break;
                }
            }
        }
        return parts;
    }

    [[nodiscard]] std::vector<Part> all_reduces() {
        std::vector<Part> parts{Part("as it is: " + std::string(model::to_name(s_.collective.implementation)), {})};
        if (s_.collective.implementation != model::Implementation::nccl)
            parts.emplace_back("NCCL", model::Edits{"collective.implementation=nccl"});
        for (const char* kernel : {"one_shot", "two_shot", "hierarchical", "host_staged"}) {
            if (model::is_cpu(s_.machine.gpu) || !allowed(kernel, std::string(kernel) + " all-reduce", false)) continue;
            for (const int kib : {0, 56, 120, 256}) {
                for (const bool pull : {true, false}) {
                    parts.emplace_back(fmt::format("{}{}{}", kernel, kib > 0 ? fmt::format(" up to {} KiB", kib) : "",
                                                   pull ? ", reading" : ", writing"),
                                       model::Edits{fmt::format("collective.implementation={}", kernel),
                                                    fmt::format("collective.custom_limit_bytes={}", kib * 1024),
                                                    fmt::format("collective.pull={}", pull)});
                }
            }
        }
        if (allowed("mscclpp", "MSCCL++ all-reduce")) {
            parts.emplace_back("MSCCL++ (as two-shot)",
                               model::Edits{"collective.implementation=two_shot", "collective.custom_limit_bytes=1048576",
                                            "collective.pull=false"});
        }
        return parts;
    }

    [[nodiscard]] std::vector<Part> launches() {
        std::vector<Part> parts{Part("as it is", {})};
        const model::EngineSettings& engine = s_.engine;
        const bool graphs = allowed("verify_graph", "verify pass in a CUDA graph");
        const bool overlap = !engine.overlap_scheduling && allowed("overlap_scheduling", "overlap scheduling");
        const bool eager = engine.verify_launch != LaunchMode::graph || engine.decode_launch != LaunchMode::graph ||
                           engine.draft_launch != LaunchMode::graph;
        const model::Edits all{"engine.launch.verify=graph", "engine.launch.decode=graph", "engine.launch.draft=graph"};
        if (graphs && eager) parts.emplace_back("graphs", all);
        if (overlap) parts.emplace_back("overlap", model::Edits{"engine.overlap_scheduling=true"});
        if (graphs && eager && overlap) {
            model::Edits both = all;
            both.push_back("engine.overlap_scheduling=true");
            parts.emplace_back("graphs, overlap", both);
        }
        return parts;
    }

 private:
    void add_depths(std::vector<Part>& parts, const std::string& name, const model::Edits& edits) const {
        for (int k = 1; k <= kDeepestDraft; ++k) {
            Part part(name, edits, k);
            part.edits.push_back(fmt::format("speculation.steps={}", k));
            part.edits.push_back("speculation.top_k=1");
            part.edits.push_back(fmt::format("speculation.draft_tokens={}", k + 1));
            parts.push_back(std::move(part));
        }
    }

    void add_contexts(std::vector<Part>& parts, int tensor, int replicas, int expert) {
        for (int context = 1; context <= tensor; context *= 2) {
            if (context > 1 && !allowed("decode_context_parallel", "DCP")) continue;
            for (const int data : {1, tensor}) {
                if (data > 1 &&
                    (context > 1 || s_.workload.concurrency < tensor || !allowed("attention_data_parallel", "DP attention")))
                    continue;
                model::Layout layout = s_.layout;
                layout.tensor = tensor;
                layout.replicas = replicas;
                layout.expert = expert;
                layout.decode_context = context;
                layout.attention_data = data;
                layout.pipeline = 1;
                layout.all_to_all = false;
                if (layout == s_.layout || !layout.validate(s_.architecture).empty()) continue;
                std::string label = layout.name();
                if (std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.label == label; })) continue;
                parts.emplace_back(
                    std::move(label),
                    model::Edits{fmt::format("layout.tensor={}", tensor), fmt::format("layout.replicas={}", replicas),
                                 fmt::format("layout.expert={}", expert), fmt::format("layout.decode_context={}", context),
                                 fmt::format("layout.attention_data={}", data), "layout.pipeline=1", "layout.all_to_all=false"});
                if (tensor == 1) break;
            }
        }
    }

    /// Not known to fail here. `setting`: unknown ones are quickly tried.
    bool allowed(const std::string& lever, const std::string& title, bool setting = true) {
        const Feasibility known = table_.of(lever, place_);
        std::string why;
        if (ruled_out(known.state)) why = fmt::format("{}: {} ({})", title, to_name(known.state), known.facts.front().source);
        if (known.state == FeasibilityState::unknown && (!setting || !options_.unproven))
            why = title + ": nobody is known to have run it here";
        if (why.empty()) return true;
        if (std::find(out_.left_out.begin(), out_.left_out.end(), why) == out_.left_out.end()) out_.left_out.push_back(why);
        return false;
    }

    const Scenario& s_;
    const FeasibilityTable& table_;
    const OptimizeOptions& options_;
    Optimum& out_;
    FeasibilityPlace place_;
};

/// What became of one combination.
struct Verdict {
    enum class Kind { refused, too_large, too_slow, ok } kind = Kind::refused;
    double rate = 0;
};

/// Calls work(thread, index) for each index, on several threads.
void in_parallel(int threads, std::size_t count, const std::function<void(std::size_t, std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
        pool.emplace_back([&, t] {
            for (std::size_t i; (i = next++) < count;) work(static_cast<std::size_t>(t), i);
        });
    }
    for (std::thread& thread : pool) thread.join();
}

model::Edits joined(std::initializer_list<const Part*> parts) {
    model::Edits edits;
    for (const Part* part : parts) edits.insert(edits.end(), part->edits.begin(), part->edits.end());
    return edits;
}

bool beats(double rate, std::size_t index, double other_rate, std::size_t other) {
    return rate != other_rate ? rate > other_rate : index < other;
}

/// The tree that pays most with everything else as in the best chain.
void shape_tree(Variants& variants, Optimum& out) {
    const Candidate& best = out.best.front();
    if (best.depth == 0 || best.scenario.speculation.method == SpeculationMethod::ngram) return;
    const model::Speculation& speculation = best.scenario.speculation;
    const std::vector<TreeShape> trees =
        best_trees(speculation.acceptance, kDeepestDraft, kMostChildren, kMostTreeTokens, speculation.sibling_decay);
    double most = 0;
    std::optional<Scenario> chosen;
    for (const TreeShape& tree : trees) {
        if (tree.widest < 2) continue;  // a chain: tried already
        model::Acceptance acceptance = speculation.acceptance;
        acceptance.tree_length = tree.length;
        acceptance.assumptions.emplace_back(kComputedTree);
        model::Edits edits = best.edits;
        edits.push_back(fmt::format("speculation.steps={}", tree.depth));
        edits.push_back(fmt::format("speculation.top_k={}", tree.widest));
        edits.push_back(fmt::format("speculation.draft_tokens={}", tree.tokens));
        edits.push_back("speculation.acceptance=" + model::acceptance_to_json(acceptance).dump());
        const auto scenario = variants.scenario(edits);
        if (!scenario) continue;
        const auto prediction = variants.predict(*scenario);
        ++out.predicted;
        if (!prediction || !prediction->memory.fits || prediction->tokens_per_second.value <= most) continue;
        most = prediction->tokens_per_second.value;
        out.tree = tree;
        out.tree_prediction = *prediction;
        chosen = *scenario;
    }
    if (chosen) out.tree_gain = contest(best.scenario, best.prediction, *chosen, *out.tree_prediction);
}

/// The best depth of the chosen drafter for each batch size.
void schedule(Variants& variants, const std::vector<Part>& drafters, const std::vector<int>& batches, Optimum& out) {
    const Candidate& best = out.best.front();
    // Where plain decoding is best at the scenario's batch, other batches may still speculate: with the first drafter there is.
    std::string drafter = best.drafter;
    if (best.depth == 0) {
        for (const Part& part : drafters) {
            if (part.depth > 0) {
                drafter = part.label;
                break;
            }
        }
    }
    for (const int batch : batches) {
        if (batch < best.scenario.layout.replicas) continue;
        ScheduleEntry entry;
        entry.batch = batch;
        std::optional<std::pair<Scenario, sim::Prediction>> plain;
        std::optional<std::pair<Scenario, sim::Prediction>> deepest;
        for (const Part& part : drafters) {
            if (part.depth > 0 && part.label != drafter) continue;
            model::Edits edits = best.edits;
            edits.insert(edits.end(), part.edits.begin(), part.edits.end());
            edits.push_back(fmt::format("workload.concurrency={}", batch));
            const auto scenario = variants.scenario(edits);
            if (!scenario) continue;
            const auto prediction = variants.predict(*scenario);
            if (!prediction) continue;
            ++out.predicted;
            entry.fits = entry.fits && (part.depth > 0 || prediction->memory.fits);
            if (part.depth == 0) {
                plain.emplace(*scenario, *prediction);
            } else if (prediction->memory.fits &&
                       (!deepest || prediction->tokens_per_second.value > deepest->second.tokens_per_second.value)) {
                deepest.emplace(*scenario, *prediction);
                entry.depth = part.depth;
            }
        }
        if (!plain) continue;
        entry.plain_rate = entry.rate = plain->second.tokens_per_second.value;
        if (deepest) {
            const Contest duel = contest(plain->first, plain->second, deepest->first, deepest->second);
            const bool pays = duel.gain.value > 1;
            entry.confidence = pays ? duel.confidence : 1 - duel.confidence;
            if (pays) {
                entry.rate = deepest->second.tokens_per_second.value;
            } else {
                entry.depth = 0;
            }
        }
        out.schedule.push_back(entry);
    }
}

}  // namespace

model::Expected<Optimum> optimize(const std::string& scenario, const model::Edits& edits, const OptimizeOptions& options,
                                  const std::string& data_directory) {
    auto base = load_base(scenario, data_directory, edits);
    if (!base) return tl::unexpected(base.error());
    Optimum out;
    out.max_ms_per_token = options.max_ms_per_token;
    auto whole = model::scenario_from_document(base->document, scenario, data_directory, base->directory);
    if (!whole) return tl::unexpected(whole.error());
    (void)pin_acceptance(*base, data_directory);
    const auto table = FeasibilityTable::load((std::filesystem::path(data_directory) / "feasibility.json").string());
    if (!table) return tl::unexpected(table.error());
    auto shared = std::make_shared<SharedConstants>(data_directory);
    const int threads =
        options.threads > 0 ? options.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    std::vector<std::unique_ptr<Variants>> variants;
    for (int t = 0; t < threads; ++t) variants.push_back(std::make_unique<Variants>(shared, *base));
    auto prediction = variants.front()->predict(*whole);
    if (!prediction) return tl::unexpected(prediction.error());
    out.scenario = std::move(*whole);
    out.base = std::move(*prediction);

    Search search(out.scenario, *table, options, out);
    const std::vector<Part> drafters = search.drafters();
    const std::vector<Part> layouts = search.layouts();
    const std::vector<Part> all_reduces = search.all_reduces();
    const std::vector<Part> launches = search.launches();
    const std::size_t count = drafters.size() * layouts.size() * all_reduces.size() * launches.size();
    const auto parts_of = [&](std::size_t i) {
        // Drafters change fastest: neighbours share passes.
        const Part* drafter = &drafters[i % drafters.size()];
        i /= drafters.size();
        const Part* launch = &launches[i % launches.size()];
        i /= launches.size();
        return std::array<const Part*, 4>{drafter, &layouts[i / all_reduces.size()], &all_reduces[i % all_reduces.size()],
                                          launch};
    };
    std::vector<Verdict> verdicts(count);
    in_parallel(threads, count, [&](std::size_t thread, std::size_t i) {
        const auto parts = parts_of(i);
        const auto result = variants[thread]->predict(joined({parts[0], parts[1], parts[2], parts[3]}));
        if (!result) return;
        verdicts[i].rate = result->tokens_per_second.value;
        const double ms = 1e3 / result->per_user_tokens_per_second.value;
        verdicts[i].kind = !result->memory.fits                                            ? Verdict::Kind::too_large
                           : options.max_ms_per_token > 0 && ms > options.max_ms_per_token ? Verdict::Kind::too_slow
                                                                                           : Verdict::Kind::ok;
    });
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < count; ++i) {
        switch (verdicts[i].kind) {
            case Verdict::Kind::refused: ++out.refused; break;
            case Verdict::Kind::too_large: ++out.too_large; break;
            case Verdict::Kind::too_slow: ++out.too_slow; break;
            case Verdict::Kind::ok: order.push_back(i); break;
        }
    }
    out.predicted = count - out.refused;
    const std::size_t shown = std::min(kShown, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                      [&](std::size_t a, std::size_t b) { return beats(verdicts[a].rate, a, verdicts[b].rate, b); });
    for (std::size_t rank = 0; rank < shown; ++rank) {
        const auto parts = parts_of(order[rank]);
        Candidate candidate{parts[0]->label,
                            parts[1]->label,
                            parts[2]->label,
                            parts[3]->label,
                            parts[0]->depth,
                            joined({parts[0], parts[1], parts[2], parts[3]}),
                            {},
                            {}};
        auto own = variants.front()->scenario(candidate.edits);
        if (!own) continue;
        candidate.scenario = std::move(*own);
        candidate.prediction = variants.front()->predict(candidate.scenario).value();
        out.best.push_back(std::move(candidate));
    }
    if (out.best.empty()) return out;
    const Candidate& best = out.best.front();
    for (const Candidate& other : out.best)
        out.against_best.push_back(contest(other.scenario, other.prediction, best.scenario, best.prediction));
    out.against_base = contest(out.scenario, out.base, best.scenario, best.prediction);
    shape_tree(*variants.front(), out);
    schedule(*variants.front(), drafters, options.batches, out);
    return out;
}

}  // namespace draftboard::planning
