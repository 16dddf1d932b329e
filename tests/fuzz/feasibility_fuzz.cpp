// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>

#include "planning/feasibility.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard;
    const std::string input(reinterpret_cast<const char*>(data), size);
    (void)planning::compare_versions(input.substr(0, size / 2), input.substr(size / 2));
    const auto json = model::parse_json(input, "fuzz");
    if (!json) return 0;
    const auto table = planning::FeasibilityTable::from_json(*json, "fuzz");
    if (!table) return 0;
    for (const auto& fact : table->facts()) {
        (void)table->of(fact.lever, {"12.0", "SGLang", "0.5.6"});
        (void)table->of(fact.lever, {"", "", ""});
    }
    return 0;
}
