// SPDX-License-Identifier: Apache-2.0
#include "model/memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "model/plan.h"
#include "model/sharding.h"

namespace draftboard::model {

namespace {

// Device memory of NCCL's buffers by group size: observed by aiconfigurator (systems/*.yaml, misc.nccl_mem:
// 342 MiB with 2 GPUs, 392 MiB with 4 and 8). Larger groups are held at the last value.
constexpr std::array<std::pair<int, double>, 3> kNcclBytes{{{1, 0.0}, {2, 358612992.0}, {1 << 30, 411041792.0}}};

double nccl_bytes(int ranks) {
    for (const auto& [up_to, bytes] : kNcclBytes) {
        if (ranks <= up_to) return bytes;
    }
    return kNcclBytes.back().second;
}

double real(std::int64_t value) { return static_cast<double>(value); }

/// Numbers of one layer's cache on one rank: bytes a token, the longest it holds, bytes a sequence.
struct LayerCache {
    double per_token = 0;
    std::int64_t window = 0;  // 0: the whole context
    double per_sequence = 0;  // recurrent state and convolution window
};

LayerCache layer_cache(const Layer& layer, const Layout& layout, NumberFormat kv_format, NumberFormat activations) {
    const int ranks = std::max(1, layout.tensor / std::max(1, layout.attention_data));
    const double element = bits_per_element(kv_format) / 8.0;
    LayerCache out;
    if (const auto* mla = std::get_if<MlaShape>(&layer.mixer)) {
        out.per_token = (real(mla->kv_lora_rank) + mla->qk_rope_head_dim) * element;
        if (mla->indexer) out.per_token += mla->indexer->head_dim + 4.0;  // fp8 key and its fp32 scale
    } else if (const auto* gqa = std::get_if<GqaShape>(&layer.mixer)) {
        out.per_token = 2.0 * real(kv_heads_per_rank(gqa->kv_heads, ranks)) * gqa->head_dim * element;
        out.window = gqa->sliding_window;
    } else if (const auto* net = std::get_if<DeltaNetShape>(&layer.mixer)) {
        const double values = real(net->value_heads) / ranks * net->value_head_dim;
        const double keys = real(net->key_heads) / ranks * net->key_head_dim;
        out.per_sequence = values * net->key_head_dim * bits_per_element(net->state_format) / 8.0 +
                           (2.0 * keys + values) * std::max(0, net->conv_kernel - 1) *
                               bits_per_element(activations) / 8.0;
    }
    return out;
}

std::string_view part_of(std::string_view role) {
    if (role == "embedding" || role == "lm_head") return role;
    if (role.find("norm") != std::string_view::npos) return "norms";
    if (role == "moe.experts") return "routed_experts";
    if (role.starts_with("moe.shared")) return "shared_experts";
    if (role.starts_with("moe.")) return "router";
    if (role.starts_with("mlp.")) return "dense_mlp";
    return "attention";
}

constexpr std::array<std::string_view, 8> kWeightParts{"embedding",      "attention", "dense_mlp", "routed_experts",
                                                       "shared_experts", "router",    "norms",     "lm_head"};

/// What one pipeline stage stores and caches.
struct Stage {
    std::array<double, kWeightParts.size()> weights{};
    double drafter = 0;
    std::vector<LayerCache> caches;
    std::vector<LayerCache> drafter_caches;
};

/// Bytes that an operation's weights take when all of them are stored, and not only what a token touches.
double stored_bytes(const Operation& op, const Architecture& architecture, const Layout& layout) {
    if (op.kind == OperationKind::embedding) return op.weight_format.bytes(op.k, op.n);
    if (op.kind == OperationKind::experts && op.distinct_experts > 0 && op.layer >= 0) {
        const auto* moe = moe_of(architecture.layers[static_cast<std::size_t>(op.layer)]);
        const std::int64_t held = moe != nullptr ? divide_up(moe->experts, layout.expert) : 0;
        return op.weight_bytes / op.distinct_experts * real(held);
    }
    return op.weight_bytes;
}

double drafter_weights(const Plan& plan, const Architecture& target, const Speculation& speculation,
                       const Layout& layout) {
    const Architecture drafter = drafter_architecture(target, speculation);
    const Layout ranks = drafter_layout(layout, speculation);
    const bool eagle = speculation.method == SpeculationMethod::eagle3;
    const bool shares_embedding = (eagle && !speculation.head->own_embedding) ||
                                  (speculation.method == SpeculationMethod::mtp && !target.mtp.front().own_embedding);
    const bool shares_head = speculation.method == SpeculationMethod::mtp && shares_embedding;
    double sum = 0;
    for (const Operation& op : plan.operations) {
        if (op.kind == OperationKind::embedding && shares_embedding) continue;
        if (op.role == "lm_head" && (shares_head || drafter.tied_embeddings)) continue;
        sum += stored_bytes(op, drafter, ranks);
    }
    return sum;
}

/// Everything that depends on batch and context, for one stage.
struct Usage {
    double kv_cache = 0;
    double drafter_kv_cache = 0;
    double recurrent_state = 0;
};

class FitModel {
   public:
    FitModel(const Architecture& architecture, const Layout& layout, const Speculation& speculation)
        : architecture_(&architecture), layout_(layout), verify_tokens_(speculation.verify_tokens()),
          speculative_(speculation.method != SpeculationMethod::none), speculation_(&speculation) {}

