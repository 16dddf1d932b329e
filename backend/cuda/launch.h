// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a GPU rank runs: settings, all plain, so that command lines can hold them without CUDA.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace draftboard::backend::cuda {

/// eager: a launch an operation. piecewise: graphs between the attentions, which are launched. full: one graph a pass.
enum class LaunchMode { eager, piecewise, full };
[[nodiscard]] std::string_view to_name(LaunchMode mode);
[[nodiscard]] std::optional<LaunchMode> launch_mode_from_name(std::string_view name);

struct LaunchModes {
    LaunchMode decode = LaunchMode::full;
    LaunchMode verify = LaunchMode::full;
    LaunchMode draft = LaunchMode::full;  ///< draft and draft_extend; prefill is always eager
};

/// What is made up instead of loaded. The architecture is a shipped one's name or the path of a config.json.
struct Synthetic {
    std::string architecture;
    int layers = 0;  ///< the first ones; 0: all
    std::uint64_t seed = 1;
};

struct CudaSettings {
    int ranks = 1;
    std::vector<int> devices;   ///< by rank; empty: 0, 1, ...
    bool share_device = false;  ///< all ranks on the first device: for tests of several ranks with one GPU
    int tensor_rank_of = 0;     ///< one rank's share of a layout of so many, alone: its collectives move nothing. 0: no
    bool expert_parallel = false;
    bool bf16_activations = false;  ///< inputs of matrices and messages in bf16; else float (two bf16 products)
    bool bf16_cache = false;
    bool cublaslt_for_all = false;  ///< cuBLASLt also for few rows
    bool fuse_norm = true;          ///< all-reduce, residual add and norm in one kernel where the method allows
    LaunchModes launch;
    bool fused_cycles = true;  ///< greedy chains run whole cycles on the GPU (chain_cycle.h), where all launches are full
    std::int64_t host_staged_up_to = 0;  ///< bytes; see CollectiveCutoffs
    std::int64_t one_shot_up_to = 0;
    std::int64_t two_shot_up_to = 0;
    bool peer_access = true;
    std::string nccl_algorithm;
    std::string nccl_protocol;
    int nccl_channels = 0;
    double timeout_s = 10;
};

}  // namespace draftboard::backend::cuda
