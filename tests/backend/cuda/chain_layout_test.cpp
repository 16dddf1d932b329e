// SPDX-License-Identifier: Apache-2.0
// The words that the device lays out between the passes of a fused cycle (chain_layout.h), held against the words that the host
// lays out for the same texts: a sequence table with a decode loop's commits for the target, the real ModelDrafter over a model
// that keeps what each of its passes brought to the device. No GPU is needed.
#include "backend/cuda/chain_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/chain_rows.h"
#include "backend/model_drafter.h"

namespace draftboard::backend::cuda {
namespace {

using model::Pass;

constexpr int kCapacity = 6;
constexpr std::int64_t kLength = 4096;
constexpr int kTargetVocabulary = 90;
constexpr int kDraftVocabulary = 40;
constexpr int kHidden = 1;
constexpr int kFeatures = 2;
constexpr std::int32_t kPoison = -77;

/// Of what kernels read of a pass: no array longer than they read it.
struct Seen {
    std::vector<std::int32_t> token_ids, positions, slots, committed, first_row, parents, masks, logits_rows;
    std::map<int, std::pair<int, std::vector<int>>> commits;  ///< slot: committed, path
    bool operator==(const Seen&) const = default;
};

Seen seen(const PassBlock& block, const std::int32_t* words) {
    const PassView view = block.view(words, true);
    const CommitView commits = block.commits(words);
    Seen out;
    const auto take = [](std::vector<std::int32_t>& to, const std::int32_t* from, int count) { to.assign(from, from + count); };
    take(out.token_ids, view.token_ids, view.rows());
    take(out.positions, view.positions, view.rows());
    take(out.slots, view.slots, view.sequences);
    take(out.committed, view.committed, view.sequences);
    take(out.first_row, view.first_row, view.sequences);
    take(out.masks, reinterpret_cast<const std::int32_t*>(view.masks), view.rows() * kMaskWords);
    take(out.logits_rows, view.logits_rows, view.logits_count);
    for (int s = 0; s < view.sequences; ++s) {
        const std::int32_t* parents = view.parents + std::ptrdiff_t{s} * kMaxUncommitted;
        out.parents.insert(out.parents.end(), parents, parents + view.first_row[s] + view.tokens);
    }
    for (int c = 0; c < commits.count; ++c) {
        if (commits.lengths[c] == 0) continue;
        const std::int32_t* path = commits.paths + std::ptrdiff_t{c} * kMaxUncommitted;
        const auto [at, fresh] = out.commits.emplace(
            commits.slots[c], std::pair{commits.committed[c], std::vector<int>(path, path + commits.lengths[c])});
        EXPECT_TRUE(fresh) << "two commits of slot " << at->first;
    }
    return out;
}

/// Which array differs first, for a message that says more than "not equal".
std::string difference(const Seen& device, const Seen& host) {
    if (device.token_ids != host.token_ids) return "tokens";
    if (device.positions != host.positions) return "positions";
    if (device.slots != host.slots) return "slots";
    if (device.committed != host.committed) return "committed";
    if (device.first_row != host.first_row) return "first rows";
    if (device.parents != host.parents) return "parents";
    if (device.masks != host.masks) return "masks";
    if (device.logits_rows != host.logits_rows) return "rows of logits";
    return device.commits == host.commits ? "" : "commits";
}

Seen lay_out(SequenceTable& table, const Batch& batch, std::span<const int> logits_rows) {
    const PassRows& rows = table.lay_out(batch, logits_rows);
    const PassBlock block(rows.sequences, rows.tokens, static_cast<int>(rows.logits_rows.size()), table.capacity());
    std::vector<std::int32_t> words(static_cast<std::size_t>(block.words()), kPoison);
    block.fill(rows, table.pending(), words.data());
    table.pending_taken();
    return seen(block, words.data());
}

/// A drafter's model that draws its tokens and keeps its passes.
class Recorder final : public LanguageModel {
   public:
    struct Ran {
        Pass pass;
        Seen seen;
        std::vector<float> features;
        ForwardOutput output;
    };
    explicit Recorder(unsigned seed) : random_(seed) {}
    [[nodiscard]] int vocabulary() const override { return kDraftVocabulary; }
    [[nodiscard]] int hidden() const override { return kHidden; }
    [[nodiscard]] int feature_width(Pass pass) const override { return pass == Pass::draft ? kHidden : kFeatures; }
    [[nodiscard]] int capacity() const override { return kCapacity; }
    [[nodiscard]] std::int64_t max_length() const override { return kLength; }
    [[nodiscard]] model::Expected<void> forward(const Batch& batch, std::span<const int> logits_rows,
                                                ForwardOutput& output) override {
        if (auto ok = table.check(batch, logits_rows, kTargetVocabulary, feature_width(batch.pass)); !ok) return ok;
        Ran& pass = ran.emplace_back(Ran{batch.pass, lay_out(table, batch, logits_rows), batch.features, {}});
        output = {};
        output.rows = static_cast<int>(pass.seen.logits_rows.size());
        for (int row = 0; row < output.rows; ++row)
            output.choices.push_back({static_cast<int>(random_() % kDraftVocabulary), 1.0});
        for (std::size_t row = 0; row < batch.token_ids.size(); ++row) output.hidden.push_back(next_state_++);
        table.ran(batch);
        pass.output = output;
        return {};
    }
    void commit(int sequence, std::span<const int> path) override { table.commit(sequence, path); }
    void discard(int sequence) override { table.discard(sequence); }
    void clear(int sequence) override { table.clear(sequence); }
    [[nodiscard]] std::int64_t length(int sequence) const override { return table.length(sequence); }
    [[nodiscard]] int uncommitted(int sequence) const override { return table.uncommitted(sequence); }

