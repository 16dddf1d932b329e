// SPDX-License-Identifier: Apache-2.0
#include "backend/decode_loop.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <fmt/format.h>

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::Pass;

namespace {

class Stopwatch {
 public:
    /// Milliseconds since the start or the last call.
    double lap_ms() {
        const auto now = Clock::now();
        const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
        last_ = now;
        return ms;
    }

 private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point last_ = Clock::now();
};

bool contains(const std::vector<int>& list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); }

}  // namespace

std::string_view to_name(Finish finish) {
    switch (finish) {
        case Finish::waiting: return "waiting";
        case Finish::running: return "running";
        case Finish::end_token: return "end_token";
        case Finish::max_tokens: return "max_tokens";
        case Finish::max_length: return "max_length";
        case Finish::cancelled: return "cancelled";
    }
    return "unknown";
}

DecodeLoop::DecodeLoop(LanguageModel& target, Drafter* drafter, LoopOptions options)
    : target_(&target),
      drafter_(drafter),
      options_(std::move(options)),
      acceptance_(drafter == nullptr ? 0 : drafter->depth()) {
    int slots = target.capacity();
    if (drafter != nullptr) slots = std::min(slots, drafter->capacity());
    if (options_.batch > 0) slots = std::min(slots, options_.batch);
    options_.prefill_rows = std::max(options_.prefill_rows, 1);
    free_slots_.resize(static_cast<std::size_t>(std::max(slots, 0)));
    std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);  // the lowest slot is taken first
    active_.reserve(free_slots_.size());
}

Expected<int> DecodeLoop::submit(Request request) {
    const int number = static_cast<int>(results_.size());
    const std::string context = fmt::format("request {}", number);
    if (free_slots_.empty() && active_.empty())
        return fail(ErrorCode::invalid_input, "the models hold no sequence", context);
    if (request.prompt.empty())
        return fail(ErrorCode::invalid_input, "the prompt is empty", context, "give at least one token");
    if (request.max_tokens < 1) return fail(ErrorCode::invalid_input, "max_tokens must be 1 or more", context);
    if (const auto problems = request.sampling.validate(); !problems.empty())
        return tl::unexpected(model::to_error(problems, context));
    for (const int token : request.prompt) {
        if (token >= 0 && token < target_->vocabulary()) continue;
        return fail(ErrorCode::invalid_input,
                    fmt::format("token {} is outside the vocabulary of {}", token, target_->vocabulary()), context);
    }
    if (static_cast<std::int64_t>(request.prompt.size()) > target_->max_length()) {
        return fail(
            ErrorCode::too_large,
            fmt::format("the prompt has {} tokens, a sequence holds {}", request.prompt.size(), target_->max_length()),
            context, "shorten it, or give the sequences more room");
    }
    results_.emplace_back().acceptance = AcceptanceCounter(acceptance_.depth());
    waiting_.emplace_back(number, std::move(request));
    return number;
}

tl::unexpected<model::Error> DecodeLoop::not_finite(int request) {
    return fail(ErrorCode::invalid_input, "the target's logits are not finite", fmt::format("request {}", request),
                "check the weights, and the number format of activations");
}

Expected<bool> DecodeLoop::step() {
    cycle_ = {};
    stopped_ = false;
    const auto run_cycle = [&]() -> Expected<void> {
        if (!fused_requests_.empty()) return fused_cycle();
        if (auto ok = admit(); !ok) return ok;
        if (cancelled()) abandon();
        const auto [speculative, plain] = groups();
        if (can_fuse(speculative, plain)) {
            const bool speculate = plain.empty();
            if (auto ok = begin_fused(speculate ? speculative : plain, speculate); !ok) return ok;
            return fused_cycle();
        }
        if (auto ok = cycle(speculative, true); !ok) return ok;
        return cycle(plain, false);
    };
    if (auto ok = run_cycle(); !ok) {
        abandon();
        return tl::unexpected(ok.error());
    }
    add_to_totals();
    remove_finished();
    if (active_.empty()) drop_fused();
    return !active_.empty() || !waiting_.empty();
}

Expected<void> DecodeLoop::run() {
    for (;;) {
        const auto more = step();
        if (!more) return tl::unexpected(more.error());
        if (!*more) return {};
    }
}

/// Propose, verify, accept and commit for one group. An empty group costs nothing.
Expected<void> DecodeLoop::cycle(const Group& group, bool speculate) {
    if (group.empty()) return {};
    Stopwatch watch;
    if (auto ok = propose(group, speculate); !ok) return ok;
    cycle_.draft_ms += watch.lap_ms();
    if (auto ok = verify(group); !ok) return ok;
    cycle_.verify_ms += watch.lap_ms();
    const double observed_before = cycle_.draft_ms;
    for (std::size_t i = 0; i < group.size(); ++i) {
        if (auto ok = accept(*group[i], i); !ok) return ok;
    }
    cycle_.host_ms += watch.lap_ms() - (cycle_.draft_ms - observed_before);
    return {};
}

