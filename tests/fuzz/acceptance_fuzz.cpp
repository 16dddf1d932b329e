// SPDX-License-Identifier: Apache-2.0
// The acceptance object of a scenario: any JSON gives problems or a sound acceptance, whose lengths, intervals
// and trees lie within their bounds.

#include <cstdint>
#include <cstdlib>

#include "model/acceptance_json.h"

using namespace draftboard::model;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    const int k = 1 + data[0] % 16;
    const auto document = parse_json({reinterpret_cast<const char*>(data + 1), size - 1}, "input");
    if (!document) return 0;
    std::vector<Problem> problems;
    const Acceptance acceptance = acceptance_from_json(JsonReader(*document, problems), k);
    if (!problems.empty()) return 0;
    require(acceptance.validate().empty());
    const double length = chain_acceptance_length(acceptance, k);
    require(length >= 1 && length <= k + 1 + 1e-6);
    const Interval interval = acceptance_length_interval(acceptance, length, k);
    require(interval.low <= interval.value && interval.value <= interval.high);
    const double tree = build_draft_tree(acceptance, k, 1 + data[0] % 4, 4 * k).acceptance_length();
    require(tree >= 1 && tree <= k + 1 + 1e-6);
    std::vector<Problem> again;
    const Json written = acceptance_to_json(acceptance);
    static_cast<void>(acceptance_from_json(JsonReader(written, again), k));
    require(again.empty());
    return 0;
}
