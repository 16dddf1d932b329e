// SPDX-License-Identifier: Apache-2.0
#pragma once
// The speculation method: who drafts, how deep, how wide, and with what acceptance. The drafter's own
// operations come from plan_draft() in plan.h.
//
// Words: `steps` k = draft depth; `top_k` = branches kept a step (1: a chain); `draft_tokens` n = tokens
// verified per sequence, *root included*. A drafted chain has n = k + 1: with top_k = 1 SGLang forces it,
// and so does verify_tokens() here; a differing draft_tokens is not an error but a note (notes()).
// n-gram lookups have no beam: there n is what the engine verifies, k + 1 if not given.
//
// eagle3_head.h holds the usual EAGLE-3 heads, speculation_json.h reads and writes this.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/acceptance.h"
#include "model/architecture.h"
#include "model/error.h"

namespace draftboard::model {

enum class SpeculationMethod { none, eagle3, mtp, ngram, draft_model };

[[nodiscard]] std::string_view to_name(SpeculationMethod method);
[[nodiscard]] std::optional<SpeculationMethod> speculation_method_from_name(std::string_view name);

/// EAGLE-3 head: fc (hidden x aux_layers*hidden) over the target's hidden states at `aux_layers` layers,
/// then `layers` decoder layers whose first attention reads 2*hidden inputs (embedding ++ feature), a
/// dense MLP, and an LM head over draft_vocabulary. Llama-style has a GqaShape mixer, MLA-style an MlaShape.
struct Eagle3Head {
    std::string name;
    int hidden = 0;
    int layers = 1;
    int aux_layers = 3;
    TokenMixer mixer;
    int intermediate = 0;
    std::int64_t draft_vocabulary = 0;
    bool own_embedding = false;  ///< else the target's embedding table is shared
    WeightFormat format;
    std::string source;
};

struct Speculation {
    SpeculationMethod method = SpeculationMethod::none;
    int steps = 0;
    int top_k = 1;
    int draft_tokens = 0;  ///< 0: steps + 1
    double sibling_decay = 1.0;
    Acceptance acceptance;
    std::optional<Eagle3Head> head;                     ///< eagle3
    std::string draft_model;                            ///< draft_model: architecture name or path
    std::shared_ptr<const Architecture> draft_architecture;  ///< resolved from draft_model
    int draft_tensor = 0;                               ///< TP of the draft model, 0: the target's
    bool pad_misses = true;  ///< n-gram: a missed lookup still verifies the full captured width

    /// Tokens per sequence in the verify pass: 1 without speculation.
    [[nodiscard]] int verify_tokens() const;
    /// Mean tokens per cycle, bonus included; chain or tree as configured.
    [[nodiscard]] double acceptance_length() const;
    /// Longest chain of drafts that can be accepted: min(steps, verify_tokens() - 1).
    [[nodiscard]] int depth() const;
    [[nodiscard]] std::vector<Problem> validate(const Architecture& target) const;
    /// What was normalised or is odd but legal, a sentence each, for reports.
    [[nodiscard]] std::vector<std::string> notes() const;
};

}  // namespace draftboard::model
