// SPDX-License-Identifier: Apache-2.0
#include "sim/ranks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/engine.h"

namespace draftboard::sim {

namespace {

using model::LaunchMode;

constexpr std::size_t kStreams = 2;

/// One rank: its host thread's clock, its streams' clocks, and the operation it comes to next.
struct Rank {
    std::size_t next = 0;
    Time host = 0;
    std::array<Time, kStreams> streams{};
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
            result_.rank_end.push_back(rank.streams[0]);
            result_.total = std::max(result_.total, rank.streams[0]);
        }
        return std::move(result_);
    }

   private:
    /// Runs rank r's own operations up to its next collective and lets it arrive there.
    void advance(std::size_t r) {
        Rank& rank = ranks_[r];
        while (rank.next < operations_.size()) {
            const PricedOperation& operation = operations_[rank.next];
            Time& stream = rank.streams[operation.stream == 0 ? 0 : 1];
            OperationTimes& times = at(r, rank.next);
            Time ready = stream;
            if (operation.after >= 0) {
                ready = std::max(ready, at(r, static_cast<std::size_t>(operation.after)).end);
            }
            if (operation.join) times.contention = contention_of(r, operation, ready);
            ready += times.contention;
            const Time start = launch(rank, operation, ready);
            times.start = start;
            times.idle = start - ready;
            if (operation.join) hide_shorter(r, operation);
            if (operation.collective) {
                engine_.schedule(start, [this, r] { arrive(r); });
                return;
            }
            stream = start + scaled(operation.kernel - saved_in_chain(r), rank);
            times.end = stream;
            if (operation.host_sync) wait_for_device(rank, stream);
            ++rank.next;
        }
    }

    [[nodiscard]] static Time scaled(Time kernel, const Rank& rank) {
        return static_cast<Time>(std::llround(static_cast<double>(kernel) * rank.kernel_factor));
    }

    /// Of the kernel that rank r was just launched to: what fell into the end of the kernel before it.
    [[nodiscard]] Time saved_in_chain(std::size_t r) const {
        const std::size_t index = ranks_[r].next;
        if (!ranks_[r].in_graph || index == 0 || operations_[index - 1].collective || !behind_in_graph_) return 0;
        const auto most = static_cast<Time>(std::llround(host_.chain_share * static_cast<double>(operations_[index].kernel)));
        return std::min(most, from_us(host_.chain_saving_us));
    }

    void wait_for_device(Rank& rank, Time end) const {
        rank.host = std::max(rank.host, end + from_us(host_.sync_us));
        rank.in_graph = false;
    }

    /// What the memory still needs when the longer stream has come to the join at `ready`.
    [[nodiscard]] Time contention_of(std::size_t r, const PricedOperation& join, Time ready) {
        const Time parted = join.fork < 0 ? 0 : at(r, static_cast<std::size_t>(join.fork)).end;
        return std::max<Time>(0, parted + scaled(join.joint, ranks_[r]) - ready);
    }

    /// Of the operations between fork and join, those of the stream that came first are beside the path.
    void hide_shorter(std::size_t r, const PricedOperation& join) {
        const std::size_t index = ranks_[r].next;
        Time main_end = join.fork < 0 ? 0 : at(r, static_cast<std::size_t>(join.fork)).end;
        for (std::size_t i = static_cast<std::size_t>(join.fork + 1); i < index; ++i) {
            if (operations_[i].stream == 0) main_end = at(r, i).end;
        }
        const bool side_is_longer = at(r, static_cast<std::size_t>(join.after)).end > main_end;
        for (std::size_t i = static_cast<std::size_t>(join.fork + 1); i < index; ++i) {
            at(r, i).hidden = (operations_[i].stream == 0) == side_is_longer;
        }
    }

    /// The time at which the operation may start; `ready`: what it waits for on the device has ended.
    Time launch(Rank& rank, const PricedOperation& operation, Time ready) {
        behind_in_graph_ = rank.in_graph;
        if (operation.fused) return ready;
        const bool eager = mode_ == LaunchMode::eager ||
                           (mode_ == LaunchMode::piecewise && operation.eager_piece);
        const double gap_us = eager ? host_.stream_gap_us : host_.kernel_gap_us;
        const Time queued = ready + (rank.next == 0 ? 0 : from_us(gap_us));
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
        const Time everybody = engine_.now() + operations_[index].skew;
        const Time end = everybody + operations_[index].latency + operations_[index].transport;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            OperationTimes& times = at(i, index);
            times.wait = everybody - times.start;
            times.end = end;
            ranks_[i].streams[0] = end;
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
    bool behind_in_graph_ = false;  ///< the operation launched last goes on in a graph
    PassTimes result_;
};

}  // namespace

PassTimes simulate_pass(const std::vector<PricedOperation>& operations, int ranks, LaunchMode mode,
                        const HostConstants& host, Random random) {
    return Pass(operations, ranks, mode, host, random).run();
}

}  // namespace draftboard::sim
