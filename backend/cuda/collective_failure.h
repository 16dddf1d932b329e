// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who waited for whom: the record that kernels leave in mapped host memory when they give up, and what the host makes of it.
// Plain data and plain functions, for host and device; it neither waits nor ends anything (communicator.cpp,
// collective_kernels.cu).
//
// Each rank has a record of its own, so that no two GPUs write one word: atomic operations on host memory are not to be had on
// every PCIe box. Within a rank the first thread to give up writes it.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace draftboard::backend::cuda {

constexpr int kMaxRanks = 8;

/// Written by one thread of a rank's kernel: `late` and `call` first, `raised` last.
struct alignas(32) CollectiveRecord {
    std::uint32_t raised;
    std::uint32_t late;  ///< ranks whose words had not come, one bit each
    std::uint64_t call;  ///< of this communicator's own kernels on that rank, from 1
};

/// In mapped pinned host memory, zero at first. `abort`: every kernel that waits gives up, and wait() reports.
struct alignas(64) CollectiveFailure {
    std::uint32_t abort;
    CollectiveRecord records[kMaxRanks];
};

/// Of the host threads, for collectives that leave no record (NCCL's).
struct RankProgress {
    std::uint64_t enqueued = 0;  ///< collectives it has asked for, by calls
    std::uint64_t waits = 0;     ///< calls of wait() it has begun
};

struct LateRanks {
    int waiting = 0;
    std::uint32_t late = 0;
    std::uint64_t call = 0;
};

/// The record of the earliest call: later ones are its consequences. Of its late ranks those are named that did not themselves
/// wait at that call, unless that leaves none. Empty where no record is raised.
[[nodiscard]] inline std::optional<LateRanks> first_late(const CollectiveFailure& failure, int ranks) {
    std::optional<LateRanks> first;
    for (int rank = 0; rank < ranks; ++rank) {
        const volatile CollectiveRecord& record = failure.records[rank];
        if (record.raised == 0) continue;
        if (!first || record.call < first->call) first = LateRanks{rank, record.late, record.call};
    }
    if (!first) return first;
    std::uint32_t absent = first->late;
    for (int rank = 0; rank < ranks; ++rank) {
        const volatile CollectiveRecord& record = failure.records[rank];
        if (record.raised != 0 && record.call >= first->call) absent &= ~(1u << rank);
    }
    if (absent != 0) first->late = absent;
    return first;
}

/// Ranks behind `waiting`: those that have asked for fewer collectives, else those that have begun fewer waits, else none (0).
[[nodiscard]] inline std::uint32_t ranks_behind(const std::vector<RankProgress>& progress, int waiting) {
    const RankProgress& own = progress[static_cast<std::size_t>(waiting)];
    std::uint32_t fewer_calls = 0;
    std::uint32_t fewer_waits = 0;
    for (std::size_t rank = 0; rank < progress.size(); ++rank) {
        if (progress[rank].enqueued < own.enqueued) fewer_calls |= 1u << rank;
        if (progress[rank].waits < own.waits) fewer_waits |= 1u << rank;
    }
    return fewer_calls != 0 ? fewer_calls : fewer_waits;
}

/// "rank 1 (GPU 1)", "ranks 1 (GPU 1) and 3 (GPU 3)"; devices: by rank
[[nodiscard]] inline std::string name_ranks(std::uint32_t ranks, const std::vector<int>& devices) {
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        if ((ranks >> rank & 1u) != 0) names.push_back(std::to_string(rank) + " (GPU " + std::to_string(devices[rank]) + ")");
    }
    std::string text = names.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
        text += names[i];
    }
    return text;
}

[[nodiscard]] inline std::string seconds_text(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%g s", seconds);
    return text;
}

/// "rank 1 (GPU 1) did not arrive at collective 17 within 10 s; rank 0 waited"
[[nodiscard]] inline std::string describe(const LateRanks& late, const std::vector<int>& devices, double timeout_s) {
    return name_ranks(late.late, devices) + " did not arrive at collective " + std::to_string(late.call) + " within " +
           seconds_text(timeout_s) + "; rank " + std::to_string(late.waiting) + " waited";
}

}  // namespace draftboard::backend::cuda
