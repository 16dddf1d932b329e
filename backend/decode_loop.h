// SPDX-License-Identifier: Apache-2.0
#pragma once
// The speculative decoding loop: requests in, tokens out. It owns the texts and the order of things; the target and the
// drafter own their caches, verification.h owns the rule of acceptance. One cycle is DecodeLoop::step():
//
//   admit      waiting requests take free slots; their prompts run in chunks of at most prefill_rows, one sequence a pass
//   propose    the drafter, for all sequences at once
//   verify     the target over width rows a sequence (Pass::verify); a plain step is width 1 (Pass::decode)
//   accept     one verdict a sequence
//   commit     accepted rows stay in the caches, tokens go out, finished texts leave
//
// Invariant between cycles, for a text of n tokens: the target holds n - 1 rows; the last token is the root of the next
// verify pass. Without a drafter the loop is plain decoding. A text too near max_length for a whole proposal, or longer than
// the drafter can follow, goes on by plain steps (a second pass in its cycle): its tokens are the same, only slower.
//
// Where a device runs whole cycles by itself (fused_cycle.h) and every sequence is greedy, step() hands it the batch, reads a cycle's tokens while
// the next one runs, and takes the batch back when a text ends, another waits, or room runs out.
//
// Lossless: greedy output equals plain decoding token for token, as far as the target computes the same logits at any
// width; choices by a gap below Sampling::tie_tolerance are reported, because there another summation order may decide
// otherwise. Every request draws from its own stream, Random(seed).fork(1 + number): batch mates change nothing.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/acceptance_counter.h"
#include "backend/drafter.h"
#include "backend/fused_cycle.h"
#include "backend/language_model.h"
#include "backend/sampling.h"
#include "backend/throughput.h"
#include "backend/verification.h"
#include "model/error.h"
#include "model/random.h"

namespace draftboard::backend {

struct Request {
    std::vector<int> prompt;  ///< at least one token
    Sampling sampling;
    int max_tokens = 128;
    std::vector<int> end_tokens;  ///< the text ends after any of these
};

enum class Finish { waiting, running, end_token, max_tokens, max_length, cancelled };
[[nodiscard]] std::string_view to_name(Finish finish);

struct Result {
    std::vector<int> tokens;     ///< generated; an end token is the last one
    std::vector<int> near_ties;  ///< indices into tokens: greedy choices by less than the tolerance
    Finish finish = Finish::waiting;
    AcceptanceCounter acceptance;  ///< of this request
};

/// Most rows of a prefill pass, unless a loop is told otherwise.
inline constexpr int kPrefillRows = 256;

struct LoopOptions {
    int batch = 0;           ///< sequences at once; 0: as many as the models hold
    int prefill_rows = kPrefillRows;
    std::uint64_t seed = 1;
    const std::atomic<bool>* cancel = nullptr;  ///< looked at before each pass of a prompt and each cycle
    /// Runs greedy cycles whole, where all sequences speculate or none does; outlives the loop. Null: the loop drives each pass.
    FusedCycle* fused = nullptr;
    /// Tokens of a request as they come, at least one a call.
    std::function<void(int request, std::span<const int> tokens)> on_tokens = {};
};

/// What the last cycle did. Times by the steady clock; prefill of requests that joined is not part of the others.
struct CycleReport {
    int sequences = 0;
    int passes = 0;    ///< of the target, prefill aside
    int rows = 0;      ///< verified, padding included
    int accepted = 0;  ///< drafts, over all sequences
    int emitted = 0;   ///< tokens, after limits
    double prefill_ms = 0;
    double draft_ms = 0;   ///< Drafter::propose and observe
    double verify_ms = 0;  ///< the target's passes
    double host_ms = 0;    ///< the rest: verdicts, commits, callbacks
    [[nodiscard]] double cycle_ms() const { return draft_ms + verify_ms + host_ms; }
};

struct LoopTotals {
    std::int64_t cycles = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t near_ties = 0;
    double prefill_ms = 0;
    double draft_ms = 0;
    double verify_ms = 0;
    double host_ms = 0;
    Throughput throughput;  ///< emitted tokens of cycles; prefill and its first token aside
};

class DecodeLoop {
 public:
    /// Both outlive the loop; their sequences are cleared as the loop uses them. `drafter` may be null: plain decoding.
    DecodeLoop(LanguageModel& target, Drafter* drafter, LoopOptions options);

