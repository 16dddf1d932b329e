// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rank threads of a process: R - 1 workers and the caller, who is rank 0. Models that run on the same ranks (a target and
// its drafter) share one team, so that no thread spins for a model that is not running. Between jobs a worker spins for a
// while, then sleeps; rank 0 never sleeps inside run().
//
// With more than one NUMA node, ranks are dealt over the nodes and bound there (hwloc), so that what a rank allocates and
// touches first lies in its node's memory: load weights inside run().

#include <functional>
#include <memory>

#include "backend/cpu/communicator.h"

namespace draftboard::backend::cpu {

class Team {
   public:
    /// ranks >= 1. `bind`: tie each worker to a core of its own where there are enough of them.
    explicit Team(int ranks, bool bind = true);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    [[nodiscard]] int ranks() const;
    [[nodiscard]] Communicator& communicator();
    /// Runs job(rank) on every rank; returns when all are done. Not reentrant.
    void run(const std::function<void(int rank)>& job);

   private:
    struct Shared;
    std::unique_ptr<Shared> shared_;
};

}  // namespace draftboard::backend::cpu
