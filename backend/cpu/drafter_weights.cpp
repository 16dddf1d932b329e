// SPDX-License-Identifier: Apache-2.0
// Drafters that read the target: MTP modules and EAGLE-3 heads; declared in model_weights.h. And the audit of what no
// loader reads, because it runs all of them.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/checkpoint_source.h"
#include "backend/cpu/engine_limits.h"
#include "backend/cpu/model_weights.h"
#include "backend/cpu/random_source.h"
#include "backend/cpu/weight_builder.h"
#include "backend/json_events.h"
#include "model/sharding.h"

namespace draftboard::backend::cpu {

using model::Architecture;
using model::ErrorCode;
using model::Expected;
using model::fail;
using model::Layout;

namespace {

/// Module names of an MTP module. The Qwen families keep it apart, DeepSeek's number it on behind the decoder's layers.
struct MtpNames {
    std::string layer;
    std::string projection;
    std::string embedding_norm;
    std::string hidden_norm;
    std::string final_norm;
    std::string embedding;  ///< copies of the target's, where the family stores any
    std::string lm_head;
};

MtpNames mtp_names(const Architecture& architecture) {
    if (architecture.model_type.compare(0, 4, "qwen") == 0) {
        return {"mtp.layers.0", "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", {}, {}};
    }
    const std::string layer = fmt::format("model.layers.{}", architecture.layers.size());
    return {layer,
            layer + ".eh_proj",
            layer + ".enorm",
            layer + ".hnorm",
            layer + ".shared_head.norm",
            layer + ".embed_tokens",
            layer + ".shared_head.head"};
}

/// The module as a model of one layer; an error where there is none or the engine does not run it.
Expected<Architecture> mtp_architecture(const Architecture& target, const Layout& layout, int rank) {
    if (target.mtp.empty()) return fail(ErrorCode::not_found, "there is no MTP module in this model", target.name);
    if (target.mtp.front().own_embedding) {
        return fail(ErrorCode::unsupported, "an MTP module with an embedding of its own is not supported", target.name);
    }
    Architecture out = target;
    out.layers.assign(1, target.mtp.front().layer);
    out.mtp.clear();
    if (auto sound = check_engine(out, layout, rank); !sound) return tl::unexpected(std::move(sound.error()));
    return out;
}

/// The embedding that a drafter borrows has to be cut as the drafter is.
Expected<void> check_lender(const ModelWeights& target, const Architecture& architecture, const Layout& layout, bool head_too) {
    const auto fits = [&](const std::shared_ptr<const WeightMatrix>& table, int ranks) {
        return table != nullptr && table->rows == architecture.vocabulary / ranks && table->columns == architecture.hidden;
    };
    if (fits(target.embedding, model::attention_tensor(layout)) && (!head_too || fits(target.lm_head, layout.tensor))) return {};
    return fail(ErrorCode::invalid_input, "the target's embedding and LM head are not cut for the drafter's ranks",
                architecture.name, "run the drafter over the target's ranks");
}

ModelWeights build_mtp(WeightBuilder& builder, const Architecture& module, const Architecture& target) {
    const MtpNames names = mtp_names(target);
    ModelWeights out;
    DraftFusion fusion;
    fusion.projection =
        builder.whole(names.projection, target.hidden, 2 * std::int64_t{target.hidden}, target.mtp.front().projection);
    fusion.embedding_norm = builder.norm(names.embedding_norm, target.hidden);
    fusion.hidden_norm = builder.norm(names.hidden_norm, target.hidden);
    out.layers.push_back(builder.layer(module.layers.front(), names.layer, target.hidden));
    out.final_norm = builder.norm(names.final_norm, target.hidden);
    out.fusion = std::move(fusion);
    return out;
}

bool same_bytes(const TensorView* a, const TensorView* b) {
    if (a == nullptr || b == nullptr || a->type != b->type || a->shape != b->shape) return false;
    return a->bytes.empty() || std::memcmp(a->bytes.data(), b->bytes.data(), a->bytes.size()) == 0;
}

/// "midlayer" as SafeAILab/EAGLE names it; some republish it as layer 0.
std::string eagle3_layer(const Checkpoint& head) {
    return head.find("midlayer.hidden_norm.weight") == nullptr && head.find("layers.0.hidden_norm.weight") != nullptr
               ? "layers.0"
               : "midlayer";
}

ModelWeights build_eagle3(WeightBuilder& builder, const Architecture& head, std::int64_t aux_hidden,
                          const std::string& layer) {
    const model::WeightFormat& format = head.layers.front().formats.mixer;
    ModelWeights out;
    DraftFusion fusion;
    fusion.projection = builder.whole("fc", head.hidden, aux_hidden, format);
    fusion.embedding_norm = builder.norm(layer + ".input_layernorm", head.hidden);
    fusion.hidden_norm = builder.norm(layer + ".hidden_norm", head.hidden);
    out.layers.push_back(builder.layer(head.layers.front(), layer, 2 * std::int64_t{head.hidden}));
    out.final_norm = builder.norm("norm", head.hidden);
    out.lm_head = builder.lm_head("lm_head", head.vocabulary, head.lm_head_format);
    out.fusion = std::move(fusion);
    return out;
}

Expected<void> check_head(const Architecture& head, const Architecture& target, const Layout& layout, int rank) {
    if (auto sound = check_engine(head, layout, rank); !sound) return sound;
    if (head.layers.size() != 1 || std::holds_alternative<model::DeltaNetShape>(head.layers.front().mixer)) {
        return fail(ErrorCode::unsupported, "an EAGLE-3 head has one layer of attention", head.name);
    }
    if (head.vocabulary > target.vocabulary || target.vocabulary % layout.tensor != 0) {
        return fail(ErrorCode::invalid_input, "the head's and the target's vocabularies do not go together", head.name);
    }
    return {};
}

/// Columns of fc: as many hidden states of the target as it reads.
Expected<std::int64_t> fusion_width(CheckpointSource& source, const Checkpoint& checkpoint, std::int64_t hidden) {
    constexpr std::int64_t kMostStates = 64;
    const TensorView* view = source.find("fc.weight");
    if (view == nullptr) return tl::unexpected(checkpoint.require("fc.weight").error());
    const std::int64_t width = view->shape.size() == 2 ? view->shape[1] : 0;
    if (width < hidden || width % hidden != 0 || width / hidden > kMostStates) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("tensor \"fc.weight\" of {} columns does not read hidden states of {}", width, hidden),
                    checkpoint.path(), "this head belongs to another target");
    }
    return width;
}

