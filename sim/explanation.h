// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every number of a prediction, taken apart: each operation of each pass with its shape, bytes, time,
// formula with numbers, coverage and source; each constant that was used; and the pass totals that they
// add up to. Equal operations of different layers are one row with a count.

#include <string>
#include <vector>

#include "model/json_reader.h"
#include "sim/prediction.h"

namespace draftboard::sim {

struct ExplainedOperation {
    std::string key;      ///< of the first of its kind, e.g. "verify/L00/attention.o_proj"
    std::string role;
    int count = 1;        ///< equal operations in the pass
    std::string shape;    ///< "m 4, n 7168, k 1024"
    double bytes = 0;     ///< of one: weights, activations, cache; collectives: payload
    double flops = 0;
    double us = 0;        ///< of one
    double total_ms = 0;
    Coverage coverage = Coverage::datasheet;
    double relative_uncertainty = 0;
    std::string formula;
    std::string source;
};

struct ExplainedPass {
    std::string name;
    int repeat = 1;
    double total_ms = 0;
    std::vector<ExplainedOperation> operations;  ///< costliest first
    std::vector<Term> terms;
};

struct ExplainedConstant {
    std::string name;
    double value = 0;
    std::string meaning;
    std::string source;
};

struct Explanation {
    std::string scenario;
    std::vector<std::string> equations;  ///< how the answer follows from the passes, with numbers
    std::vector<ExplainedPass> passes;
    std::vector<ExplainedConstant> constants;
    std::vector<std::string> sources;    ///< of scenario, machine and architecture
};

/// `pass`: restrict to one ("plain", "verify", ...), empty: all. Unknown names are errors.
[[nodiscard]] model::Expected<Explanation> explain(const model::Scenario& scenario,
                                                   const Prediction& prediction,
                                                   const Predictor& predictor,
                                                   const std::string& pass);

[[nodiscard]] model::Json explanation_json(const Explanation& explanation);
[[nodiscard]] std::string explanation_text(const Explanation& explanation);

}  // namespace draftboard::sim
