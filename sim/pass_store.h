// SPDX-License-Identifier: Apache-2.0
#pragma once
// What predictions have in common, kept between them and shared by threads: the cost of a pass that was priced and
// simulated once, the four passes of a cycle, the memory of a layout. Keys are fingerprints (fingerprint.h) of everything
// that the value depends on and of nothing else, and values are pure functions of it, so whoever stored one first, the answer is
// the same. One store belongs to one set of CostConstants. What asks for it is Predictor; what does it ten thousand times is
// planning/sweep.h.
//
//   cycle key   architecture, layout, drafter's shape, batch, context, routing + all that prices      no plan is built
//   pass key    the plan's operations + all that prices                                               nothing is priced
//
// It forgets: a shard that is full is emptied, which costs time and changes no result.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/memory.h"
#include "sim/pass_cost.h"

namespace draftboard::sim {

/// A pass as a prediction needs it; its operations are not kept.
struct KnownPass {
    PassCost cost;
    std::vector<std::string> remarks;
    std::vector<std::string_view> kernel_roles;  ///< each once
};
using PassPointer = std::shared_ptr<const KnownPass>;

/// The passes of a cycle; null where it has none.
struct KnownCycle {
    PassPointer plain;
    PassPointer draft_extend;
    PassPointer draft;
    PassPointer verify;
    int draft_steps = 0;
    int all_reduces_per_verify = 0;
};

class PassStore {
 public:
    [[nodiscard]] std::shared_ptr<const KnownCycle> cycle(std::uint64_t key) const { return cycles_.find(key); }
    [[nodiscard]] PassPointer pass(std::uint64_t key) const { return passes_.find(key); }
    [[nodiscard]] std::shared_ptr<const model::MemoryFit> memory(std::uint64_t key) const { return memories_.find(key); }

    void keep(std::uint64_t key, std::shared_ptr<const KnownCycle> cycle) { cycles_.keep(key, std::move(cycle)); }
    void keep(std::uint64_t key, PassPointer pass) { passes_.keep(key, std::move(pass)); }
    void keep(std::uint64_t key, std::shared_ptr<const model::MemoryFit> memory) { memories_.keep(key, std::move(memory)); }

    /// Passes held now: for tests and reports.
    [[nodiscard]] std::size_t passes() const { return passes_.size(); }

 private:
    static constexpr std::size_t kShards = 64;
    static constexpr std::size_t kShardEntries = 4096;  // about 1 KB each: at most some 256 MB of passes

    template <class Value>
    class Table {
     public:
        using Pointer = std::shared_ptr<const Value>;
        [[nodiscard]] Pointer find(std::uint64_t key) const {
            const Shard& shard = shards_[key % kShards];
            const std::shared_lock lock(shard.mutex);
            const auto at = shard.values.find(key);
            return at == shard.values.end() ? nullptr : at->second;
        }
        void keep(std::uint64_t key, Pointer value) {
            Shard& shard = shards_[key % kShards];
            const std::unique_lock lock(shard.mutex);
            if (shard.values.size() >= kShardEntries) shard.values.clear();
            shard.values.try_emplace(key, std::move(value));
        }
        [[nodiscard]] std::size_t size() const {
            std::size_t sum = 0;
            for (const Shard& shard : shards_) {
                const std::shared_lock lock(shard.mutex);
                sum += shard.values.size();
            }
            return sum;
        }

     private:
        struct Shard {
            mutable std::shared_mutex mutex;
            std::unordered_map<std::uint64_t, Pointer> values;
        };
        std::array<Shard, kShards> shards_;
    };

    Table<KnownCycle> cycles_;
    Table<KnownPass> passes_;
    Table<model::MemoryFit> memories_;
};

}  // namespace draftboard::sim
