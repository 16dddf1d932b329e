// SPDX-License-Identifier: Apache-2.0
#include "calibration/engine_measurements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;
using model::OperationKind;
using model::Pass;

namespace {

constexpr const char* kFormat = "draftboard.engine_measurements";
constexpr std::size_t kMaxEntries = 1 << 16;
constexpr std::size_t kMaxOperations = 1 << 16;
constexpr double kMaxUs = 1e12;
constexpr std::array kPasses = {Pass::decode, Pass::verify, Pass::draft_extend, Pass::draft, Pass::prefill};

template <class Number>
Json numbers(const std::vector<Number>& values) {
    Json list = Json::array();
    // Four digits: no clock gives more, and the file stays small.
    for (const Number value : values) {
        const double x = value;
        if (x == 0 || !std::isfinite(x)) {
            list.push_back(0);
            continue;
        }
        const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::abs(x))));
        list.push_back(std::round(x * scale) / scale);
    }
    return list;
}

std::vector<float> floats(const JsonReader& reader, std::string_view key) {
    const auto values = reader.numbers_or(key, {}, 0, kMaxUs);
    return {values.begin(), values.end()};
}

std::vector<std::vector<float>> lists(const JsonReader& reader, std::string_view key) {
    std::vector<std::vector<float>> out;
    const JsonReader outer = reader.at(key);
    const std::size_t count = outer.size();
    if (count > kMaxOperations) {
        outer.problem("", "has too many operations");
        return out;
    }
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<float> one;
        const JsonReader inner = outer.at(i);
        const std::size_t samples = inner.size();
        for (std::size_t s = 0; s < samples; ++s) {
            const Json& value = inner.value()[s];
            if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > kMaxUs) {
                inner.problem(std::to_string(s), "must be a time");
                return out;
            }
            one.push_back(value.get<float>());
        }
        out.push_back(std::move(one));
    }
    return out;
}

Json lists_json(const std::vector<std::vector<float>>& lists_of) {
    Json outer = Json::array();
    for (const auto& one : lists_of) outer.push_back(numbers(one));
    return outer;
}

void read_passes(const JsonReader& list, EngineMeasurements& measurements) {
    const std::size_t count = list.size();
    if (count > kMaxEntries) {
        list.problem("", "has too many passes");
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) return;
        EnginePassKey key;
        key.model = entry.string("model");
        key.ranks = static_cast<int>(entry.integer("ranks", 1, 1024));
        key.launch = entry.string_or("launch", "");
        const auto pass = pass_from_name(entry.string("pass"));
        if (!pass) entry.problem("pass", "is no pass");
        key.pass = pass.value_or(Pass::decode);
        key.sequences = static_cast<int>(entry.integer("sequences", 1, 1 << 20));
        key.tokens = static_cast<int>(entry.integer("tokens", 1, 1 << 20));
        key.context = static_cast<int>(entry.integer("context", 0, 1 << 30));
        EnginePassSamples samples;
        samples.total_us = floats(entry, "total_us");
        samples.context = floats(entry, "contexts");
        samples.operation_us = lists(entry, "operation_us");
        samples.wait_us = lists(entry, "wait_us");
        samples.distinct_experts = entry.numbers_or("distinct_experts", {}, 0, kMaxUs);
        samples.expert_rounds = entry.number_or("expert_rounds", 0, 0, kMaxUs);
        if (samples.wait_us.size() != samples.operation_us.size()) entry.problem("wait_us", "is not parallel to operation_us");
        measurements.passes[key] = std::move(samples);
    }
}

void read_collectives(const JsonReader& list, EngineMeasurements& measurements) {
    for (std::size_t i = 0; i < std::min(list.size(), kMaxEntries); ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) return;
        EngineCollectiveSample sample;
        sample.operation = entry.string("operation") == "all_gather" ? OperationKind::all_gather : OperationKind::all_reduce;
        sample.ring = entry.boolean_or("ring", false);
        sample.ranks = static_cast<int>(entry.integer("ranks", 2, 1024));
        sample.bytes = entry.integer("bytes", 1, std::int64_t{1} << 40);
        sample.us = entry.number("us", 0, kMaxUs);
        measurements.collectives.push_back(sample);
    }
}

void read_hosts(const JsonReader& list, EngineMeasurements& measurements) {
    for (std::size_t i = 0; i < std::min(list.size(), kMaxEntries); ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) return;
        EngineHostSample sample;
        sample.configuration = entry.string("configuration");
        sample.ranks = static_cast<int>(entry.integer("ranks", 1, 1024));
        sample.sequences = static_cast<int>(entry.integer("sequences", 1, 1 << 20));
        sample.speculates = entry.boolean_or("speculates", false);
        sample.draft_calls = static_cast<int>(entry.integer_or("draft_calls", 0, 0, 4096));
        sample.us = entry.number("us", -kMaxUs, kMaxUs);
        sample.cycle_us = entry.number("cycle_us", 0, kMaxUs);
        measurements.hosts.push_back(std::move(sample));
    }
}

void read_cycles(const JsonReader& list, EngineMeasurements& measurements) {
    for (std::size_t i = 0; i < std::min(list.size(), kMaxEntries); ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) return;
        EngineCycleSample sample;
        sample.model = entry.string("model");
        sample.ranks = static_cast<int>(entry.integer("ranks", 1, 1024));
        sample.launch = entry.string("launch");
        sample.method = entry.string("method");
        sample.steps = static_cast<int>(entry.integer_or("steps", 0, 0, 4096));
        sample.sequences = static_cast<int>(entry.integer("sequences", 1, 1 << 20));
        sample.context = entry.number("context", 0, kMaxUs);
        sample.cycle_us = entry.number("cycle_us", 0, kMaxUs);
        sample.draft_us = entry.number_or("draft_us", 0, 0, kMaxUs);
        sample.verify_us = entry.number_or("verify_us", 0, 0, kMaxUs);
        sample.cycles = entry.number_or("cycles", 0, 0, kMaxUs);
        measurements.cycles.push_back(std::move(sample));
    }
}

}  // namespace

