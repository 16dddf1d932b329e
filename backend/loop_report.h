// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a finished decode loop has to say, as JSON (the contract of `run --json`) and as text: rate, acceptance, and where a
// cycle's time went. Numbers are measured, so they differ from run to run; the tokens do not.

#include <string>
#include <vector>

#include "backend/decode_loop.h"
#include "model/json_reader.h"

namespace draftboard::backend {

/// One part of the mean cycle. Parts sum to the cycle.
struct CycleTerm {
    std::string name;
    double ms = 0;
    double share = 0;
};
[[nodiscard]] std::vector<CycleTerm> cycle_terms(const LoopTotals& totals);

/// tokens_per_second, acceptance_length, acceptance (m_i with a_i, by position), terms, cycle_ms, prefill, near_ties.
/// Without a drafter the acceptance length is 1 and the list of positions empty.
[[nodiscard]] model::Json loop_json(const DecodeLoop& loop);
[[nodiscard]] std::string loop_text(const DecodeLoop& loop);

/// Rates by position and the histogram, for a terminal.
[[nodiscard]] std::string acceptance_text(const AcceptanceCounter& counter);

}  // namespace draftboard::backend
