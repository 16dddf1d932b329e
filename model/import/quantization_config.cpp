// SPDX-License-Identifier: Apache-2.0
#include "model/import/quantization_config.h"

#include <algorithm>

#include <fmt/format.h>

namespace draftboard::model {

namespace {

constexpr std::int64_t kMaxBlock = 1 << 20;

// Scale widths. int4 groups: bf16 or fp16 scales in AWQ, GPTQ and pack-quantized checkpoints; fp8
// blocks: fp32 "weight_scale_inv" (DeepSeek-V3's weight documentation); NVFP4: e4m3 per 16
// (NVIDIA); MXFP4: e8m0 per 32 (OCP MX).
constexpr int kGroupScaleBits = 16;
constexpr int kGroupZeroBits = 4;
constexpr int kFp8BlockScaleBits = 32;
constexpr int kFp4ScaleBits = 8;
constexpr std::int64_t kNvfp4Group = 16;
constexpr std::int64_t kMxfp4Group = 32;

constexpr std::string_view kSupportedMethods =
    "fp8, compressed-tensors, modelopt, awq, gptq, mxfp4";
constexpr std::string_view kSupportedAlgorithms = "NVFP4, FP8";

WeightFormat grouped(NumberFormat format, std::int64_t group, int scale_bits, int zero_bits) {
    if (group <= 0) return WeightFormat::plain(format);  // one scale a row: not counted
    return {format, 1, group, scale_bits, zero_bits};
}

}  // namespace

WeightFormat QuantizationScheme::format_of(const std::string& module, ModuleClass kind) const {
    const WeightFormat stored_plain = WeightFormat::plain(plain_);
    if (rules_.empty() || kind == ModuleClass::embedding || kind == ModuleClass::router_parameter)
        return stored_plain;
    if (experts_only_ && kind != ModuleClass::expert) return stored_plain;
    if (kind == ModuleClass::router_linear && !converts_routers_) return stored_plain;
    if (kind == ModuleClass::lm_head && !converts_lm_head_) return stored_plain;
    if (excluded_.matches(module)) return stored_plain;
    // A target that names the module goes before one that names its class.
    for (const Rule& rule : rules_) {
        if (rule.targets.matches(module)) return rule.format;
    }
    for (const Rule& rule : rules_) {
        if (rule.every_linear) return rule.format;
    }
    return stored_plain;
}

std::size_t QuantizationScheme::lookup_cost() const {
    std::size_t cost = excluded_.cost();
    for (const Rule& rule : rules_) cost += rule.targets.cost();
    return cost;
}

/// Fills a scheme from one document; a method for each syntax.
class QuantizationReader {
 public:
    explicit QuantizationReader(QuantizationScheme& scheme) : scheme_(scheme) {}

    /// False: the method is none that this program knows.
    bool read(const std::string& method, const JsonReader& config) {
        if (method == "fp8")
            fp8(config);
        else if (method == "compressed-tensors")
            compressed_tensors(config);
        else if (method == "modelopt" || method == "modelopt_fp4")
            modelopt(config, "ignore", "exclude_modules");
        else if (method == "awq")
            awq(config);
        else if (method == "gptq")
            gptq(config);
        else if (method == "mxfp4")
            mxfp4(config);
        else
            return false;
        return true;
    }

    void modelopt(const JsonReader& config, std::string_view first_list,
                  std::string_view second_list) {
        const std::string algorithm = config.string("quant_algo");
        scheme_.excluded_ = ModulePatterns(NameRule::component);
        exclude(config, config.has(first_list) ? first_list : second_list);
        if (algorithm == "NVFP4") {
            every_linear(grouped(NumberFormat::nvfp4, modelopt_group(config), kFp4ScaleBits, 0));
        } else if (algorithm == "FP8") {
            every_linear(WeightFormat::plain(NumberFormat::fp8_e4m3));
        } else {
            config.problem("quant_algo",
                           fmt::format("this algorithm is not supported; supported: {}",
                                       kSupportedAlgorithms));
        }
        modelopt_cache(config);
    }

