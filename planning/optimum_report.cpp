// SPDX-License-Identifier: Apache-2.0
// The optimum as a document, as JSON, and as flags of engines; optimum.h finds it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planning/optimum.h"
#include "sim/version.h"

namespace draftboard::planning {

namespace {

using model::Interval;
using model::Json;

/// Batch sizes that want one depth. The last band is open: its end is 0.
struct Band {
    int from = 1;
    int to = 0;
    int depth = 0;
};

std::vector<Band> bands_of(const std::vector<ScheduleEntry>& schedule) {
    std::vector<Band> bands;
    for (const ScheduleEntry& entry : schedule) {
        if (!bands.empty() && bands.back().depth == entry.depth) continue;
        if (!bands.empty()) bands.back().to = entry.batch - 1;
        bands.push_back({bands.empty() ? 1 : entry.batch, 0, entry.depth});
    }
    return bands;
}

std::string rate(const Interval& interval) {
    return fmt::format("{:.1f} ({:.1f} .. {:.1f})", interval.value, interval.low, interval.high);
}

std::string gain(const Contest& duel) {
    return fmt::format("{:+.1f} % ({:+.0f} .. {:+.0f}), {:.0f} %", 100 * (duel.gain.value - 1), 100 * (duel.gain.low - 1),
                       100 * (duel.gain.high - 1), 100 * duel.confidence);
}

const char* vllm_method(const Optimum& optimum) {
    for (const Candidate& one : optimum.best) {
        if (one.scenario.speculation.method == model::SpeculationMethod::mtp) return "mtp";
        if (one.scenario.speculation.method == model::SpeculationMethod::ngram) return "ngram";
        if (one.scenario.speculation.method == model::SpeculationMethod::draft_model) return "draft_model";
        if (one.scenario.speculation.method == model::SpeculationMethod::eagle3) return "eagle3";
    }
    switch (optimum.scenario.speculation.method) {
        case model::SpeculationMethod::eagle3: return "eagle3";
        case model::SpeculationMethod::ngram: return "ngram";
        case model::SpeculationMethod::draft_model: return "draft_model";
        default: return "mtp";
    }
}

std::string sglang_algorithm(const Optimum& optimum) {
    const std::string method = vllm_method(optimum);
    return method == "mtp" ? "NEXTN" : method == "ngram" ? "NGRAM" : method == "draft_model" ? "STANDALONE" : "EAGLE3";
}

std::string band_text(const Band& band) {
    return band.to == 0           ? fmt::format("{} users and more", band.from)
           : band.from == band.to ? fmt::format("{} user{}", band.from, band.from == 1 ? "" : "s")
                                  : fmt::format("{} to {} users", band.from, band.to);
}

Json interval_json(const Interval& interval) {
    return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

Json contest_json(const Contest& duel) { return {{"gain", interval_json(duel.gain)}, {"probability", duel.confidence}}; }

}  // namespace

std::string vllm_flags(const Optimum& optimum) {
    const std::vector<Band> bands = bands_of(optimum.schedule);
    int deepest = 0;
    Json schedule = Json::array();
    for (const Band& band : bands) {
        deepest = std::max(deepest, band.depth);
        schedule.push_back({band.from, band.to == 0 ? 1 << 20 : band.to, band.depth});
    }
    if (deepest == 0) return "(no --speculative-config: plain decoding is best at every batch size)";
    Json config{{"method", vllm_method(optimum)}, {"num_speculative_tokens", deepest}};
    if (bands.size() > 1) config["num_speculative_tokens_per_batch_size"] = schedule;
    return "--speculative-config '" + config.dump() + "'";
}

std::string sglang_flags(const Optimum& optimum) {
    std::string text;
    for (const Band& band : bands_of(optimum.schedule)) {
        text += fmt::format("# {}\n", band_text(band));
        text += band.depth == 0 ? std::string("(no speculative flags)\n")
                                : fmt::format(
                                      "--speculative-algorithm {} --speculative-num-steps {} --speculative-eagle-topk 1 "
                                      "--speculative-num-draft-tokens {}\n",
                                      sglang_algorithm(optimum), band.depth, band.depth + 1);
    }
    return text;
}

Document optimum_document(const Optimum& optimum) {
    Document document;
    const model::Scenario& s = optimum.scenario;
    document.title = "Best configuration: " + (s.name.empty() ? std::string("scenario") : s.name);
    auto& blocks = document.blocks;
    blocks.push_back(Paragraph{fmt::format(
        "{} on {}, {} user{}, {} tokens of context{}.", s.architecture.name, s.machine.name, s.workload.concurrency,
        s.workload.concurrency == 1 ? "" : "s", s.workload.context_tokens,
        optimum.max_ms_per_token > 0 ? fmt::format(", at most {:g} ms a token for each user", optimum.max_ms_per_token) : "")});
    blocks.push_back(Paragraph{
        fmt::format("Tried {} combinations: {} do not fit in memory, {} too slow for each user; {} more contradict themselves.",
                    optimum.predicted, optimum.too_large, optimum.too_slow, optimum.refused)});
    if (optimum.best.empty()) {
        blocks.push_back(Paragraph{"Nothing meets the constraints."});
        return document;
    }
    const Candidate& best = optimum.best.front();
    blocks.push_back(Paragraph{fmt::format("Best: {} tok/s, 90 %; against the scenario as it is ({:.1f}): {} sure.",
                                           rate(best.prediction.tokens_per_second), optimum.base.tokens_per_second.value,
                                           gain(*optimum.against_base))});
    Table table;
    table.head = {
        "", "drafter", "depth", "layout", "all-reduce", "launch", "tok/s, 90 %", "ms a token and user", "the best beats it by"};
    table.text_columns = 6;
    for (std::size_t i = 0; i < optimum.best.size(); ++i) {
        const Candidate& one = optimum.best[i];
        table.rows.push_back({std::to_string(i + 1), one.drafter, std::to_string(one.depth), one.layout, one.all_reduce,
                              one.launch, rate(one.prediction.tokens_per_second),
                              fmt::format("{:.1f}", 1e3 / one.prediction.per_user_tokens_per_second.value),
                              i == 0 ? "-" : gain(optimum.against_best[i])});
    }
    blocks.push_back(std::move(table));
    blocks.push_back(
        Paragraph{"The last figure is the probability that the best is really faster; errors that both share cancel "
                  "(docs/optimisation.md). Rows whose probability is "
                  "near 50 % are as good as the best."});
    blocks.push_back(
        Code{best.edits.empty() ? std::string("(as it is)") : fmt::format("--set {}", fmt::join(best.edits, "\n--set "))});

    blocks.push_back(Heading{2, "Draft tree"});
    if (optimum.tree) {
        const TreeShape& tree = *optimum.tree;
        blocks.push_back(
            Paragraph{fmt::format("Best tree: {} tokens, {} deep, at most {} children; nodes by depth: {}. Acceptance length "
                                  "{:.2f} where the best chain has "
                                  "{:.2f}; {:.1f} tok/s, against the chain {} sure.",
                                  tree.tokens, tree.depth, tree.widest, fmt::join(tree.by_depth, ", "), tree.length,
                                  best.prediction.acceptance_length.value, optimum.tree_prediction->tokens_per_second.value,
                                  gain(*optimum.tree_gain))});
        blocks.push_back(
            Code{fmt::format("--speculative-num-steps {} --speculative-eagle-topk {} --speculative-num-draft-tokens {}",
                             tree.depth, tree.widest, tree.tokens)});
    } else {
        blocks.push_back(
            Paragraph{best.depth == 0 ? "Plain decoding is best; no tree was shaped." : "No tree could be predicted."});
    }

    blocks.push_back(Heading{2, "Depth by batch size"});
    Table schedule;
    schedule.head = {"users", "depth", "tok/s", "plain tok/s", "sure", ""};
    schedule.text_columns = 0;
    for (const ScheduleEntry& entry : optimum.schedule) {
        schedule.rows.push_back({std::to_string(entry.batch), entry.depth == 0 ? "do not speculate" : std::to_string(entry.depth),
                                 fmt::format("{:.1f}", entry.rate), fmt::format("{:.1f}", entry.plain_rate),
                                 fmt::format("{:.0f} %", 100 * entry.confidence), entry.fits ? "" : "does not fit in memory"});
    }
    blocks.push_back(std::move(schedule));
    blocks.push_back(Paragraph{"vLLM:"});
    blocks.push_back(Code{vllm_flags(optimum)});
    blocks.push_back(Paragraph{"SGLang has one depth a server:"});
    blocks.push_back(Code{sglang_flags(optimum)});
    if (!optimum.left_out.empty()) {
        blocks.push_back(Heading{2, "Not tried"});
        blocks.push_back(Bullets{optimum.left_out});
    }
    return document;
}

Json optimum_json(const Optimum& optimum) {
    Json json{{"format", "draftboard.optimum"}, {"version", 1}, {"scenario", optimum.scenario.name}};
    json["tokens_per_second"] = interval_json(optimum.base.tokens_per_second);
    Json best = Json::array();
    for (std::size_t i = 0; i < optimum.best.size(); ++i) {
        const Candidate& one = optimum.best[i];
        Json entry{{"drafter", one.drafter},
                   {"depth", one.depth},
                   {"layout", one.layout},
                   {"all_reduce", one.all_reduce},
                   {"launch", one.launch},
                   {"tokens_per_second", interval_json(one.prediction.tokens_per_second)},
                   {"ms_per_token", 1e3 / one.prediction.per_user_tokens_per_second.value},
                   {"memory_bytes_per_gpu", one.prediction.memory.total_bytes},
                   {"set", one.edits}};
        if (i > 0) entry["best_against_this"] = contest_json(optimum.against_best[i]);
        best.push_back(std::move(entry));
    }
    json["best"] = std::move(best);
    if (optimum.against_base) json["best_against_scenario"] = contest_json(*optimum.against_base);
    if (optimum.tree) {
        json["tree"] = {{"tokens", optimum.tree->tokens},
                        {"depth", optimum.tree->depth},
                        {"widest", optimum.tree->widest},
                        {"by_depth", optimum.tree->by_depth},
                        {"parents", optimum.tree->parents},
                        {"acceptance_length", optimum.tree->length},
                        {"tokens_per_second", interval_json(optimum.tree_prediction->tokens_per_second)},
                        {"against_best_chain", contest_json(*optimum.tree_gain)}};
    }
    Json schedule = Json::array();
    for (const ScheduleEntry& entry : optimum.schedule) {
        schedule.push_back({{"batch", entry.batch},
                            {"depth", entry.depth},
                            {"tokens_per_second", entry.rate},
                            {"plain_tokens_per_second", entry.plain_rate},
                            {"probability", entry.confidence},
                            {"fits", entry.fits}});
    }
    json["schedule"] = std::move(schedule);
    json["vllm"] = vllm_flags(optimum);
    json["sglang"] = sglang_flags(optimum);
    json["counts"] = {{"predicted", optimum.predicted},
                      {"refused", optimum.refused},
                      {"too_large", optimum.too_large},
                      {"too_slow", optimum.too_slow}};
    json["not_tried"] = optimum.left_out;
    json["provenance"] = {
        {"draftboard", sim::kVersion}, {"revision", sim::kRevision}, {"scenario_digest", optimum.scenario.digest}};
    return json;
}

}  // namespace draftboard::planning
