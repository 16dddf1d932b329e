// SPDX-License-Identifier: Apache-2.0
#include "sim/host_constants.h"

#include <cmath>

#include <fmt/format.h>

#include "model/data_library.h"

namespace draftboard::sim {

const std::vector<HostConstantInfo>& host_constant_table() {
    using H = HostConstants;
    static const std::vector<HostConstantInfo> table{
        {"host.eager_launch_us", &H::eager_launch_us, 0.1, 1000,
         "host time to launch one kernel eagerly",
         "measured on an H200 host through PyTorch: mean of an add 6.1, a norm 8.5 and a linear 14.3 us; "
         "3.0 us from C++ (data/measurements/host-h200.json)"},
        {"host.collective_launch_us", &H::collective_launch_us, 0.1, 1000,
         "host time to launch one collective eagerly",
         "assumption: between a kernel launch and the 20 us that Vidur charges an NCCL call"},
        {"host.launch_jitter", &H::launch_jitter, 0, 2,
         "log standard deviation of launch cost, launch to launch", "assumption"},
        {"host.rank_spread", &H::rank_spread, 0, 2,
         "log standard deviation of mean launch cost, rank to rank", "assumption"},
        {"host.launch_latency_us", &H::launch_latency_us, 0, 1000,
         "from launch call to kernel start on an idle stream", "measured on an H200 host: 6.4-6.6 us (data/measurements/host-h200.json)"},
        {"host.graph_launch_us", &H::graph_launch_us, 0, 10000,
         "host time to launch one captured graph",
         "measured on an H200 host: 2.7-4.8 us for 1000 nodes (data/measurements/host-h200.json)"},
        {"host.piece_us", &H::piece_us, 0.1, 100000,
         "host time of an attention layer between two graph pieces",
         "between published pairs: 85 against 20 ms a pass over 61 layers of MLA in vLLM (rtx6kpro@e2c2b95, "
         "models/kimi-k26-mtp-long-ctx-wip), 46.1 against 17.5 ms over 48 (vllm#35387): 1060 and 600 us a layer"},
        {"host.kernel_gap_us", &H::kernel_gap_us, 0, 100,
         "gap between dependent kernels in a graph",
         "measured on an H200: 0.51 us (data/measurements/host-h200.json)"},
        {"host.stream_gap_us", &H::stream_gap_us, 0, 100,
         "gap between dependent kernels in a filled stream, launched one by one",
         "measured on an H200: 1.3-1.5 us (data/measurements/host-h200.json)"},
        {"host.chain_saving_us", &H::chain_saving_us, 0, 100,
         "time that a kernel of a graph saves behind another, launched before that one has ended",
         "none by default: kernels of the published tables wait for their predecessors; a calibration of our engine has its own"},
        {"host.chain_share", &H::chain_share, 0, 1, "the most of a kernel's time that it saves so",
         "fitted on an H200: 0.5 to 0.6 over models of 256 to 7168 hidden numbers"},
        {"host.sync_us", &H::sync_us, 0, 10000,
         "from a kernel's end to the host's return from waiting for it",
         "measured on an H200 host: 1.34-1.37 us (data/measurements/host-h200.json)"},
        {"host.kernel_jitter", &H::kernel_jitter, 0, 1,
         "log standard deviation of kernel time, rank to rank", "assumption"},
        {"host.cycle_us", &H::cycle_us, 0, 100000,
         "host work of a speculative cycle that nothing hides",
         "assumption: verify is 97 % of a 30.9 ms cycle in the founding case, so host and draft share 0.9 ms"},
        {"host.step_us", &H::step_us, 0, 100000, "host work of a plain step that nothing hides",
         "126 us a step were fitted on H100 by the BLIS authors; engines overlap most of it"},
        {"host.draft_call_us", &H::draft_call_us, 0, 100000,
         "host work of one drafter call that nothing hides",
         "none by default: SGLang captures all calls of a cycle in one graph; engines differ, see the engines' "
         "calibration"},
        {"host.sequence_us", &H::sequence_us, 0, 100000,
         "host work of one sequence in one step or cycle that nothing hides",
         "none by default; engines differ, see the engines' calibration"},
        {"host.relative_uncertainty", &H::relative_uncertainty, 0, 2,
         "one-sigma relative uncertainty of host terms", "assumption, wide on purpose"},
    };
    return table;
}

const HostConstantInfo* find_host_constant(std::string_view name) {
    for (const HostConstantInfo& info : host_constant_table()) {
        if (info.name == name) return &info;
    }
    return nullptr;
}

model::Expected<HostConstants> with_overrides(HostConstants constants,
                                              const std::map<std::string, double>& overrides) {
    for (const auto& [name, value] : overrides) {
        const HostConstantInfo* found = find_host_constant(name);
        if (found == nullptr) {
            std::vector<std::string> known;
            for (const HostConstantInfo& info : host_constant_table()) known.push_back(info.name);
            const auto near = model::nearest_names(name, known);
            return model::fail(model::ErrorCode::not_found, "no such constant",
                               "/constants/" + name,
                               near.empty() ? "see `draftboard explain` for their names"
                                            : "did you mean " + near.front() + "?");
        }
        if (!std::isfinite(value) || value < found->low || value > found->high) {
            return model::fail(model::ErrorCode::invalid_input,
                               fmt::format("{} is outside {} .. {}", value, found->low, found->high),
                               "/constants/" + name, found->meaning);
        }
        constants.*(found->field) = value;
    }
    return constants;
}

}  // namespace draftboard::sim
