// SPDX-License-Identifier: Apache-2.0
// Grouped-query attention: the kernel of attention_core.cuh with keys and values in caches of their
// own. The pairs of a block are the rows of a sequence times the query heads of one kv head, so
// that these heads' keys and values are read once for up to 32 pairs.
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_core.cuh"

namespace draftboard::backend::cuda {

void attend_gqa(const PassView& pass, const float* query, int heads, int kv_heads, int dim,
                float scale, const KeyValueCache& cache, std::int64_t max_visible, float* output,
                void* workspace, cudaStream_t stream) {
    AttentionLaunch launch;
    launch.pass = pass;
    launch.query = query;
    launch.heads = heads;
    launch.kv_heads = kv_heads;
    launch.key_width = dim;
    launch.value_width = dim;
    launch.scale = scale;
    launch.cache = cache;
    launch.output = output;
    attend<false>(launch, max_visible, workspace, stream);
}

}  // namespace draftboard::backend::cuda