    /// Reads weights off the plans and caches off the layers; the error of a refused plan.
    Expected<void> prepare(const MemoryDemand& demand) {
        Step step;
        step.kv_format = demand.kv_format;
        auto plan = plan_forward(*architecture_, layout_, step);
        if (!plan) return tl::unexpected(plan.error());
        const auto layers = static_cast<int>(architecture_->layers.size());
        stages_.resize(static_cast<std::size_t>(layout_.pipeline));
        for (const Operation& op : plan->operations) add_weights(op, layers);
        for (int i = 0; i < layers; ++i) {
            stage_of(i, layers).caches.push_back(layer_cache(architecture_->layers[static_cast<std::size_t>(i)],
                                                             layout_, demand.kv_format,
                                                             architecture_->activation_format));
        }
        if (!speculative_ || speculation_->method == SpeculationMethod::ngram) return {};
        step.pass = Pass::draft_extend;
        auto draft = plan_draft(*architecture_, *speculation_, layout_, step);
        if (!draft) return tl::unexpected(draft.error());
        stages_.back().drafter = drafter_weights(*draft, *architecture_, *speculation_, layout_);
        const Architecture drafter = drafter_architecture(*architecture_, *speculation_);
        for (const Layer& layer : drafter.layers) {
            stages_.back().drafter_caches.push_back(layer_cache(layer, drafter_layout(layout_, *speculation_),
                                                                demand.kv_format, drafter.activation_format));
        }
        return {};
    }

    [[nodiscard]] Usage usage(const Stage& stage, std::int64_t context, std::int64_t sequences) const {
        const double held = real(divide_up(sequences, layout_.attention_data));
        const double snapshots = speculative_ ? 1.0 + verify_tokens_ : 1.0;
        const auto cached = [&](const LayerCache& cache, std::int64_t split) {
            const std::int64_t tokens = cache.window > 0 ? std::min(context, cache.window) : context;
            return cache.per_token * real(divide_up(tokens, split)) * held;
        };
        Usage out;
        for (const LayerCache& cache : stage.caches) {
            out.kv_cache += cached(cache, layout_.decode_context);
            out.recurrent_state += cache.per_sequence * held * snapshots;
        }
        for (const LayerCache& cache : stage.drafter_caches) {
            out.drafter_kv_cache += cached(cache, 1);
            out.recurrent_state += cache.per_sequence * held * snapshots;
        }
        return out;
    }

    [[nodiscard]] double activations(std::int64_t context, std::int64_t sequences) const {
        const double verified = real(sequences) * verify_tokens_;
        const double prefilled = std::min(real(kPrefillChunk), real(sequences) * real(std::max<std::int64_t>(context, 1)));
        const double element = bits_per_element(architecture_->activation_format) / 8.0;
        return std::max(verified, prefilled) * (4.0 * architecture_->hidden + widest_) * element +
               verified * real(architecture_->vocabulary) * 4.0;
    }

    [[nodiscard]] double total(const Stage& stage, std::int64_t context, std::int64_t sequences) const {
        double sum = stage.drafter + activations(context, sequences) + nccl_bytes(layout_.gpus_per_replica()) +
                     kCudaContextBytes;
        for (const double bytes : stage.weights) sum += bytes;
        const Usage used = usage(stage, context, sequences);
        return sum + used.kv_cache + used.drafter_kv_cache + used.recurrent_state;
    }

    [[nodiscard]] const Stage& fullest(std::int64_t context, std::int64_t sequences) const {
        return *std::max_element(stages_.begin(), stages_.end(), [&](const Stage& a, const Stage& b) {
            return total(a, context, sequences) < total(b, context, sequences);
        });
    }
    [[nodiscard]] double total(std::int64_t context, std::int64_t sequences) const {
        return total(fullest(context, sequences), context, sequences);
    }
    [[nodiscard]] double widest() const { return widest_; }
    [[nodiscard]] int verify_tokens() const { return verify_tokens_; }

   private:
    Stage& stage_of(int layer, int layers) {
        return stages_[static_cast<std::size_t>(pipeline_stage(layer, layers, layout_.pipeline))];
    }

