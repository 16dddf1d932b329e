// SPDX-License-Identifier: Apache-2.0
#include "sim/ranks.h"

#include <algorithm>
#include <cmath>

#include "sim/engine.h"

namespace draftboard::sim {

namespace {

using model::LaunchMode;

/// One rank: its host thread's clock, its stream's clock, and the operation it comes to next.
struct Rank {
    std::size_t next = 0;
    Time host = 0;
    Time stream = 0;
    double launch_factor = 1;
    double kernel_factor = 1;
    bool in_graph = false;  ///< the current run of operations was launched as one graph
    Random random{0};
};

class Pass {
   public:
    Pass(const std::vector<PricedOperation>& operations, int ranks, LaunchMode mode,
         const HostConstants& host, Random random)
        : operations_(operations), mode_(mode), host_(host) {
        result_.ranks = ranks;
        result_.operations = operations.size();
        result_.times.resize(operations.size() * static_cast<std::size_t>(ranks));
        ranks_.resize(static_cast<std::size_t>(ranks));
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            ranks_[r].random = random.fork(r + 1);
            ranks_[r].launch_factor = std::exp(host.rank_spread * ranks_[r].random.normal());
            ranks_[r].kernel_factor = std::exp(host.kernel_jitter * ranks_[r].random.normal());
        }
    }

    PassTimes run() {
        for (std::size_t r = 0; r < ranks_.size(); ++r) engine_.schedule(0, [this, r] { advance(r); });
        engine_.run();
        for (const Rank& rank : ranks_) {
            result_.rank_end.push_back(rank.stream);
            result_.total = std::max(result_.total, rank.stream);
        }
        return std::move(result_);
    }

   private:
    /// Runs rank r's own operations up to its next collective and lets it arrive there.
    void advance(std::size_t r) {
        Rank& rank = ranks_[r];
        while (rank.next < operations_.size()) {
            const PricedOperation& operation = operations_[rank.next];
            const Time start = launch(rank, operation);
            OperationTimes& times = at(r, rank.next);
            times.start = start;
            times.idle = start - rank.stream;
            if (operation.collective) {
                engine_.schedule(start, [this, r] { arrive(r); });
                return;
            }
            rank.stream = start + static_cast<Time>(std::llround(
                                      static_cast<double>(operation.kernel) * rank.kernel_factor));
            times.end = rank.stream;
            ++rank.next;
        }
    }

    /// The time at which the operation may start on the rank's stream.
    Time launch(Rank& rank, const PricedOperation& operation) {
        if (operation.fused) return rank.stream;
        const bool eager = mode_ == LaunchMode::eager ||
                           (mode_ == LaunchMode::piecewise && operation.eager_piece);
        const double gap_us = eager ? host_.stream_gap_us : host_.kernel_gap_us;
        const Time queued = rank.stream + (rank.next == 0 ? 0 : from_us(gap_us));
        if (eager) {
            rank.in_graph = false;
            double base = operation.collective ? host_.collective_launch_us : host_.eager_launch_us;
            if (mode_ == LaunchMode::piecewise && operation.layer_piece) base = host_.piece_us;
            const double jitter = std::exp(host_.launch_jitter * rank.random.normal() -
                                           0.5 * host_.launch_jitter * host_.launch_jitter);
            rank.host += from_us(base * rank.launch_factor * jitter);
            return std::max(queued, rank.host + from_us(host_.launch_latency_us));
        }
        if (!rank.in_graph) {
            rank.in_graph = true;
            rank.host += from_us(host_.graph_launch_us * rank.launch_factor);
            return std::max(queued, rank.host + from_us(host_.launch_latency_us));
        }
        return queued;
    }

    /// Rank r reached its next collective; the last to arrive releases all.
    void arrive(std::size_t r) {
        const std::size_t index = ranks_[r].next;
        if (++arrived_ < ranks_.size()) return;
        arrived_ = 0;
        const Time everybody = engine_.now();
        const Time end = everybody + operations_[index].latency + operations_[index].transport;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            OperationTimes& times = at(i, index);
            times.wait = everybody - times.start;
            times.end = end;
            ranks_[i].stream = end;
            ++ranks_[i].next;
            engine_.schedule(end, [this, i] { advance(i); });
        }
    }

    OperationTimes& at(std::size_t rank, std::size_t operation) {
        return result_.times[rank * operations_.size() + operation];
    }

    const std::vector<PricedOperation>& operations_;
    LaunchMode mode_;
    const HostConstants& host_;
    Engine engine_;
    std::vector<Rank> ranks_;
    std::size_t arrived_ = 0;
    PassTimes result_;
};

}  // namespace

PassTimes simulate_pass(const std::vector<PricedOperation>& operations, int ranks, LaunchMode mode,
                        const HostConstants& host, Random random) {
    return Pass(operations, ranks, mode, host, random).run();
}

}  // namespace draftboard::sim