    void modelopt_cache(const JsonReader& config) {
        cache_scheme(config);
        const std::string algorithm = config.string_or("kv_cache_quant_algo", "");
        if (algorithm == "FP8")
            scheme_.kv_format_ = NumberFormat::fp8_e4m3;
        else if (algorithm == "NVFP4")
            scheme_.kv_format_ = NumberFormat::nvfp4;
        else if (!algorithm.empty())
            config.problem("kv_cache_quant_algo", "expected FP8, NVFP4 or null");
    }

 private:
    void every_linear(const WeightFormat& format) {
        scheme_.rules_.push_back({ModulePatterns{}, true, format});
    }

    void exclude(const JsonReader& config, std::string_view key) {
        for (const std::string& name : config.strings_or(key)) {
            if (std::string why = scheme_.excluded_.add(name); !why.empty()) {
                config.problem(key, std::move(why));
                return;
            }
        }
    }

    void cache_scheme(const JsonReader& config) {
        if (!config.has("kv_cache_scheme")) return;
        const JsonReader cache = config.at("kv_cache_scheme");
        if (!cache.expect_object()) return;
        const auto bits = cache.integer_or("num_bits", 8, 1, 64);
        const std::string type = cache.string_or("type", "float");
        if (bits == 8 && type == "float")
            scheme_.kv_format_ = NumberFormat::fp8_e4m3;
        else if (bits == 8 && type == "int")
            scheme_.kv_format_ = NumberFormat::int8;
        else if (bits == 4 && type == "float")
            scheme_.kv_format_ = NumberFormat::nvfp4;
        else
            cache.problem("num_bits",
                          fmt::format("a cache of {} bits of this type is not supported", bits));
    }

    std::int64_t modelopt_group(const JsonReader& config) {
        std::int64_t group = config.integer_or("group_size", kNvfp4Group, 1, kMaxBlock);
        if (!config.has("config_groups")) return group;
        const JsonReader groups = config.at("config_groups");
        if (!groups.has("group_0")) return group;
        const JsonReader first = groups.at("group_0");
        if (first.has("weights"))
            group = first.at("weights").integer_or("group_size", group, 1, kMaxBlock);
        return group;
    }

    void fp8(const JsonReader& config) {
        scheme_.excluded_ = ModulePatterns(NameRule::component);
        scheme_.converts_lm_head_ = false;
        exclude(config,
                config.has("modules_to_not_convert") ? "modules_to_not_convert" : "ignored_layers");
        const std::string fmt_name = config.string_or("fmt", "e4m3");
        if (fmt_name != "e4m3" && fmt_name != "float8_e4m3fn")
            config.problem("fmt", "expected e4m3");
        every_linear(block_fp8(config, "weight_block_size"));
        cache_scheme(config);
    }

    WeightFormat block_fp8(const JsonReader& config, std::string_view key) {
        WeightFormat format = WeightFormat::plain(NumberFormat::fp8_e4m3);
        if (!config.has(key)) return format;  // one scale a tensor
        const auto block = config.numbers_or(key, {}, 1, static_cast<double>(kMaxBlock));
        if (block.size() != 2) {
            config.problem(key, "expected two block dimensions [rows, columns]");
            return format;
        }
        return {NumberFormat::fp8_e4m3, static_cast<std::int64_t>(block[0]),
                static_cast<std::int64_t>(block[1]), kFp8BlockScaleBits, 0};
    }

