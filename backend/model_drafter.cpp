// SPDX-License-Identifier: Apache-2.0
#include "backend/model_drafter.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "model/acceptance.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::Pass;

namespace {

constexpr const char* kContext = "drafter";

tl::unexpected<model::Error> not_finite() {
    return fail(ErrorCode::invalid_input, "the drafter's logits are not finite", kContext, "check its weights");
}

Expected<void> check_vocabulary(const LanguageModel& drafter, int target_vocabulary, const std::vector<int>& map) {
    if (map.empty()) {
        if (drafter.vocabulary() == target_vocabulary) return {};
        return fail(ErrorCode::invalid_input,
                    fmt::format("its vocabulary of {} is not the target's of {}, and no map is given", drafter.vocabulary(),
                                target_vocabulary),
                    kContext, "choose a drafter that was made for this target");
    }
    if (map.size() != static_cast<std::size_t>(drafter.vocabulary())) {
        return fail(
            ErrorCode::invalid_input,
            fmt::format("the map to target tokens has {} entries for a vocabulary of {}", map.size(), drafter.vocabulary()),
            kContext);
    }
    for (std::size_t i = 0; i < map.size(); ++i) {
        if (map[i] < 0 || map[i] >= target_vocabulary) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("draft token {} maps to {}, outside the target's vocabulary of {}", i, map[i],
                                    target_vocabulary),
                        kContext);
        }
    }
    return {};
}

}  // namespace

ModelDrafter::ModelDrafter(LanguageModel& drafter, int target_vocabulary, ModelDrafterOptions options)
    : model_(&drafter), target_vocabulary_(target_vocabulary), options_(std::move(options)) {
    const std::int64_t nodes = DraftBeam::node_count(options_.steps, options_.top_k);
    const int wanted = options_.top_k == 1 || options_.draft_tokens == 0 ? options_.steps + 1 : options_.draft_tokens;
    width_ = static_cast<int>(std::min<std::int64_t>(wanted, nodes + 1));
    feature_width_ = static_cast<std::size_t>(model_->feature_width(Pass::draft_extend));
    pending_.resize(static_cast<std::size_t>(model_->capacity()));
}

Expected<ModelDrafter> ModelDrafter::create(LanguageModel& drafter, int target_vocabulary, ModelDrafterOptions options) {
    if (options.steps < 1 || options.steps >= model::kMaxDraftTokens) {
        return fail(ErrorCode::invalid_input, "drafting needs at least one step, and fewer than 4096", "steps");
    }
    if (options.top_k < 1 || options.top_k > drafter.vocabulary() || options.top_k > 256) {
        return fail(ErrorCode::invalid_input, "branches a step must lie in 1 .. 256 and within the drafter's vocabulary",
                    "top_k");
    }
    if (options.draft_tokens != 0 && (options.draft_tokens < 2 || options.draft_tokens > model::kMaxDraftTokens)) {
        return fail(ErrorCode::invalid_input, "verified tokens must be 2 or more (the root is one of them), at most 4096",
                    "draft_tokens");
    }
    if (auto ok = check_vocabulary(drafter, target_vocabulary, options.target_of_draft); !ok)
        return tl::unexpected(ok.error());
    const int from_target = drafter.feature_width(Pass::draft_extend);
    const int from_itself = drafter.feature_width(Pass::draft);
    const bool reads = options.reads != DrafterReads::nothing;
    if (reads ? from_target < 1 || from_itself != drafter.hidden() || from_target != drafter.feature_width(Pass::prefill)
              : from_target != 0 || from_itself != 0) {
        return fail(ErrorCode::invalid_input, "its feature widths do not go with what it is to read of the target",
                    kContext);
    }
    return ModelDrafter(drafter, target_vocabulary, std::move(options));
}

int ModelDrafter::depth() const { return std::min(options_.steps, width_ - 1); }

std::int64_t ModelDrafter::max_length() const {
    // A text of n tokens leaves n rows at most in the cache once extended; beside them stand padding or draft rows.
    return model_->max_length() - std::max(options_.steps, options_.top_k * (options_.steps - 1));
}

int ModelDrafter::to_target(int token) const {
    return options_.target_of_draft.empty() ? token : options_.target_of_draft[static_cast<std::size_t>(token)];
}

std::span<const float> ModelDrafter::logits_row(std::size_t row) const {
    const auto size = static_cast<std::size_t>(model_->vocabulary());
    return std::span(output_.logits).subspan(row * size, size);
}

void ModelDrafter::append_hidden(std::size_t row) {
    if (options_.reads == DrafterReads::nothing) return;
    const auto size = static_cast<std::size_t>(model_->hidden());
    const auto state = std::span(output_.hidden).subspan(row * size, size);
    batch_.features.insert(batch_.features.end(), state.begin(), state.end());
}

