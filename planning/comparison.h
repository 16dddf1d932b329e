// SPDX-License-Identifier: Apache-2.0
#pragma once
// Scenarios side by side, term by term. The first is what the others are held against; contest.h says how sure the order is.

#include <string>
#include <vector>

#include "model/json_reader.h"
#include "planning/contest.h"
#include "planning/document.h"

namespace draftboard::planning {

struct Compared {
    std::string name;
    model::Scenario scenario;
    sim::Prediction prediction;
};

struct ComparedTerm {
    std::string name;
    std::vector<double> ms;  ///< of each scenario, 0 where it has no such term
};

struct Comparison {
    std::vector<Compared> scenarios;
    std::vector<Contest> against_first;    ///< parallel to scenarios; the first's own is left as it is made
    std::vector<ComparedTerm> terms;       ///< those that differ most first
    std::vector<std::string> differences;  ///< fields of the documents that are not equal: "path: a | b"
};

/// Precondition: two scenarios or more.
[[nodiscard]] Comparison compare(std::vector<Compared> scenarios, const std::vector<model::Json>& documents);

[[nodiscard]] Document comparison_document(const Comparison& comparison);
[[nodiscard]] model::Json comparison_json(const Comparison& comparison);

}  // namespace draftboard::planning
