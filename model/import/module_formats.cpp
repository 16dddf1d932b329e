// SPDX-License-Identifier: Apache-2.0
#include "model/import/module_formats.h"

#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/parameter_count.h"

namespace draftboard::model {

namespace {

/// Weighs the formats that the modules of one part have.
class FormatVote {
 public:
    void add(const WeightFormat& format, double weights) {
        for (auto& [known, sum] : sums_) {
            if (known == format) {
                sum += weights;
                return;
            }
        }
        sums_.emplace_back(format, weights);
    }
    [[nodiscard]] bool mixed() const { return sums_.size() > 1; }
    [[nodiscard]] WeightFormat winner() const {
        const std::pair<WeightFormat, double>* best = &sums_.front();
        for (const auto& candidate : sums_) {
            if (candidate.second > best->second) best = &candidate;
        }
        return best->first;
    }
    [[nodiscard]] std::string losers() const {
        std::string out;
        const WeightFormat best = winner();
        for (const auto& candidate : sums_) {
            if (!(candidate.first == best))
                out += (out.empty() ? "" : ", ") + candidate.first.name();
        }
        return out;
    }

 private:
    std::vector<std::pair<WeightFormat, double>> sums_;
};

class Resolver {
 public:
    Resolver(const ModuleNaming& naming, const QuantizationScheme& scheme, int hidden)
        : naming_(naming), scheme_(scheme), hidden_(hidden) {}

    /// `prefix`: "model.layers.3".
    void resolve(Layer& layer, const std::string& prefix) {
        LayerFormats& formats = layer.formats;
        const WeightFormat plain = WeightFormat::plain(scheme_.plain());
        formats = {plain, plain, plain, plain, plain};
        const bool linear_attention = std::holds_alternative<DeltaNetShape>(layer.mixer);
        const std::string mixer =
            fmt::format("{}.{}", prefix, linear_attention ? naming_.delta_net : naming_.attention);
        FormatVote vote;
        for (const MixerMatrix& matrix : mixer_matrices(layer.mixer, hidden_)) {
            vote.add(
                scheme_.format_of(fmt::format("{}.{}", mixer, matrix.name), ModuleClass::linear),
                static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns));
        }
        formats.mixer =
            settle(vote, linear_attention ? "delta-net projections" : "attention projections");
        if (const MoeFeedForward* moe = moe_of(layer)) {
            const std::string mlp = fmt::format("{}.{}", prefix, naming_.mlp);
            FormatVote experts;
            for (const std::string_view name : naming_.expert) {
                experts.add(scheme_.format_of(fmt::format("{}.{}", mlp, name), ModuleClass::expert),
                            1);
            }
            formats.routed_experts = settle(experts, "expert projections");
            formats.router =
                scheme_.format_of(fmt::format("{}.{}", mlp, naming_.router), naming_.router_class);
            if (moe->shared_intermediate > 0) {
                formats.shared_expert = gated_mlp(fmt::format("{}.{}", mlp, naming_.shared),
                                                  "shared-expert projections");
            }
        } else {
            formats.feed_forward = gated_mlp(prefix + ".mlp", "dense MLP projections");
        }
    }

    [[nodiscard]] std::vector<std::string> notes() const {
        std::vector<std::string> out;
        for (const auto& [text, count] : mixed_) {
            out.push_back(fmt::format("{}, in {} layer{}", text, count, count == 1 ? "" : "s"));
        }
        return out;
    }

 private:
    WeightFormat gated_mlp(const std::string& prefix, std::string_view what) {
        FormatVote vote;
        for (const std::string_view name : {"gate_proj", "up_proj", "down_proj"}) {
            vote.add(scheme_.format_of(fmt::format("{}.{}", prefix, name), ModuleClass::linear), 1);
        }
        return settle(vote, what);
    }

    WeightFormat settle(const FormatVote& vote, std::string_view what) {
        if (vote.mixed()) {
            ++mixed_[fmt::format("{} are counted as {}, though some of them are {}", what,
                                 vote.winner().name(), vote.losers())];
        }
        return vote.winner();
    }

    const ModuleNaming& naming_;
    const QuantizationScheme& scheme_;
    int hidden_;
    std::map<std::string, int> mixed_;
};

}  // namespace

void resolve_formats(Architecture& architecture, const ModuleNaming& naming,
                     const QuantizationScheme& scheme) {
    architecture.activation_format = scheme.plain();
    architecture.kv_format = scheme.kv_format().value_or(scheme.plain());
    architecture.embedding_format = scheme.format_of("model.embed_tokens", ModuleClass::embedding);
    architecture.lm_head_format = scheme.format_of("lm_head", ModuleClass::lm_head);
    Resolver resolver(naming, scheme, architecture.hidden);
    for (std::size_t i = 0; i < architecture.layers.size(); ++i) {
        resolver.resolve(architecture.layers[i], fmt::format("model.layers.{}", i));
    }
    for (std::size_t i = 0; i < architecture.mtp.size(); ++i) {
        resolver.resolve(architecture.mtp[i].layer,
                         naming.mtp_layers.empty()
                             ? fmt::format("model.layers.{}", architecture.layers.size() + i)
                             : fmt::format("{}.{}", naming.mtp_layers, i));
        // eh_proj / fc is stored in the plain format in every checkpoint known to us, whatever the
        // rest is.
        architecture.mtp[i].projection = WeightFormat::plain(scheme.plain());
    }
    for (std::string& note : resolver.notes()) architecture.notes.push_back(std::move(note));
}

}  // namespace draftboard::model
