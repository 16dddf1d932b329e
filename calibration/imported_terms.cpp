// SPDX-License-Identifier: Apache-2.0
#include "calibration/imported_terms.h"

#include "calibration/host_terms.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

Expected<ImportedTerms> imported_terms(const Calibration& calibration) {
    ImportedTerms terms;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (!reader.has("imported")) return terms;
    const JsonReader imported = reader.at("imported");
    if (imported.expect_object()) {
        if (imported.has("host")) terms.host = read_host_terms(imported.at("host"), false);
        if (imported.has("engines")) terms.engines = read_engine_terms(imported.at("engines"));
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, calibration.name));
    if (imported.has("collectives")) {
        auto constants =
            sim::parse_collective_constants(imported.at("collectives").value(), calibration.name + ": /imported/collectives");
        if (!constants) return tl::unexpected(constants.error());
        terms.collectives = std::move(*constants);
    }
    return terms;
}

void set_imported_terms(Calibration& calibration, const ImportedTerms& terms) {
    Json& imported = calibration.unknown["imported"];
    if (!imported.is_object()) imported = Json::object();
    if (!terms.host.empty()) imported["host"] = terms.host;
    if (!terms.engines.empty()) imported["engines"] = terms.engines;
    if (terms.collectives) imported["collectives"] = sim::to_json(*terms.collectives);
}

Expected<void> apply(const ImportedTerms& terms, sim::CostConstants& constants) {
    auto host = sim::with_overrides(constants.host, terms.host);
    if (!host) return tl::unexpected(host.error());
    constants.host = *host;
    for (const auto& [engine, own] : terms.engines) {
        for (const auto& [name, value] : own) constants.engines[engine][name] = value;
    }
    return {};
}

}  // namespace draftboard::calibration
