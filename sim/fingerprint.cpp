// SPDX-License-Identifier: Apache-2.0
#include "sim/fingerprint.h"

namespace draftboard::sim {

void add_surroundings(Fingerprint& fingerprint, const model::Scenario& scenario) {
    const model::GpuSpec& gpu = scenario.machine.gpu;
    fingerprint.add(gpu.name).add(gpu.compute_capability).add(gpu.memory_gb_s).add(gpu.l2_bytes);
    fingerprint.add(gpu.bf16_tflops).add(gpu.fp8_tflops).add(gpu.fp4_tflops);
    fingerprint.add(scenario.machine.name).add(scenario.machine.host.vendor);
    fingerprint.add(scenario.machine.host.family).add(scenario.machine.host.model);
    for (const model::MachineNode& node : scenario.machine.nodes) {
        fingerprint.add(static_cast<int>(node.kind)).add(node.numa).add(node.host_bridge);
    }
    for (const model::MachineLink& link : scenario.machine.links) {
        fingerprint.add(link.a).add(link.b).add(static_cast<int>(link.kind)).add(link.generation);
        fingerprint.add(link.width).add(link.latency_ns).add(link.flow_gb_s);
        for (const model::LinkCapacity* capacity : {&link.forward, &link.backward}) {
            fingerprint.add(capacity->write_gb_s).add(capacity->read_gb_s);
        }
    }
    const model::PeerAccess& peer = scenario.machine.peer;
    fingerprint.add(peer.enabled).add(static_cast<int>(peer.level)).add(peer.force_p2p);
    fingerprint.add(peer.acs_redirect).add(static_cast<int>(peer.iommu));
    for (const model::WriteCollapseRule& rule : scenario.machine.write_collapse) {
        fingerprint.add(rule.min_sources).add(rule.aggregate_gb_s);
        for (const int node : rule.switches) fingerprint.add(node);
    }
    const model::CollectiveSettings& settings = scenario.collective;
    fingerprint.add(static_cast<int>(settings.implementation)).add(static_cast<int>(settings.algorithm));
    fingerprint.add(static_cast<int>(settings.protocol)).add(settings.channels);
    fingerprint.add(settings.peer_to_peer).add(static_cast<int>(settings.peer_level));
    fingerprint.add(settings.pull).add(settings.ll128).add(settings.graph_file).add(settings.custom_limit_bytes);
    fingerprint.add(scenario.engine.fused_all_reduce_norm).add(scenario.layout.tensor);
    fingerprint.add(scenario.engine.overlap_shared_experts).add(scenario.engine.overlap_token_limit);
    for (const std::string& role : scenario.engine.host_sync_after) fingerprint.add(role);
    for (const auto& [format, implementation] : scenario.engine.implementations) {
        fingerprint.add(format).add(implementation);
    }
    fingerprint.add(scenario.workload.shared_context).add(scenario.seed);
}

void add_plan(Fingerprint& fingerprint, const model::Plan& plan) {
    for (const model::Operation& operation : plan.operations) {
        fingerprint.add(operation.role).add(static_cast<int>(operation.kind));
        fingerprint.add(operation.m).add(operation.n).add(operation.k).add(operation.batch);
        fingerprint.add(operation.distinct_experts).add(operation.expert_tokens);
        fingerprint.add(static_cast<int>(operation.weight_format.format)).add(operation.weight_format.block_columns);
        fingerprint.add(operation.weight_bytes).add(operation.activation_bytes).add(operation.cache_bytes);
        fingerprint.add(operation.flops).add(operation.message_bytes).add(operation.group);
    }
}

void add_launch_costs(Fingerprint& fingerprint, const HostConstants& host) {
    for (const HostConstantInfo& info : host_constant_table()) {
        const bool between_passes = info.name == "host.cycle_us" || info.name == "host.step_us";
        if (!between_passes) fingerprint.add(host.*(info.field));
    }
}

}  // namespace draftboard::sim
