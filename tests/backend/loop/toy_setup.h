// SPDX-License-Identifier: Apache-2.0
#pragma once
// A toy target with a toy drafter of each kind, for tests that run the loop with all of them.

#include <memory>
#include <string>
#include <vector>

#include "backend/decode_loop.h"
#include "tests/backend/loop/toy_model.h"

namespace draftboard::backend {

enum class ToyMethod { none, eagle3_chain, eagle3_tree, mtp_chain, mtp_tree, draft_chain, draft_tree, ngram, ngram_plain_misses };
[[nodiscard]] std::string to_text(ToyMethod method);
[[nodiscard]] std::vector<ToyMethod> drafting_methods();  ///< all but none

struct ToySetup {
    ToyLanguage language;
    double drafter_noise = 0.3;      ///< 0: drafts as the target would write, 1: another language
    int capacity = 4;
    std::int64_t max_length = 4096;
    std::int64_t drafter_max_length = 4096;
    int steps = 3;
    int top_k = 3;
    int draft_tokens = 8;
    std::vector<int> draft_vocabulary;  ///< EAGLE-3: target tokens that the head knows; empty: all
};

/// Owns target and drafter; both live as long as it.
struct ToyPair {
    std::unique_ptr<ToyModel> target;
    std::unique_ptr<ToyModel> drafter_model;
    std::unique_ptr<Drafter> drafter;
};
[[nodiscard]] ToyPair make_pair_of(ToyMethod method, const ToySetup& setup);

}  // namespace draftboard::backend
