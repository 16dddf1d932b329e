// SPDX-License-Identifier: Apache-2.0
#include "calibration/diagnosis_report.h"

#include <fmt/format.h>

#include "calibration/diagnosis_candidates.h"

namespace draftboard::calibration {

using model::Json;

namespace {

constexpr double kShownShare = 0.01;  ///< the text leaves smaller ones out

}  // namespace

Json diagnosis_json(const Diagnosis& diagnosis) {
    Json json;
    json["format"] = "draftboard.diagnosis";
    json["version"] = 1;
    json["scenario"] = diagnosis.scenario;
    json["source"] = diagnosis.measured.source;
    json["noise"] = diagnosis.measured.noise;
    json["compared"] = Json::array();
    for (const ComparedValue& value : diagnosis.compared) {
        json["compared"].push_back(
            {{"name", value.name}, {"measured", value.measured}, {"predicted", value.predicted}, {"sigmas", value.sigmas}});
    }
    json["candidates"] = Json::array();
    for (const WeighedCandidate& candidate : diagnosis.candidates) {
        Json predicted = Json::object();
        for (std::size_t i = 0; i < diagnosis.compared.size() && i < candidate.predicted.size(); ++i) {
            predicted[diagnosis.compared[i].name] = candidate.predicted[i];
        }
        Json changes = Json::array();
        for (const TermChange& change : candidate.changes) {
            changes.push_back({{"name", change.name}, {"from_ms", change.from_ms}, {"to_ms", change.to_ms}});
        }
        json["candidates"].push_back({{"name", candidate.name},
                                      {"meaning", candidate.meaning},
                                      {"edit", candidate.edit},
                                      {"fix", candidate.fix},
                                      {"prior", candidate.prior},
                                      {"share", candidate.share},
                                      {"factor", candidate.factor},
                                      {"squared_distance", candidate.distance},
                                      {"predicted", std::move(predicted)},
                                      {"terms", std::move(changes)}});
    }
    json["prior_source"] = kPriorSource;
    json["left_out"] = diagnosis.left_out;
    json["entropy_bits"] = diagnosis.entropy_bits;
    json["unexplained"] = diagnosis.unexplained;
    json["next"] = Json::array();
    for (const NextMeasurement& next : diagnosis.next) {
        json["next"].push_back({{"name", next.name}, {"bits", next.bits}, {"how", next.how}});
    }
    json["warnings"] = diagnosis.measured.notes;
    return json;
}

std::string diagnosis_text(const Diagnosis& diagnosis) {
    std::string text =
        fmt::format("{}: measured against predicted (noise {:g} %)\n", diagnosis.scenario, diagnosis.measured.noise * 100);
    text += fmt::format("  {:<28} {:>10} {:>10} {:>9}\n", "quantity", "measured", "predicted", "sigmas");
    for (const ComparedValue& value : diagnosis.compared) {
        text +=
            fmt::format("  {:<28} {:>10.4g} {:>10.4g} {:>+9.1f}\n", value.name, value.measured, value.predicted, value.sigmas);
    }
    text += fmt::format("\nWhat explains it (share of belief; priors {})\n", kPriorSource);
    std::size_t hidden = 0;
    for (const WeighedCandidate& candidate : diagnosis.candidates) {
        if (candidate.share < kShownShare && &candidate != &diagnosis.candidates.front()) {
            ++hidden;
            continue;
        }
        text += fmt::format("  {:>5.1f} %  {}: {}\n", candidate.share * 100, candidate.name, candidate.meaning);
        if (candidate.name == kNoneOfThese) continue;
        std::string predicted;
        for (std::size_t i = 0; i < candidate.predicted.size(); ++i) {
            predicted += fmt::format("{}{} {:.4g}", i == 0 ? "" : ", ", diagnosis.compared[i].name, candidate.predicted[i]);
        }
        text += fmt::format("           predicts {}\n", predicted);
        for (const TermChange& change : candidate.changes) {
            text += fmt::format("           {}: {:.2f} -> {:.2f} ms\n", change.name, change.from_ms, change.to_ms);
        }
        if (!candidate.edit.empty()) text += fmt::format("           {}; {}\n", candidate.edit, candidate.fix);
    }
    if (hidden > 0) text += fmt::format("  {} further candidates have less than {:.0f} % each\n", hidden, kShownShare * 100);
    const bool fine = !diagnosis.candidates.empty() && diagnosis.candidates.front().name == kAsPredicted;
    if (fine) {
        text += "\nWhere the predicted cycle's time goes\n";
        for (const sim::Term& term : diagnosis.largest_terms) {
            text += fmt::format("  {:<28} {:>8.2f} ms {:>5.1f} %\n", term.name, term.ms, term.share * 100);
        }
    }
    if (diagnosis.unexplained) {
        text += "\nNo single cause of the list explains this. What splits the causes best, all of them open again (bits)\n";
    } else {
        text +=
            fmt::format("\nWhat to measure next (of {:.2f} bits of doubt it is expected to settle)\n", diagnosis.entropy_bits);
    }
    if (diagnosis.next.empty()) text += "  nothing: no measurement would change this\n";
    for (const NextMeasurement& next : diagnosis.next) {
        text += fmt::format("  {:>5.2f}  {}: {}\n", next.bits, next.name, next.how);
    }
    for (const std::string& note : diagnosis.measured.notes) text += "note: " + note + "\n";
    return text;
}

}  // namespace draftboard::calibration
