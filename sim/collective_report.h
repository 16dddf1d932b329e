// SPDX-License-Identifier: Apache-2.0
#pragma once
// One collective, asked for by itself: priced, with the waiting that eager launches bring, and written
// as JSON or text. Used by `draftboard collective` and the desktop.

#include "model/json_reader.h"
#include "sim/collective.h"
#include "sim/collective_constants.h"
#include "sim/host_constants.h"

namespace draftboard::sim {

struct CollectiveQuery {
    CollectiveSettings settings;
    model::OperationKind operation = model::OperationKind::all_reduce;
    int gpus = 2;
    std::int64_t bytes = 0;
    bool graph_launch = true;
};

struct CollectiveAnswer {
    std::string machine;
    CollectiveQuery query;
    CollectiveTime time;
    double wait_us = 0;  ///< mean over ranks; from launch skew, 0 in a graph
    double bus_bandwidth_gb_s = 0;  ///< nccl-tests' busbw
};

[[nodiscard]] model::Expected<CollectiveAnswer> price_collective(
    const model::Machine& machine, const CollectiveQuery& query,
    const CollectiveConstants& constants);

[[nodiscard]] model::Json collective_json(const CollectiveAnswer& answer);
[[nodiscard]] std::string collective_text(const CollectiveAnswer& answer);

}  // namespace draftboard::sim
