// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of one box and their collectives on the GPU: one process, one host thread and one GPU a rank. Every call is made
// by all ranks in the same order, on a stream of the caller's, and only enqueues, so that it can be captured into a graph; it
// makes the rank's GPU the calling thread's current one. Of n bytes as they travel, with R ranks, each rank moves:
//
//   host_staged  2 n written, 2 (R - 1) n read    one-shot through mapped pinned host memory, for boxes without peer access
//   one_shot     2 (R - 1) n written              into the memory of each other over peer access, one way
//   two_shot     2 (R - 1) / R n written          reduce-scatter, then all-gather over peer access, two ways
//   nccl         ncclAllReduce / ncclAllGather    algorithm, protocol and channels can be forced (nccl_ranks.h says how)
//
// one_shot and host_staged send 8-byte words of 4 bytes of data and a 4-byte flag, hence the 2 (as NCCL's LL does), so that no
// fence is needed. Two buffers take turns, so that no rank overwrites what another still reads (collective_kernels.h argues it).
// Our own sum is in rank order whatever the method: all ranks hold the same bits, and every run gives the same. NCCL has an
// order of its own.
//
// A method is chosen by the size of the message (CollectiveCutoffs). Messages of all-reduces travel as float, or as bf16 with
// float sums, which stay float (NCCL's come back rounded). All-gathers carry logits and travel as float always.
//
// Failure: kernels that wait give up after timeout_s, or when another rank has given up, and record who waited for whom; wait()
// then reports "rank 1 (GPU 1) did not arrive". NCCL's kernels wait without end: once a rank has used NCCL, its wait() lasts
// timeout_s at most, then ends NCCL on all ranks. Nothing hangs, and nothing can be used after it: later calls throw.
//
// Kernels of all ranks have to run at the same time. Ranks that share a GPU need room on it for all of them (4 ranks have on 132
// multiprocessors), and a hardware queue a stream (CUDA_DEVICE_MAX_CONNECTIONS=32). No kernel may be loaded for the first time,
// and no memory taken or freed, while a rank waits.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include "model/error.h"

namespace draftboard::backend::cuda {

enum class MessageFormat { fp32, bf16 };
enum class CollectiveMethod { nccl, one_shot, two_shot, host_staged };
[[nodiscard]] std::string_view to_name(CollectiveMethod method);
[[nodiscard]] std::optional<CollectiveMethod> collective_method_from_name(std::string_view name);

/// Largest message, bytes as they travel, of each method of our own; the first that is large enough is used, in the order
/// host_staged, one_shot, two_shot; beyond them NCCL. 0: never.
struct CollectiveCutoffs {
    std::int64_t host_staged = 0;
    std::int64_t one_shot = 0;
    std::int64_t two_shot = 0;
};
[[nodiscard]] CollectiveMethod choose(const CollectiveCutoffs& cutoffs, std::int64_t bytes);

struct CommunicatorOptions {
    std::vector<int> devices;  ///< by rank. The same GPU several times: ranks share it (for tests); then there is no NCCL.
    MessageFormat format = MessageFormat::fp32;
    CollectiveCutoffs cutoffs;
    bool peer_access = true;     ///< false: none is used, by us or by NCCL
    std::int64_t max_count = 0;  ///< numbers in the largest message of a rank
    std::string nccl_algorithm;  ///< "Ring", "Tree"; empty: NCCL chooses
    std::string nccl_protocol;   ///< "LL", "LL128", "Simple"
    int nccl_channels = 0;       ///< 0: NCCL chooses
    double timeout_s = 10;
};
/// What is wrong with them whatever the machine; places are the members' names.
[[nodiscard]] std::vector<model::Problem> validate(const CommunicatorOptions& options);

class Communicator {
   public:
    /// Errors: no such GPU, no peer access where a method needs it, NCCL's own, shared GPUs with a message that only NCCL could
    /// carry.
    [[nodiscard]] static model::Expected<std::unique_ptr<Communicator>> create(CommunicatorOptions options);
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] int ranks() const;
    [[nodiscard]] const CommunicatorOptions& options() const;
    /// For an all-reduce of `count` numbers, and for an all-gather of `count` of each rank. One rank sends nothing, whatever they
    /// say.
    [[nodiscard]] CollectiveMethod method(std::int64_t count) const;
    [[nodiscard]] CollectiveMethod gather_method(std::int64_t count) const;

    /// output (which may be input) = sum over ranks of input.
    void all_reduce(int rank, const float* input, float* output, std::int64_t count, cudaStream_t stream);
    /// hidden += sum over ranks of block;  normed = rms_norm(hidden) * weight, rows normed_stride apart; one kernel for our own
    /// methods. `kept` as in elementwise.h's add_rms_norm, which this replaces after a sum; bits are the same as of all_reduce
    /// followed by it.
    void all_reduce_add_norm(int rank, const float* block, float* hidden, const float* weight, int m, int width, float epsilon,
                             float* normed, std::int64_t normed_stride, float* kept, std::int64_t kept_stride,
                             cudaStream_t stream);
    /// output: rows x (ranks * width); row i of rank r's input (rows x width) at output + i * ranks * width + r * width.
    void all_gather(int rank, const float* input, int rows, std::int64_t width, float* output, cudaStream_t stream);

    /// Waits until the stream is done. Errors: a rank that did not arrive in time (named), CUDA's and NCCL's own.
    [[nodiscard]] model::Expected<void> wait(int rank, cudaStream_t stream);

   private:
    struct State;
    explicit Communicator(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace draftboard::backend::cuda