    SequenceTable table{kCapacity, kLength, kMaxUncommitted};
    std::vector<Ran> ran;

   private:
    std::mt19937 random_;
    float next_state_ = 1;
};

/// The device's half: memory that the functions of chain_layout.h write, laid out as chain_cycle.cpp lays it out.
struct Device {
    struct Words {
        std::optional<PassBlock> block;
        std::vector<std::int32_t> words;
        [[nodiscard]] Seen seen() const { return cuda::seen(*block, words.data()); }
    };
    Words verify, extend;
    std::vector<Words> drafts;
    std::vector<std::int32_t> drafted, kept, extend_source, draft_source, record;
    std::vector<float> gaps;
    ChainState state;

    Device(const std::vector<int>& slots, int width, const SequenceTable& target, const SequenceTable& drafter,
           const std::vector<int>& token_ids) {
        const std::size_t rows = slots.size() * static_cast<std::size_t>(width);
        state.sequences = static_cast<int>(slots.size());
        state.width = width;
        std::vector<std::int64_t> committed;
        for (const int slot : slots) {
            committed.push_back(target.length(slot));
            drafted.push_back(static_cast<std::int32_t>(drafter.length(slot)));
            kept.push_back(rows_that_wait(drafter.pending(), slot));
        }
        extend_source.assign(rows, kPoison);
        draft_source.assign(slots.size(), kPoison);
        record.assign(rows + slots.size(), kPoison);
        gaps.assign(rows, std::numeric_limits<float>::quiet_NaN());
        state.verify = lay(verify, VerifyRows(slots, committed, token_ids, width), target.pending());
        if (width > 1) state.extend = lay(extend, ChainRows(Pass::draft_extend, slots, width, 0, false), {});
        drafts.resize(static_cast<std::size_t>(std::max(width - 2, 0)));
        for (std::size_t step = 0; step < drafts.size(); ++step)
            state.drafts[step] = lay(drafts[step], ChainRows(Pass::draft, slots, 1, static_cast<int>(step), true), {});
        state.drafted = drafted.data();
        state.kept = kept.data();
        state.extend_source = extend_source.data();
        state.draft_source = draft_source.data();
        state.record = record.data();
        state.gaps = gaps.data();
    }

