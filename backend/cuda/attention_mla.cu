// SPDX-License-Identifier: Apache-2.0
// Latent attention: the kernel of attention_core.cuh with one cache entry, latent | rope, that is
// the key of all heads and whose latent is their value. The pairs of a block are the rows of a
// sequence times all heads; the cache is read once for up to 32 pairs.
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_core.cuh"

namespace draftboard::backend::cuda {

void attend_mla(const PassView& pass, const float* query, int heads, int latent, int rope,
                float scale, const KeyValueCache& cache, std::int64_t max_visible, float* output,
                void* workspace, cudaStream_t stream) {
    AttentionLaunch launch;
    launch.pass = pass;
    launch.query = query;
    launch.heads = heads;
    launch.kv_heads = 1;
    launch.key_width = latent + rope;
    launch.value_width = latent;
    launch.scale = scale;
    launch.cache = cache;
    launch.output = output;
    attend<true>(launch, max_visible, workspace, stream);
}

}  // namespace draftboard::backend::cuda
