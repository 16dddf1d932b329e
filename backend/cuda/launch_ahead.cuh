// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels that may begin before their predecessor in the stream has ended (programmatic dependent launch): a chain of small
// kernels then costs little more than their work, and a kernel that streams weights has them on their way while its predecessor
// still runs.
//
// Every kernel launched by launch_ahead() waits with begin_behind_predecessor(), or with wait_for_predecessor() once it has asked
// for its weights, before it reads what a kernel has written and before it writes anything. The wait is for the predecessor's
// end, and so, because that one has waited too, for all before it. Kernels launched in the ordinary way wait for the end of what
// is before them.
//
// A pass begins with such an ordinary kernel (begin_pass(), pass_view.h): whatever was written before the pass, its words and the
// caches' committed positions among it, may therefore be read without waiting by every kernel of the pass.

#include <cstddef>

#include <cuda_runtime.h>

#include "backend/cuda/check.h"

namespace draftboard::backend::cuda {

__device__ inline void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_successor_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__device__ inline void begin_behind_predecessor() {
    let_successor_begin();
    wait_for_predecessor();
}

template <class... Parameters, class... Arguments>
void launch_ahead(const char* what, void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
                  cudaStream_t stream, Arguments... arguments) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace draftboard::backend::cuda