/// d2t holds differences: draft token i stands for the target's token i + d2t[i]. t2d, where given, marks the same tokens.
Expected<std::vector<int>> read_draft_vocabulary(CheckpointSource& source, const Checkpoint& checkpoint, std::int64_t draft,
                                                 std::int64_t target) {
    const auto wrong = [&](std::string message) {
        return fail(ErrorCode::invalid_input, std::move(message), checkpoint.path(), "this head belongs to another target, or is damaged");
    };
    const TensorView* differences = source.find("d2t");
    const TensorView* marks = source.find("t2d");
    if (differences == nullptr) {
        if (draft == target) return std::vector<int>{};
        return wrong(fmt::format("tensor \"d2t\" is missing, and the draft vocabulary of {} is not the target's of {}", draft, target));
    }
    if (differences->type != TensorType::i64 || differences->shape != std::vector<std::int64_t>{draft}) {
        return wrong(fmt::format("tensor \"d2t\" is not {} numbers of type I64", draft));
    }
    if (marks != nullptr && (bytes_of(marks->type) != 1 || marks->shape != std::vector<std::int64_t>{target})) {
        return wrong(fmt::format("tensor \"t2d\" is not {} marks of type BOOL", target));
    }
    std::vector<int> out;
    for (std::int64_t i = 0; i < draft; ++i) {
        std::int64_t token = 0;
        std::memcpy(&token, differences->bytes.data() + 8 * i, 8);
        if (token < -i || token >= target - i) {
            return wrong(fmt::format("tensor \"d2t\": draft token {} stands for none of the target's {} tokens", i, target));
        }
        token += i;
        if (marks != nullptr && marks->bytes[static_cast<std::size_t>(token)] == std::byte{0}) {
            return wrong(fmt::format("tensor \"t2d\" does not mark token {}, which draft token {} stands for", token, i));
        }
        out.push_back(static_cast<int>(token));
    }
    return out;
}

