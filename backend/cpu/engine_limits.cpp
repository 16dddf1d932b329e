// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/engine_limits.h"

#include <set>

#include <fmt/format.h>

namespace draftboard::backend::cpu {

using model::ErrorCode;
using model::Expected;
using model::NumberFormat;
using model::Problem;

namespace {

class Limits {
   public:
    void layer(const model::Layer& layer, const std::string& place) {
        if (const auto* mla = std::get_if<model::MlaShape>(&layer.mixer)) {
            if (mla->indexer) add(place + "/mixer/indexer", "sparse attention with an indexer");
        } else if (const auto* gqa = std::get_if<model::GqaShape>(&layer.mixer)) {
            if (gqa->sinks) add(place + "/mixer/sinks", "attention sinks");
            if (gqa->sliding_window > 0) add(place + "/mixer/sliding_window", "sliding-window attention");
            if (gqa->qk_norm == model::QkNorm::per_layer) add(place + "/mixer/qk_norm", "query and key norms over all heads at once");
        }
        const model::LayerFormats& formats = layer.formats;
        format(formats.mixer, place + "/formats/mixer");
        const model::MoeFeedForward* moe = model::moe_of(layer);
        if (moe == nullptr) {
            format(formats.feed_forward, place + "/formats/feed_forward");
            return;
        }
        if (moe->biases) add(place + "/feed_forward/biases", "biases of experts");
        const bool softmax = moe->scoring == model::RouterScoring::softmax;
        if (softmax && moe->groups > 1) add(place + "/feed_forward/groups", "softmax routing limited to groups");
        if (softmax && moe->correction_bias) add(place + "/feed_forward/correction_bias", "softmax routing with a correction bias");
        format(formats.router, place + "/formats/router");
        format(formats.routed_experts, place + "/formats/routed_experts");
        if (moe->shared_intermediate > 0) format(formats.shared_expert, place + "/formats/shared_expert");
    }
    void format(const model::WeightFormat& format, const std::string& place) {
        const auto grid = (format.block_rows > 0) == (format.block_columns > 0);
        switch (format.format) {
            case NumberFormat::bf16:
            case NumberFormat::fp16:
            case NumberFormat::fp32: return;
            case NumberFormat::fp8_e4m3:
                if (!grid) add(place, "fp8 scales that are neither blocks nor one a row or tensor");
                return;
            case NumberFormat::int4:
                if (format.zero_bits > 0) add(place, "int4 with zero points");
                if (format.block_rows != 1 || format.block_columns < 8 || format.block_columns % 8 != 0) {
                    add(place, "int4 in groups that are no multiple of 8");
                }
                return;
            case NumberFormat::int8:
            case NumberFormat::nvfp4:
            case NumberFormat::mxfp4: add(place, fmt::format("weights in {}", to_name(format.format))); return;
        }
    }
    std::vector<Problem> problems;

   private:
    void add(const std::string& place, std::string what) {
        if (seen_.insert(what).second) problems.push_back({place, what + ": the CPU engine does not run this"});
    }
    std::set<std::string> seen_;
};

model::Error unsupported(const std::vector<Problem>& problems, const std::string& name) {
    model::Error error = model::to_error(problems, name);
    error.code = ErrorCode::unsupported;
    error.hint = "predict prices this model; run it elsewhere";
    return error;
}

}  // namespace

std::vector<Problem> unsupported_parts(const model::Architecture& architecture) {
    Limits limits;
    for (std::size_t i = 0; i < architecture.layers.size(); ++i) limits.layer(architecture.layers[i], fmt::format("/layers/{}", i));
    limits.format(architecture.embedding_format, "/embedding_format");
    limits.format(architecture.lm_head_format, "/lm_head_format");
    return std::move(limits.problems);
}

Expected<void> check_engine(const model::Architecture& architecture, const model::Layout& layout, int rank) {
    if (const auto problems = architecture.validate(); !problems.empty()) {
        return tl::unexpected(model::to_error(problems, architecture.name));
    }
    if (const auto problems = layout.validate(architecture); !problems.empty()) {
        return tl::unexpected(model::to_error(problems, architecture.name));
    }
    if (layout.pipeline > 1) {
        return model::fail(ErrorCode::unsupported, "the CPU engine runs no pipeline stages", architecture.name + ": /layout/pipeline",
                           "use tensor and expert parallelism");
    }
    if (rank < 0 || rank >= layout.tensor) {
        return model::fail(ErrorCode::invalid_input, fmt::format("there is no rank {} of {}", rank, layout.tensor), architecture.name);
    }
    if (const auto problems = unsupported_parts(architecture); !problems.empty()) {
        return tl::unexpected(unsupported(problems, architecture.name));
    }
    return {};
}

Expected<void> check_routing(const model::Architecture& architecture, const Numerics& numerics) {
    if (numerics.routed_scaling == 1) return {};
    for (const model::Layer& layer : architecture.layers) {
        const model::MoeFeedForward* moe = model::moe_of(layer);
        if (moe == nullptr || moe->scoring != model::RouterScoring::softmax) continue;
        return tl::unexpected(unsupported({{"/routed_scaling_factor", "softmax routing with scaled weights: the CPU engine does not run this"}},
                                          architecture.name));
    }
    return {};
}

}  // namespace draftboard::backend::cpu
