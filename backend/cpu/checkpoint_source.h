// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors of a checkpoint by canonical name, checked against what the architecture says of them.
//
// Canonical names are those of a text model ("model.layers.0...", "lm_head"). Multimodal checkpoints put a prefix in front:
//   model.language_model.X for model.X (Qwen3.5), language_model.model.X and language_model.lm_head (Kimi-K2.5)
// Storage of a module M, by the format that config.json gives it:
//   bf16, fp32, fp16   M.weight
//   fp8 blocks         M.weight and M.weight_scale_inv (or weight_scale), a scale a block
//   fp8                M.weight and M.weight_scale (or weight_scale_inv), one scale or one a row
//   int4 groups        M.weight_packed (I32), M.weight_scale, M.weight_shape
// Anything else than what the format says is an error that names the tensor.

#include <set>
#include <string>

#include "backend/checkpoint.h"
#include "backend/cpu/stored_matrix.h"
#include "backend/cpu/tensor_source.h"

namespace draftboard::backend::cpu {

class CheckpointSource final : public TensorSource {
   public:
    enum class Mode {
        read,
        check,  ///< everything but the copying: matrices come back without data
    };
    explicit CheckpointSource(const Checkpoint& checkpoint, Mode mode = Mode::read);

    [[nodiscard]] model::Expected<WeightMatrix> matrix(const MatrixRequest& request) override;
    [[nodiscard]] model::Expected<std::vector<float>> vector(const VectorRequest& request) override;

    /// The tensor of a canonical name, or nullptr. Counts as used.
    [[nodiscard]] const TensorView* find(const std::string& name);
    /// Names, as stored, of every tensor that was looked at.
    [[nodiscard]] const std::set<std::string, std::less<>>& used() const { return used_; }

   private:
    [[nodiscard]] std::string stored_name(const std::string& canonical) const;
    [[nodiscard]] model::Expected<const TensorView*> require(const std::string& canonical);
    [[nodiscard]] model::Expected<StoredMatrix> locate(const MatrixRequest& request);
    [[nodiscard]] model::Expected<StoredMatrix> locate_fused(const MatrixRequest& request, const TensorView& fused);
    [[nodiscard]] model::Expected<StoredMatrix> locate_int4(const MatrixRequest& request, const TensorView& packed);
    [[nodiscard]] model::Expected<void> add_fp8_scales(const MatrixRequest& request, StoredMatrix& matrix);

    const Checkpoint* checkpoint_;
    Mode mode_;
    std::string model_prefix_ = "model.";
    std::string head_prefix_;
    std::set<std::string, std::less<>> used_;
};

}  // namespace draftboard::backend::cpu
