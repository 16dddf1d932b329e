// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: an error or a sound architecture that can be counted and reported. A
// leading "Q" byte splits the input at its first NUL into a config and an hf_quant_config.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "model/architecture_report.h"
#include "model/import/hf_config.h"

using draftboard::model::architecture_from_config;
using draftboard::model::architecture_text;
using draftboard::model::Json;
using draftboard::model::parse_json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view input(reinterpret_cast<const char*>(data), size);
    std::optional<Json> separate;
    if (!input.empty() && input.front() == 'Q') {
        input.remove_prefix(1);
        const auto cut = input.find('\0');
        if (cut != std::string_view::npos) {
            const auto parsed = parse_json(input.substr(cut + 1), "hf_quant_config.json");
            if (!parsed) return 0;
            separate = *parsed;
            input = input.substr(0, cut);
        }
    }
    const auto config = parse_json(input, "config.json");
    if (!config) return 0;
    const auto architecture = architecture_from_config(*config, separate, "config.json");
    if (!architecture) {
        if (architecture.error().message.empty()) std::abort();
        return 0;
    }
    if (!architecture->validate().empty() || architecture_text(*architecture).empty()) std::abort();
    return 0;
}
