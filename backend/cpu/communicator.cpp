// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/communicator.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <thread>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/matmul.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace draftboard::backend::cpu {

namespace {

/// Floats of a block that is summed at a time: 8 KiB, which stay in L1 while every rank's numbers are added.
constexpr std::int64_t kBlock = 2048;
/// Spins before the processor is given up, where every rank has a core: some 20 us.
constexpr int kSpins = 1000;
constexpr int kSpinsWhenCrowded = 16;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Floats of a part of a ring: whole cache lines, so that two ranks never write into one (where the buffer is aligned).
std::int64_t part_size(std::int64_t count, std::int64_t ranks) { return ((count + ranks - 1) / ranks + 15) / 16 * 16; }

}  // namespace

struct Communicator::Shared {
    /// What a rank shows to the others between two barriers.
    struct alignas(64) Rank {
        const float* data = nullptr;
        std::int64_t stride = 0;
        std::int64_t arrival_ns = 0;
        Buffer<float> sums;  ///< its own, kept
    };

    explicit Shared(int count)
        : ranks(static_cast<std::size_t>(count)),
          spins(static_cast<unsigned>(count) <= std::thread::hardware_concurrency() ? kSpins : kSpinsWhenCrowded) {}

    /// The last one to arrive opens the barrier for this generation. What was written before is seen by all after.
    void barrier() {
        if (ranks.size() == 1) return;
        const std::uint32_t generation = opened.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks.size()) {
            arrived.store(0, std::memory_order_relaxed);
            opened.store(generation + 1, std::memory_order_release);
            return;
        }
        for (int spin = 0; opened.load(std::memory_order_acquire) == generation; ++spin) {
            if (spin < spins) {
                pause();
            } else {
                std::this_thread::yield();
            }
        }
    }

    /// Shows a buffer and waits for the others. Returns the time from this rank's arrival to the last one's.
    std::int64_t meet(int rank, const float* data, std::int64_t stride, std::int64_t arrival_ns) {
        Rank& mine = ranks[static_cast<std::size_t>(rank)];
        mine.data = data;
        mine.stride = stride;
        mine.arrival_ns = arrival_ns;
        barrier();
        std::int64_t last = arrival_ns;
        for (const Rank& other : ranks) last = std::max(last, other.arrival_ns);
        return last - arrival_ns;
    }

    /// target[0, count) = the sum over ranks, in their order, of their data[begin, begin + count). target may be one of these.
    void sum_in_rank_order(std::int64_t begin, std::int64_t count, float* target) const {
        alignas(64) float block[kBlock];
        for (std::int64_t at = 0; at < count; at += kBlock) {
            const std::int64_t width = std::min(kBlock, count - at);
            std::copy_n(ranks[0].data + begin + at, width, block);
            for (std::size_t r = 1; r < ranks.size(); ++r) add(ranks[r].data + begin + at, width, block);
            std::copy_n(block, width, target + at);
        }
    }

    std::vector<Rank> ranks;
    int spins;
    alignas(64) std::atomic<std::size_t> arrived{0};
    alignas(64) std::atomic<std::uint32_t> opened{0};
};

Communicator::Communicator(int ranks) : shared_(std::make_unique<Shared>(std::max(1, ranks))) {}
Communicator::~Communicator() = default;
int Communicator::ranks() const { return static_cast<int>(shared_->ranks.size()); }

void Communicator::barrier([[maybe_unused]] int rank) {
    assert(rank >= 0 && rank < ranks());
    shared_->barrier();
}

CollectiveTime Communicator::all_reduce(int rank, float* data, std::int64_t count, AllReduceAlgorithm algorithm) {
    assert(rank >= 0 && rank < ranks());
    const std::int64_t arrival = now_ns();
    const std::int64_t size = ranks();
    CollectiveTime time;
    if (size == 1) return time;
    time.wait_ns = shared_->meet(rank, data, 0, arrival);
    if (algorithm == AllReduceAlgorithm::one_shot) {
        float* sums = shared_->ranks[static_cast<std::size_t>(rank)].sums.get(static_cast<std::size_t>(count));
        shared_->sum_in_rank_order(0, count, sums);
        shared_->barrier();  // everyone has read data
        std::copy_n(sums, count, data);
    } else {
        const std::int64_t part = part_size(count, size);
        const auto begin_of = [&](std::int64_t p) { return std::min(p * part, count); };
        // Reduce-scatter: part r is read by rank r alone, so it may be written at once.
        shared_->sum_in_rank_order(begin_of(rank), begin_of(rank + 1) - begin_of(rank), data + begin_of(rank));
        // All-gather: in step s the rank before this one has part rank - s.
        const float* before = shared_->ranks[static_cast<std::size_t>((rank + size - 1) % size)].data;
        for (std::int64_t step = 1; step < size; ++step) {
            shared_->barrier();
            const std::int64_t p = (rank - step + size) % size;
            std::copy_n(before + begin_of(p), begin_of(p + 1) - begin_of(p), data + begin_of(p));
        }
        shared_->barrier();
    }
    time.total_ns = now_ns() - arrival;
    return time;
}

CollectiveTime Communicator::all_gather(int rank, const float* input, std::int64_t rows, std::int64_t width,
                                        std::int64_t input_stride, float* output, std::int64_t output_stride) {
    assert(rank >= 0 && rank < ranks());
    const std::int64_t arrival = now_ns();
    CollectiveTime time;
    time.wait_ns = shared_->meet(rank, input, input_stride, arrival);
    for (std::int64_t r = 0; r < ranks(); ++r) {
        const Shared::Rank& other = shared_->ranks[static_cast<std::size_t>(r)];
        for (std::int64_t i = 0; i < rows; ++i) {
            std::copy_n(other.data + i * other.stride, width, output + i * output_stride + r * width);
        }
    }
    shared_->barrier();
    time.total_ns = now_ns() - arrival;
    return time;
}

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace draftboard::backend::cpu