Expected<void> DecodeLoop::propose(const Group& group, bool speculate) {
    draft_sequences_.clear();
    for (Sequence* sequence : group)
        draft_sequences_.push_back({sequence->slot, sequence->tokens, &sequence->sampling, &sequence->random});
    if (speculate) return drafter_->propose(draft_sequences_, target_->vocabulary(), proposal_);
    proposal_.reset(draft_sequences_, 1, target_->vocabulary());
    return {};
}

Expected<void> DecodeLoop::verify(const Group& group) {
    batch_.pass = proposal_.width > 1 ? Pass::verify : Pass::decode;
    batch_.sequences.clear();
    for (const Sequence* sequence : group) batch_.sequences.push_back(sequence->slot);
    batch_.tokens = proposal_.width;
    batch_.token_ids = proposal_.token_ids;
    batch_.parents.clear();
    if (proposal_.width > 1) batch_.parents = proposal_.parents;
    batch_.features.clear();
    batch_.greedy = std::ranges::all_of(group, [](const Sequence* sequence) { return sequence->sampling.greedy(); });
    cycle_.sequences += static_cast<int>(group.size());
    cycle_.rows += static_cast<int>(batch_.token_ids.size());
    ++cycle_.passes;
    return target_->forward(batch_, {}, output_);
}

Expected<void> DecodeLoop::accept(Sequence& sequence, std::size_t index) {
    const auto width = static_cast<std::size_t>(proposal_.width);
    if (!verifier_.verify(proposal_, index, output_, index * width, sequence.sampling, sequence.random, verdict_))
        return not_finite(sequence.request);
    if (width > 1) target_->commit(sequence.slot, verdict_.path);
    take_verdict(sequence, proposal_.drafted[index]);
    if (sequence.finished || !sequence.speculates) return {};
    Stopwatch watch;
    auto observed = observe(sequence, false, verdict_.path, index * width, sequence.tokens);
    cycle_.draft_ms += watch.lap_ms();
    return observed;
}

void DecodeLoop::take_verdict(Sequence& sequence, int drafted) {
    if (sequence.speculates) {
        acceptance_.count(drafted, verdict_.accepted());
        results_[static_cast<std::size_t>(sequence.request)].acceptance.count(drafted, verdict_.accepted());
        cycle_.accepted += verdict_.accepted();
    }
    const std::size_t before = sequence.tokens.size();
    emit(sequence, verdict_.tokens, verdict_.near_ties);
    cycle_.emitted += static_cast<int>(sequence.tokens.size() - before);
}

Expected<void> DecodeLoop::observe(Sequence& sequence, bool is_prefill, std::span<const int> rows, std::size_t first_row,
                                   std::span<const int> tokens) {
    rows_.clear();
    for (const int row : rows) rows_.push_back(static_cast<int>(first_row) + row);
    return drafter_->observe({sequence.slot, is_prefill, tokens, rows_, &output_});
}

Expected<void> DecodeLoop::admit() {
    Stopwatch watch;
    while (!free_slots_.empty() && !waiting_.empty() && !cancelled()) {
        auto [number, request] = std::move(waiting_.front());
        waiting_.pop_front();
        Sequence& sequence = active_.emplace_back();
        sequence.request = number;
        sequence.slot = free_slots_.back();
        sequence.sampling = request.sampling;
        sequence.max_tokens = request.max_tokens;
        sequence.end_tokens = std::move(request.end_tokens);
        sequence.tokens = std::move(request.prompt);
        sequence.prompt = sequence.tokens.size();
        sequence.random = model::Random(options_.seed).fork(1 + static_cast<std::uint64_t>(number));
        sequence.speculates = drafter_ != nullptr && static_cast<std::int64_t>(sequence.prompt) < drafter_->max_length();
        free_slots_.pop_back();
        results_[static_cast<std::size_t>(number)].finish = Finish::running;
        if (auto ok = prefill(sequence); !ok) return ok;
        remove_finished();
    }
    cycle_.prefill_ms += watch.lap_ms();
    return {};
}