    /// The request's number, counted from 0. Errors: an empty prompt, tokens out of range, a prompt that does not fit, limits.
    [[nodiscard]] model::Expected<int> submit(Request request);
    /// One cycle. False: nothing is left to do. After an error, or a cancel, the requests that were on are finished as cancelled.
    [[nodiscard]] model::Expected<bool> step();
    /// Steps until nothing is left.
    [[nodiscard]] model::Expected<void> run();

    [[nodiscard]] const Result& result(int request) const { return results_[static_cast<std::size_t>(request)]; }
    [[nodiscard]] const AcceptanceCounter& acceptance() const { return acceptance_; }
    [[nodiscard]] const CycleReport& last_cycle() const { return cycle_; }
    [[nodiscard]] const LoopTotals& totals() const { return totals_; }
    [[nodiscard]] int active() const { return static_cast<int>(active_.size()); }

 private:
    struct Sequence {
        int request = 0;
        int slot = 0;
        Sampling sampling;
        int max_tokens = 0;
        std::vector<int> end_tokens;
        std::vector<int> tokens;  ///< prompt and output
        std::size_t prompt = 0;   ///< tokens of the prompt
        model::Random random{0};
        bool speculates = false;
        int fused_rows = 0;       ///< that the last fused cycle kept
        bool finished = false;
    };
    using Group = std::vector<Sequence*>;

    [[nodiscard]] bool cancelled();
    void abandon();  ///< everything ends as cancelled
    [[nodiscard]] model::Expected<void> admit();
    [[nodiscard]] model::Expected<void> prefill(Sequence& sequence);
    [[nodiscard]] std::pair<Group, Group> groups();  ///< those that speculate, those that step plainly
    [[nodiscard]] model::Expected<void> cycle(const Group& group, bool speculate);
    // decode_loop_fused.cpp
    [[nodiscard]] bool can_fuse(const Group& speculative, const Group& plain) const;
    [[nodiscard]] model::Expected<void> begin_fused(const Group& group, bool speculate);
    [[nodiscard]] model::Expected<void> fused_cycle();
    [[nodiscard]] model::Expected<void> take_outcome(Sequence& sequence, const CycleOutcome& outcome);
    [[nodiscard]] model::Expected<void> leave_fused();
    void drop_fused();
    [[nodiscard]] model::Expected<void> propose(const Group& group, bool speculate);
    [[nodiscard]] model::Expected<void> verify(const Group& group);
    [[nodiscard]] model::Expected<void> accept(Sequence& sequence, std::size_t index);
    void take_verdict(Sequence& sequence, int drafted);  ///< counts what verdict_ accepted of `drafted`, and emits its tokens
    [[nodiscard]] static tl::unexpected<model::Error> not_finite(int request);
    [[nodiscard]] Sequence* running(int request);  ///< null: it has left
    [[nodiscard]] model::Expected<void> observe(Sequence& sequence, bool is_prefill, std::span<const int> rows,
                                                std::size_t first_row, std::span<const int> tokens);
    void emit(Sequence& sequence, std::span<const int> tokens, std::span<const int> near_ties);
    void leave(Sequence& sequence);
    void remove_finished();
    void add_to_totals();

    LanguageModel* target_;
    Drafter* drafter_;
    LoopOptions options_;
    std::deque<std::pair<int, Request>> waiting_;
    std::vector<Sequence> active_;
    std::vector<int> free_slots_;
    std::vector<Result> results_;
    AcceptanceCounter acceptance_;
    CycleReport cycle_;
    LoopTotals totals_;
    bool stopped_ = false;  ///< a cancel, once seen, holds for the whole step

    std::vector<int> fused_requests_;  ///< of the fused cycle's sequences, in its order; finished ones keep their place
    bool fused_speculates_ = false;
    Proposal proposal_;
    Verifier verifier_;
    Verdict verdict_;
    Batch batch_;
    ForwardOutput output_;
    std::vector<DraftSequence> draft_sequences_;
    std::vector<int> rows_;
};

}  // namespace draftboard::backend
