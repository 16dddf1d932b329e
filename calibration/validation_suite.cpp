// SPDX-License-Identifier: Apache-2.0
#include "calibration/validation_suite.h"

#include <fmt/format.h>

#include "model/data_library.h"

namespace draftboard::calibration {

using model::Expected;
using model::JsonReader;
using model::SpeculationMethod;

namespace {

constexpr std::size_t kMaxGroups = 1000;
constexpr std::size_t kMaxDrafters = 1000;

void read_drafter(const JsonReader& reader, SuiteConfiguration one, std::vector<SuiteConfiguration>& out) {
    if (!reader.expect_object()) return;
    const std::string method = reader.string("method");
    if (method == "scripted") {
        one.method = SpeculationMethod::ngram;  // it costs what a lookup that always hits does
        one.scripted_rates = reader.numbers_or("rates", {}, 0, 1);
        one.steps = static_cast<int>(one.scripted_rates.size());
        one.held_out = reader.boolean_or("held_out", false);
        if (one.scripted_rates.empty() || one.steps > 64) reader.problem("rates", "must be 1 to 64 conditional rates");
        out.push_back(std::move(one));
        return;
    }
    const auto known = model::speculation_method_from_name(method);
    if (!known || *known == SpeculationMethod::draft_model) {
        reader.problem("method", "must be none, eagle3, mtp, ngram or scripted");
        return;
    }
    one.method = *known;
    one.held_out = reader.boolean_or("held_out", false);
    if (one.method != SpeculationMethod::none) {
        one.steps = static_cast<int>(reader.integer("steps", 1, 64));
        one.top_k = static_cast<int>(reader.integer_or("top_k", 1, 1, 64));
        one.draft_tokens = static_cast<int>(reader.integer_or("draft_tokens", 0, 0, 1024));
        if (one.top_k > 1 && one.draft_tokens < 2) reader.problem("draft_tokens", "a tree says how many tokens it verifies");
        if (one.top_k > 1 && one.method == SpeculationMethod::ngram) reader.problem("top_k", "an n-gram lookup is a chain");
    }
    out.push_back(std::move(one));
}

}  // namespace

int SuiteConfiguration::verify_tokens() const {
    if (method == SpeculationMethod::none) return 1;
    return top_k > 1 && draft_tokens > 0 ? draft_tokens : steps + 1;
}

std::string SuiteConfiguration::drafter() const {
    if (method == SpeculationMethod::none) return "none";
    std::string text = fmt::format("{} x{}", scripted() ? "scripted" : to_name(method), steps);
    if (top_k > 1) text += fmt::format(" top {} of {}", top_k, draft_tokens);
    return text;
}

std::string SuiteConfiguration::model_label() const {
    const auto bar = model.find_last_of('/');
    std::string label = bar == std::string::npos ? model : model.substr(bar + 1);
    if (layers > 0) label += fmt::format(" L{}", layers);
    if (tensor_rank_of > 1) label += fmt::format(" 1of{}", tensor_rank_of);
    return label;
}

std::string SuiteConfiguration::group_name() const {
    return fmt::format("{} r{} b{} c{}{}", model_label(), ranks, batch, context, launch == "eager" ? " eager" : "");
}

std::string SuiteConfiguration::name() const { return group_name() + " " + drafter(); }

Expected<Suite> parse_suite(std::string_view text, const std::string& name) {
    const auto json = model::parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const JsonReader reader(*json, problems);
    Suite suite;
    if (reader.expect_object()) {
        reader.expect_format("draftboard.suite", 1);
        suite.name = reader.string("name");
        suite.description = reader.string_or("description", "");
        suite.device = reader.string_or("device", "cpu");
        if (suite.device != "cpu" && suite.device != "cuda") reader.problem("device", "must be cpu or cuda");
        suite.machine = reader.string_or("machine", "");
        if (suite.device == "cuda" && suite.machine.empty()) reader.problem("machine", "a GPU suite names the machine that it is for");
        suite.peer_access = reader.boolean_or("peer_access", true);
        suite.prompts = reader.strings_or("prompts");
        if (suite.prompts.empty()) reader.problem("prompts", "names no prompt set");
        for (const std::string& set : suite.prompts) {
            if (set.empty() || set.find('/') != std::string::npos || set.find('.') != std::string::npos) {
                reader.problem("prompts", "must be names of shipped prompt sets");
            }
        }
        suite.rounds = static_cast<int>(reader.integer_or("rounds", suite.rounds, 1, 1000));
        suite.prompts_per_round = static_cast<int>(reader.integer_or("prompts_per_round", suite.prompts_per_round, 1, 10000));
        suite.tokens = static_cast<int>(reader.integer_or("tokens", suite.tokens, 4, 1 << 16));
        suite.repeat = static_cast<int>(reader.integer_or("repeat", 0, 0, 1 << 16));
        const JsonReader groups = reader.at("groups");
        const std::size_t count = groups.size();
        if (count > kMaxGroups) reader.problem("groups", fmt::format("has more than {} entries", kMaxGroups));
        for (std::size_t g = 0; g < count && g < kMaxGroups; ++g) {
            const JsonReader group = groups.at(g);
            if (!group.expect_object()) continue;
            SuiteConfiguration one;
            one.group = static_cast<int>(g);
            one.random_weights = group.has("architecture");
            one.model = group.string(one.random_weights ? "architecture" : "model");
            one.launch = group.string_or("launch", "full");
            if (one.launch != "full" && one.launch != "eager") group.problem("launch", "must be full or eager");
            one.layers = static_cast<int>(group.integer_or("layers", 0, 0, 1024));
            one.tensor_rank_of = static_cast<int>(group.integer_or("tp_rank_of", 0, 0, 256));
            if (!one.random_weights && (one.layers > 0 || one.tensor_rank_of > 0)) {
                group.problem("architecture", "layers and tp_rank_of are of random weights");
            }
            if (one.random_weights && suite.device != "cuda") group.problem("architecture", "random weights are run on GPUs");
            one.ranks = static_cast<int>(group.integer_or("ranks", 1, 1, 256));
            one.batch = static_cast<int>(group.integer_or("batch", 1, 1, 1024));
            one.context = static_cast<int>(group.integer_or("context", 100, 1, 1 << 20));
            if (one.context <= suite.tokens / 2 + 2) group.problem("context", "is shorter than half of the generated text");
            const JsonReader drafters = group.at("drafters");
            const std::size_t choices = drafters.size();
            if (choices > kMaxDrafters) group.problem("drafters", fmt::format("has more than {} entries", kMaxDrafters));
            for (std::size_t d = 0; d < choices && d < kMaxDrafters; ++d) read_drafter(drafters.at(d), one, suite.configurations);
        }
        if (problems.empty() && suite.configurations.empty()) reader.problem("groups", "hold no configuration");
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, name));
    return suite;
}

Expected<Suite> find_suite(const std::string& name_or_path, const std::string& data_directory) {
    const auto path = model::find_data_file(name_or_path, "suites", data_directory);
    if (!path) return tl::unexpected(path.error());
    const auto text = model::read_file(*path);
    if (!text) return tl::unexpected(text.error());
    return parse_suite(*text, *path);
}

}  // namespace draftboard::calibration
