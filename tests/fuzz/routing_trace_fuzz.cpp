// SPDX-License-Identifier: Apache-2.0
// Routing traces: any bytes give an error or a sound trace, whose distinct experts lie within their bounds.

#include <cstdint>
#include <cstdlib>

#include "model/routing.h"

using namespace draftboard::model;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    auto trace = parse_routing_trace({reinterpret_cast<const char*>(data), size}, "input");
    if (!trace) {
        require(!trace.error().message.empty());
        return 0;
    }
    require(trace->validate().empty() && trace->tokens() > 0);
    Routing routing;
    routing.kind = RoutingKind::trace;
    const int experts = trace->experts;
    const int per_token = trace->experts_per_token;
    routing.trace = std::move(*trace);
    const auto touched = distinct_experts(routing, experts, per_token, 2, 3, 4, 1);
    require(touched.total >= per_token && touched.total <= experts);
    require(touched.busiest_rank > 0 && touched.busiest_rank <= touched.total);
    return 0;
}
