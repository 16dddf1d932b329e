// SPDX-License-Identifier: Apache-2.0
// The part of the decode loop that lets a device run whole cycles (fused_cycle.h); declared in decode_loop.h.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "backend/decode_loop.h"

namespace draftboard::backend {

using model::Expected;

namespace {

/// Cycles that may be under way beyond the tokens that the loop knows: the one in flight and the one launched behind it.
constexpr int kCyclesAhead = 2;

}  // namespace

DecodeLoop::Sequence* DecodeLoop::running(int request) {
    const auto found = std::ranges::find(active_, request, &Sequence::request);
    return found == active_.end() ? nullptr : &*found;
}

bool DecodeLoop::can_fuse(const Group& speculative, const Group& plain) const {
    if (options_.fused == nullptr || speculative.empty() == plain.empty()) return false;
    const Group& group = plain.empty() ? speculative : plain;
    const int width = speculative.empty() ? 1 : drafter_->width();
    if (width != options_.fused->width() || static_cast<int>(group.size()) > options_.fused->most_sequences()) return false;
    if (!waiting_.empty() && !free_slots_.empty()) return false;
    return std::ranges::all_of(group, [&](const Sequence* sequence) {
        const std::int64_t reach = static_cast<std::int64_t>(sequence->tokens.size()) + (kCyclesAhead + 1) * std::int64_t{width};
        const bool room = reach <= target_->max_length() && (speculative.empty() || reach <= drafter_->max_length());
        return sequence->sampling.greedy() && room;
    });
}

Expected<void> DecodeLoop::begin_fused(const Group& group, bool speculate) {
    const auto begin = std::chrono::steady_clock::now();
    if (auto ok = propose(group, speculate); !ok) return ok;
    if (auto ok = options_.fused->begin(draft_sequences_, proposal_); !ok) return ok;
    cycle_.draft_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    for (const Sequence* sequence : group) fused_requests_.push_back(sequence->request);
    fused_speculates_ = speculate;
    return {};
}

Expected<void> DecodeLoop::fused_cycle() {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Sequence*> members;  // null: finished in an earlier cycle
    Group going_on;
    for (const int request : fused_requests_) {
        members.push_back(running(request));
        if (members.back() != nullptr) going_on.push_back(members.back());
    }
    const bool whole = going_on.size() == members.size();
    const bool more = !cancelled() && whole && (fused_speculates_ ? can_fuse(going_on, {}) : can_fuse({}, going_on));
    CycleTimes times;
    const auto outcomes = options_.fused->step(more, times);
    if (!outcomes) return tl::unexpected(outcomes.error());
    ++cycle_.passes;
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i] == nullptr) continue;
        ++cycle_.sequences;
        cycle_.rows += options_.fused->width();
        if (auto ok = take_outcome(*members[i], (*outcomes)[i]); !ok) return ok;
    }
    if (!more) {
        if (auto ok = leave_fused(); !ok) return ok;
    }
    cycle_.verify_ms += times.verify_ms;
    cycle_.draft_ms += times.draft_ms;
    const double wall = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    cycle_.host_ms += std::max(0.0, wall - times.verify_ms - times.draft_ms);
    return {};
}

Expected<void> DecodeLoop::take_outcome(Sequence& sequence, const CycleOutcome& outcome) {
    verdict_.path.resize(outcome.choices.size());
    std::iota(verdict_.path.begin(), verdict_.path.end(), 0);
    verdict_.tokens.clear();
    verdict_.near_ties.clear();
    for (const GreedyChoice& choice : outcome.choices) {
        if (choice.token < 0) return not_finite(sequence.request);
        if (choice.gap < sequence.sampling.tie_tolerance) verdict_.near_ties.push_back(static_cast<int>(verdict_.tokens.size()));
        verdict_.tokens.push_back(choice.token);
    }
    take_verdict(sequence, options_.fused->width() - 1);
    sequence.fused_rows = outcome.accepted() + 1;
    return {};
}

/// The batch comes back as after a cycle of the loop's own.
Expected<void> DecodeLoop::leave_fused() {
    std::vector<int> slots;
    for (const int request : fused_requests_) {
        const Sequence* sequence = running(request);
        if (sequence != nullptr && !sequence->finished) slots.push_back(sequence->slot);
    }
    if (auto ok = options_.fused->leave(slots, output_); !ok) return ok;
    const std::vector<int> requests = std::exchange(fused_requests_, {});
    for (std::size_t i = 0; i < requests.size() && fused_speculates_; ++i) {
        Sequence* sequence = running(requests[i]);
        if (sequence == nullptr || sequence->finished) continue;
        std::vector<int> rows(static_cast<std::size_t>(sequence->fused_rows));
        std::iota(rows.begin(), rows.end(), 0);
        const auto first = i * static_cast<std::size_t>(options_.fused->width());
        if (auto ok = observe(*sequence, false, rows, first, sequence->tokens); !ok) return ok;
    }
    return {};
}

/// What is in flight comes down; its tokens are nobody's.
void DecodeLoop::drop_fused() {
    if (fused_requests_.empty()) return;
    CycleTimes times;
    (void)options_.fused->step(false, times);
    (void)options_.fused->leave({}, output_);
    fused_requests_.clear();
}

}  // namespace draftboard::backend
