// SPDX-License-Identifier: Apache-2.0
#pragma once
// Architectures built by hand from the published shapes (the models' config.json files), so that tests of
// the plan depend on no reader. Not a data source: data/architectures is.

#include "model/architecture.h"
#include "model/layout.h"
#include "model/plan.h"

namespace draftboard::model::samples {

[[nodiscard]] Architecture kimi_k25();       ///< 61 layers (1 dense), MLA, 384/8/1 experts int4 g32
[[nodiscard]] Architecture deepseek_v3();    ///< 61 layers (3 dense), MLA, 256/8/1 experts fp8 b128, one MTP module
[[nodiscard]] Architecture qwen35_397b();    ///< 60 layers, 45 delta net + 15 GQA, 512/10/1 experts nvfp4, one MTP module
[[nodiscard]] Architecture qwen3_235b();     ///< 94 layers, GQA 64/4, 128/8 experts
[[nodiscard]] Architecture qwen3_30b();      ///< 48 layers, GQA 32/4, 128/8 experts
[[nodiscard]] Architecture gpt_oss_120b();   ///< 36 layers, GQA 64/8, alternating windows, 128/4 experts mxfp4
[[nodiscard]] Architecture glm_5();          ///< 78 layers (3 dense), MLA with a sparse indexer, 256/8/1 experts

[[nodiscard]] Layout tensor_parallel(int ranks);
[[nodiscard]] Step decode_step(int sequences, std::int64_t context);
[[nodiscard]] Step verify_step(int sequences, int tokens, std::int64_t context);

/// The first operation of that role (in that layer, if not -2); nullptr if there is none.
[[nodiscard]] const Operation* find(const Plan& plan, std::string_view role, int layer = -2);
[[nodiscard]] int count_role(const Plan& plan, std::string_view role);

}  // namespace draftboard::model::samples
