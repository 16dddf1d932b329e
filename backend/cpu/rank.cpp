// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/rank.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/experts.h"

namespace draftboard::backend::cpu {

Rank::Rank(const ModelShape& shape, const RankOptions& options, int index, ModelWeights weights, int sequences, std::int64_t max_length,
           Communicator& communicator)
    : shape_(&shape),
      options_(options),
      index_(index),
      weights_(std::move(weights)),
      communicator_(&communicator),
      rotary_(shape.numerics, rotary_dim(shape.architecture), max_length),
      hidden_width_(shape.architecture.hidden) {
    for (LayerWeights& layer : weights_.layers) {
        auto* mixture = std::get_if<MoeWeights>(&layer.feed_forward);
        if (mixture == nullptr) continue;
        for (DenseWeights& expert : mixture->experts) store_by_input(expert);
    }
    caches_.reserve(static_cast<std::size_t>(sequences));
    for (int i = 0; i < sequences; ++i) caches_.emplace_back(shape.architecture, shape.layout, max_length);
}

model::Expected<Program<Rank>> Rank::compile(const model::Plan& plan, const ModelShape& shape) {
    return RoleTable<Rank>::compile(plan, shape, "CPU");
}

void Rank::commit(std::span<const PendingCommit> commits) {
    if (commits.empty()) {
        commit_ns_ = 0;
        return;
    }
    const std::int64_t begin = now_ns();
    for (const PendingCommit& pending : commits) {
        caches_[static_cast<std::size_t>(pending.slot)].commit(pending.committed, pending.path);
    }
    commit_ns_ = now_ns() - begin;
}

void Rank::clear(int slot) { caches_[static_cast<std::size_t>(slot)].clear(); }

void Rank::run(const Program<Rank>& program, const PassRows& rows, const PassResults& results, std::span<OperationTime> times) {
    rows_ = &rows;
    results_ = &results;
    m_ = static_cast<std::int64_t>(rows.sequences) * rows.tokens;
    block_pending_ = false;
    grow(hidden_, m_ * hidden_width_);
    grow(embedded_, m_ * hidden_width_);
    grow(normed_, m_ * 2 * hidden_width_);
    grow(block_, m_ * hidden_width_);
    const bool snapshots = rows.pass != model::Pass::prefill && rows.pass != model::Pass::decode;
    if (snapshots) {
        for (int s = 0; s < rows.sequences; ++s) {
            caches_[static_cast<std::size_t>(rows.slots[static_cast<std::size_t>(s)])].reserve_snapshots(
                rows.first_row[static_cast<std::size_t>(s)] + rows.tokens);
        }
    }
    if (times.empty()) {
        for (const Instruction<Rank>& instruction : program) {
            layer_ = instruction.layer;
            (this->*instruction.action)();
        }
        return;
    }
    std::int64_t before = now_ns();
    for (const Instruction<Rank>& instruction : program) {
        layer_ = instruction.layer;
        collective_ = {};
        (this->*instruction.action)();
        const std::int64_t after = now_ns();
        times[static_cast<std::size_t>(instruction.operation)] = {after - before, collective_.wait_ns};
        before = after;
    }
}

void Rank::project(const Projection& projection, const float* x, std::int64_t x_stride, std::vector<float>& y) {
    const std::int64_t width = projection.rows();
    grow(y, m_ * width);
    std::int64_t at = 0;
    for (const WeightMatrix& part : projection.parts) {
        const float* bias = projection.bias.empty() ? nullptr : projection.bias.data() + at;
        matmul(x, m_, x_stride, part, bias, y.data() + at, width, scratch_);
        at += part.rows;
    }
}

void Rank::project_part(const Projection& projection, std::size_t part) {
    const std::int64_t width = projection.rows();
    grow(projected_, m_ * width);
    std::int64_t at = 0;
    for (std::size_t p = 0; p < part; ++p) at += projection.parts[p].rows;
    matmul(normed_.data(), m_, hidden_width_, projection.parts[part], nullptr, projected_.data() + at, width, scratch_);
}

// Outside of layers ------------------------------------------------------------------------------------------

void Rank::embedding() {
    // Reads one row a token, if it lies in this rank's share of the vocabulary; others add zero in the all-reduce.
    const WeightMatrix& table = *weights_.embedding;
    const std::int64_t first = table.rows * index_;
    std::vector<float>& target = shape_->kind == ModelKind::model ? hidden_ : embedded_;
    for (std::int64_t i = 0; i < m_; ++i) {
        float* row = target.data() + i * hidden_width_;
        const std::int64_t token = rows_->token_ids[static_cast<std::size_t>(i)] - first;
        if (token >= 0 && token < table.rows) {
            table.dequantize_row(token, row);
        } else {
            std::fill_n(row, hidden_width_, 0.0f);
        }
    }
    // The first call of a cycle makes its residual stream by eagle3.fc, further steps go on from the head's own.
    if (shape_->kind == ModelKind::eagle3 && rows_->pass == model::Pass::draft) {
        std::copy_n(rows_->features, m_ * hidden_width_, hidden_.data());
    }
}

void Rank::embedding_all_reduce() {
    std::vector<float>& target = shape_->kind == ModelKind::model ? hidden_ : embedded_;
    collective(communicator_->all_reduce(index_, target.data(), m_ * hidden_width_, options_.all_reduce));
}

void Rank::eagle3_fc() {
    const WeightMatrix& fc = weights_.fusion->projection;
    matmul(rows_->features, m_, fc.columns, fc, nullptr, hidden_.data(), hidden_width_, scratch_);
}

void Rank::mtp_norm() {
    // Embedding first, then the hidden state that goes with it.
    const DraftFusion& fusion = *weights_.fusion;
    for (std::int64_t i = 0; i < m_; ++i) {
        float* row = normed_.data() + i * 2 * hidden_width_;
        rms_norm(embedded_.data() + i * hidden_width_, fusion.embedding_norm.data(), hidden_width_,
                 shape_->numerics.norm_epsilon, row);
        rms_norm(rows_->features + i * hidden_width_, fusion.hidden_norm.data(), hidden_width_,
                 shape_->numerics.norm_epsilon, row + hidden_width_);
    }
}

void Rank::mtp_projection() {
    matmul(normed_.data(), m_, 2 * hidden_width_, weights_.fusion->projection, nullptr, hidden_.data(), hidden_width_,
           scratch_);
}

void Rank::add_block() {
    if (block_pending_) add(block_.data(), m_ * hidden_width_, hidden_.data());
    block_pending_ = false;
}

void Rank::keep_features(int layer) {
    const std::vector<int>& wanted = shape_->feature_layers;
    if (results_->features == nullptr) return;
    for (std::size_t f = 0; f < wanted.size(); ++f) {
        if (wanted[f] != layer) continue;
        const auto width = static_cast<std::int64_t>(wanted.size()) * hidden_width_;
        for (std::int64_t i = 0; i < m_; ++i) {
            std::copy_n(hidden_.data() + i * hidden_width_, hidden_width_,
                        results_->features + i * width + static_cast<std::int64_t>(f) * hidden_width_);
        }
    }
}

void Rank::block_all_reduce() {
    collective(communicator_->all_reduce(index_, block_.data(), m_ * hidden_width_, options_.all_reduce));
}

void Rank::final_norm() {
    add_block();
    keep_features(static_cast<int>(shape_->architecture.layers.size()));
    for (std::int64_t i = 0; i < m_; ++i) {
        rms_norm(hidden_.data() + i * hidden_width_, weights_.final_norm.data(), hidden_width_, shape_->numerics.norm_epsilon,
                 normed_.data() + i * hidden_width_);
    }
    if (results_->hidden != nullptr) {
        std::copy_n(shape_->kind == ModelKind::eagle3 ? hidden_.data() : normed_.data(), m_ * hidden_width_, results_->hidden);
    }
}

void Rank::lm_head() {
    const WeightMatrix& head = *weights_.lm_head;
    const auto count = static_cast<std::int64_t>(rows_->logits_rows.size());
    grow(logits_, count * head.rows);
    const float* input = normed_.data();
    if (count != m_) {  // some rows only: rows ascend, so they can be moved together in place
        for (std::int64_t i = 0; i < count; ++i) {
            std::memmove(normed_.data() + i * hidden_width_,
                         normed_.data() + rows_->logits_rows[static_cast<std::size_t>(i)] * hidden_width_,
                         static_cast<std::size_t>(hidden_width_) * sizeof(float));
        }
    }
    matmul(input, count, hidden_width_, head, nullptr, logits_.data(), head.rows, scratch_);
}

void Rank::logits_all_gather() {
    const std::int64_t share = weights_.lm_head->rows;
    const std::int64_t vocabulary = share * communicator_->ranks();
    const auto count = static_cast<std::int64_t>(rows_->logits_rows.size());
    grow(all_logits_, count * vocabulary);
    collective(communicator_->all_gather(index_, logits_.data(), count, share, share, all_logits_.data(), vocabulary));
}

void Rank::hand_over() {
    if (results_->logits == nullptr) return;
    const bool gathered = shape_->layout.tensor > 1;
    const auto count = static_cast<std::int64_t>(rows_->logits_rows.size()) * shape_->architecture.vocabulary;
    std::copy_n(gathered ? all_logits_.data() : logits_.data(), count, results_->logits);
}

}  // namespace draftboard::backend::cpu
