// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/loop/toy_model.h"

#include <set>

#include <gtest/gtest.h>

#include "model/random.h"

namespace draftboard::backend {

using model::Pass;

std::vector<float> ToyLanguage::logits(int previous, int last, std::int64_t position) const {
    const auto place = (static_cast<std::uint64_t>(previous + 1) * 1000 + static_cast<std::uint64_t>(last)) * 2 +
                       static_cast<std::uint64_t>(position % 2);
    model::Random base = model::Random(seed).fork(place + 1);
    model::Random other = model::Random(noise_seed).fork(place + 1);
    std::vector<float> out;
    for (int v = 0; v < vocabulary; ++v) {
        out.push_back(static_cast<float>(sharpness * ((1 - noise) * base.normal() + noise * other.normal())));
    }
    return out;
}

ToyModel::ToyModel(ToyOptions options)
    : options_(std::move(options)), sequences_(static_cast<std::size_t>(options_.capacity)) {}

int ToyModel::vocabulary() const {
    return options_.draft_tokens.empty() ? options_.language.vocabulary : static_cast<int>(options_.draft_tokens.size());
}

int ToyModel::feature_width(Pass pass) const {
    if (options_.kind == ToyKind::plain) return 0;
    return options_.kind == ToyKind::reads_features && pass != Pass::draft ? kFeatures : kHidden;
}

std::pair<int, std::int64_t> ToyModel::place(const Sequence& sequence, int parent) const {
    const auto committed = static_cast<std::int64_t>(sequence.committed.size());
    if (parent < 0) return {committed > 0 ? sequence.committed.back() : -1, committed};
    std::int64_t ancestors = 0;
    for (int p = parent; p >= 0; p = sequence.rows[static_cast<std::size_t>(p)].parent) ++ancestors;
    return {sequence.rows[static_cast<std::size_t>(parent)].token, committed + ancestors};
}

void ToyModel::check_feature(std::span<const float> feature, int previous, std::int64_t position, const char* where) const {
    EXPECT_EQ(feature[1], static_cast<float>(position)) << "the feature of another position, in " << where;
    EXPECT_EQ(feature[0], previous >= 0 ? static_cast<float>(previous) : feature[0])
        << "the feature of another token, in " << where;
}

model::Expected<void> ToyModel::forward(const Batch& batch, std::span<const int> logits_rows, ForwardOutput& output) {
    const auto tokens = static_cast<std::size_t>(batch.tokens);
    const std::size_t total = batch.sequences.size() * tokens;
    const auto width = static_cast<std::size_t>(feature_width(batch.pass));
    const bool keeps = batch.pass == Pass::prefill || batch.pass == Pass::decode;
    EXPECT_GE(batch.tokens, 1);
    EXPECT_EQ(batch.token_ids.size(), total);
    EXPECT_TRUE(batch.parents.empty() || batch.parents.size() == total);
    EXPECT_EQ(batch.features.size(), total * width);
    EXPECT_EQ(std::set<int>(batch.sequences.begin(), batch.sequences.end()).size(), batch.sequences.size())
        << "a slot stands twice in a batch";
    if (batch.pass == Pass::prefill) {
        EXPECT_EQ(batch.sequences.size(), 1U) << "one sequence a prefill pass";
        widest_prefill_ = std::max(widest_prefill_, batch.tokens);
    }
    ++passes_[static_cast<std::size_t>(batch.pass)];
    output = {};
    for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
        Sequence& sequence = sequences_.at(static_cast<std::size_t>(batch.sequences[s]));
        EXPECT_TRUE(!keeps || sequence.rows.empty()) << "a committing pass while rows are uncommitted";
        if (static_cast<std::int64_t>(sequence.committed.size() + sequence.rows.size() + tokens) > options_.max_length) {
            ADD_FAILURE() << "rows beyond max_length";
            return model::fail(model::ErrorCode::too_large, "the sequence is full", "toy");
        }
        const std::size_t wanted = batch.pass == Pass::draft_extend
                                       ? (logits_rows.empty() ? tokens - 1 : static_cast<std::size_t>(logits_rows[s]))
                                       : tokens - 1;
        for (std::size_t r = 0; r < tokens; ++r) {
            const std::size_t i = s * tokens + r;
            const int token = batch.token_ids[i];
            const int here = static_cast<int>(sequence.rows.size());
            const int parent = batch.parents.empty() ? here - 1 : batch.parents[i];
            EXPECT_TRUE(token >= 0 && token < options_.language.vocabulary) << "token " << token;
            EXPECT_TRUE(parent >= -1 && parent < here) << "parent " << parent << " of row " << here;
            const auto [previous, position] = place(sequence, parent);
            sequence.rows.push_back({token, parent});
            int before = previous;
            std::int64_t told = position;  // position in the text of `token`
            if (width > 0) {
                const auto feature = std::span(batch.features).subspan(i * width, width);
                const bool padding = batch.pass == Pass::draft_extend && r > wanted;
                if (!padding)
                    check_feature(feature, previous, position, batch.pass == Pass::draft ? "draft" : "extend or prefill");
                before = static_cast<int>(feature[0]);
                told = position + 1;  // the row of position t holds token t + 1
            }
            const auto all = options_.language.logits(before, token, told);
            const bool last_only = batch.pass == Pass::prefill || batch.pass == Pass::draft_extend;
            if (!last_only || r == wanted) {
                ++output.rows;
                if (options_.draft_tokens.empty()) output.logits.insert(output.logits.end(), all.begin(), all.end());
                for (const int v : options_.draft_tokens) output.logits.push_back(all[static_cast<std::size_t>(v)]);
            }
            for (const float state : {static_cast<float>(token), static_cast<float>(told)}) {
                output.hidden.push_back(state);
                output.features.push_back(state);
            }
            output.features.push_back(1.0F);
        }
        if (keeps) {
            for (const Row& row : sequence.rows) sequence.committed.push_back(row.token);
            sequence.rows.clear();
        }
    }
    return {};
}

void ToyModel::commit(int sequence, std::span<const int> path) {
    Sequence& state = sequences_.at(static_cast<std::size_t>(sequence));
    int parent = -1;
    for (const int row : path) {
        if (row < 0 || row >= static_cast<int>(state.rows.size())) {
            ADD_FAILURE() << "row " << row << " is not there to commit";
            return;
        }
        EXPECT_EQ(state.rows[static_cast<std::size_t>(row)].parent, parent) << "the path to commit is none";
        state.committed.push_back(state.rows[static_cast<std::size_t>(row)].token);
        parent = row;
    }
    state.rows.clear();
}

void ToyModel::discard(int sequence) { sequences_.at(static_cast<std::size_t>(sequence)).rows.clear(); }
void ToyModel::clear(int sequence) { sequences_.at(static_cast<std::size_t>(sequence)) = {}; }
std::int64_t ToyModel::length(int sequence) const {
    return static_cast<std::int64_t>(sequences_.at(static_cast<std::size_t>(sequence)).committed.size());
}
int ToyModel::uncommitted(int sequence) const {
    return static_cast<int>(sequences_.at(static_cast<std::size_t>(sequence)).rows.size());
}

bool ToyModel::empty() const {
    for (const Sequence& sequence : sequences_) {
        if (!sequence.committed.empty() || !sequence.rows.empty()) return false;
    }
    return true;
}

}  // namespace draftboard::backend
