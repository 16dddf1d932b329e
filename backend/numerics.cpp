// SPDX-License-Identifier: Apache-2.0
#include "backend/numerics.h"

#include <cmath>

#include <fmt/format.h>

#include "model/json_reader.h"

namespace draftboard::backend {

using model::Error;
using model::ErrorCode;
using model::Expected;
using model::Json;
using model::JsonReader;
using model::Problem;

namespace {

/// Defaults that the families' own configuration classes have for fields a config.json may leave out.
struct Defaults {
    double norm_epsilon = 1e-6;
    double rope_theta = 10000;
    bool normalise_top_k = true;
    bool may_switch_normalise = true;  ///< norm_topk_prob is read; else the family always normalises
};

Defaults defaults_of(const std::string& model_type) {
    if (model_type == "qwen3_moe") return {1e-6, 10000, false, true};
    if (model_type == "deepseek_v2") return {1e-6, 10000, false, true};
    if (model_type == "qwen3_5_moe" || model_type == "qwen3_5_moe_text") return {1e-6, 10000, true, false};
    if (model_type == "mixtral") return {1e-5, 1e6, true, false};
    if (model_type == "minimax_m2") return {1e-6, 5e6, true, false};
    if (model_type == "glm4_moe") return {1e-5, 10000, true, true};
    return {};
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

double yarn_m(double factor, double s) { return factor <= 1 || s == 0 ? 1.0 : 0.1 * s * std::log(factor) + 1.0; }

/// Fills the numbers; what is well-formed but beyond the engine goes into `unsupported`, the rest into the problems.
class NumericsReader {
   public:
    NumericsReader(const JsonReader& text, const model::Architecture& architecture, Numerics& out)
        : text_(text), architecture_(architecture), out_(out) {}

    void read() {
        const Defaults defaults = defaults_of(architecture_.model_type);
        const bool latent = !architecture_.layers.empty() &&
                            std::holds_alternative<model::MlaShape>(architecture_.layers.front().mixer);
        out_.norm_epsilon = text_.number_or("rms_norm_eps", defaults.norm_epsilon, 0, 1);
        out_.norm_plus_one = starts_with(architecture_.model_type, "qwen3_next") ||
                             starts_with(architecture_.model_type, "qwen3_5");
        out_.routed_scaling = text_.number_or("routed_scaling_factor", 1.0, 0, 1e6);
        out_.normalise_top_k = defaults.may_switch_normalise
                                   ? text_.boolean_or("norm_topk_prob", defaults.normalise_top_k)
                                   : defaults.normalise_top_k;
        out_.rope_interleaved = latent && text_.boolean_or("rope_interleave", true);
        activation("hidden_act");
        activation("hidden_activation");
        if (latent && text_.boolean_or("attention_bias", false)) {
            refuse("attention_bias", "biases of latent attention are not supported");
        }
        if (text_.boolean_or("mlp_bias", false)) refuse("mlp_bias", "biases of the MLP are not supported");
        rope(defaults);
    }
    /// Token ids stand in the text model or beside it.
    void tokens(const JsonReader& root) {
        for (const JsonReader* reader : {&text_, &root}) {
            if (out_.end_tokens.empty() && reader->has("eos_token_id")) end_tokens(*reader);
            if (out_.begin_token < 0 && reader->has("bos_token_id")) {
                out_.begin_token = static_cast<int>(
                    reader->integer_or("bos_token_id", -1, -1, model::kMaxVocabulary));
            }
        }
    }
    [[nodiscard]] const std::vector<Problem>& unsupported() const { return unsupported_; }

   private:
    void refuse_at(const JsonReader& reader, std::string_view key, std::string message) {
        unsupported_.push_back({fmt::format("{}/{}", reader.pointer(), key), std::move(message)});
    }
    void refuse(std::string_view key, std::string message) { refuse_at(text_, key, std::move(message)); }

    void activation(std::string_view key) {
        if (!text_.has(key)) return;
        const std::string name = text_.string_or(key, "silu");
        if (name != "silu" && name != "swish") refuse(key, "this activation is not supported; supported: silu");
    }

    void rope(const Defaults& defaults) {
        const bool current = text_.has("rope_parameters");
        const bool published = text_.has("rope_scaling");
        out_.rope_theta = text_.number_or("rope_theta", defaults.rope_theta, 1e-3, 1e15);
        if (current && !object("rope_parameters")) return;
        if (current) {
            const JsonReader parameters = text_.at("rope_parameters");
            out_.rope_theta = parameters.number_or("rope_theta", out_.rope_theta, 1e-3, 1e15);
            scaling(parameters);
        }
        if (published && object("rope_scaling")) {
            if (!current || text_.at("rope_scaling").has("factor")) scaling(text_.at("rope_scaling"));
        }
    }
    bool object(std::string_view key) const { return text_.at(key).expect_object(); }

    void scaling(const JsonReader& reader) {
        const std::string_view key = reader.has("rope_type") ? "rope_type" : "type";
        const std::string type = reader.string_or(key, "default");
        if (type == "default") return;
        if (type != "yarn") {
            refuse_at(reader, key, "this kind of rotary scaling is not supported; supported: default, yarn");
            return;
        }
        Yarn yarn;
        yarn.factor = reader.number("factor", 1e-3, 1e6);
        yarn.original_max_position = reader.number_or(
            "original_max_position_embeddings", static_cast<double>(architecture_.max_context), 1,
            static_cast<double>(model::kMaxContext));
        yarn.beta_fast = reader.number_or("beta_fast", 32, 1e-6, 1e6);
        yarn.beta_slow = reader.number_or("beta_slow", 1, 1e-6, 1e6);
        yarn.mscale = reader.number_or("mscale", 1, 0, 1e3);
        yarn.mscale_all_dim = reader.number_or("mscale_all_dim", 0, 0, 1e3);
        // With both given everyone scales cos and sin by m(mscale) / m(mscale_all_dim), with neither by m(1). With one of
        // them transformers takes m(1) and DeepSeek's own code the quotient.
        if (yarn.mscale == 0 || !reader.has("mscale")) {
            yarn.mscale = 1;
            if (yarn.mscale_all_dim != 0) refuse_at(reader, "mscale_all_dim", "YaRN with mscale_all_dim but no mscale is not defined alike everywhere");
        } else if (yarn.mscale_all_dim == 0 && yarn.mscale != 1) {
            refuse_at(reader, "mscale", "YaRN with mscale but no mscale_all_dim is not defined alike everywhere");
        }
        if (!reader.boolean_or("truncate", true)) {
            refuse_at(reader, "truncate", "YaRN with untruncated bounds is not supported");
        }
        const double factor_here = yarn_m(yarn.factor, yarn.mscale) / yarn_m(yarn.factor, yarn.mscale_all_dim);
        const double stated = reader.number_or("attention_factor", factor_here, 0, 1e6);
        if (std::abs(stated - factor_here) > 1e-6 * factor_here) {
            refuse_at(reader, "attention_factor",
                      fmt::format("YaRN with an attention factor of its own is not supported; mscale makes it {}", factor_here));
        }
        out_.yarn = yarn;
    }

    void end_tokens(const JsonReader& reader) {
        const JsonReader ids = reader.at("eos_token_id");
        if (!ids.value().is_array()) {
            const auto id = reader.integer_or("eos_token_id", -1, -1, model::kMaxVocabulary);
            if (id >= 0) out_.end_tokens.push_back(static_cast<int>(id));
            return;
        }
        constexpr std::size_t kMostEndTokens = 256;
        if (ids.size() > kMostEndTokens) {
            reader.problem("eos_token_id", fmt::format("more than {} end tokens", kMostEndTokens));
            return;
        }
        for (const double id :
             reader.numbers_or("eos_token_id", {}, 0, static_cast<double>(model::kMaxVocabulary))) {
            if (id != std::floor(id)) {
                reader.problem("eos_token_id", fmt::format("{} is no token", id));
                return;
            }
            out_.end_tokens.push_back(static_cast<int>(id));
        }
    }

    const JsonReader& text_;
    const model::Architecture& architecture_;
    Numerics& out_;
    std::vector<Problem> unsupported_;
};

}  // namespace

Expected<Numerics> read_numerics(std::string_view config, const std::string& name,
                                 const model::Architecture& architecture) {
    const auto document = model::parse_json(config, name);
    if (!document) return tl::unexpected(document.error());
    std::vector<Problem> problems;
    const JsonReader root(*document, problems);
    if (!root.expect_object()) return tl::unexpected(model::to_error(problems, name));
    const JsonReader text = root.has("text_config") ? root.at("text_config") : root;
    if (!text.expect_object()) return tl::unexpected(model::to_error(problems, name));

    Numerics numerics;
    NumericsReader reader(text, architecture, numerics);
    reader.read();
    reader.tokens(root);
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));
    if (!reader.unsupported().empty()) {
        Error error = model::to_error(reader.unsupported(), name);
        error.code = ErrorCode::unsupported;
        return tl::unexpected(std::move(error));
    }
    return numerics;
}

}  // namespace draftboard::backend
