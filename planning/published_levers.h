// SPDX-License-Identifier: Apache-2.0
#pragma once
// Predicted gains held against published before/after pairs: somebody pulled a lever and measured both sides. A pair becomes two
// rows of a published grid (calibration/published_grid.h) that differ in what the lever changes, both are predicted as
// `draftboard backtest` predicts rows, with the same constants, and the ratio is compared. Nothing is fitted here, and nothing
// knows a pair by its id.
//
//   columns   id, lever, model, gpus, before_value, after_value, unit, conditions, source_path; notes may be left out
//   lever     the publisher's words; the rules that read them stand in published_levers.cpp, docs/plan_of_levers.md lists them
//   grid      where a pair's notes say "derived from A and B", those two rows of a grid, if one is given
//   interval  of the ratio, as a contest (contest.h), with kRunSigma for each of the two measurements
//
// A pair that no rule covers, or whose unit is no rate of decoding, stands in the table with the reason.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/published_grid.h"
#include "model/acceptance.h"
#include "model/json_reader.h"
#include "planning/document.h"

namespace draftboard::planning {

struct PublishedPair {
    int line = 0;
    std::string id;
    std::string lever;
    std::string model;
    std::string conditions;
    std::string unit;
    std::string source;
    std::string notes;
    int gpus = 0;
    std::optional<double> before;
    std::optional<double> after;
};

struct PairResult {
    PublishedPair pair;
    std::string group;          ///< of levers that one rule covers: "DCP", "speculation", ...
    std::string reason;         ///< not empty: not predicted
    double measured = 1;        ///< after / before
    model::Interval predicted;  ///< the same
    double before = 0;          ///< predicted rates
    double after = 0;
    [[nodiscard]] bool is_predicted() const { return reason.empty(); }
    [[nodiscard]] bool held() const { return measured >= predicted.low && measured <= predicted.high; }
};

struct PairGroup {
    std::string name;
    std::size_t pairs = 0;
    double median_error = 0;     ///< of |predicted / measured - 1|
    std::size_t sign_pairs = 0;  ///< measured beyond 5 % either way
    std::size_t sign_right = 0;
    std::size_t held = 0;  ///< measured inside of the 90 % interval
};

struct PairReport {
    std::vector<PairResult> results;  ///< in the file's order
    PairGroup overall;
    std::vector<PairGroup> groups;  ///< by name
    std::map<std::string, std::size_t> reasons;
};

[[nodiscard]] model::Expected<std::vector<PublishedPair>> parse_published_pairs(std::string_view text, const std::string& name);

/// The two rows of a pair; the error's message is the reason to leave it out.
struct PairRows {
    calibration::PublishedRow before;
    calibration::PublishedRow after;
    std::string group;
};
[[nodiscard]] model::Expected<PairRows> rows_of(const PublishedPair& pair, const std::vector<calibration::PublishedRow>& grid);

[[nodiscard]] model::Expected<PairReport> hold_against_published(const std::vector<PublishedPair>& pairs,
                                                                 const std::vector<calibration::PublishedRow>& grid,
                                                                 const std::string& data_directory);

[[nodiscard]] Document pair_document(const PairReport& report, const std::string& table_name);
[[nodiscard]] model::Json pair_json(const PairReport& report);

}  // namespace draftboard::planning
