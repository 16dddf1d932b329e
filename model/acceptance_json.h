// SPDX-License-Identifier: Apache-2.0
#pragma once
// Acceptance as people have it, read at the door into the one native form (acceptance.h). Exactly one of
//
//   {"per_position": [0.645, 0.393, 0.240]}               unconditional, never rising; the native form
//   {"synthetic_acceptance_rates": [..]}                   the same under vLLM's name
//   {"conditional": [0.645, 0.609, 0.611]}                 each given that all before were accepted
//   {"acceptance_length": 2.28}                            bonus included; also "synthetic_acceptance_length"
//   {"rate": 0.427, "definition": "vllm"}                  or sglang_log, sglang_request, llama_cpp
//   {"histogram": [3, 5, 2, 1]}                            cycles by number of accepted drafts, from 0
//
// beside "hit", "tree_length" (of a draft tree, measured with it), "observed_cycles", "relative_spread", "source",
// "assumptions". A scalar length or rate with "hit" below 1 is what the engine reported over all cycles, misses included: the
// vector is solved so that chain_acceptance_length() gives it back. Where neither observed_cycles nor relative_spread is known, a
// spread of kDefaultRelativeSpread is assumed and said so.

#include "model/acceptance.h"
#include "model/json_reader.h"

namespace draftboard::model {

/// Standard deviation of L between measurement windows, as a share of L. Kimi-K2.6 with eagle3-mla, k = 3,
/// on 8 RTX PRO 6000: the vLLM rate of single cells varies with sd 0.06-0.08 around 0.39-0.42
/// (rtx6kpro, models/kimi-k26-v4.md): 3 x 0.07 / 2.3 = 0.09.
inline constexpr double kDefaultRelativeSpread = 0.09;

/// `k`: draft depth that scalar forms are spread over. Problems go to the reader.
[[nodiscard]] Acceptance acceptance_from_json(const JsonReader& reader, int k);
/// The native form.
[[nodiscard]] Json acceptance_to_json(const Acceptance& acceptance);

}  // namespace draftboard::model