Expected<void> ModelDrafter::append(const Observation& observation, Pending& pending) const {
    const auto& [slot, prefill, tokens, rows, output] = observation;
    const auto next = tokens.last(rows.size());
    if (options_.reads == DrafterReads::nothing && pending.tokens.empty() && model_->length(slot) == 0) {
        pending.tokens.push_back(tokens[tokens.size() - 1 - rows.size()]);  // a text begins: its first token is a row too
    }
    pending.tokens.insert(pending.tokens.end(), next.begin(), next.end());
    if (options_.reads == DrafterReads::nothing) return {};
    const std::vector<float>& states = options_.reads == DrafterReads::hidden ? output->hidden : output->features;
    for (const int row : rows) {
        const std::size_t first = static_cast<std::size_t>(row) * feature_width_;
        if (first + feature_width_ > states.size()) {
            return fail(ErrorCode::invalid_input, "the target gives no states of the width that the drafter reads",
                        kContext, "check that the drafter was made for this target");
        }
        const auto state = std::span(states).subspan(first, feature_width_);
        pending.features.insert(pending.features.end(), state.begin(), state.end());
    }
    return {};
}

Expected<void> ModelDrafter::observe(const Observation& observation) {
    Pending& pending = pending_[static_cast<std::size_t>(observation.slot)];
    if (auto ok = append(observation, pending); !ok) return ok;
    return observation.prefill ? run_prompt(observation.slot, pending) : Expected<void>{};
}

Expected<void> ModelDrafter::run_prompt(int slot, Pending& pending) {
    const std::size_t rows = pending.tokens.size() - 1;
    if (rows == 0) return {};
    const auto values = static_cast<std::ptrdiff_t>(rows * feature_width_);
    batch_.pass = Pass::prefill;
    batch_.greedy = true;  // nobody looks at its logits
    batch_.sequences.assign(1, slot);
    batch_.tokens = static_cast<int>(rows);
    batch_.token_ids.assign(pending.tokens.begin(), pending.tokens.end() - 1);
    batch_.parents.clear();
    batch_.features.assign(pending.features.begin(), pending.features.begin() + values);
    if (auto ok = model_->forward(batch_, {}, output_); !ok) return ok;
    pending.tokens.erase(pending.tokens.begin(), pending.tokens.end() - 1);
    pending.features.erase(pending.features.begin(), pending.features.begin() + values);
    return {};
}

Expected<void> ModelDrafter::propose(std::span<const DraftSequence> sequences, int vocabulary, Proposal& proposal) {
    proposal.reset(sequences, width_, vocabulary);
    batch_.greedy =
        options_.top_k == 1 && std::ranges::all_of(sequences, [](const DraftSequence& s) { return s.sampling->greedy(); });
    if (auto ok = extend(sequences); !ok) return ok;
    auto drafted = options_.top_k == 1 ? draft_chain(sequences, proposal) : draft_tree(sequences, proposal);
    for (const DraftSequence& sequence : sequences) model_->discard(sequence.slot);
    return drafted;
}

/// The rows of the last cycle's tokens, padded to steps + 1 by repeating the last: what follows a row can't change it.
Expected<void> ModelDrafter::extend(std::span<const DraftSequence> sequences) {
    const auto rows = static_cast<std::size_t>(options_.steps) + 1;
    std::vector<int> wanted;
    batch_.pass = Pass::draft_extend;
    batch_.sequences.clear();
    batch_.tokens = static_cast<int>(rows);
    batch_.token_ids.clear();
    batch_.parents.clear();
    batch_.features.clear();
    last_row_.clear();
    for (const DraftSequence& sequence : sequences) {
        const Pending& pending = pending_[static_cast<std::size_t>(sequence.slot)];
        const std::size_t count = pending.tokens.size();
        if (count == 0 || count > rows) {
            return fail(
                ErrorCode::invalid_input,
                fmt::format("sequence {} has {} rows to catch up on, at most {} fit a pass", sequence.slot, count, rows),
                kContext);
        }
        batch_.sequences.push_back(sequence.slot);
        batch_.token_ids.insert(batch_.token_ids.end(), pending.tokens.begin(), pending.tokens.end());
        batch_.token_ids.insert(batch_.token_ids.end(), rows - count, pending.tokens.back());
        batch_.features.insert(batch_.features.end(), pending.features.begin(), pending.features.end());
        for (std::size_t r = count; r < rows; ++r) {
            batch_.features.insert(batch_.features.end(),
                                   pending.features.end() - static_cast<std::ptrdiff_t>(feature_width_),
                                   pending.features.end());
        }
        last_row_.push_back(wanted.size() * rows + count - 1);
        wanted.push_back(static_cast<int>(count) - 1);
    }
    if (auto ok = model_->forward(batch_, wanted, output_); !ok) return ok;
    std::vector<int> path(rows);
    std::iota(path.begin(), path.end(), 0);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
        Pending& pending = pending_[static_cast<std::size_t>(sequences[s].slot)];
        model_->commit(sequences[s].slot, std::span(path).first(pending.tokens.size()));
        pending.tokens.clear();
        pending.features.clear();
    }
    return {};
}

