// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a checkpoint's weights are stored, as its quantization_config (and NVIDIA's separate
// hf_quant_config.json) says. A QuantizationScheme is asked module by module. Which modules a model
// has is known to hf_families.h; what a format costs, to number_format.h.
//
//   quant_method          weights                                    scales
//   (none)                the checkpoint's dtype
//   fp8                   e4m3, blocks of weight_block_size          fp32 a block; none counted per
//   tensor compressed-tensors    int4/int8 in groups, fp8, nvfp4, mxfp4     16 bit a group (+4 bit
//   zero if asymmetric) modelopt              NVFP4 in groups of 16, FP8                 8 bit a
//   group awq, gptq             int4 (gptq: int8) in groups                16 bit a group (+4 bit
//   zero if asymmetric) mxfp4                 experts only, groups of 32                 8 bit a
//   group
// One scale a row or a tensor is not counted (16 bits in thousands of weights).
//
// What is never quantized: embeddings; routers that are bare parameters and not Linear modules;
// under fp8, awq, gptq and mxfp4 the LM head unless "lm_head": true; under awq and gptq any router.

#include <optional>
#include <string>
#include <vector>

#include "model/import/module_patterns.h"
#include "model/json_reader.h"
#include "model/number_format.h"

namespace draftboard::model {

enum class ModuleClass {
    linear,
    expert,            ///< projection of a routed expert
    router_linear,     ///< router that is a Linear module
    router_parameter,  ///< router that is a bare parameter: no scheme converts it
    embedding,
    lm_head,
};

class QuantizationScheme {
 public:
    /// No quantization: everything in `plain`.
    explicit QuantizationScheme(NumberFormat plain) : plain_(plain) {}

    /// `module`: canonical Hugging Face name, "model.layers.3.self_attn.q_a_proj".
    [[nodiscard]] WeightFormat format_of(const std::string& module, ModuleClass kind) const;

    [[nodiscard]] NumberFormat plain() const { return plain_; }
    [[nodiscard]] const std::optional<NumberFormat>& kv_format() const { return kv_format_; }
    /// Work of one format_of(), in wildcards tried; see ModulePatterns::cost().
    [[nodiscard]] std::size_t lookup_cost() const;

 private:
    friend class QuantizationReader;  // fills it; see quantization_config.cpp
    friend Expected<QuantizationScheme> read_quantization(const Json*, const std::string&,
                                                          const Json*, NumberFormat,
                                                          const std::string&);
    struct Rule {
        ModulePatterns targets;
        bool every_linear = false;
        WeightFormat format;
    };
    NumberFormat plain_;
    std::vector<Rule> rules_;
    ModulePatterns excluded_;
    bool experts_only_ = false;
    bool converts_routers_ = true;
    bool converts_lm_head_ = true;
    std::optional<NumberFormat> kv_format_;
};

/// `config`: the quantization_config object found at `pointer` of the file `source`, or null;
/// `hf_quant_config`: the content of hf_quant_config.json, or null. With both, `config` decides and
/// the other only adds what it leaves open. Errors: unknown quant_method or algorithm, malformed
/// fields.
[[nodiscard]] Expected<QuantizationScheme> read_quantization(const Json* config,
                                                             const std::string& pointer,
                                                             const Json* hf_quant_config,
                                                             NumberFormat plain,
                                                             const std::string& source);

}  // namespace draftboard::model
