// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the host costs: launching kernels eagerly or as graphs, synchronising, scheduling a cycle. These
// are the least published numbers of the whole model; each default says where it comes from, a scenario
// may override each by name, openly (Scenario::constants), and a calibration on the box replaces them.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "sim/coverage.h"

namespace draftboard::sim {

/// Standard deviation of log(tok/s) between runs of one configuration that differ in the engine's build and the
/// host only: 0.06 among 295 repeated plain cells of Kimi-K2.6 on one box, 0.10 to 0.15 of GLM-5 and Qwen3.5 on
/// several (rtx6kpro@e2c2b95, the tables that `draftboard backtest` reads).
inline constexpr double kRunSigma = 0.08;

struct HostConstants {
    /// Host time to launch one kernel eagerly through an engine's framework, us.
    double eager_launch_us = 9.6;
    /// The same for one collective (NCCL enqueue), us.
    double collective_launch_us = 12.0;
    /// Standard deviation of log(launch cost) from launch to launch on one rank.
    double launch_jitter = 0.30;
    /// Standard deviation of log(mean launch cost) between ranks: one process runs on a slower core than another.
    double rank_spread = 0.10;
    /// From the host's launch call to the kernel's start on an idle stream, us.
    double launch_latency_us = 6.5;
    /// Host time to launch a whole captured graph, us.
    double graph_launch_us = 5.0;
    /// Host time of what stays between two graph pieces (an attention layer through the framework), us.
    double piece_us = 700.0;
    /// Gap between two dependent kernels of a graph, us.
    double kernel_gap_us = 0.5;
    /// The same between kernels launched one by one into a stream that has work queued, us.
    double stream_gap_us = 1.4;
    /// What a kernel in a graph saves behind another one, where kernels are launched before their predecessor has ended
    /// (programmatic dependent launch): its start and first loads fall into the other's end, us; and the most of its time that can.
    double chain_saving_us = 0.0;
    double chain_share = 0.5;
    /// From a kernel's end to the host's return from waiting for it, us.
    double sync_us = 1.35;
    /// Standard deviation of log(kernel time) between ranks.
    double kernel_jitter = 0.01;
    /// Host work of one cycle that nothing hides: results to the host, scheduling, next inputs, us.
    double cycle_us = 600.0;
    /// The same for a plain decoding step with the engine's usual overlap, us.
    double step_us = 100.0;
    /// Host work of one call of the drafter that nothing hides, us: building its inputs and attention metadata where
    /// the calls are not one graph.
    double draft_call_us = 0.0;
    /// Host work of one sequence in one step or cycle that nothing hides: sampling results, stop checks, detokenising, us.
    double sequence_us = 0.0;
    /// One-sigma relative uncertainty of all of the above together.
    double relative_uncertainty = 0.25;
    /// Of rates between runs of one configuration; a calibration on the box replaces it. No cost, so not in the table below.
    double run_sigma = kRunSigma;
    Coverage coverage = Coverage::datasheet;
};

struct HostConstantInfo {
    std::string name;  ///< "host.eager_launch_us"
    double HostConstants::*field;
    double low;   ///< admissible range
    double high;
    std::string meaning;
    std::string source;
};

/// All constants with range, meaning and source; the order of reports.
[[nodiscard]] const std::vector<HostConstantInfo>& host_constant_table();

/// By name; nullptr: there is none.
[[nodiscard]] const HostConstantInfo* find_host_constant(std::string_view name);

/// Replaces by name; an unknown name or a value out of range is an error that lists the known ones.
[[nodiscard]] model::Expected<HostConstants> with_overrides(
    HostConstants constants, const std::map<std::string, double>& overrides);

}  // namespace draftboard::sim