    void compressed_tensors(const JsonReader& config) {
        exclude(config, "ignore");
        cache_scheme(config);
        const JsonReader groups = config.at("config_groups");
        if (!config.has("config_groups") || !groups.expect_object()) return;
        constexpr std::size_t kMaxGroups = 64;
        if (groups.value().empty() || groups.value().size() > kMaxGroups) {
            config.problem("config_groups", fmt::format("expected 1 .. {} groups", kMaxGroups));
            return;
        }
        for (const auto& item : groups.value().items()) {
            const JsonReader group = groups.at(item.key());
            if (!groups.has(item.key()) || !group.expect_object()) return;
            if (!group.has("weights")) continue;  // quantizes activations only
            QuantizationScheme::Rule rule{ModulePatterns(NameRule::exact), false,
                                          compressed_weights(group.at("weights"))};
            if (!group.has("targets")) group.problem("targets", "required field is missing");
            for (const std::string& target : group.strings_or("targets")) {
                if (target == "Linear") {
                    rule.every_linear = true;
                } else if (std::string why = rule.targets.add(target); !why.empty()) {
                    group.problem("targets", std::move(why));
                    return;
                }
            }
            scheme_.rules_.push_back(std::move(rule));
        }
        if (scheme_.excluded_.contains_name("Linear")) scheme_.rules_.clear();  // an ignored class
    }

    WeightFormat compressed_weights(const JsonReader& weights) {
        if (!weights.expect_object()) return {};
        const auto bits = weights.integer("num_bits", 1, 64);
        const std::string type = weights.string_or("type", "int");
        const auto group = weights.integer_or("group_size", 0, -1, kMaxBlock);
        const bool symmetric = weights.boolean_or("symmetric", true);
        const int zero_bits = symmetric ? 0 : kGroupZeroBits;
        if (type == "int" && bits == 4)
            return grouped(NumberFormat::int4, group, kGroupScaleBits, zero_bits);
        if (type == "int" && bits == 8)
            return grouped(NumberFormat::int8, group, kGroupScaleBits, zero_bits);
        if (type == "float" && bits == 8) return block_fp8(weights, "block_structure");
        if (type == "float" && bits == 4 && group == kNvfp4Group)
            return grouped(NumberFormat::nvfp4, group, kFp4ScaleBits, 0);
        if (type == "float" && bits == 4 && group == kMxfp4Group)
            return grouped(NumberFormat::mxfp4, group, kFp4ScaleBits, 0);
        weights.problem(
            "num_bits",
            fmt::format("weights of {} bits of this type and group size {} are not supported; "
                        "supported: int 4 and 8, float 8, float 4 in groups of 16 or 32",
                        bits, group));
        return {};
    }

    void awq(const JsonReader& config) {
        scheme_.excluded_ = ModulePatterns(NameRule::component);
        scheme_.converts_routers_ = false;
        scheme_.converts_lm_head_ = false;
        exclude(config, "modules_to_not_convert");
        const auto bits = config.integer(config.has("w_bit") ? "w_bit" : "bits", 1, 64);
        if (bits != 4)
            config.problem(
                "bits", fmt::format("{} bits are not supported by AWQ kernels; expected 4", bits));
        const auto group = config.integer_or(
            config.has("q_group_size") ? "q_group_size" : "group_size", 128, -1, kMaxBlock);
        const bool zero = config.boolean_or("zero_point", true);
        every_linear(
            grouped(NumberFormat::int4, group, kGroupScaleBits, zero ? kGroupZeroBits : 0));
        cache_scheme(config);
    }

    WeightFormat gptq_format(const JsonReader& at, std::int64_t bits, std::int64_t group,
                             bool symmetric) {
        const int zero_bits = symmetric ? 0 : kGroupZeroBits;
        if (bits == 4) return grouped(NumberFormat::int4, group, kGroupScaleBits, zero_bits);
        if (bits == 8) return grouped(NumberFormat::int8, group, kGroupScaleBits, 2 * zero_bits);
        at.problem("bits", fmt::format("{} bits are not supported; expected 4 or 8", bits));
        return {};
    }

    void gptq(const JsonReader& config) {
        scheme_.excluded_ = ModulePatterns(NameRule::component);
        scheme_.converts_routers_ = false;
        scheme_.converts_lm_head_ = config.boolean_or("lm_head", false);
        exclude(config, "modules_to_not_convert");
        const auto bits = config.integer("bits", 1, 64);
        const auto group = config.integer_or("group_size", 128, -1, kMaxBlock);
        const bool symmetric = config.boolean_or("sym", true);
        if (config.has("dynamic")) gptq_dynamic(config.at("dynamic"), bits, group, symmetric);
        every_linear(gptq_format(config, bits, group, symmetric));
        cache_scheme(config);
    }

