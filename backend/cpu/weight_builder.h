// SPDX-License-Identifier: Apache-2.0
#pragma once
// From an architecture, a layout and a source of tensors to the weights of one rank. It knows the Hugging Face names of
// each family's modules and which share of each a rank holds (model/sharding.h); it does not know how tensors are stored.
//
// The first failure is kept and everything after it is empty, so that building is straight-line code with one check at
// its end (take()).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/model_weights.h"
#include "backend/cpu/tensor_source.h"
#include "model/architecture.h"
#include "model/layout.h"

namespace draftboard::backend::cpu {

class WeightBuilder {
   public:
    /// `norm_plus_one`: see Numerics. Preconditions: check_engine() (engine_limits.h) found nothing.
    WeightBuilder(TensorSource& source, const model::Architecture& architecture, const model::Layout& layout, int rank,
                  bool norm_plus_one);

    [[nodiscard]] ModelWeights model();
    /// `prefix`: "model.layers.3". With an input wider than hidden (EAGLE-3) the mixer's norm is left to the caller.
    [[nodiscard]] LayerWeights layer(const model::Layer& layer, const std::string& prefix, std::int64_t mixer_input);
    /// Rows of a table over the attention ranks (embedding) or all ranks (LM head).
    [[nodiscard]] std::shared_ptr<const WeightMatrix> embedding(const std::string& module, std::int64_t vocabulary,
                                                                const model::WeightFormat& format);
    [[nodiscard]] std::shared_ptr<const WeightMatrix> lm_head(const std::string& module, std::int64_t vocabulary,
                                                              const model::WeightFormat& format);
    [[nodiscard]] std::vector<float> norm(const std::string& module, std::int64_t width);
    [[nodiscard]] WeightMatrix whole(const std::string& module, std::int64_t rows, std::int64_t columns,
                                     const model::WeightFormat& format, bool plain_too = false);

    /// `weights`, or the first failure.
    [[nodiscard]] model::Expected<ModelWeights> take(ModelWeights weights);

   private:
    /// Names below a layer that differ between families.
    struct Names {
        std::string_view mlp = "mlp";
        std::string_view gate = "gate_proj";
        std::string_view up = "up_proj";
        std::string_view down = "down_proj";
        std::string_view correction = "mlp.gate.e_score_correction_bias";
        std::string_view shared = "mlp.shared_experts";
    };
    static Names names_of(const std::string& model_type);

    [[nodiscard]] MlaWeights mla(const model::MlaShape& shape, const model::WeightFormat& format, const std::string& prefix,
                                 std::int64_t input);
    [[nodiscard]] GqaWeights gqa(const model::GqaShape& shape, const model::WeightFormat& format, const std::string& prefix,
                                 std::int64_t input);
    [[nodiscard]] DeltaNetWeights delta_net(const model::DeltaNetShape& shape, const model::WeightFormat& format,
                                            const std::string& prefix);
    [[nodiscard]] Projection delta_net_projection(const model::DeltaNetShape& shape, const model::WeightFormat& format,
                                                  const std::string& prefix);
    [[nodiscard]] MoeWeights moe(const model::MoeFeedForward& shape, const model::LayerFormats& formats,
                                 const std::string& prefix);
    /// Gate, up and down of which this rank holds features [share.begin, ...).
    [[nodiscard]] DenseWeights gated_mlp(const std::string& prefix, std::int64_t width, const Range& share,
                                         const model::WeightFormat& format, const std::optional<ExpertPart>& expert);

    [[nodiscard]] WeightMatrix rows_of(const std::string& module, std::int64_t rows, std::int64_t columns,
                                       const model::WeightFormat& format, std::vector<Range> ranges, bool plain_too = false);
    [[nodiscard]] WeightMatrix columns_of(const std::string& module, std::int64_t rows, std::int64_t columns,
                                          const model::WeightFormat& format, const Range& range);
    [[nodiscard]] WeightMatrix matrix(const MatrixRequest& request);
    [[nodiscard]] std::vector<float> vector(const VectorRequest& request);
    [[nodiscard]] Range attention_share(std::int64_t size) const;
    [[nodiscard]] Range tensor_share(std::int64_t size) const;

    TensorSource* source_;
    const model::Architecture* architecture_;
    model::Layout layout_;
    int rank_;
    int attention_ranks_;
    int attention_rank_;
    bool norm_plus_one_;
    Names names_;
    std::optional<model::Error> error_;
};

}  // namespace draftboard::backend::cpu
