// SPDX-License-Identifier: Apache-2.0
#include "model/architecture_report.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/parameter_count.h"

namespace draftboard::model {

namespace {

/// Counts by label, in order of first appearance.
class LabelCount {
 public:
    void add(const std::string& label) {
        for (auto& [known, count] : counts_) {
            if (known == label) {
                ++count;
                return;
            }
        }
        counts_.emplace_back(label, 1);
    }
    [[nodiscard]] Json to_json() const {
        Json out = Json::object();
        for (const auto& [label, count] : counts_) out[label] = count;
        return out;
    }
    [[nodiscard]] const std::vector<std::pair<std::string, int>>& entries() const {
        return counts_;
    }

 private:
    std::vector<std::pair<std::string, int>> counts_;
};

std::string mixer_label(const TokenMixer& mixer) {
    if (const auto* mla = std::get_if<MlaShape>(&mixer)) return mla->indexer ? "mla_sparse" : "mla";
    if (std::holds_alternative<DeltaNetShape>(mixer)) return "delta_net";
    const int window = std::get<GqaShape>(mixer).sliding_window;
    return window > 0 ? fmt::format("gqa_window_{}", window) : "gqa";
}

std::string feed_forward_label(const FeedForward& feed_forward) {
    const auto* moe = std::get_if<MoeFeedForward>(&feed_forward);
    if (moe == nullptr) return "dense";
    return fmt::format("moe_{}_of_{}{}", moe->experts_per_token, moe->experts,
                       moe->shared_intermediate > 0 ? "_shared" : "");
}

struct Summary {
    LabelCount mixers;
    LabelCount feed_forwards;
    std::vector<std::pair<std::string, LabelCount>> formats{{"mixer", {}},
                                                            {"dense_mlp", {}},
                                                            {"routed_experts", {}},
                                                            {"shared_experts", {}},
                                                            {"router", {}}};
};

Summary summarize(const Architecture& architecture) {
    Summary out;
    for (const Layer& layer : architecture.layers) {
        out.mixers.add(mixer_label(layer.mixer));
        out.feed_forwards.add(feed_forward_label(layer.feed_forward));
        out.formats[0].second.add(layer.formats.mixer.name());
        if (const MoeFeedForward* moe = moe_of(layer)) {
            out.formats[2].second.add(layer.formats.routed_experts.name());
            if (moe->shared_intermediate > 0)
                out.formats[3].second.add(layer.formats.shared_expert.name());
            out.formats[4].second.add(layer.formats.router.name());
        } else {
            out.formats[1].second.add(layer.formats.feed_forward.name());
        }
    }
    return out;
}

std::string joined(const LabelCount& labels) {
    std::string out;
    for (const auto& [label, count] : labels.entries()) {
        out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", count, label);
    }
    return out;
}

std::string billions(std::int64_t parameters) {
    return fmt::format("{:.3f} B", static_cast<double>(parameters) / 1e9);
}
std::string gigabytes(double bytes) { return fmt::format("{:.3f} GB", bytes / 1e9); }

}  // namespace

Json architecture_report(const Architecture& architecture) {
    const ParameterCount count = count_parameters(architecture);
    const CollectiveCount collectives = count_collectives(architecture);
    const Summary summary = summarize(architecture);

    Json report = Json::object();
    report["name"] = architecture.name;
    report["model_type"] = architecture.model_type;
    report["source"] = architecture.source;
    report["hidden"] = architecture.hidden;
    report["vocabulary"] = architecture.vocabulary;
    report["max_context"] = architecture.max_context;
    report["total_parameters"] = count.total;
    report["active_parameters"] = count.active;
    report["active_parameters_with_embedding"] = count.active_with_embedding;
    report["mtp_modules"] = architecture.mtp.size();
    report["mtp_parameters"] = count.mtp;
    report["weight_bytes"] = count.bytes;
    report["mtp_bytes"] = count.mtp_bytes;
    report["all_reduces_per_forward"] = collectives.decoder_all_reduces;
    report["embedding_all_reduces"] = collectives.embedding_all_reduces;
    report["logits_all_gathers"] = collectives.logits_all_gathers;
    Json parameters = Json::object();
    Json active = Json::object();
    Json bytes = Json::object();
    for (const PartCount& part : count.parts) {
        parameters[part.name] = part.parameters;
        active[part.name] = part.active_parameters;
        bytes[part.name] = part.bytes;
    }
    report["parameters_by_part"] = std::move(parameters);
    report["active_parameters_by_part"] = std::move(active);
    report["bytes_by_part"] = std::move(bytes);
    Json layers = Json::object();
    layers["count"] = architecture.layers.size();
    layers["mixers"] = summary.mixers.to_json();
    layers["feed_forwards"] = summary.feed_forwards.to_json();
    report["layers"] = std::move(layers);
    Json formats = Json::object();
    for (const auto& [part, labels] : summary.formats) {
        if (!labels.entries().empty()) formats[part] = labels.to_json();
    }
    formats["embedding"] = architecture.embedding_format.name();
    if (!architecture.tied_embeddings) formats["lm_head"] = architecture.lm_head_format.name();
    report["formats"] = std::move(formats);
    report["cache_format"] = std::string(to_name(architecture.kv_format));
    report["notes"] = architecture.notes;
    return report;
}

std::string architecture_text(const Architecture& architecture) {
    const ParameterCount count = count_parameters(architecture);
    const CollectiveCount collectives = count_collectives(architecture);
    const Summary summary = summarize(architecture);

    std::string out;
    const auto line = [&out](std::string_view label, std::string_view value) {
        out += fmt::format("{:<22}{}\n", label, value);
    };
    line("model", fmt::format("{} ({})", architecture.name, architecture.model_type));
    line("source", architecture.source);
    line("layers", std::to_string(architecture.layers.size()));
    line("  token mixers", joined(summary.mixers));
    line("  feed-forwards", joined(summary.feed_forwards));
    line("hidden, vocabulary",
         fmt::format("{}, {}{}", architecture.hidden, architecture.vocabulary,
                     architecture.tied_embeddings ? " (LM head tied to the embedding)" : ""));
    line("longest context", std::to_string(architecture.max_context));
    line("parameters", billions(count.total));
    line("  active a token", fmt::format("{} ({} with the input embedding)", billions(count.active),
                                         billions(count.active_with_embedding)));
    line("  MTP modules", architecture.mtp.empty()
                              ? "none"
                              : fmt::format("{}: {}, {}", architecture.mtp.size(),
                                            billions(count.mtp), gigabytes(count.mtp_bytes)));
    line("all-reduces a forward",
         fmt::format("{} in the decoder, {} for the embedding; {} all-gather of logits",
                     collectives.decoder_all_reduces, collectives.embedding_all_reduces,
                     collectives.logits_all_gathers));
    line("cache format", to_name(architecture.kv_format));
    out += fmt::format("\n{:<18}{:>14}{:>14}{:>14}  {}\n", "part", "parameters", "active", "bytes",
                       "stored as");
    for (const PartCount& part : count.parts) {
        if (part.parameters == 0) continue;
        std::string stored;
        for (const auto& [name, labels] : summary.formats) {
            if (name == part.name || (name == "mixer" && part.name == "attention"))
                stored = joined(labels);
        }
        if (part.name == "embedding") stored = architecture.embedding_format.name();
        if (part.name == "lm_head") stored = architecture.lm_head_format.name();
        if (part.name == "norms") stored = to_name(architecture.activation_format);
        out += fmt::format("{:<18}{:>14}{:>14}{:>14}  {}\n", part.name, billions(part.parameters),
                           billions(part.active_parameters), gigabytes(part.bytes), stored);
    }
    out += fmt::format("{:<18}{:>14}{:>14}{:>14}\n", "total", billions(count.total),
                       billions(count.active), gigabytes(count.bytes));
    for (const std::string& note : architecture.notes) out += fmt::format("note: {}\n", note);
    return out;
}

}  // namespace draftboard::model