   private:
    static PassWords lay(Words& to, const ChainRows& rows, std::span<const PendingCommit> pending) {
        to.block = rows.block(kCapacity);
        to.words = rows.words(pending, kCapacity);
        return to.block->writable(to.words.data());
    }
};

/// A chain's target: the best tokens of a verify pass's rows, of which the first `accepted` are the drafts.
struct Chosen {
    std::vector<std::int32_t> tokens;  ///< rows x 2
    std::vector<float> values;
    std::vector<float> sums;
    [[nodiscard]] ChainChoices view() const { return {tokens.data(), values.data(), sums.data()}; }
};

class ChainLayout : public testing::TestWithParam<int> {};

TEST_P(ChainLayout, Is_what_the_host_lays_out_in_every_cycle) {
    const int width = GetParam();
    const auto tokens_a_sequence = static_cast<std::size_t>(width);
    std::mt19937 random(static_cast<unsigned>(100 + width));
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
    const std::vector<int> slots{4, 0, 2};  // neither ascending nor all
    std::vector<int> map(kDraftVocabulary);
    for (int v = 0; v < kDraftVocabulary; ++v) map[static_cast<std::size_t>(v)] = 2 * v + 3;

    SequenceTable target(kCapacity, kLength, kMaxUncommitted);
    Recorder model(static_cast<unsigned>(width));
    std::optional<ModelDrafter> drafter;
    if (width > 1) {
        auto made = ModelDrafter::create(model, kTargetVocabulary, eagle3_options(width - 1, 1, 0, map));
        ASSERT_TRUE(made.has_value()) << made.error().to_text();
        drafter.emplace(std::move(*made));
    }
    Sampling greedy;
    greedy.temperature = 0;
    ASSERT_TRUE(greedy.greedy());
    std::vector<std::vector<int>> texts(slots.size());
    ForwardOutput of_target;  // of the last verify pass: a state of a row is a number of its own
    float next_state = 1000;
    const auto new_states = [&](std::size_t rows) {
        of_target.features.resize(rows * kFeatures);
        for (float& number : of_target.features) number = next_state++;
    };
    // Prompts of several lengths.
    for (std::size_t s = 0; s < slots.size(); ++s) {
        const std::size_t prompt = 5 + 7 * s;
        for (std::size_t t = 0; t <= prompt; ++t) texts[s].push_back(draw(kTargetVocabulary));
        Batch batch;
        batch.pass = Pass::prefill;
        batch.sequences = {slots[s]};
        batch.tokens = static_cast<int>(prompt);
        batch.token_ids.assign(texts[s].begin(), texts[s].end() - 1);
        target.ran(batch);
        new_states(prompt);
        std::vector<int> rows(prompt);
        std::iota(rows.begin(), rows.end(), 0);
        if (!drafter) continue;
        ASSERT_TRUE(drafter->observe({slots[s], true, texts[s], rows, &of_target}).has_value());
    }

    Proposal proposal;
    const auto propose = [&] {
        std::vector<DraftSequence> sequences;
        for (std::size_t s = 0; s < slots.size(); ++s) sequences.push_back({slots[s], texts[s], &greedy, nullptr});
        model.ran.clear();
        if (drafter) {
            ASSERT_TRUE(drafter->propose(sequences, kTargetVocabulary, proposal).has_value());
        } else {
            proposal.reset(sequences, 1, kTargetVocabulary);
        }
    };
    std::optional<Device> device;
    for (int cycle = 0; cycle < 40; ++cycle) {
        const std::string place = "width " + std::to_string(width) + ", cycle " + std::to_string(cycle);
        propose();
        ASSERT_EQ(proposal.token_ids.size(), slots.size() * tokens_a_sequence);
        // Two cycles by the host before the device takes over: commits of its last verify pass wait, in an order of their own.
        if (cycle == 2) device.emplace(slots, width, target, model.table, proposal.token_ids);
        if (cycle > 2 && width > 1) {
            // The drafter's passes, which ran behind the last verify pass.
            ASSERT_EQ(model.ran.size(), tokens_a_sequence - 1) << place;
            for (std::size_t pass = 0; pass < model.ran.size(); ++pass) {
                const Recorder::Ran& host = model.ran[pass];
                // Tokens of further steps come from the pass before.
                const Seen own = pass == 0 ? device->extend.seen() : device->drafts[pass - 1].seen();
                EXPECT_EQ(difference(own, host.seen), "") << place << ", pass " << pass << " of the drafter";
                for (std::size_t row = 0; pass == 0 && row < host.seen.token_ids.size(); ++row) {
                    const auto from = static_cast<std::size_t>(device->extend_source[row]);
                    for (std::size_t i = 0; i < kFeatures; ++i) {
                        EXPECT_EQ(of_target.features[from * kFeatures + i], host.features[row * kFeatures + i]) << place;
                    }
                }
                for (std::size_t s = 0; pass == 1 && s < slots.size(); ++s) {
                    const auto from = static_cast<std::size_t>(device->draft_source[s]);
                    EXPECT_EQ(model.ran[0].output.hidden[from], host.features[s]) << place;
                }
                for (std::size_t s = 0; s < slots.size(); ++s) {
                    take_sequence(device->state, static_cast<int>(pass), static_cast<int>(s), host.output.choices[s].token,
                                  map.data());
                }
            }
        }
        Batch batch;
        batch.pass = width > 1 ? Pass::verify : Pass::decode;
        batch.sequences = slots;
        batch.tokens = width;
        batch.token_ids = proposal.token_ids;
        if (width > 1) batch.parents = proposal.parents;
        const Seen verified = lay_out(target, batch, {});
        target.ran(batch);
        if (device) {
            EXPECT_EQ(difference(device->verify.seen(), verified), "") << place << ", the target's pass";
        }

        Chosen chosen;
        std::vector<int> accepted;
        for (std::size_t s = 0; s < slots.size(); ++s) {
            accepted.push_back(draw(width));
            for (int row = 0; row < width; ++row) {
                const std::size_t at = s * tokens_a_sequence + static_cast<std::size_t>(row);
                const int draft = row + 1 < width ? proposal.token_ids[at + 1] : -1;
                // Beyond the first refusal the target may well agree with drafts again.
                const bool agrees = row < accepted.back() || (row > accepted.back() && draft >= 0 && draw(2) == 0);
                const int token = agrees ? draft : (draft + 1 + draw(kTargetVocabulary - 1)) % kTargetVocabulary;
                const auto value = static_cast<float>(3 + row);
                chosen.tokens.insert(chosen.tokens.end(), {token, (token + 1) % kTargetVocabulary});
                chosen.values.insert(chosen.values.end(), {value, value - 0.5F});
                chosen.sums.push_back(1.25F);
            }
        }
        new_states(slots.size() * tokens_a_sequence);
        if (device) {
            for (int s = 0; s < device->state.sequences; ++s) accept_sequence(device->state, s, chosen.view());
            for (int thread = 0; thread < 3; ++thread) empty_commits(device->state, thread, 3);
        }
        // The host commits from the last sequence to the first.
        for (std::size_t s = slots.size(); s-- > 0;) {
            std::vector<int> path(static_cast<std::size_t>(accepted[s]) + 1);
            std::iota(path.begin(), path.end(), 0);
            if (width > 1) target.commit(slots[s], path);
            for (std::size_t row = 0; row < path.size(); ++row)
                texts[s].push_back(chosen.tokens[2 * (s * tokens_a_sequence + row)]);
            if (device) {
                const std::int32_t* record = device->record.data() + s * (tokens_a_sequence + 1);
                EXPECT_EQ(record[0], accepted[s]) << place;
                for (std::size_t row = 0; row < tokens_a_sequence; ++row) {
                    EXPECT_EQ(record[1 + row], chosen.tokens[2 * (s * tokens_a_sequence + row)]) << place;
                    EXPECT_EQ(device->gaps[s * tokens_a_sequence + row], 0.5F) << place;
                }
            }
            if (!drafter) continue;
            std::vector<int> rows;
            for (const int row : path) rows.push_back(static_cast<int>(s) * width + row);
            ASSERT_TRUE(drafter->observe({slots[s], false, texts[s], rows, &of_target}).has_value());
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Widths, ChainLayout, testing::Values(1, 2, 3, 4, 6, kMaxFurtherSteps + 2),
                         [](const auto& instance) { return "of_" + std::to_string(instance.param); });

TEST(ChainLayoutOfOne, Says_which_rows_are_not_usable_and_lays_out_tokens_that_there_are) {
    SequenceTable table(kCapacity, kLength, kMaxUncommitted);
    const float none = std::numeric_limits<float>::quiet_NaN();
    const float endless = std::numeric_limits<float>::infinity();
    const std::vector<std::pair<float, float>> not_usable{{none, 1.0F}, {-endless, 1.0F}, {1.0F, none}, {1.0F, endless}};
    for (const auto& [value, sum] : not_usable) {
        Device device({3}, 3, table, table, {5, 6, 7});
        const Chosen chosen{{6, 0, 7, 0, 8, 0}, {1, 0, value, 0, 1, 0}, {1, sum, 1}};
        accept_sequence(device.state, 0, chosen.view());
        EXPECT_EQ(device.record, (std::vector<std::int32_t>{1, 6, -1, 8}));
        EXPECT_EQ(device.verify.seen().token_ids.front(), 0);
        EXPECT_EQ(device.extend.seen().token_ids, (std::vector<std::int32_t>{6, 0, 0}));
    }
}

TEST(ChainLayoutOfOne, Has_a_bucket_for_every_row_that_the_cycle_launched_ahead_may_see) {
    // All drafts accepted in two cycles that the host has not read: the second one's rows stand as far out as any.
    for (int width = 1; width <= kMaxFurtherSteps + 2; ++width) {
        constexpr int kCommitted = 9;
        SequenceTable table(kCapacity, kLength, kMaxUncommitted);
        table.set_length(1, kCommitted);
        Device device({1}, width, table, table, std::vector<int>(static_cast<std::size_t>(width), 4));
        const auto all = static_cast<std::size_t>(width);
        Chosen chosen;
        chosen.tokens.assign(2 * all, 4);
        chosen.values.assign(2 * all, 1);
        chosen.sums.assign(all, 1);
        std::int64_t furthest = 0;
        for (int cycle = 0; cycle < 2; ++cycle) {
            const auto look = [&](const Device::Words& words) {
                for (const std::int32_t at : words.seen().positions) furthest = std::max<std::int64_t>(furthest, at + 1);
            };
            look(device.verify);
            accept_sequence(device.state, 0, chosen.view());
            if (width > 1) look(device.extend);
            for (const Device::Words& draft : device.drafts) look(draft);
            for (int draft = 0; draft < width - 1; ++draft) take_sequence(device.state, draft, 0, 4, nullptr);
        }
        EXPECT_EQ(furthest, most_chain_rows(kCommitted, width)) << width;
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
