// SPDX-License-Identifier: Apache-2.0
#include "sim/collective_report.h"

#include <numeric>

#include <fmt/format.h>

#include "sim/ranks.h"
#include "sim/term.h"

namespace draftboard::sim {

namespace {

/// nccl-tests' factor from algorithm to bus bandwidth, on the size it calls S.
double bus_factor(model::OperationKind operation, int n) {
    const double ranks = n;
    switch (operation) {
        case model::OperationKind::all_reduce: return 2 * (ranks - 1) / ranks;
        case model::OperationKind::all_gather: return ranks - 1;  // S is n contributions; ours is one
        default: return (ranks - 1) / ranks;
    }
}

/// Mean wait of a rank for the last one when each launches the collective by itself.
double launch_wait_us(const CollectiveTime& time, int ranks) {
    PricedOperation operation;
    operation.collective = true;
    operation.latency = time.latency;
    operation.transport = time.transport;
    const HostConstants host;
    // A run of collectives, so that the mean stands for a stream of them and not for one draw.
    const std::vector<PricedOperation> stream(64, operation);
    const PassTimes times = simulate_pass(stream, ranks, model::LaunchMode::eager, host, Random(1));
    double sum = 0;
    for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < stream.size(); ++i) sum += to_us(times.at(r, i).wait);
    }
    return sum / (ranks * static_cast<double>(stream.size()));
}

}  // namespace

model::Expected<CollectiveAnswer> price_collective(const model::Machine& machine,
                                                   const CollectiveQuery& query,
                                                   const CollectiveConstants& constants) {
    CollectiveModel collectives(machine, query.settings, constants);
    CollectiveRequest request;
    request.operation = query.operation;
    request.gpus.resize(static_cast<std::size_t>(query.gpus));
    std::iota(request.gpus.begin(), request.gpus.end(), 0);
    request.bytes = query.bytes;
    request.graph_launch = query.graph_launch;
    auto time = collectives.time(request);
    if (!time) return tl::unexpected(time.error());
    CollectiveAnswer answer;
    answer.machine = machine.name;
    answer.query = query;
    answer.time = std::move(*time);
    if (!query.graph_launch) answer.wait_us = launch_wait_us(answer.time, query.gpus);
    const double us = to_us(answer.time.total);
    if (us > 0) {
        answer.bus_bandwidth_gb_s =
            static_cast<double>(query.bytes) / us * 1e-3 * bus_factor(query.operation, query.gpus);
    }
    return answer;
}

model::Json collective_json(const CollectiveAnswer& answer) {
    const CollectiveTime& time = answer.time;
    const double total = to_us(time.total) + answer.wait_us;
    const model::Interval interval = interval_around(total, time.relative_uncertainty);
    model::Json json;
    json["machine"] = answer.machine;
    json["operation"] = model::to_name(answer.query.operation);
    json["gpus"] = answer.query.gpus;
    json["bytes"] = answer.query.bytes;
    json["time_us"] = {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
    json["transport_us"] = to_us(time.transport);
    json["latency_us"] = to_us(time.latency);
    json["wait_us"] = answer.wait_us;
    json["bus_bandwidth_gb_s"] = answer.bus_bandwidth_gb_s;
    json["choice"] = {{"implementation", model::to_name(time.choice.implementation)},
                      {"algorithm", model::to_name(time.choice.algorithm)},
                      {"protocol", model::to_name(time.choice.protocol)},
                      {"channels", time.choice.channels},
                      {"through_host", time.choice.through_host},
                      {"search_failed", time.choice.search_failed},
                      {"nccl_predicted_us", time.choice.predicted_us}};
    json["coverage"] = to_name(time.coverage);
    json["formula"] = time.formula;
    json["remarks"] = time.remarks;
    return json;
}

std::string collective_text(const CollectiveAnswer& answer) {
    const CollectiveTime& time = answer.time;
    const double total = to_us(time.total) + answer.wait_us;
    const model::Interval interval = interval_around(total, time.relative_uncertainty);
    std::string text = fmt::format(
        "{} of {} bytes over {} GPUs of {}\n"
        "  time       {:9.2f} us   90 % interval {:.2f} .. {:.2f} us   ({})\n"
        "  latency    {:9.2f} us\n"
        "  transport  {:9.2f} us\n"
        "  wait       {:9.2f} us\n"
        "  bus bandwidth {:.2f} GB/s\n",
        model::to_name(answer.query.operation), answer.query.bytes, answer.query.gpus,
        answer.machine, interval.value, interval.low, interval.high, to_name(time.coverage),
        to_us(time.latency), to_us(time.transport), answer.wait_us, answer.bus_bandwidth_gb_s);
    text += fmt::format("  runs as    {} {} {}, {} channel{}{}\n",
                        model::to_name(time.choice.implementation),
                        model::to_name(time.choice.algorithm),
                        model::to_name(time.choice.protocol), time.choice.channels,
                        time.choice.channels == 1 ? "" : "s",
                        time.choice.through_host ? ", staged through host memory" : "");
    if (time.choice.search_failed) {
        text += "  NCCL's graph search fails on this machine: it assumes 0.1 GB/s when it chooses\n";
    }
    if (!time.formula.empty()) text += "  " + time.formula + "\n";
    for (const std::string& remark : time.remarks) text += "  note: " + remark + "\n";
    return text;
}

}  // namespace draftboard::sim
