// SPDX-License-Identifier: Apache-2.0
#include "calibration/imported_terms.h"

#include <algorithm>

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

namespace {

constexpr std::size_t kMaxEngines = 64;

std::map<std::string, double> read_constants(const JsonReader& reader) {
    std::map<std::string, double> values;
    if (!reader.expect_object()) return values;
    const auto& table = sim::host_constant_table();
    for (const auto& item : reader.value().items()) {
        const std::string& name = item.key();
        const auto known = std::find_if(table.begin(), table.end(), [&](const auto& info) { return info.name == name; });
        if (known == table.end()) {
            reader.problem(name.substr(0, 80), "is no host constant");
        } else {
            values[name] = reader.number(name, known->low, known->high);
        }
    }
    return values;
}

}  // namespace

Expected<ImportedTerms> imported_terms(const Calibration& calibration) {
    ImportedTerms terms;
    std::vector<model::Problem> problems;
    const JsonReader reader(calibration.unknown, problems);
    if (!reader.has("imported")) return terms;
    const JsonReader imported = reader.at("imported");
    if (imported.expect_object()) {
        if (imported.has("host")) terms.host = read_constants(imported.at("host"));
        if (imported.has("engines") && imported.at("engines").expect_object()) {
            const JsonReader engines = imported.at("engines");
            if (engines.value().size() > kMaxEngines) engines.problem("", "has too many entries");
            for (const auto& item : engines.value().items()) {
                if (terms.engines.size() >= kMaxEngines) break;
                terms.engines[item.key()] = read_constants(engines.at(item.key()));
            }
        }
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
