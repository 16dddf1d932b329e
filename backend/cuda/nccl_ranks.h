// SPDX-License-Identifier: Apache-2.0
#pragma once
// NCCL's communicators of all ranks, made by one process. It only enqueues; who was late, and when to give up, is
// communicator.h's. Where the build found no NCCL, create() is an error that says so.
//
// NCCL takes some settings from environment variables alone, most of which it reads once a process: create() sets
// NCCL_NVLS_ENABLE=0 always, NCCL_P2P_DISABLE=1 without peer access, and NCCL_ALGO and NCCL_PROTO where they are asked for. So
// two NcclRanks of one process can't differ in peer access, and create() has to come before other threads read the environment.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "model/error.h"

namespace draftboard::backend::cuda {

class NcclRanks {
 public:
    struct Options {
        std::vector<int> devices;  ///< by rank, all different
        bool peer_access = true;
        std::string algorithm;  ///< empty: NCCL chooses
        std::string protocol;
        int channels = 0;                ///< 0: NCCL chooses
        std::int64_t largest_bytes = 0;  ///< of a message: connections for messages up to this are made now, not in a later call
        double timeout_s = 10;           ///< of making them
    };
    [[nodiscard]] static model::Expected<std::unique_ptr<NcclRanks>> create(const Options& options);
    /// Ends all communicators at once, whatever is in flight.
    ~NcclRanks();
    NcclRanks(const NcclRanks&) = delete;
    NcclRanks& operator=(const NcclRanks&) = delete;

    /// Sum over ranks of `count` float, or bf16; output may be input. Throw what NCCL reports.
    void all_reduce(int rank, const void* input, void* output, std::int64_t count, bool bf16, cudaStream_t stream);
    /// Row i of rank r's input (rows x width float) to output + (i * ranks + r) * width.
    void all_gather(int rank, const float* input, int rows, std::int64_t width, float* output, cudaStream_t stream);

    /// What NCCL has noticed since, of this rank.
    [[nodiscard]] std::optional<std::string> asynchronous_error(int rank);
    /// Ends whatever runs or is being enqueued, on all ranks. Nothing can be called after it.
    void abort();

    [[nodiscard]] static bool built_in();
    /// "2.28.9"; empty where there is none
    [[nodiscard]] static std::string version();

 private:
    struct State;
    explicit NcclRanks(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace draftboard::backend::cuda
