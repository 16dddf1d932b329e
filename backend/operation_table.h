// SPDX-License-Identifier: Apache-2.0
#pragma once
// A measured profile beside what memory can do: for each pass the roles of its operations with their time, the bytes that they
// must move, and the rate that this makes of it. What is far below the ceiling is what is left to gain.
//
//   rate = (weight + cache + activation bytes of the plan) / median time, summed over the layers; collectives have none
// Experts count the distinct ones that the plan expects.

#include <string>
#include <vector>

#include "model/error.h"
#include "model/json_reader.h"

namespace draftboard::backend {

struct OperationRow {
    std::string role;  ///< "attention.o_proj"
    int count = 0;     ///< operations of this role in a pass
    double us = 0;     ///< of all of them, waiting included
    double bytes = 0;
    [[nodiscard]] double gb_per_s() const { return us > 0 ? bytes / us * 1e-3 : 0; }
};

struct PassTable {
    std::string model;  ///< "target" or "drafter"
    std::string pass;
    int sequences = 0;
    int tokens = 0;
    double context = 0;
    std::vector<OperationRow> rows;  ///< the longest first
    double us = 0;                   ///< sum of the rows
    double weight_bytes = 0;         ///< of the whole pass
    double cache_bytes = 0;
};

/// From a "draftboard.profile" document as Inference::profile() makes it. Prefill is left out.
[[nodiscard]] std::vector<PassTable> operation_tables(const model::Json& profile);
/// For a terminal. `ceiling_gb_per_s`: 0 where it is not known.
[[nodiscard]] std::string to_text(const std::vector<PassTable>& tables, double ceiling_gb_per_s);
[[nodiscard]] model::Json to_json(const std::vector<PassTable>& tables, double ceiling_gb_per_s);

}  // namespace draftboard::backend
