// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model that keeps how long its passes took, whole and from outside: what a cycle spends beyond them is the host's. Prefill
// is left out. It measures nothing inside a pass (backend/profile.h does) and so costs two looks at the clock.

#include <span>

#include "backend/cpu/communicator.h"
#include "backend/language_model.h"

namespace draftboard::calibration {

class TimedModel final : public backend::LanguageModel {
   public:
    /// `inner` outlives this.
    explicit TimedModel(backend::LanguageModel& inner) : inner_(&inner) {}

    [[nodiscard]] int vocabulary() const override { return inner_->vocabulary(); }
    [[nodiscard]] int hidden() const override { return inner_->hidden(); }
    [[nodiscard]] int feature_width(model::Pass pass) const override { return inner_->feature_width(pass); }
    [[nodiscard]] int capacity() const override { return inner_->capacity(); }
    [[nodiscard]] std::int64_t max_length() const override { return inner_->max_length(); }
    [[nodiscard]] model::Expected<void> forward(const backend::Batch& batch, std::span<const int> logits_rows,
                                                backend::ForwardOutput& output) override {
        const std::int64_t begin = backend::cpu::now_ns();
        auto done = inner_->forward(batch, logits_rows, output);
        if (batch.pass == model::Pass::prefill) return done;
        us_ += static_cast<double>(backend::cpu::now_ns() - begin) * 1e-3;
        return done;
    }
    void commit(int sequence, std::span<const int> path) override { inner_->commit(sequence, path); }
    void discard(int sequence) override { inner_->discard(sequence); }
    void clear(int sequence) override { inner_->clear(sequence); }
    [[nodiscard]] std::int64_t length(int sequence) const override { return inner_->length(sequence); }
    [[nodiscard]] int uncommitted(int sequence) const override { return inner_->uncommitted(sequence); }

    [[nodiscard]] double us() const { return us_; }   ///< of all passes so far

   private:
    backend::LanguageModel* inner_;
    double us_ = 0;
};

}  // namespace draftboard::calibration