/// Stored beside the weights, and not needed to compute them.
bool is_done_without(std::string_view name) {
    constexpr std::array<std::string_view, 4> kEnds{"rotary_emb.inv_freq", ".input_scale", ".k_scale", ".v_scale"};
    constexpr std::array<std::string_view, 6> kStarts{"model.visual.", "visual.", "vision_tower.", "model.vision_tower.",
                                                      "mm_projector.", "multi_modal_projector."};
    for (const std::string_view end : kEnds) {
        if (name.size() >= end.size() && name.substr(name.size() - end.size()) == end) return true;
    }
    return std::any_of(kStarts.begin(), kStarts.end(),
                       [&](std::string_view start) { return name.substr(0, start.size()) == start; });
}

std::vector<std::string> unread(const Checkpoint& checkpoint, const CheckpointSource& source) {
    std::vector<std::string> out;
    for (std::string& name : checkpoint.names()) {
        if (!source.used().contains(name) && !is_done_without(name)) out.push_back(std::move(name));
    }
    return out;
}

}  // namespace

Expected<ModelWeights> load_mtp(const Checkpoint& checkpoint, const Architecture& architecture, const Numerics& numerics,
                                const Layout& layout, int rank, const ModelWeights& target) {
    const auto module = mtp_architecture(architecture, layout, rank);
    if (!module) return tl::unexpected(module.error());
    if (auto sound = check_routing(*module, numerics); !sound) return tl::unexpected(std::move(sound.error()));
    if (auto sound = check_lender(target, architecture, layout, true); !sound) return tl::unexpected(std::move(sound.error()));
    CheckpointSource source(checkpoint);
    WeightBuilder builder(source, *module, layout, rank, numerics.norm_plus_one);
    ModelWeights out = build_mtp(builder, *module, architecture);
    out.embedding = target.embedding;
    out.lm_head = target.lm_head;
    const MtpNames names = mtp_names(architecture);
    const TensorView* table = source.find("model.embed_tokens.weight");
    if (const TensorView* own = source.find(names.embedding + ".weight"); own != nullptr && !same_bytes(own, table)) {
        out.embedding = builder.embedding(names.embedding, architecture.vocabulary, architecture.embedding_format);
    }
    const TensorView* head = architecture.tied_embeddings ? table : source.find("lm_head.weight");
    if (const TensorView* own = source.find(names.lm_head + ".weight"); own != nullptr && !same_bytes(own, head)) {
        out.lm_head = builder.lm_head(names.lm_head, architecture.vocabulary, architecture.lm_head_format);
    }
    return builder.take(std::move(out));
}

Expected<ModelWeights> load_eagle3(const Checkpoint& head, const Architecture& head_architecture,
                                   const Architecture& target_architecture, const Layout& layout, int rank,
                                   const ModelWeights& target) {
    if (auto sound = check_head(head_architecture, target_architecture, layout, rank); !sound) {
        return tl::unexpected(std::move(sound.error()));
    }
    CheckpointSource source(head);
    const auto width = fusion_width(source, head, target_architecture.hidden);
    if (!width) return tl::unexpected(width.error());
    auto tokens = read_draft_vocabulary(source, head, head_architecture.vocabulary, target_architecture.vocabulary);
    if (!tokens) return tl::unexpected(std::move(tokens.error()));
    WeightBuilder builder(source, head_architecture, layout, rank, false);
    ModelWeights out = build_eagle3(builder, head_architecture, *width, eagle3_layer(head));
    out.fusion->target_of_draft = std::move(*tokens);
    if (source.find("embed_tokens.weight") != nullptr) {
        out.embedding = builder.embedding("embed_tokens", target_architecture.vocabulary, head_architecture.embedding_format);
    } else {
        if (auto sound = check_lender(target, target_architecture, layout, false); !sound) return tl::unexpected(std::move(sound.error()));
        if (head_architecture.hidden != target_architecture.hidden) {
            return tl::unexpected(head.require("embed_tokens.weight").error());
        }
        out.embedding = target.embedding;
    }
    return builder.take(std::move(out));
}

