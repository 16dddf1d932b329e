// SPDX-License-Identifier: Apache-2.0
#include "sim/fingerprint.h"

namespace draftboard::sim {

namespace {

void add_format(Fingerprint& fingerprint, const model::WeightFormat& format) {
    fingerprint.add(static_cast<int>(format.format)).add(format.block_rows).add(format.block_columns);
    fingerprint.add(format.scale_bits).add(format.zero_bits);
}

void add_mixer(Fingerprint& fingerprint, const model::TokenMixer& mixer) {
    fingerprint.add(static_cast<int>(mixer.index()));
    if (const auto* mla = std::get_if<model::MlaShape>(&mixer)) {
        fingerprint.add(mla->heads).add(mla->q_lora_rank).add(mla->kv_lora_rank).add(mla->qk_nope_head_dim);
        fingerprint.add(mla->qk_rope_head_dim).add(mla->v_head_dim).add(mla->indexer.has_value());
        if (mla->indexer) fingerprint.add(mla->indexer->heads).add(mla->indexer->head_dim).add(mla->indexer->top_k);
    } else if (const auto* gqa = std::get_if<model::GqaShape>(&mixer)) {
        fingerprint.add(gqa->heads).add(gqa->kv_heads).add(gqa->head_dim).add(gqa->rotary_dim);
        fingerprint.add(static_cast<int>(gqa->qk_norm)).add(gqa->output_gate).add(gqa->qkv_bias).add(gqa->output_bias);
        fingerprint.add(gqa->sinks).add(gqa->sliding_window);
    } else if (const auto* net = std::get_if<model::DeltaNetShape>(&mixer)) {
        fingerprint.add(net->key_heads).add(net->value_heads).add(net->key_head_dim).add(net->value_head_dim);
        fingerprint.add(net->conv_kernel).add(net->fused_projections).add(static_cast<int>(net->state_format));
    }
}

void add_layer(Fingerprint& fingerprint, const model::Layer& layer) {
    add_mixer(fingerprint, layer.mixer);
    if (const auto* moe = model::moe_of(layer)) {
        fingerprint.add(1).add(moe->experts).add(moe->experts_per_token).add(moe->intermediate).add(moe->shared_intermediate);
        fingerprint.add(moe->shared_gate).add(static_cast<int>(moe->scoring)).add(moe->correction_bias);
        fingerprint.add(moe->groups).add(moe->top_groups).add(moe->biases);
    } else {
        fingerprint.add(0).add(std::get<model::DenseFeedForward>(layer.feed_forward).intermediate);
    }
    const model::LayerFormats& formats = layer.formats;
    for (const auto* format :
         {&formats.mixer, &formats.feed_forward, &formats.shared_expert, &formats.routed_experts, &formats.router}) {
        add_format(fingerprint, *format);
    }
}

void add_layout(Fingerprint& fingerprint, const model::Layout& layout) {
    fingerprint.add(layout.tensor).add(layout.expert).add(layout.all_to_all).add(layout.pipeline);
    fingerprint.add(layout.attention_data).add(layout.decode_context).add(layout.replicas).add(layout.parallel_blocks);
}

/// All but acceptance, which shapes no pass.
void add_drafter(Fingerprint& fingerprint, const model::Speculation& speculation) {
    fingerprint.add(static_cast<int>(speculation.method)).add(speculation.steps).add(speculation.top_k);
    fingerprint.add(speculation.verify_tokens()).add(speculation.draft_tensor);
    fingerprint.add(speculation.head.has_value()).add(speculation.draft_architecture != nullptr);
    if (speculation.head) {
        const model::Eagle3Head& head = *speculation.head;
        fingerprint.add(head.hidden).add(head.layers).add(head.aux_layers).add(head.intermediate);
        fingerprint.add(head.draft_vocabulary).add(head.own_embedding);
        add_mixer(fingerprint, head.mixer);
        add_format(fingerprint, head.format);
    }
    if (speculation.draft_architecture) add_architecture(fingerprint, *speculation.draft_architecture);
}

}  // namespace

void add_architecture(Fingerprint& fingerprint, const model::Architecture& architecture) {
    fingerprint.add(architecture.hidden).add(architecture.vocabulary).add(architecture.max_context);
    fingerprint.add(architecture.tied_embeddings).add(static_cast<std::uint64_t>(architecture.layers.size()));
    for (const model::Layer& layer : architecture.layers) add_layer(fingerprint, layer);
    for (const model::MtpModule& module : architecture.mtp) {
        add_layer(fingerprint, module.layer);
        fingerprint.add(module.own_embedding);
        add_format(fingerprint, module.projection);
    }
    add_format(fingerprint, architecture.embedding_format);
    add_format(fingerprint, architecture.lm_head_format);
    fingerprint.add(static_cast<int>(architecture.activation_format)).add(static_cast<int>(architecture.kv_format));
}

void add_cycle_shape(Fingerprint& fingerprint, const model::Scenario& scenario) {
    add_architecture(fingerprint, scenario.architecture);
    add_layout(fingerprint, scenario.layout);
    add_drafter(fingerprint, scenario.speculation);
    fingerprint.add(scenario.sequences_per_replica()).add(scenario.workload.context_tokens);
    fingerprint.add(static_cast<int>(scenario.kv_format()));
    const model::Routing& routing = scenario.routing;
    fingerprint.add(static_cast<int>(routing.kind)).add(routing.alpha).add(routing.draft_overlap).add(scenario.seed);
}

void add_surroundings(Fingerprint& fingerprint, const model::Scenario& scenario) {
    const model::GpuSpec& gpu = scenario.machine.gpu;
    fingerprint.add(gpu.name).add(gpu.compute_capability).add(gpu.memory_gb_s).add(gpu.l2_bytes);
    fingerprint.add(gpu.bf16_tflops).add(gpu.fp8_tflops).add(gpu.fp4_tflops);
    fingerprint.add(scenario.machine.name).add(scenario.machine.host.vendor);
    fingerprint.add(scenario.machine.host.family).add(scenario.machine.host.model);
    for (const model::MachineNode& node : scenario.machine.nodes) {
        fingerprint.add(static_cast<int>(node.kind)).add(node.numa).add(node.socket).add(node.host_bridge);
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
    fingerprint.add(host.relative_uncertainty).add(static_cast<int>(host.coverage));
}

}  // namespace draftboard::sim