/// The draft at output row `index`, written to the proposal. -1: logits that are not usable.
int ModelDrafter::pick(const DraftSequence& sequence, std::size_t index, int draft, Proposal& proposal) {
    int token = -1;
    if (sequence.sampling->greedy()) {
        token = greedy_choice(output_, index, static_cast<std::size_t>(model_->vocabulary())).token;
    } else {
        const auto logits = logits_row(index);
        q_.resize(logits.size());
        if (!maker_.make(logits, *sequence.sampling, q_)) return -1;
        token = draw(q_, *sequence.random);
        const auto q = proposal.distribution(index, draft);
        for (std::size_t v = 0; v < q_.size(); ++v) q[static_cast<std::size_t>(to_target(static_cast<int>(v)))] += q_[v];
        proposal.sampled[index] = 1;
    }
    if (token < 0) return -1;
    proposal.token_ids[index * static_cast<std::size_t>(width_) + static_cast<std::size_t>(draft) + 1] = to_target(token);
    proposal.drafted[index] = draft + 1;
    return to_target(token);
}

Expected<void> ModelDrafter::draft_chain(std::span<const DraftSequence> sequences, Proposal& proposal) {
    for (int draft = 0;; ++draft) {
        batch_.token_ids.clear();
        batch_.features.clear();
        for (std::size_t s = 0; s < sequences.size(); ++s) {
            const int token = pick(sequences[s], s, draft, proposal);
            if (token < 0) return not_finite();
            batch_.token_ids.push_back(token);
            append_hidden(draft == 0 ? last_row_[s] : s);
        }
        if (draft + 1 == options_.steps) return {};
        batch_.pass = Pass::draft;
        batch_.tokens = 1;
        batch_.parents.assign(sequences.size(), draft - 1);
        if (auto ok = model_->forward(batch_, {}, output_); !ok) return ok;
    }
}

Expected<void> ModelDrafter::draft_tree(std::span<const DraftSequence> sequences, Proposal& proposal) {
    const auto branches = static_cast<std::size_t>(options_.top_k);
    const auto size = static_cast<std::size_t>(model_->vocabulary());
    if (beams_.size() < sequences.size()) beams_.resize(sequences.size());
    for (std::size_t s = 0; s < sequences.size(); ++s) beams_[s].start(options_.top_k);
    for (int step = 0;; ++step) {
        const std::size_t rows = step == 0 ? 1 : branches;  // a sequence, in output_.logits
        batch_.token_ids.clear();
        batch_.features.clear();
        batch_.parents.clear();
        for (std::size_t s = 0; s < sequences.size(); ++s) {
            DraftBeam& beam = beams_[s];
            if (!beam.grow(std::span(output_.logits).subspan(s * rows * size, rows * size), model_->vocabulary()))
                return not_finite();
            for (std::size_t f = 0; f < branches; ++f) {
                const auto origin = static_cast<std::size_t>(beam.origins()[f]);
                batch_.token_ids.push_back(to_target(beam.nodes()[static_cast<std::size_t>(beam.frontier()[f])].token));
                // Draft pass i wrote the uncommitted rows (i - 1) top_k .. i top_k - 1.
                batch_.parents.push_back(step == 0 ? -1 : (step - 1) * options_.top_k + static_cast<int>(origin));
                append_hidden(step == 0 ? last_row_[s] : s * branches + origin);
            }
        }
        if (step + 1 == options_.steps) break;
        batch_.pass = Pass::draft;
        batch_.tokens = options_.top_k;
        if (auto ok = model_->forward(batch_, {}, output_); !ok) return ok;
    }
    for (std::size_t s = 0; s < sequences.size(); ++s) write_tree(beams_[s], s, proposal);
    return {};
}

void ModelDrafter::write_tree(const DraftBeam& beam, std::size_t sequence, Proposal& proposal) const {
    const std::vector<int> chosen = beam.best(width_ - 1);
    std::vector<int> row_of_node(beam.nodes().size(), 0);
    const std::size_t first = sequence * static_cast<std::size_t>(width_);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const DraftBeam::Node& node = beam.nodes()[static_cast<std::size_t>(chosen[i])];
        row_of_node[static_cast<std::size_t>(chosen[i])] = static_cast<int>(i) + 1;
        proposal.token_ids[first + i + 1] = to_target(node.token);
        proposal.parents[first + i + 1] = node.parent < 0 ? 0 : row_of_node[static_cast<std::size_t>(node.parent)];
    }
    proposal.drafted[sequence] = static_cast<int>(chosen.size());
}

void ModelDrafter::release(int slot) {
    pending_[static_cast<std::size_t>(slot)] = {};
    model_->clear(slot);
}

}  // namespace draftboard::backend
