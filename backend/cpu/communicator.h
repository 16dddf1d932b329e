// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as threads of one process, and their collectives over shared memory. Every call is made by all ranks, in the same
// order; each waits for the others, and the wait is measured apart from the moving of bytes. Sums are in rank order whatever
// the algorithm, so all ranks hold the same bits and every run gives the same.
//
//   one_shot  each rank reads the buffers of all others:                       (R - 1) n bytes read a rank, 2 barriers
//   ring      reduce-scatter (rank r sums part r of all), then the parts go round from neighbour to neighbour in R - 1 steps:
//                                                                              2 (R - 1) / R n bytes read a rank, R + 1 barriers
// A ring that passes partial sums on would add each part in another order; here every part is added from rank 0 up.
//
// Barriers spin for a while, then yield: with more ranks than cores they still make progress.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace draftboard::backend::cpu {

enum class AllReduceAlgorithm { one_shot, ring };

/// Nanoseconds of one collective on one rank.
struct CollectiveTime {
    std::int64_t wait_ns = 0;    ///< from its arrival to the last one's
    std::int64_t total_ns = 0;   ///< from its arrival to its leaving
};

class Communicator {
   public:
    explicit Communicator(int ranks);
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    [[nodiscard]] int ranks() const;

    void barrier(int rank);
    /// In place: data[0, count) becomes the sum over ranks.
    CollectiveTime all_reduce(int rank, float* data, std::int64_t count, AllReduceAlgorithm algorithm);
    /// output: ranks x rows blocks side by side: row i of rank r's `width` columns goes to output[i * output_stride + r * width].
    CollectiveTime all_gather(int rank, const float* input, std::int64_t rows, std::int64_t width, std::int64_t input_stride,
                              float* output, std::int64_t output_stride);

   private:
    struct Shared;
    std::unique_ptr<Shared> shared_;
};

/// Steady clock in nanoseconds.
[[nodiscard]] std::int64_t now_ns();

}  // namespace draftboard::backend::cpu
