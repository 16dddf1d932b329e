// SPDX-License-Identifier: Apache-2.0
#include "calibration/host_terms.h"

namespace draftboard::calibration {

using model::JsonReader;

namespace {

constexpr std::size_t kMaxEngines = 64;

}  // namespace

std::map<std::string, double> read_host_terms(const JsonReader& reader, bool with_run_sigma, std::string_view beside) {
    std::map<std::string, double> values;
    if (!reader.expect_object()) return values;
    for (const auto& item : reader.value().items()) {
        const std::string& name = item.key();
        if (name == beside) continue;
        if (with_run_sigma && name == kRunSigma) {
            values[name] = reader.number(name, 0, 2);
        } else if (const auto* known = sim::find_host_constant(name)) {
            values[name] = reader.number(name, known->low, known->high);
        } else {
            reader.problem(name.substr(0, 80), "is no host constant");
        }
    }
    return values;
}

std::map<std::string, std::map<std::string, double>> read_engine_terms(const JsonReader& reader) {
    std::map<std::string, std::map<std::string, double>> engines;
    if (!reader.expect_object()) return engines;
    if (reader.value().size() > kMaxEngines) reader.problem("", "has too many entries");
    for (const auto& item : reader.value().items()) {
        if (engines.size() >= kMaxEngines) break;
        engines[item.key()] = read_host_terms(reader.at(item.key()), false);
    }
    return engines;
}

model::Expected<void> apply_host_terms(std::map<std::string, double> terms, sim::HostConstants& host) {
    double run_sigma = host.run_sigma;
    if (const auto sigma = terms.find(std::string(kRunSigma)); sigma != terms.end()) {
        run_sigma = sigma->second;
        terms.erase(sigma);
    }
    auto measured = sim::with_overrides(host, terms);
    if (!measured) return tl::unexpected(measured.error());
    host = *measured;
    host.run_sigma = run_sigma;
    host.coverage = sim::Coverage::measured;
    return {};
}

}  // namespace draftboard::calibration