    void add_weights(const Operation& op, int layers) {
        Stage& stage = op.layer >= 0 ? stage_of(op.layer, layers)
                       : op.kind == OperationKind::embedding ? stages_.front() : stages_.back();
        const std::string_view part = part_of(op.role);
        if (op.kind == OperationKind::gemm && op.role != "lm_head") widest_ = std::max(widest_, real(op.n));
        if (op.kind == OperationKind::experts) {  // one token's: gate, up, their product, and the output
            const double pairs = op.expert_tokens / std::max<double>(1.0, real(op.m));
            widest_ = std::max(widest_, pairs * (3.0 * real(op.n) + real(op.k)));
        }
        if (part == "lm_head" && architecture_->tied_embeddings && layout_.pipeline == 1) return;
        const auto at = std::find(kWeightParts.begin(), kWeightParts.end(), part);
        if (at == kWeightParts.end()) return;
        stage.weights[static_cast<std::size_t>(at - kWeightParts.begin())] += stored_bytes(op, *architecture_, layout_);
    }

    const Architecture* architecture_;
    Layout layout_;
    int verify_tokens_;
    bool speculative_;
    const Speculation* speculation_;
    std::vector<Stage> stages_;
    double widest_ = 0;
};

/// Largest value in 0..limit for which `fits` holds; it holds for all smaller ones too. 0: for none.
template <class Fits>
std::int64_t largest(std::int64_t limit, Fits fits) {
    std::int64_t low = 0;  // fits, or nothing does
    std::int64_t high = limit + 1;
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (fits(middle) ? low : high) = middle;
    }
    return low;
}

std::string weight_formula(std::string_view part, const Architecture& architecture, const Layout& layout) {
    if (part == "routed_experts") {
        for (const Layer& layer : architecture.layers) {
            if (const auto* moe = moe_of(layer)) {
                return layout.expert > 1
                           ? fmt::format("{} of {} experts a MoE layer, {}", divide_up(moe->experts, layout.expert),
                                         moe->experts, layer.formats.routed_experts.name())
                           : fmt::format("{} experts of width {} / {} a MoE layer, {}", moe->experts,
                                         moe->intermediate, layout.tensor, layer.formats.routed_experts.name());
            }
        }
    }
    if (part == "attention") {
        return fmt::format("heads / {}; latent and indexer projections on every rank", attention_tensor(layout));
    }
    if (part == "embedding" || part == "lm_head") {
        return fmt::format("vocabulary {} / {} x {}", architecture.vocabulary,
                           part == "embedding" ? attention_tensor(layout) : layout.tensor, architecture.hidden);
    }
    if (part == "router" || part == "norms") return "on every rank";
    return fmt::format("width / {}", part == "shared_experts" && layout.all_to_all ? 1 : layout.tensor);
}

std::string verdict_of(const MemoryFit& fit, const MemoryDemand& demand, double fixed_bytes) {
    const std::string asked =
        fmt::format("{} sequence{} of {} tokens", demand.sequences, demand.sequences == 1 ? "" : "s", demand.context);
    if (fit.fits) {
        return fmt::format("Fits: {:.1f} of {:.1f} GB usable a GPU for {}.", fit.total_bytes / 1e9,
                           fit.usable_bytes / 1e9, asked);
    }
    if (fixed_bytes > fit.usable_bytes) {
        return fmt::format("Does not fit: weights and buffers alone take {:.1f} GB of {:.1f} GB usable a GPU; use more "
                           "GPUs or a smaller weight format.",
                           fixed_bytes / 1e9, fit.usable_bytes / 1e9);
    }
    return fmt::format("Does not fit: {} take {:.1f} GB of {:.1f} GB usable a GPU; {}.", asked, fit.total_bytes / 1e9,
                       fit.usable_bytes / 1e9,
                       fit.max_context > 0
                           ? fmt::format("{} tokens of context or {} sequences would fit", fit.max_context,
                                         fit.max_sequences)
                           : fmt::format("{} sequences would fit", fit.max_sequences));
}

MemoryFit refused(const MemoryDemand& demand, std::string why) {
    MemoryFit fit;
    fit.usable_bytes = std::max(0.0, demand.capacity_bytes * demand.usable_fraction);
    fit.verdict = "Can't be laid out: " + std::move(why) + ".";
    return fit;
}

bool sound(const MemoryDemand& demand) {
    return demand.sequences >= 1 && demand.sequences <= kMaxBatchSearched && demand.context >= 0 &&
           demand.context <= kMaxContext && std::isfinite(demand.capacity_bytes) && demand.capacity_bytes >= 0 &&
           demand.usable_fraction > 0 && demand.usable_fraction <= 1;
}

template <class Value>
double fullest_stage(const Architecture& architecture, const Layout& layout, Value value) {
    const auto layers = static_cast<int>(architecture.layers.size());
    const int stages = std::clamp(layout.pipeline, 1, kMaxParallelDegree);
    std::vector<double> sums(static_cast<std::size_t>(stages), 0.0);
    for (int i = 0; i < layers; ++i) {
        sums[static_cast<std::size_t>(pipeline_stage(i, layers, stages))] +=
            value(architecture.layers[static_cast<std::size_t>(i)]);
    }
    return *std::max_element(sums.begin(), sums.end());
}

}  // namespace

