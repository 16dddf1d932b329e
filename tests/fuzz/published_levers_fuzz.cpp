// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>

#include "planning/published_levers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard::planning;
    const auto pairs = parse_published_pairs({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!pairs) return 0;
    draftboard::calibration::PublishedRow row;
    row.id = "P1";
    for (const PublishedPair& pair : *pairs) (void)rows_of(pair, {row});
    return 0;
}