Expected<ModelWeights> random_mtp(const Architecture& architecture, const Layout& layout, int rank, std::uint64_t seed,
                                  const ModelWeights& target, RandomNumbers numbers) {
    const auto module = mtp_architecture(architecture, layout, rank);
    if (!module) return tl::unexpected(module.error());
    if (auto sound = check_lender(target, architecture, layout, true); !sound) return tl::unexpected(std::move(sound.error()));
    RandomSource source(seed, numbers);
    WeightBuilder builder(source, *module, layout, rank, false);
    ModelWeights out = build_mtp(builder, *module, architecture);
    out.embedding = target.embedding;
    out.lm_head = target.lm_head;
    return builder.take(std::move(out));
}

Expected<ModelWeights> random_eagle3(const Architecture& head_architecture, int aux_layers, const Architecture& target_architecture,
                                     const Layout& layout, int rank, std::uint64_t seed, const ModelWeights& target,
                                     RandomNumbers numbers) {
    if (auto sound = check_head(head_architecture, target_architecture, layout, rank); !sound) {
        return tl::unexpected(std::move(sound.error()));
    }
    if (aux_layers < 1 || aux_layers > 64) {
        return fail(ErrorCode::invalid_input, fmt::format("{} auxiliary layers are outside 1 .. 64", aux_layers), head_architecture.name);
    }
    RandomSource source(seed, numbers);
    WeightBuilder builder(source, head_architecture, layout, rank, false);
    ModelWeights out = build_eagle3(builder, head_architecture, std::int64_t{aux_layers} * target_architecture.hidden, "midlayer");
    const std::int64_t draft = head_architecture.vocabulary;
    for (std::int64_t i = 0; draft < target_architecture.vocabulary && i < draft; ++i) {
        out.fusion->target_of_draft.push_back(static_cast<int>(i * target_architecture.vocabulary / draft));
    }
    if (head_architecture.hidden == target_architecture.hidden) {
        if (auto sound = check_lender(target, target_architecture, layout, false); !sound) return tl::unexpected(std::move(sound.error()));
        out.embedding = target.embedding;
    } else {
        out.embedding = builder.embedding("embed_tokens", target_architecture.vocabulary, head_architecture.embedding_format);
    }
    return builder.take(std::move(out));
}

Expected<std::vector<std::string>> unread_tensors(const Checkpoint& checkpoint, const Architecture& architecture,
                                                  const Numerics& numerics) {
    const Layout one;
    if (auto sound = check_engine(architecture, one, 0); !sound) return tl::unexpected(std::move(sound.error()));
    CheckpointSource source(checkpoint, CheckpointSource::Mode::check);
    WeightBuilder builder(source, architecture, one, 0, numerics.norm_plus_one);
    if (auto weights = builder.take(builder.model()); !weights) return tl::unexpected(std::move(weights.error()));
    if (architecture.tied_embeddings) (void)source.find("lm_head.weight");  // a copy of the embedding
    if (!architecture.mtp.empty()) {
        const MtpNames names = mtp_names(architecture);
        const auto module = mtp_architecture(architecture, one, 0);
        // A checkpoint may leave out the module that its config.json declares; then nothing of it is there to be read.
        if (module && source.find(names.projection + ".weight") != nullptr) {
            WeightBuilder drafter(source, *module, one, 0, numerics.norm_plus_one);
            if (auto weights = drafter.take(build_mtp(drafter, *module, architecture)); !weights) {
                return tl::unexpected(std::move(weights.error()));
            }
            (void)source.find(names.embedding + ".weight");
            (void)source.find(names.lm_head + ".weight");
        }
    }
    return unread(checkpoint, source);
}

Expected<std::vector<std::string>> unread_eagle3_tensors(const Checkpoint& head, const Architecture& head_architecture,
                                                         const Architecture& target_architecture) {
    const Layout one;
    if (auto sound = check_head(head_architecture, target_architecture, one, 0); !sound) return tl::unexpected(std::move(sound.error()));
    CheckpointSource source(head, CheckpointSource::Mode::check);
    const auto width = fusion_width(source, head, target_architecture.hidden);
    if (!width) return tl::unexpected(width.error());
    WeightBuilder builder(source, head_architecture, one, 0, false);
    if (auto weights = builder.take(build_eagle3(builder, head_architecture, *width, eagle3_layer(head))); !weights) {
        return tl::unexpected(std::move(weights.error()));
    }
    for (const char* name : {"d2t", "t2d", "embed_tokens.weight"}) (void)source.find(name);
    return unread(head, source);
}

}  // namespace draftboard::backend::cpu