MemoryFit memory_fit(const Architecture& architecture, const Layout& layout, const Speculation& speculation,
                     const MemoryDemand& demand) {
    if (!sound(demand)) {
        return refused(demand, fmt::format("sequences must lie within 1 .. {}, context within 0 .. 2^32 and the usable "
                                           "fraction within 0 .. 1",
                                           kMaxBatchSearched));
    }
    if (const auto problems = speculation.validate(architecture); !problems.empty()) {
        return refused(demand, to_error(problems, {}).to_text());
    }
    FitModel model(architecture, layout, speculation);
    if (const auto prepared = model.prepare(demand); !prepared) return refused(demand, prepared.error().to_text());

    const std::int64_t sequences = demand.sequences;
    const Stage& stage = model.fullest(demand.context, sequences);
    const Usage used = model.usage(stage, demand.context, sequences);
    MemoryFit fit;
    const auto part = [&](std::string_view name, double bytes, std::string formula) {
        if (bytes <= 0) return;
        fit.parts.push_back({std::string(name), bytes, std::move(formula)});
        fit.total_bytes += bytes;
    };
    for (std::size_t i = 0; i < kWeightParts.size(); ++i) {
        part(kWeightParts[i], stage.weights[i], weight_formula(kWeightParts[i], architecture, layout));
    }
    part("drafter", stage.drafter,
         fmt::format("{} over {} ranks", to_name(speculation.method), drafter_layout(layout, speculation).tensor));
    part("kv_cache", used.kv_cache,
         fmt::format("{} x ceil({} / {} DCP) tokens x ceil({} / {}) sequences", to_name(demand.kv_format), demand.context,
                     layout.decode_context, sequences, layout.attention_data));
    part("drafter_kv_cache", used.drafter_kv_cache, fmt::format("the drafter's layers x {} tokens", demand.context));
    part("recurrent_state", used.recurrent_state,
         fmt::format("{} sequences x (1 state + {} snapshots)", divide_up(sequences, layout.attention_data),
                     speculation.method == SpeculationMethod::none ? 0 : model.verify_tokens()));
    part("activations", model.activations(demand.context, sequences),
         fmt::format("largest pass x (4 x {} + {:.0f}) + {} logits rows in fp32", architecture.hidden, model.widest(),
                     sequences * model.verify_tokens()));
    part("nccl_buffers", nccl_bytes(layout.gpus_per_replica()),
         fmt::format("{} GPUs, observed by aiconfigurator (misc.nccl_mem)", layout.gpus_per_replica()));
    part("cuda_context", kCudaContextBytes, "assumed");

    fit.usable_bytes = demand.capacity_bytes * demand.usable_fraction;
    fit.fits = fit.total_bytes <= fit.usable_bytes;
    const std::int64_t longest =
        architecture.max_context > 0 ? std::min(architecture.max_context, kMaxContext) : kMaxContext;
    fit.max_context = largest(longest, [&](std::int64_t context) {
        return model.total(context, sequences) <= fit.usable_bytes;
    });
    fit.max_sequences = static_cast<int>(largest(kMaxBatchSearched, [&](std::int64_t batch) {
        return model.total(demand.context, batch) <= fit.usable_bytes;
    }));
    const double fixed = fit.total_bytes - used.kv_cache - used.drafter_kv_cache - used.recurrent_state -
                         model.activations(demand.context, sequences);
    fit.verdict = verdict_of(fit, demand, fixed);
    return fit;
}

double kv_bytes_per_token(const Architecture& architecture, const Layout& layout, NumberFormat kv_format) {
    return fullest_stage(architecture, layout, [&](const Layer& layer) {
               return layer_cache(layer, layout, kv_format, architecture.activation_format).per_token;
           }) /
           std::max(1, layout.decode_context);
}

double recurrent_state_bytes_per_sequence(const Architecture& architecture, const Layout& layout) {
    return fullest_stage(architecture, layout, [&](const Layer& layer) {
        return layer_cache(layer, layout, NumberFormat::bf16, architecture.activation_format).per_sequence;
    });
}

}  // namespace draftboard::model