std::optional<Pass> pass_from_name(std::string_view name) {
    for (const Pass pass : kPasses) {
        if (to_name(pass) == name) return pass;
    }
    return std::nullopt;
}

double median_of(std::vector<double> samples) {
    if (samples.empty()) return 0;
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    if (samples.size() % 2 == 1) return *middle;
    return 0.5 * (*middle + *std::max_element(samples.begin(), middle));
}

double median_of(const std::vector<float>& samples) { return median_of(std::vector<double>(samples.begin(), samples.end())); }

bool EngineProgress::is_done(const std::string& step) const { return std::find(done.begin(), done.end(), step) != done.end(); }

Json to_json(const EngineProgress& progress) {
    const EngineMeasurements& m = progress.measurements;
    Json json = {{"format", kFormat}, {"version", 1}, {"settings", progress.settings}, {"done", progress.done}};
    if (!progress.failed.empty()) json["failed"] = progress.failed;
    if (m.ceilings.memory_gb_s > 0) {  // a CPU's
        json["machine"] = to_json(m.facts);
        json["ceilings"] = to_json(m.ceilings);
    }
    json["clock_us"] = m.clock_us;
    json["team_start_us"] = Json::array();
    for (const auto& [ranks, us] : m.team_start_us) json["team_start_us"].push_back({{"ranks", ranks}, {"us", us}});
    json["passes"] = Json::array();
    for (const auto& [key, samples] : m.passes) {
        json["passes"].push_back({{"model", key.model},
                                  {"ranks", key.ranks},
                                  {"launch", key.launch},
                                  {"pass", to_name(key.pass)},
                                  {"sequences", key.sequences},
                                  {"tokens", key.tokens},
                                  {"context", key.context},
                                  {"total_us", numbers(samples.total_us)},
                                  {"contexts", numbers(samples.context)},
                                  {"operation_us", lists_json(samples.operation_us)},
                                  {"wait_us", lists_json(samples.wait_us)},
                                  {"distinct_experts", samples.distinct_experts},
                                  {"expert_rounds", samples.expert_rounds}});
    }
    json["collectives"] = Json::array();
    for (const EngineCollectiveSample& sample : m.collectives) {
        json["collectives"].push_back({{"operation", to_name(sample.operation)},
                                       {"ring", sample.ring},
                                       {"ranks", sample.ranks},
                                       {"bytes", sample.bytes},
                                       {"us", sample.us}});
    }
    json["hosts"] = Json::array();
    for (const EngineHostSample& sample : m.hosts) {
        json["hosts"].push_back({{"configuration", sample.configuration},
                                 {"ranks", sample.ranks},
                                 {"sequences", sample.sequences},
                                 {"speculates", sample.speculates},
                                 {"draft_calls", sample.draft_calls},
                                 {"us", sample.us},
                                 {"cycle_us", sample.cycle_us}});
    }
    if (m.cycles.empty() && m.gpu.is_null() && m.device_costs.is_null()) return json;  // a CPU's
    json["gpu"] = m.gpu;
    json["device_costs"] = m.device_costs;
    json["cycles"] = Json::array();
    for (const EngineCycleSample& sample : m.cycles) {
        json["cycles"].push_back({{"model", sample.model}, {"ranks", sample.ranks}, {"launch", sample.launch},
                                  {"method", sample.method}, {"steps", sample.steps}, {"sequences", sample.sequences},
                                  {"context", sample.context}, {"cycle_us", sample.cycle_us}, {"draft_us", sample.draft_us},
                                  {"verify_us", sample.verify_us}, {"cycles", sample.cycles}});
    }
    return json;
}

Expected<EngineProgress> parse_engine_progress(std::string_view text, const std::string& name) {
    const auto json = model::parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const JsonReader reader(*json, problems);
    EngineProgress progress;
    if (reader.expect_object()) {
        reader.expect_format(kFormat, 1);
        progress.settings = reader.string("settings");
        progress.done = reader.strings_or("done");
        progress.failed = reader.strings_or("failed");
        EngineMeasurements& m = progress.measurements;
        if (reader.has("machine")) {
            m.facts = cpu_facts_from_json(reader.at("machine"));
            m.ceilings = cpu_ceilings_from_json(reader.at("ceilings"));
        }
        m.clock_us = reader.number("clock_us", 0, 1e3);
        const JsonReader starts = reader.at("team_start_us");
        for (std::size_t i = 0; i < std::min(starts.size(), kMaxEntries); ++i) {
            const JsonReader entry = starts.at(i);
            if (!entry.expect_object()) break;
            m.team_start_us[static_cast<int>(entry.integer("ranks", 1, 1024))] = entry.number("us", 0, kMaxUs);
        }
        read_passes(reader.at("passes"), m);
        read_collectives(reader.at("collectives"), m);
        read_hosts(reader.at("hosts"), m);
        if (reader.has("gpu")) m.gpu = reader.at("gpu").value();
        if (reader.has("device_costs")) m.device_costs = reader.at("device_costs").value();
        if (reader.has("cycles")) read_cycles(reader.at("cycles"), m);
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, name));
    return progress;
}

}  // namespace draftboard::calibration
