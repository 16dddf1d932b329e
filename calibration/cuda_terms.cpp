// SPDX-License-Identifier: Apache-2.0
#include "calibration/cuda_terms.h"

#include "calibration/host_terms.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

namespace {

constexpr std::size_t kMaxEngines = 64;

}  // namespace

Expected<CudaTerms> cuda_terms(const Calibration& calibration) {
    CudaTerms terms;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (!reader.has("cuda")) return terms;
    const JsonReader cuda = reader.at("cuda");
    if (cuda.expect_object()) {
        if (cuda.has("host")) terms.host = read_host_terms(cuda.at("host"), true);
        if (cuda.has("engines") && cuda.at("engines").expect_object()) {
            const JsonReader engines = cuda.at("engines");
            if (engines.value().size() > kMaxEngines) engines.problem("", "has too many entries");
            for (const auto& item : engines.value().items()) {
                if (terms.engines.size() >= kMaxEngines) break;
                terms.engines[item.key()] = read_host_terms(engines.at(item.key()), false);
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
