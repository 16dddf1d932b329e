// SPDX-License-Identifier: Apache-2.0
// Any bytes as the JSON files of a checkpoint: config.json of a model (architecture, numerics, what the engine refuses), of an
// EAGLE-3 head, and the index. Each gives an error with a message, or something sound.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "backend/cpu/engine_limits.h"
#include "backend/eagle3_config.h"
#include "backend/numerics.h"
#include "backend/weight_map.h"
#include "model/import/hf_config.h"

using namespace draftboard;

namespace {

void check(const backend::Numerics& numerics) {
    if (!std::isfinite(numerics.rope_theta) || numerics.rope_theta <= 0 || !(numerics.norm_epsilon >= 0)) std::abort();
    if (numerics.yarn && !(numerics.yarn->factor > 0)) std::abort();
    for (const int token : numerics.end_tokens) {
        if (token < 0) std::abort();
    }
}

/// What a head is read against.
model::Architecture target() {
    model::Architecture out;
    out.name = "target";
    out.hidden = 64;
    out.vocabulary = 96;
    out.max_context = 512;
    out.layers.resize(8);
    return out;
}

template <class T>
bool failed(const model::Expected<T>& result) {
    if (result) return false;
    if (result.error().message.empty() || result.error().context.empty()) std::abort();
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto map = backend::read_weight_map(text, "index"); !failed(map)) {
        for (const auto& [tensor, file] : *map) {
            if (file.find('/') != std::string::npos || file.front() == '.') std::abort();
        }
    }
    const model::Architecture lender = target();
    if (backend::is_eagle3_config(text)) {
        if (const auto head = backend::read_eagle3_config(text, "head/config.json", lender); !failed(head)) {
            for (const int layer : head->aux_layers) {
                if (layer < 0 || layer >= static_cast<int>(lender.layers.size())) std::abort();
            }
            check(head->numerics);
        }
    }
    const auto document = model::parse_json(text, "config.json");
    if (!document) return 0;
    const auto architecture = model::architecture_from_config(*document, std::nullopt, "config.json");
    if (!architecture) return 0;
    if (const auto numerics = backend::read_numerics(text, "config.json", *architecture); !failed(numerics)) check(*numerics);
    (void)backend::cpu::check_engine(*architecture, {}, 0);
    return 0;
}