/// The prompt in chunks; the last one's logits give the first token.
Expected<void> DecodeLoop::prefill(Sequence& sequence) {
    target_->clear(sequence.slot);
    if (drafter_ != nullptr) drafter_->release(sequence.slot);
    totals_.prompt_tokens += static_cast<std::int64_t>(sequence.prompt);
    std::vector<int> rows(std::min(sequence.prompt, static_cast<std::size_t>(options_.prefill_rows)));
    std::iota(rows.begin(), rows.end(), 0);
    for (std::size_t first = 0; first < sequence.prompt && !sequence.finished; first += rows.size()) {
        if (cancelled()) return {};  // step() ends it
        const std::size_t count = std::min(rows.size(), sequence.prompt - first);
        const auto chunk = std::span(sequence.tokens).subspan(first, count);
        batch_.pass = Pass::prefill;
        batch_.sequences.assign(1, sequence.slot);
        batch_.tokens = static_cast<int>(count);
        batch_.token_ids.assign(chunk.begin(), chunk.end());
        batch_.parents.clear();
        batch_.features.clear();
        batch_.greedy = sequence.sampling.greedy();
        if (auto ok = target_->forward(batch_, {}, output_); !ok) return ok;
        const bool last = first + count == sequence.prompt;
        if (last) {
            const DraftSequence alone{sequence.slot, sequence.tokens, &sequence.sampling, &sequence.random};
            proposal_.reset(std::span(&alone, 1), 1, target_->vocabulary());
            if (!verifier_.verify(proposal_, 0, output_, 0, sequence.sampling, sequence.random, verdict_))
                return not_finite(sequence.request);
            emit(sequence, verdict_.tokens, verdict_.near_ties);
        }
        if (!sequence.speculates || sequence.finished) continue;
        const auto so_far = std::span(sequence.tokens).first(first + count + 1);
        if (auto ok = observe(sequence, true, std::span(rows).first(count), 0, so_far); !ok) return ok;
    }
    return {};
}

std::pair<DecodeLoop::Group, DecodeLoop::Group> DecodeLoop::groups() {
    std::pair<Group, Group> out;
    for (Sequence& sequence : active_) {
        const auto length = static_cast<std::int64_t>(sequence.tokens.size());
        if (sequence.speculates &&
            (length - 1 + drafter_->width() > target_->max_length() || length > drafter_->max_length())) {
            sequence.speculates = false;
            drafter_->release(sequence.slot);
        }
        (sequence.speculates ? out.first : out.second).push_back(&sequence);
    }
    return out;
}

void DecodeLoop::emit(Sequence& sequence, std::span<const int> tokens, std::span<const int> near_ties) {
    Result& result = results_[static_cast<std::size_t>(sequence.request)];
    const auto before = static_cast<int>(result.tokens.size());
    for (const int token : tokens) {
        sequence.tokens.push_back(token);
        result.tokens.push_back(token);
        if (contains(sequence.end_tokens, token)) {
            result.finish = Finish::end_token;
        } else if (static_cast<int>(result.tokens.size()) >= sequence.max_tokens) {
            result.finish = Finish::max_tokens;
        }
        if (result.finish != Finish::running) break;
    }
    // The next row would be number tokens.size() of the cache.
    if (result.finish == Finish::running && static_cast<std::int64_t>(sequence.tokens.size()) > target_->max_length()) {
        result.finish = Finish::max_length;
    }
    sequence.finished = result.finish != Finish::running;
    for (const int tie : near_ties) {
        if (before + tie >= static_cast<int>(result.tokens.size())) break;
        result.near_ties.push_back(before + tie);
        ++totals_.near_ties;
    }
    if (options_.on_tokens)
        options_.on_tokens(sequence.request, std::span<const int>(result.tokens).subspan(static_cast<std::size_t>(before)));
}

bool DecodeLoop::cancelled() {
    stopped_ = stopped_ || (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed));
    return stopped_;
}

void DecodeLoop::abandon() {
    drop_fused();
    for (Sequence& sequence : active_) {
        sequence.finished = true;
        Result& result = results_[static_cast<std::size_t>(sequence.request)];
        if (result.finish == Finish::running) result.finish = Finish::cancelled;
    }
    remove_finished();
    for (const auto& [number, request] : waiting_) results_[static_cast<std::size_t>(number)].finish = Finish::cancelled;
    waiting_.clear();
}

void DecodeLoop::leave(Sequence& sequence) {
    target_->discard(sequence.slot);
    target_->clear(sequence.slot);
    if (drafter_ != nullptr) drafter_->release(sequence.slot);
    free_slots_.push_back(sequence.slot);
}

void DecodeLoop::remove_finished() {
    for (Sequence& sequence : active_) {
        if (sequence.finished) leave(sequence);
    }
    std::erase_if(active_, [](const Sequence& sequence) { return sequence.finished; });
}

void DecodeLoop::add_to_totals() {
    totals_.prefill_ms += cycle_.prefill_ms;
    if (cycle_.passes == 0) return;
    ++totals_.cycles;
    totals_.draft_ms += cycle_.draft_ms;
    totals_.verify_ms += cycle_.verify_ms;
    totals_.host_ms += cycle_.host_ms;
    totals_.throughput.count(cycle_.emitted, cycle_.cycle_ms() * 1e-3);
}

}  // namespace draftboard::backend
