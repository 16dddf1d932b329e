// SPDX-License-Identifier: Apache-2.0
// Targets; the drafters' weights are in drafter_weights.cpp.
#include "backend/cpu/model_weights.h"

#include <unistd.h>

#include <fmt/format.h>

#include "backend/cpu/checkpoint_source.h"
#include "backend/cpu/engine_limits.h"
#include "backend/cpu/random_source.h"
#include "backend/cpu/weight_builder.h"
#include "model/parameter_count.h"

namespace draftboard::backend::cpu {

using model::ErrorCode;
using model::Expected;

namespace {

/// Made-up weights come from no file whose size would bound them.
Expected<void> check_memory(const model::Architecture& architecture, const model::Layout& layout) {
    const auto pages = static_cast<double>(::sysconf(_SC_PHYS_PAGES));
    const double memory = pages * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
    const auto count = model::count_parameters(architecture);
    const double bytes = count.bytes / layout.tensor;
    if (bytes <= memory) return {};
    return model::fail(ErrorCode::too_large,
                       fmt::format("one rank's weights take {:.1f} GB, and this machine has {:.1f} GB", bytes / 1e9, memory / 1e9),
                       architecture.name, "use a smaller model or fewer layers");
}

}  // namespace

std::int64_t Projection::rows() const {
    std::int64_t sum = 0;
    for (const WeightMatrix& part : parts) sum += part.rows;
    return sum;
}

Expected<ModelWeights> load_weights(const Checkpoint& checkpoint, const model::Architecture& architecture,
                                    const Numerics& numerics, const model::Layout& layout, int rank) {
    if (auto sound = check_engine(architecture, layout, rank); !sound) return tl::unexpected(std::move(sound.error()));
    if (auto sound = check_routing(architecture, numerics); !sound) return tl::unexpected(std::move(sound.error()));
    CheckpointSource source(checkpoint);
    WeightBuilder builder(source, architecture, layout, rank, numerics.norm_plus_one);
    return builder.take(builder.model());
}

Expected<ModelWeights> random_weights(const model::Architecture& architecture, const model::Layout& layout, int rank,
                                      std::uint64_t seed, RandomNumbers numbers) {
    if (auto sound = check_engine(architecture, layout, rank); !sound) return tl::unexpected(std::move(sound.error()));
    if (numbers == RandomNumbers::made) {
        if (auto fits = check_memory(architecture, layout); !fits) return tl::unexpected(std::move(fits.error()));
    }
    RandomSource source(seed, numbers);
    WeightBuilder builder(source, architecture, layout, rank, false);
    return builder.take(builder.model());
}

}  // namespace draftboard::backend::cpu
