// SPDX-License-Identifier: Apache-2.0
#pragma once
// A language model in a hundred lines: the next token depends on the last two tokens and on whether the position is even,
// through a hash. It keeps rows as language_model.h says and fails the test wherever a caller breaks that contract.
// Three kinds: a plain model (target or draft model), a head that reads the target's features, one that reads its hidden
// state. States are readable numbers (token, position), so that a head can check what it is given against its own rows.

#include <cstdint>
#include <vector>

#include "backend/language_model.h"

namespace draftboard::backend {

/// Logits after (previous, last) at the position of `last`: sharpness x ((1 - noise) N(seed) + noise N(other seed)).
struct ToyLanguage {
    std::uint64_t seed = 1;
    int vocabulary = 12;
    double sharpness = 2.0;
    double noise = 0.0;
    std::uint64_t noise_seed = 99;
    [[nodiscard]] std::vector<float> logits(int previous, int last, std::int64_t position) const;
};

enum class ToyKind { plain, reads_features, reads_hidden };

struct ToyOptions {
    ToyLanguage language;
    ToyKind kind = ToyKind::plain;
    int capacity = 4;
    std::int64_t max_length = 4096;
    std::vector<int> draft_tokens;  ///< the target tokens that it has logits for; empty: all
};

class ToyModel final : public LanguageModel {
   public:
    explicit ToyModel(ToyOptions options);

    [[nodiscard]] int vocabulary() const override;
    [[nodiscard]] int hidden() const override { return kHidden; }
    [[nodiscard]] int feature_width(model::Pass pass) const override;
    [[nodiscard]] int capacity() const override { return options_.capacity; }
    [[nodiscard]] std::int64_t max_length() const override { return options_.max_length; }
    [[nodiscard]] model::Expected<void> forward(const Batch& batch, std::span<const int> logits_rows, ForwardOutput& output) override;
    void commit(int sequence, std::span<const int> path) override;
    void discard(int sequence) override;
    void clear(int sequence) override;
    [[nodiscard]] std::int64_t length(int sequence) const override;
    [[nodiscard]] int uncommitted(int sequence) const override;

    [[nodiscard]] int passes(model::Pass pass) const { return passes_[static_cast<std::size_t>(pass)]; }
    [[nodiscard]] int widest_prefill() const { return widest_prefill_; }
    [[nodiscard]] bool empty() const;  ///< no sequence holds a row

    static constexpr int kHidden = 2;    ///< (token, its position)
    static constexpr int kFeatures = 3;  ///< the same and a 1

   private:
    struct Row {
        int token = 0;
        int parent = -1;
    };
    struct Sequence {
        std::vector<int> committed;
        std::vector<Row> rows;
    };
    /// The row's text so far: (token before it, -1: none; its position in the cache).
    [[nodiscard]] std::pair<int, std::int64_t> place(const Sequence& sequence, int parent) const;
    void check_feature(std::span<const float> feature, int previous, std::int64_t position, const char* where) const;

    ToyOptions options_;
    std::vector<Sequence> sequences_;
    std::vector<int> passes_ = std::vector<int>(5, 0);
    int widest_prefill_ = 0;
};

}  // namespace draftboard::backend
