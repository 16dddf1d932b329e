// SPDX-License-Identifier: Apache-2.0
// The routing trace: its reader and its own checks. How a trace becomes expert counts is in routing.cpp.
#include <set>

#include <fmt/format.h>

#include "model/json_reader.h"
#include "model/routing.h"

namespace draftboard::model {

namespace {

constexpr int kMaxTraceLayers = 4096;
constexpr std::size_t kMaxReportedProblems = 8;  // a broken trace is broken everywhere

/// Reads the k experts of one token in one layer. False once enough problems are known.
bool read_choice(const Json& choice, std::size_t token, std::size_t layer, RoutingTrace& trace,
                 std::vector<Problem>& problems) {
    const auto place = [&] { return fmt::format("/tokens/{}/{}", token, layer); };
    if (!choice.is_array() || choice.size() != static_cast<std::size_t>(trace.experts_per_token)) {
        problems.push_back({place(), fmt::format("expected {} experts", trace.experts_per_token)});
        return problems.size() < kMaxReportedProblems;
    }
    for (const Json& expert : choice) {
        if (!expert.is_number_integer() || expert.get<double>() < 0 ||
            expert.get<double>() >= trace.experts) {
            problems.push_back({place(), fmt::format("an expert is outside 0 .. {}", trace.experts - 1)});
            return problems.size() < kMaxReportedProblems;
        }
        trace.choices.push_back(static_cast<std::uint16_t>(expert.get<int>()));
    }
    return true;
}

void read_tokens(const Json& tokens, RoutingTrace& trace, std::vector<Problem>& problems) {
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        const Json& token = tokens[t];
        if (!token.is_array() || token.size() != static_cast<std::size_t>(trace.layers)) {
            problems.push_back({fmt::format("/tokens/{}", t), fmt::format("expected {} layers", trace.layers)});
            if (problems.size() >= kMaxReportedProblems) return;
            continue;
        }
        for (std::size_t l = 0; l < token.size(); ++l) {
            if (!read_choice(token[l], t, l, trace, problems)) return;
        }
    }
}

}  // namespace

std::size_t RoutingTrace::tokens() const {
    if (layers < 1 || experts_per_token < 1) return 0;
    return choices.size() / (static_cast<std::size_t>(layers) * static_cast<std::size_t>(experts_per_token));
}

std::vector<Problem> RoutingTrace::validate() const {
    std::vector<Problem> problems;
    if (experts < 1 || experts > kMaxExperts) {
        problems.push_back({"/experts", fmt::format("{} is outside 1 .. {}", experts, kMaxExperts)});
    }
    if (experts_per_token < 1 || experts_per_token > experts) {
        problems.push_back({"/experts_per_token", fmt::format("{} is outside 1 .. experts", experts_per_token)});
    }
    if (layers < 1 || layers > kMaxTraceLayers) {
        problems.push_back({"/layers", fmt::format("{} is outside 1 .. {}", layers, kMaxTraceLayers)});
    }
    if (!problems.empty()) return problems;
    const auto row = static_cast<std::size_t>(experts_per_token);
    const auto per_token = row * static_cast<std::size_t>(layers);
    if (choices.empty()) {
        problems.push_back({"/tokens", "the trace holds no token"});
    } else if (choices.size() % per_token != 0) {
        problems.push_back({"/tokens", "the last token is incomplete"});
    }
    std::vector<std::size_t> seen(static_cast<std::size_t>(experts), 0);
    for (std::size_t i = 0; i < choices.size() && problems.size() < kMaxReportedProblems; ++i) {
        const std::size_t stamp = i / row + 1;
        const std::string_view what = choices[i] >= experts          ? "an expert is out of range"
                                      : seen[choices[i]] == stamp    ? "an expert is chosen twice"
                                                                     : "";
        if (!what.empty()) {
            problems.push_back({fmt::format("/tokens/{}/{}", i / per_token, i % per_token / row),
                                std::string(what)});
        } else {
            seen[choices[i]] = stamp;
        }
    }
    return problems;
}

Expected<RoutingTrace> parse_routing_trace(std::string_view text, const std::string& name) {
    auto json = parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<Problem> problems;
    const JsonReader reader(*json, problems);
    reader.expect_format("draftboard.routing_trace", 1);
    RoutingTrace trace;
    trace.experts = static_cast<int>(reader.integer("experts", 1, kMaxExperts));
    trace.experts_per_token = static_cast<int>(reader.integer("experts_per_token", 1, trace.experts));
    trace.layers = static_cast<int>(reader.integer("layers", 1, kMaxTraceLayers));
    const JsonReader tokens = reader.at("tokens");
    if (problems.empty()) {
        static_cast<void>(tokens.size());  // a Problem if it is no array
        if (problems.empty()) read_tokens(tokens.value(), trace, problems);
        if (problems.empty()) problems = trace.validate();
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, name));
    return trace;
}

Expected<RoutingTrace> read_routing_trace(const std::string& path) {
    auto text = read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse_routing_trace(*text, path);
}

}  // namespace draftboard::model
