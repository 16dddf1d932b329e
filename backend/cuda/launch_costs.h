// SPDX-License-Identifier: Apache-2.0
#pragma once
// What launching, waiting, events and copies cost on a GPU and its host, all with empty or spinning kernels: no bytes, no flops.
//
//   eager_launch_us    host time of one kernel launch into a filled stream     (a C++ program: no framework)
//   graph_launch_us    host time of launching a captured graph of 1000 nodes
//   kernel_gap_us      end of one dependent kernel to the start of the next, inside a graph; by %globaltimer
//   stream_gap_us      the same in a stream whose queue is never empty
//   launch_latency_us  launch call to kernel start on an idle stream: the round trip of an empty kernel minus that of a
//                      synchronise
//   sync_us            cudaStreamSynchronize on an idle stream
//   round_trip_us      launch of an empty kernel and synchronise
//   read_back_us       4 bytes to pinned host memory and synchronise: what an engine pays to see a result
//   event_us           between two events of a captured graph with nothing in between: what a time between events is too long by
//   event_kernel_us    the same with an empty kernel in between
//   event_stream_us    between two events recorded one after the other into a stream
//   to_device_gb_s, to_host_gb_s    64 MB between pinned host memory and the device, alone

namespace draftboard::backend::cuda {

struct LaunchCosts {
    double eager_launch_us = 0;
    double graph_launch_us = 0;
    double kernel_gap_us = 0;
    double stream_gap_us = 0;
    double launch_latency_us = 0;
    double sync_us = 0;
    double round_trip_us = 0;
    double read_back_us = 0;
    double event_us = 0;
    double event_kernel_us = 0;
    double event_stream_us = 0;
    double to_device_gb_s = 0;
    double to_host_gb_s = 0;
};

/// On the current device, medians of many. Throws where CUDA refuses.
[[nodiscard]] LaunchCosts measure_launch_costs();

}  // namespace draftboard::backend::cuda
