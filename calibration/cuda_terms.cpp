// SPDX-License-Identifier: Apache-2.0
#include "calibration/cuda_terms.h"

#include <algorithm>

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

namespace {

constexpr std::string_view kRunSigma = "host.run_sigma";
constexpr std::size_t kMaxEngines = 64;

std::map<std::string, double> read_constants(const JsonReader& reader, bool with_sigma) {
    std::map<std::string, double> values;
    if (!reader.expect_object()) return values;
    const auto& table = sim::host_constant_table();
    for (const auto& item : reader.value().items()) {
        const std::string& name = item.key();
        const auto known = std::find_if(table.begin(), table.end(), [&](const auto& info) { return info.name == name; });
        if (with_sigma && name == kRunSigma) {
            values[name] = reader.number(name, 0, 2);
        } else if (known == table.end()) {
            reader.problem(name.substr(0, 80), "is no host constant");
        } else {
            values[name] = reader.number(name, known->low, known->high);
        }
    }
    return values;
}

}  // namespace

Expected<CudaTerms> cuda_terms(const Calibration& calibration) {
    CudaTerms terms;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (!reader.has("cuda")) return terms;
    const JsonReader cuda = reader.at("cuda");
    if (cuda.expect_object()) {
        if (cuda.has("host")) terms.host = read_constants(cuda.at("host"), true);
        if (cuda.has("engines") && cuda.at("engines").expect_object()) {
            const JsonReader engines = cuda.at("engines");
            if (engines.value().size() > kMaxEngines) engines.problem("", "has too many entries");
            for (const auto& item : engines.value().items()) {
                if (terms.engines.size() >= kMaxEngines) break;
                terms.engines[item.key()] = read_constants(engines.at(item.key()), false);
            }
        }
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, calibration.name));
    return terms;
}

void set_cuda_terms(Calibration& calibration, const CudaTerms& terms) {
    Json& cuda = calibration.unknown["cuda"];
    if (!cuda.is_object()) cuda = Json::object();
    cuda["host"] = terms.host;
    cuda["engines"] = terms.engines;
}

Expected<void> apply(const CudaTerms& terms, sim::CostConstants& constants) {
    if (terms.empty()) return {};
    auto values = terms.host;
    const auto sigma = values.find(std::string(kRunSigma));
    if (sigma != values.end()) {
        constants.host.run_sigma = sigma->second;
        values.erase(sigma);
    }
    auto host = sim::with_overrides(constants.host, values);
    if (!host) return tl::unexpected(host.error());
    constants.host = *host;
    constants.host.coverage = sim::Coverage::measured;
    for (const auto& [engine, own] : terms.engines) constants.engines[engine] = own;
    return {};
}

}  // namespace draftboard::calibration
