// SPDX-License-Identifier: Apache-2.0
#include "model/plan_layers.h"

#include <algorithm>
#include <cmath>

#include "model/sharding.h"

namespace draftboard::model {

namespace {

// Flops of the small operations. They never bind a kernel; counted so that totals are complete.
constexpr double kNormFlops = 4;  // square, sum, scale, weight: per element
constexpr double kDeltaFlops = 7;  // decay 1, S^T k 2, rank-1 update 2, S^T q 2: per element of the state

double real(std::int64_t value) { return static_cast<double>(value); }

/// Cached and own tokens that a token of the step attends to on average: the c cached ones it may see, and
/// of the step's own t tokens those up to itself, (t + 1) / 2.
double attended(double cached, int tokens, double window) {
    const double all = cached + 0.5 * (tokens + 1.0);
    return window > 0 ? std::min(all, window) : all;
}

}  // namespace

PassShape pass_shape(const Architecture& architecture, const Layout& layout, const Step& step) {
    PassShape shape;
    shape.pass = step.pass;
    shape.hidden = architecture.hidden;
    shape.activation_format = architecture.activation_format;
    shape.kv_format = step.kv_format;
    shape.layout = layout;
    shape.sequences = step.sequences;
    shape.tokens = step.tokens;
    shape.context = step.context;
    shape.routing = &step.routing;
    shape.seed = step.seed;
    return shape;
}

PlanWriter::PlanWriter(const PassShape& shape, std::vector<Operation>& operations)
    : shape_(shape), operations_(&operations) {
    hidden_ = shape.hidden;
    tensor_ = shape.layout.tensor;
    groups_ = shape.layout.attention_data;
    attention_ranks_ = attention_tensor(shape.layout);
    local_sequences_ = divide_up(shape.sequences, groups_);
    local_ = local_sequences_ * shape.tokens;
    all_ = std::int64_t{shape.sequences} * shape.tokens;
    own_ = divide_up(local_, attention_ranks_);
    element_ = bits_per_element(shape.activation_format) / 8.0;
    kv_element_ = bits_per_element(shape.kv_format) / 8.0;
}

Operation& PlanWriter::add(std::string_view role, OperationKind kind, std::int64_t m) {
    Operation& op = operations_->emplace_back();
    op.role = role;
    op.kind = kind;
    op.layer = layer_;
    op.m = m;
    op.weight_format = WeightFormat::plain(shape_.activation_format);
    return op;
}

Operation& PlanWriter::gemm(std::string_view role, std::int64_t m, std::int64_t n, std::int64_t k,
                            const WeightFormat& format) {
    Operation& op = add(role, OperationKind::gemm, m);
    op.n = n;
    op.k = k;
    op.weight_format = format;
    op.weight_bytes = format.bytes(n, k);
    op.activation_bytes = real(m) * (real(k) + real(n)) * element_;
    op.flops = 2.0 * real(m) * real(n) * real(k);
    return op;
}

Operation& PlanWriter::norm(std::string_view role, std::int64_t m, std::int64_t width) {
    Operation& op = add(role, OperationKind::norm, m);
    op.n = width;
    op.weight_bytes = real(width) * element_;
    op.activation_bytes = 2.0 * real(m) * real(width) * element_;
    op.flops = kNormFlops * real(m) * real(width);
    return op;
}

Operation& PlanWriter::elementwise(std::string_view role, std::int64_t m, std::int64_t n, double reads,
                                   double writes) {
    Operation& op = add(role, OperationKind::elementwise, m);
    op.n = n;
    op.activation_bytes = real(m) * (reads + writes) * element_;
    op.flops = real(m) * reads;
    return op;
}

void PlanWriter::collective(std::string_view role, OperationKind kind, std::int64_t m, std::int64_t width,
                            int group) {
    if (group <= 1) return;
    Operation& op = add(role, kind, m);
    op.n = width;
    op.group = group;
    op.message_bytes = static_cast<std::int64_t>(real(m) * real(width) * element_);
}

void PlanWriter::gather_own_tokens() {
    if (!scattered_) return;
    scattered_ = false;
    collective("mixer.all_gather", OperationKind::all_gather, own_, hidden_, attention_ranks_);
}

void PlanWriter::embedding(std::int64_t vocabulary, const WeightFormat& format) {
    layer_ = -1;
    Operation& op = add("embedding", OperationKind::embedding, local_);
    op.n = hidden_;
    op.k = vocabulary / attention_ranks_;
    op.weight_format = format;
    // Each row lies on one rank: a rank looks up its share of them.
    op.weight_bytes = real(local_) * format.bytes(1, hidden_) / attention_ranks_;
    op.activation_bytes = real(local_) * real(hidden_) * element_;
    collective("embedding.all_reduce", OperationKind::all_reduce, local_, hidden_, attention_ranks_);
}

void PlanWriter::pipeline_boundary(int layer) {
    layer_ = layer;
    gather_own_tokens();
    Operation& op = add("pipeline.send_receive", OperationKind::send_receive, local_);
    op.n = 2 * hidden_;  // hidden states and residual
    op.group = 2;
    op.message_bytes = static_cast<std::int64_t>(real(local_) * 2.0 * real(hidden_) * element_);
}

void PlanWriter::mixer_norm(std::int64_t mixer_input) {
    Operation& op = norm("mixer.norm", local_, mixer_input);
    op.activation_bytes += 2.0 * real(local_) * real(hidden_) * element_;  // residual read and written
    op.flops += real(local_) * real(hidden_);
}

void PlanWriter::layer(const Layer& layer, int index, std::int64_t mixer_input) {
    layer_ = index;
    gather_own_tokens();
    mixer_norm(mixer_input);
    if (const auto* latent = std::get_if<MlaShape>(&layer.mixer)) {
        mla(*latent, layer.formats.mixer, mixer_input);
    } else if (const auto* grouped = std::get_if<GqaShape>(&layer.mixer)) {
        gqa(*grouped, layer.formats.mixer, mixer_input);
    } else {
        delta_net(std::get<DeltaNetShape>(layer.mixer), layer.formats.mixer, mixer_input);
    }
    if (!shape_.layout.parallel_blocks) {
        collective("mixer.all_reduce", OperationKind::all_reduce, local_, hidden_, attention_ranks_);
    }

    Operation& op = norm("feed_forward.norm", local_, hidden_);
    op.activation_bytes += 2.0 * real(local_) * real(hidden_) * element_;
    op.flops += real(local_) * real(hidden_);
    const MoeFeedForward* mixture = moe_of(layer);
    if (mixture != nullptr && shape_.layout.all_to_all) {
        moe(*mixture, layer.formats);
        scattered_ = attention_ranks_ > 1;
        return;
    }
    collective("attention_data.all_gather", OperationKind::all_gather, local_, hidden_, groups_);
    if (mixture != nullptr) {
        moe(*mixture, layer.formats);
    } else {
        dense(std::get<DenseFeedForward>(layer.feed_forward), layer.formats.feed_forward);
    }
    if (groups_ > 1) {
        collective("attention_data.reduce_scatter", OperationKind::reduce_scatter, all_, hidden_, tensor_);
        scattered_ = attention_ranks_ > 1;
    } else {
        collective("feed_forward.all_reduce", OperationKind::all_reduce, all_, hidden_, tensor_);
    }
}

void PlanWriter::mla(const MlaShape& shape, const WeightFormat& format, std::int64_t input) {
    const std::int64_t heads = shape.heads / attention_ranks_;
    const std::int64_t nope = shape.qk_nope_head_dim;
    const std::int64_t rope = shape.qk_rope_head_dim;
    const std::int64_t latent = shape.kv_lora_rank;
    const std::int64_t value = shape.v_head_dim;
    const std::int64_t query_rank = shape.q_lora_rank;
    const std::int64_t cached = latent + rope;  // numbers a token, the same on every rank
    const int split = shape_.layout.decode_context;

    if (query_rank > 0) {
        gemm("attention.qkv_a_proj", local_, query_rank + cached, input, format);
        norm("attention.a_norm", local_, query_rank + latent);
        gemm("attention.q_b_proj", local_, heads * (nope + rope), query_rank, format);
    } else {
        gemm("attention.q_proj", local_, heads * (nope + rope), input, format);
        gemm("attention.kv_a_proj", local_, cached, input, format);
        norm("attention.a_norm", local_, latent);
    }
    {
        Operation& op = add("attention.absorb_q", OperationKind::batched_gemm, local_);
        op.n = latent;
        op.k = nope;
        op.batch = heads;
        op.weight_format = format;
        op.weight_bytes = format.bytes(heads * nope, latent);
        op.activation_bytes = real(local_) * real(heads) * real(nope + latent) * element_;
        op.flops = 2.0 * real(local_) * real(heads) * real(nope) * real(latent);
    }
    {
        const double rotated = real(heads * rope + rope);
        Operation& op = elementwise("attention.rope_cache", local_, heads * rope + cached, rotated + real(latent),
                                    rotated);
        op.cache_bytes = real(divide_up(local_, split)) * real(cached) * kv_element_;
    }
    if (shape.indexer) indexer(*shape.indexer, shape, format);
    collective("decode_context.gather_q", OperationKind::all_gather, local_, heads * cached, split);
    {
        double read = real(divide_up(shape_.context, split));  // per sequence
        double seen = attended(real(shape_.context) / split, shape_.tokens, 0);
        if (shape.indexer) {
            const double chosen = shape.indexer->top_k;
            read = std::min(read, chosen * shape_.tokens / split);
            seen = std::min(seen, chosen);
        }
        const std::int64_t gathered = heads * split;
        Operation& op = add("attention.mla", OperationKind::attention, local_);
        op.n = gathered;
        op.k = static_cast<std::int64_t>(std::ceil(read));
        op.batch = local_sequences_;
        op.weight_format = WeightFormat::plain(shape_.kv_format);
        op.cache_bytes = real(local_sequences_) * read * real(cached) * kv_element_;
        op.activation_bytes = real(local_) * real(gathered) * real(cached + latent) * element_;
        op.flops = 2.0 * real(local_) * real(gathered) * seen * real(cached + latent);
    }
    merge_contexts(heads * split, latent, split);
    {
        Operation& op = add("attention.absorb_v", OperationKind::batched_gemm, local_);
        op.n = value;
        op.k = latent;
        op.batch = heads;
        op.weight_format = format;
        op.weight_bytes = format.bytes(heads * value, latent);
        op.activation_bytes = real(local_) * real(heads) * real(latent + value) * element_;
        op.flops = 2.0 * real(local_) * real(heads) * real(latent) * real(value);
    }
    gemm("attention.o_proj", local_, hidden_, heads * value, format);
}

void PlanWriter::merge_contexts(std::int64_t heads, std::int64_t width, int split) {
    if (split <= 1) return;
    // One fp32 logarithm of the softmax sum a token and head, then outputs scaled, laid out by head, and summed.
    constexpr double kSumBytes = 4;
    const double numbers = real(heads) * real(width);
    collective("decode_context.gather_sums", OperationKind::all_gather, local_,
               static_cast<std::int64_t>(real(heads) * kSumBytes / element_), split);
    elementwise("decode_context.correct", local_, heads * width, numbers, numbers);
    Operation& op = add("decode_context.by_head", OperationKind::copy, local_);
    op.n = heads * width;
    op.activation_bytes = 2.0 * real(local_) * numbers * element_;
    collective("decode_context.reduce_output", OperationKind::reduce_scatter, local_, heads * width, split);
}

void PlanWriter::indexer(const SparseIndexer& shape, const MlaShape& latent, const WeightFormat& format) {
    // Three projections in one entry, replicated on every rank: queries from the query latent (or the hidden
    // state), one key from the hidden state, one weight a head from the hidden state.
    const std::int64_t queries = std::int64_t{shape.heads} * shape.head_dim;
    const std::int64_t query_input = latent.q_lora_rank > 0 ? latent.q_lora_rank : hidden_;
    const std::int64_t others = std::int64_t{shape.head_dim} + shape.heads;
    Operation& projection = gemm("attention.indexer_proj", local_, queries + others, hidden_, format);
    projection.weight_bytes = format.bytes(queries, query_input) + format.bytes(shape.head_dim, hidden_) +
                              format.bytes(shape.heads, hidden_);
    projection.flops = 2.0 * real(local_) * (real(queries) * real(query_input) + real(others) * real(hidden_));

    // Keys are cached in fp8 with one fp32 scale a token: head_dim + 4 bytes (DeepSeek-V3.2's layout).
    const double key_bytes = shape.head_dim + 4.0;
    Operation& op = add("attention.indexer", OperationKind::indexer, local_);
    op.n = shape.heads;
    op.k = shape_.context;
    op.batch = local_sequences_;
    op.weight_format = WeightFormat::plain(NumberFormat::fp8_e4m3);
    op.cache_bytes = real(local_sequences_) * real(shape_.context) * key_bytes + real(local_) * key_bytes;
    op.activation_bytes = real(local_) * real(queries + shape.heads) * element_ + real(local_) * shape.top_k * 4.0;
    op.flops = 2.0 * real(local_) * real(queries) * attended(real(shape_.context), shape_.tokens, 0);
}

void PlanWriter::gqa(const GqaShape& shape, const WeightFormat& format, std::int64_t input) {
    const std::int64_t heads = shape.heads / attention_ranks_;
    const std::int64_t kv_heads = kv_heads_per_rank(shape.kv_heads, attention_ranks_);
    const std::int64_t dim = shape.head_dim;
    const int split = shape_.layout.decode_context;
    const std::int64_t query_width = heads * dim;
    const std::int64_t kv_width = 2 * kv_heads * dim;
    const std::int64_t projected = query_width * (shape.output_gate ? 2 : 1) + kv_width;

    Operation& qkv = gemm("attention.qkv_proj", local_, projected, input, format);
    if (shape.qkv_bias) qkv.weight_bytes += real(projected) * element_;
    if (shape.qk_norm != QkNorm::none) {
        Operation& op = norm("attention.qk_norm", local_, query_width + kv_heads * dim);
        op.weight_bytes =
            real(shape.qk_norm == QkNorm::per_head ? 2 * dim : query_width + kv_heads * dim) * element_;
    }
    {
        const double rotated = real((heads + kv_heads) * shape.rotary_dim);
        Operation& op = elementwise("attention.rope_cache", local_, query_width + kv_width,
                                    rotated + real(kv_width), rotated);
        op.cache_bytes = real(divide_up(local_, split)) * real(kv_width) * kv_element_;
    }
    collective("decode_context.gather_q", OperationKind::all_gather, local_, query_width, split);
    {
        const std::int64_t visible =
            shape.sliding_window > 0 ? std::min<std::int64_t>(shape_.context, shape.sliding_window) : shape_.context;
        const std::int64_t read = divide_up(visible, split);
        const std::int64_t gathered = heads * split;
        Operation& op = add("attention.gqa", OperationKind::attention, local_);
        op.n = gathered;
        op.k = read;
        op.batch = local_sequences_;
        op.weight_format = WeightFormat::plain(shape_.kv_format);
        if (shape.sinks) op.weight_bytes = real(gathered) * element_;
        op.cache_bytes = real(local_sequences_) * real(read) * real(kv_width) * kv_element_;
        op.activation_bytes = 2.0 * real(local_) * real(gathered) * real(dim) * element_;
        op.flops = 4.0 * real(local_) * real(gathered) * real(dim) *
                   attended(real(shape_.context) / split, shape_.tokens, shape.sliding_window);
    }
    merge_contexts(heads * split, dim, split);
    if (shape.output_gate) {
        elementwise("attention.output_gate", local_, query_width, 2.0 * real(query_width), real(query_width));
    }
    Operation& out = gemm("attention.o_proj", local_, hidden_, query_width, format);
    if (shape.output_bias) out.weight_bytes += real(hidden_) * element_;
}

void PlanWriter::delta_net(const DeltaNetShape& shape, const WeightFormat& format, std::int64_t input) {
    const std::int64_t key_width = std::int64_t{shape.key_heads} / attention_ranks_ * shape.key_head_dim;
    const std::int64_t value_heads = shape.value_heads / attention_ranks_;
    const std::int64_t value_width = value_heads * shape.value_head_dim;
    const std::int64_t channels = 2 * key_width + value_width;  // q, k, v pass the convolution

    // q, k, v; the gate z as wide as v; b and a one number a value head.
    gemm("delta_net.in_proj", local_, channels + value_width + 2 * value_heads, input, format);
    {
        const double state = real(value_width) * real(shape.key_head_dim) * bits_per_element(shape.state_format) / 8.0;
        const double window = real(channels) * std::max(0, shape.conv_kernel - 1) * element_;
        // The state is read once; verify leaves a snapshot after every token, so that any prefix can be
        // taken, other passes only the last one.
        const double writes = shape_.pass == Pass::verify ? shape_.tokens : 1.0;
        Operation& op = add("delta_net.core", OperationKind::delta_net, local_);
        op.n = value_heads;
        op.k = shape.key_head_dim;
        op.batch = local_sequences_;
        op.weight_format = WeightFormat::plain(shape.state_format);
        // Convolution kernels, and A_log and dt_bias in fp32.
        op.weight_bytes = real(channels) * shape.conv_kernel * element_ + real(2 * value_heads) * 4.0;
        op.cache_bytes = real(local_sequences_) * (state + window) * (1.0 + writes);
        op.activation_bytes = real(local_) * real(channels + 2 * value_heads + value_width) * element_;
        op.flops = real(local_) * (kDeltaFlops * real(value_width) * real(shape.key_head_dim) +
                                   2.0 * real(channels) * shape.conv_kernel);
    }
    {
        Operation& op = norm("delta_net.gated_norm", local_, value_width);
        op.weight_bytes = real(shape.value_head_dim) * element_;
        op.activation_bytes += real(local_) * real(value_width) * element_;  // the gate
    }
    gemm("delta_net.out_proj", local_, hidden_, value_width, format);
}

void PlanWriter::rollback(const Architecture& architecture) {
    double bytes = 0;
    std::int64_t layers = 0;
    for (const Layer& layer : architecture.layers) {
        const auto* net = std::get_if<DeltaNetShape>(&layer.mixer);
        if (net == nullptr) continue;
        ++layers;
        bytes += real(net->value_heads) / attention_ranks_ * net->value_head_dim * net->key_head_dim *
                 bits_per_element(net->state_format) / 8.0;
    }
    if (layers == 0) return;
    layer_ = -1;
    Operation& op = add("delta_net.rollback", OperationKind::copy, local_sequences_);
    op.n = layers;
    op.batch = local_sequences_;
    op.cache_bytes = 2.0 * real(local_sequences_) * bytes;  // the snapshot read, the state written
}

void PlanWriter::dense(const DenseFeedForward& shape, const WeightFormat& format) {
    const std::int64_t width = shape.intermediate / tensor_;
    gemm("mlp.gate_up_proj", all_, 2 * width, hidden_, format);
    elementwise("mlp.activation", all_, width, 2.0 * real(width), real(width));
    gemm("mlp.down_proj", all_, hidden_, width, format);
}

const DistinctExperts& PlanWriter::distinct(const MoeFeedForward& shape) {
    for (const auto& known : known_distinct_) {
        if (known.experts == shape.experts && known.per_token == shape.experts_per_token) return known.value;
    }
    // Prefill tokens are many and of one text: no draft overlap is known for them.
    const bool runs = shape_.pass != Pass::prefill || shape_.routing->kind == RoutingKind::trace;
    const int sequences = runs ? shape_.sequences : static_cast<int>(all_);
    const int tokens = runs ? shape_.tokens : 1;
    known_distinct_.push_back({shape.experts, shape.experts_per_token,
                               distinct_experts(*shape_.routing, shape.experts, shape.experts_per_token,
                                                sequences, tokens, shape_.layout.expert, shape_.seed)});
    return known_distinct_.back().value;
}

void PlanWriter::shared_expert(const MoeFeedForward& shape, const WeightFormat& format, std::int64_t m) {
    if (shape.shared_intermediate <= 0) return;
    // With an all-to-all backend each rank runs the whole shared expert on its own tokens.
    const std::int64_t width = shape.shared_intermediate / (shape_.layout.all_to_all ? 1 : tensor_);
    Operation& up = gemm("moe.shared_gate_up_proj", m, 2 * width, hidden_, format);
    if (shape.shared_gate) {  // one more row, hidden -> 1, on every rank
        up.weight_bytes += real(hidden_) * element_;
        up.flops += 2.0 * real(m) * real(hidden_);
    }
    elementwise("moe.shared_activation", m, width, 2.0 * real(width), real(width));
    gemm("moe.shared_down_proj", m, hidden_, width, format);
}

void PlanWriter::moe(const MoeFeedForward& shape, const LayerFormats& formats) {
    const Layout& layout = shape_.layout;
    const std::int64_t m = layout.all_to_all ? own_ : all_;
    const DistinctExperts& touched = distinct(shape);
    const std::int64_t width = expert_width_per_rank(shape, formats.routed_experts, layout);
    const std::int64_t k = shape.experts_per_token;
    const double pairs = layout.expert > 1 ? touched.busiest_rank_tokens : real(all_) * real(k);

    Operation& router = gemm("moe.router_proj", m, shape.experts, hidden_, formats.router);
    if (shape.biases) router.weight_bytes += real(shape.experts) * element_;
    {
        Operation& op = add("moe.top_k", OperationKind::router, m);
        op.n = shape.experts;
        op.k = k;
        if (shape.correction_bias) op.weight_bytes = real(shape.experts) * 4.0;
        // Scores read; expert number and weight (4 bytes each) written.
        op.activation_bytes = real(m) * (real(shape.experts) * element_ + real(k) * 8.0);
        op.flops = real(m) * real(shape.experts) * 4.0;
    }
    // A token goes once to each rank that holds one of its experts, at most min(k, ranks) of them.
    const std::int64_t copies = std::min<std::int64_t>(k, layout.expert);
    if (layout.all_to_all) {
        collective("moe.dispatch", OperationKind::all_to_all, own_, copies * hidden_, layout.expert);
    }
    {
        Operation& op = add("moe.experts", OperationKind::experts, all_);
        op.n = width;
        op.k = hidden_;
        op.distinct_experts = layout.expert > 1 ? touched.busiest_rank : touched.total;
        op.batch = std::max<std::int64_t>(1, std::llround(op.distinct_experts));
        op.expert_tokens = pairs;
        op.weight_format = formats.routed_experts;
        double one = formats.routed_experts.bytes(2 * width, hidden_) + formats.routed_experts.bytes(hidden_, width);
        if (shape.biases) one += real(2 * width + hidden_) * element_;
        op.weight_bytes = op.distinct_experts * one;
        // In and out hidden wide; gate and up written and read, their product written and read.
        op.activation_bytes = pairs * (2.0 * real(hidden_) + 6.0 * real(width)) * element_;
        op.flops = pairs * 6.0 * real(hidden_) * real(width);
    }
    shared_expert(shape, formats.shared_expert, m);
    {
        const double shared = shape.shared_intermediate > 0 ? real(m) * real(hidden_) : 0.0;
        Operation& op = add("moe.combine", OperationKind::elementwise, layout.all_to_all ? all_ : m);
        op.n = hidden_;
        op.k = k;
        op.activation_bytes = (pairs * real(hidden_) + shared + real(m) * real(hidden_)) * element_;
        op.flops = 2.0 * pairs * real(hidden_);
    }
    if (layout.all_to_all) {
        collective("moe.return", OperationKind::all_to_all, own_, copies * hidden_, layout.expert);
    }
}

void PlanWriter::fusion_norm(std::string_view role, std::int64_t width) {
    layer_ = -1;
    norm(role, local_, width);
}

void PlanWriter::fusion(std::string_view role, std::int64_t input, const WeightFormat& format) {
    layer_ = -1;
    gemm(role, local_, hidden_, input, format);
}

void PlanWriter::head(std::int64_t vocabulary, const WeightFormat& format, int rows_per_sequence,
                      std::string_view last_role, OperationKind last_kind) {
    layer_ = -1;
    gather_own_tokens();
    Operation& last_norm = norm("final.norm", local_, hidden_);
    last_norm.activation_bytes += real(local_) * real(hidden_) * element_;  // residual read
    const std::int64_t local_rows = local_sequences_ * rows_per_sequence;
    collective("attention_data.all_gather", OperationKind::all_gather, local_rows, hidden_, groups_);
    const std::int64_t rows = std::int64_t{shape_.sequences} * rows_per_sequence;
    gemm("lm_head", rows, vocabulary / tensor_, hidden_, format);
    collective("logits.all_gather", OperationKind::all_gather, rows, vocabulary / tensor_, tensor_);
    Operation& op = add(last_role, last_kind, rows);
    op.n = vocabulary;
    op.activation_bytes = real(rows) * real(vocabulary) * element_;
    op.flops = real(rows) * real(vocabulary);
}

}  // namespace draftboard::model
