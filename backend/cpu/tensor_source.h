// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where weights come from, tensor by tensor: a checkpoint (checkpoint_source.h) or a seeded generator (random_source.h).
// A request names a tensor by its Hugging Face name, says what the architecture expects of the whole, and which share of it
// is wanted. weight_builder.h makes the requests; what a share is, it decides.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/weight_matrix.h"
#include "model/error.h"
#include "model/number_format.h"

namespace draftboard::backend::cpu {

/// [begin, begin + count)
struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
};

/// A projection of a routed expert. Checkpoints hold it as a matrix of its own, PREFIX.INDEX.NAME, or as a slice of one
/// tensor over all experts: PREFIX.gate_up_proj (experts, 2 width, hidden), gate before up, and PREFIX.down_proj (experts,
/// hidden, width).
struct ExpertPart {
    enum class Role { gate, up, down };
    std::string prefix;
    int index = 0;
    int experts = 0;
    Role role = Role::gate;
};

struct MatrixRequest {
    std::string module;                ///< "model.layers.3.self_attn.o_proj"
    std::int64_t rows = 0;             ///< of the whole
    std::int64_t columns = 0;
    model::WeightFormat format;
    std::vector<Range> row_ranges;     ///< in this order; empty: all
    std::optional<Range> column_range; ///< absent: all
    /// May be stored unquantised, and in any plain format, whatever `format` says: parts that publishers keep out of a
    /// quantization which the architecture states for the whole (routers, the delta net's one row a head).
    bool plain_too = false;
    std::optional<ExpertPart> expert;
};

/// What a vector is for; a generator of weights has to know.
enum class VectorKind { norm, bias, correction_bias, decay, time_bias, convolution, gate };

struct VectorRequest {
    std::string tensor;               ///< full name, "model.norm.weight"
    std::vector<std::int64_t> shape;  ///< of the whole
    VectorKind kind = VectorKind::norm;
    std::vector<Range> ranges;        ///< along the first dimension; empty: all
};

class TensorSource {
   public:
    virtual ~TensorSource() = default;
    [[nodiscard]] virtual model::Expected<WeightMatrix> matrix(const MatrixRequest& request) = 0;
    [[nodiscard]] virtual model::Expected<std::vector<float>> vector(const VectorRequest& request) = 0;
};

}  // namespace draftboard::backend::cpu
