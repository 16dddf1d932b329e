// SPDX-License-Identifier: Apache-2.0
#include "calibration/cuda_terms.h"

#include "calibration/host_terms.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

Expected<CudaTerms> cuda_terms(const Calibration& calibration) {
    CudaTerms terms;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (!reader.has("cuda")) return terms;
    const JsonReader cuda = reader.at("cuda");
    if (cuda.expect_object()) {
        if (cuda.has("host")) terms.host = read_host_terms(cuda.at("host"), true);
        if (cuda.has("engines")) terms.engines = read_engine_terms(cuda.at("engines"));
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
    if (auto applied = apply_host_terms(terms.host, constants.host); !applied) return applied;
    for (const auto& [engine, own] : terms.engines) constants.engines[engine] = own;
    return {};
}

}  // namespace draftboard::calibration
