// SPDX-License-Identifier: Apache-2.0
#include "tests/model/sample_architectures.h"

namespace draftboard::model::samples {

namespace {

WeightFormat bf16() { return WeightFormat::plain(NumberFormat::bf16); }
WeightFormat int4_g32() { return {NumberFormat::int4, 1, 32, 16, 0}; }
WeightFormat nvfp4_g16() { return {NumberFormat::nvfp4, 1, 16, 8, 0}; }
WeightFormat mxfp4_g32() { return {NumberFormat::mxfp4, 1, 32, 8, 0}; }
WeightFormat fp8_b128() { return {NumberFormat::fp8_e4m3, 128, 128, 32, 0}; }

LayerFormats formats(const WeightFormat& others, const WeightFormat& experts) {
    return {others, others, others, experts, bf16()};
}

MlaShape deepseek_mla(int heads) {
    MlaShape mla;
    mla.heads = heads;
    mla.q_lora_rank = 1536;
    mla.kv_lora_rank = 512;
    mla.qk_nope_head_dim = 128;
    mla.qk_rope_head_dim = 64;
    mla.v_head_dim = 128;
    return mla;
}

GqaShape gqa(int heads, int kv_heads, int dim) {
    GqaShape shape;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = dim;
    shape.rotary_dim = dim;
    return shape;
}

MoeFeedForward moe(int experts, int per_token, int intermediate, int shared) {
    MoeFeedForward shape;
    shape.experts = experts;
    shape.experts_per_token = per_token;
    shape.intermediate = intermediate;
    shape.shared_intermediate = shared;
    return shape;
}

Architecture base(const char* name, int hidden, std::int64_t vocabulary, std::int64_t context) {
    Architecture out;
    out.name = name;
    out.source = "tests";
    out.hidden = hidden;
    out.vocabulary = vocabulary;
    out.max_context = context;
    return out;
}

void fill(Architecture& out, int layers, int dense_layers, const TokenMixer& mixer, int dense_width,
          const MoeFeedForward& mixture, const LayerFormats& stored) {
    for (int i = 0; i < layers; ++i) {
        Layer layer;
        layer.mixer = mixer;
        layer.formats = stored;
        if (i < dense_layers) layer.feed_forward = DenseFeedForward{dense_width};
        else layer.feed_forward = mixture;
        out.layers.push_back(layer);
    }
}

void add_mtp(Architecture& out, const Layer& layer) {
    MtpModule module;
    module.layer = layer;
    module.projection = bf16();
    out.mtp.push_back(module);
}

}  // namespace

Architecture kimi_k25() {
    Architecture out = base("Kimi-K2.5", 7168, 163840, 262144);
    fill(out, 61, 1, deepseek_mla(64), 18432, moe(384, 8, 2048, 2048), formats(bf16(), int4_g32()));
    return out;
}

Architecture deepseek_v3() {
    Architecture out = base("DeepSeek-V3", 7168, 129280, 163840);
    fill(out, 61, 3, deepseek_mla(128), 18432, moe(256, 8, 2048, 2048), formats(fp8_b128(), fp8_b128()));
    add_mtp(out, out.layers.back());
    return out;
}

Architecture qwen35_397b() {
    Architecture out = base("Qwen3.5-397B-A17B", 4096, 248320, 262144);
    GqaShape full = gqa(32, 2, 256);
    full.rotary_dim = 64;
    full.output_gate = true;
    full.qk_norm = QkNorm::per_head;
    DeltaNetShape net;
    net.key_heads = 16;
    net.value_heads = 64;
    net.key_head_dim = 128;
    net.value_head_dim = 128;
    net.conv_kernel = 4;
    MoeFeedForward mixture = moe(512, 10, 1024, 1024);
    mixture.shared_gate = true;
    fill(out, 60, 0, net, 0, mixture, formats(bf16(), nvfp4_g16()));
    for (std::size_t i = 3; i < out.layers.size(); i += 4) out.layers[i].mixer = full;  // full_attention_interval 4
    add_mtp(out, out.layers.back());
    return out;
}

Architecture qwen3_235b() {
    Architecture out = base("Qwen3-235B-A22B", 4096, 151936, 40960);
    GqaShape full = gqa(64, 4, 128);
    full.qk_norm = QkNorm::per_head;
    fill(out, 94, 0, full, 0, moe(128, 8, 1536, 0), formats(bf16(), bf16()));
    return out;
}

Architecture qwen3_30b() {
    Architecture out = base("Qwen3-30B-A3B", 2048, 151936, 40960);
    GqaShape full = gqa(32, 4, 128);
    full.qk_norm = QkNorm::per_head;
    fill(out, 48, 0, full, 0, moe(128, 8, 768, 0), formats(bf16(), bf16()));
    return out;
}

Architecture gpt_oss_120b() {
    Architecture out = base("gpt-oss-120b", 2880, 201088, 131072);
    GqaShape full = gqa(64, 8, 64);
    full.qkv_bias = true;
    full.output_bias = true;
    full.sinks = true;
    MoeFeedForward mixture = moe(128, 4, 2880, 0);
    mixture.biases = true;
    fill(out, 36, 0, full, 0, mixture, formats(bf16(), mxfp4_g32()));
    for (std::size_t i = 0; i < out.layers.size(); i += 2) std::get<GqaShape>(out.layers[i].mixer).sliding_window = 128;
    return out;
}

Architecture glm_5() {
    Architecture out = base("GLM-5", 6144, 154880, 202752);
    MlaShape mla = deepseek_mla(64);
    mla.q_lora_rank = 2048;
    mla.qk_nope_head_dim = 192;
    mla.v_head_dim = 256;
    mla.indexer = SparseIndexer{32, 128, 2048};
    fill(out, 78, 3, mla, 12288, moe(256, 8, 2048, 2048), formats(bf16(), bf16()));
    add_mtp(out, out.layers.back());
    return out;
}

Layout tensor_parallel(int ranks) {
    Layout layout;
    layout.tensor = ranks;
    return layout;
}

Step decode_step(int sequences, std::int64_t context) {
    Step step;
    step.sequences = sequences;
    step.context = context;
    return step;
}

Step verify_step(int sequences, int tokens, std::int64_t context) {
    Step step = decode_step(sequences, context);
    step.pass = Pass::verify;
    step.tokens = tokens;
    return step;
}

const Operation* find(const Plan& plan, std::string_view role, int layer) {
    for (const Operation& op : plan.operations) {
        if (op.role == role && (layer == -2 || op.layer == layer)) return &op;
    }
    return nullptr;
}

int count_role(const Plan& plan, std::string_view role) {
    int count = 0;
    for (const Operation& op : plan.operations) count += op.role == role ? 1 : 0;
    return count;
}

}  // namespace draftboard::model::samples
