// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/team.h"

#include <hwloc.h>

#include <atomic>
#include <thread>
#include <vector>

namespace draftboard::backend::cpu {

namespace {

// A worker that has found nothing to do for this many looks yields, and after as many yields sleeps.
constexpr int kSpins = 4000;
constexpr int kYields = 200;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/// One core a rank, dealt over the NUMA nodes in turn; empty where there are fewer cores than ranks.
using Placement = std::vector<hwloc_cpuset_t>;

Placement place(hwloc_topology_t topology, int ranks) {
    Placement placement;
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    std::vector<std::vector<hwloc_obj_t>> free(1);
    const int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    if (nodes > 1) free.resize(static_cast<std::size_t>(nodes));
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < cores; ++i) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
        if (core == nullptr || hwloc_bitmap_intersects(core->cpuset, allowed) == 0) continue;
        int node = 0;
        for (int n = 0; n < nodes && nodes > 1; ++n) {
            hwloc_obj_t memory = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(n));
            if (memory != nullptr && hwloc_bitmap_intersects(memory->cpuset, core->cpuset) != 0) node = n;
        }
        free[static_cast<std::size_t>(node)].push_back(core);
    }
    std::size_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        std::size_t tried = 0;
        while (tried < free.size() && free[next % free.size()].empty()) {
            ++next;
            ++tried;
        }
        auto& cores_left = free[next % free.size()];
        if (cores_left.empty()) {
            placement.clear();
            return placement;
        }
        placement.push_back(cores_left.front()->cpuset);
        cores_left.erase(cores_left.begin());
        ++next;
    }
    return placement;
}

}  // namespace

struct Team::Shared {
    explicit Shared(int count) : communicator(count), ranks(count) {}

    Communicator communicator;
    int ranks;
    std::vector<std::thread> workers;
    Placement placement;
    hwloc_topology_t topology = nullptr;

    const std::function<void(int)>* job = nullptr;
    alignas(64) std::atomic<std::uint32_t> started{0};   // jobs begun
    alignas(64) std::atomic<std::uint32_t> finished{0};  // workers done with the current job
    alignas(64) std::atomic<bool> stop{false};

    void bind(int rank) const {
        if (placement.empty()) return;
        hwloc_set_cpubind(topology, placement[static_cast<std::size_t>(rank)], HWLOC_CPUBIND_THREAD);
    }

    void work(int rank, bool bind_thread) {
        if (bind_thread) bind(rank);
        std::uint32_t seen = 0;
        for (;;) {
            int looks = 0;
            while (started.load(std::memory_order_acquire) == seen) {
                if (++looks < kSpins) {
                    pause();
                } else if (looks < kSpins + kYields) {
                    std::this_thread::yield();
                } else {
                    started.wait(seen, std::memory_order_acquire);
                }
            }
            ++seen;
            if (stop.load(std::memory_order_acquire)) return;
            (*job)(rank);
            finished.fetch_add(1, std::memory_order_release);
        }
    }
};

Team::Team(int ranks, bool bind) : shared_(std::make_unique<Shared>(ranks)) {
    if (hwloc_topology_init(&shared_->topology) == 0) {
        if (hwloc_topology_load(shared_->topology) == 0) shared_->placement = place(shared_->topology, ranks);
    } else {
        shared_->topology = nullptr;
    }
    // Rank 0 is the caller's thread: its binding is the caller's affair, except that on several nodes the workers go elsewhere.
    for (int rank = 1; rank < ranks; ++rank) {
        shared_->workers.emplace_back([shared = shared_.get(), rank, bind] { shared->work(rank, bind); });
    }
}

Team::~Team() {
    shared_->stop.store(true, std::memory_order_release);
    shared_->started.fetch_add(1, std::memory_order_release);
    shared_->started.notify_all();
    for (std::thread& worker : shared_->workers) worker.join();
    if (shared_->topology != nullptr) hwloc_topology_destroy(shared_->topology);
}

int Team::ranks() const { return shared_->ranks; }
Communicator& Team::communicator() { return shared_->communicator; }

void Team::run(const std::function<void(int rank)>& job) {
    Shared& shared = *shared_;
    if (shared.ranks > 1) {
        shared.job = &job;
        shared.finished.store(0, std::memory_order_relaxed);
        shared.started.fetch_add(1, std::memory_order_release);
        shared.started.notify_all();
    }
    job(0);
    const auto others = static_cast<std::uint32_t>(shared.ranks - 1);
    for (int looks = 0; shared.finished.load(std::memory_order_acquire) != others; ++looks) {
        if (looks < kSpins) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

}  // namespace draftboard::backend::cpu