    /// {"-:REGEX": {}} leaves modules out, {"+:REGEX" or "REGEX": {"bits": 8, ...}} overrides
    /// fields.
    void gptq_dynamic(const JsonReader& dynamic, std::int64_t bits, std::int64_t group,
                      bool symmetric) {
        if (!dynamic.expect_object()) return;
        for (const auto& item : dynamic.value().items()) {
            const std::string& key = item.key();
            std::string why;
            if (key.compare(0, 2, "-:") == 0) {
                why = scheme_.excluded_.add_regex(std::string_view(key).substr(2));
            } else {
                const std::string_view name =
                    std::string_view(key).substr(key.compare(0, 2, "+:") == 0 ? 2 : 0);
                if (!dynamic.has(key)) continue;
                const JsonReader values = dynamic.at(key);
                if (!values.expect_object()) return;
                if (values.value().empty()) continue;
                const auto own_bits = values.integer_or("bits", bits, 1, 64);
                const auto own_group = values.integer_or("group_size", group, -1, kMaxBlock);
                const bool own_symmetric = values.boolean_or("sym", symmetric);
                QuantizationScheme::Rule rule{
                    ModulePatterns(NameRule::exact), false,
                    gptq_format(values, own_bits, own_group, own_symmetric)};
                why = rule.targets.add_regex(name);
                if (scheme_.rules_.size() >= kMaxRegexes)
                    why = fmt::format("more than {} regular expressions", kMaxRegexes);
                scheme_.rules_.push_back(std::move(rule));
            }
            if (!why.empty()) {
                dynamic.problem(key, std::move(why));
                return;
            }
        }
    }

    void mxfp4(const JsonReader& config) {
        scheme_.excluded_ = ModulePatterns(NameRule::component);
        scheme_.experts_only_ = true;
        exclude(config, "modules_to_not_convert");
        every_linear(grouped(NumberFormat::mxfp4, kMxfp4Group, kFp4ScaleBits, 0));
    }

    QuantizationScheme& scheme_;
};

Expected<QuantizationScheme> read_quantization(const Json* config, const std::string& pointer,
                                               const Json* hf_quant_config, NumberFormat plain,
                                               const std::string& source) {
    QuantizationScheme scheme(plain);
    std::vector<Problem> problems;
    const bool has_config = config != nullptr && !config->is_null();
    if (has_config) {
        const JsonReader reader(*config, problems, pointer);
        QuantizationReader parser(scheme);
        if (!reader.expect_object()) return tl::unexpected(to_error(problems, source));
        const std::string method =
            reader.string_or("quant_method", reader.has("quant_algo") ? "modelopt" : "");
        if (!problems.empty()) return tl::unexpected(to_error(problems, source));
        if (!parser.read(method, reader)) {
            return fail(ErrorCode::unsupported,
                        method.empty() ? "the quantization names no quant_method"
                                       : "the quantization method is none that this program knows",
                        fmt::format("{}: {}/quant_method", source, pointer),
                        fmt::format("supported: {}", kSupportedMethods));
        }
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, source));
    if (hf_quant_config != nullptr && !hf_quant_config->is_null()) {
        const std::string name = source + " (hf_quant_config.json)";
        const JsonReader root(*hf_quant_config, problems);
        if (!root.expect_object()) return tl::unexpected(to_error(problems, name));
        const JsonReader inner = root.at("quantization");
        if (root.has("quantization") && inner.expect_object()) {
            QuantizationScheme other(plain);
            QuantizationReader parser(other);
            if (inner.has("quant_algo"))
                parser.modelopt(inner, "exclude_modules", "ignore");
            else
                parser.modelopt_cache(inner);
            if (!has_config) {
                scheme = std::move(other);
            } else if (!scheme.kv_format_) {
                scheme.kv_format_ = other.kv_format_;
            }
        }
        if (!problems.empty()) return tl::unexpected(to_error(problems, name));
    }
    return scheme;
}

}  // namespace draftboard::model
