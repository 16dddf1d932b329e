// SPDX-License-Identifier: Apache-2.0
#include "sim/collective_constants.h"

#include <array>
#include <utility>

namespace draftboard::sim {

using model::Expected;
using model::Json;
using model::JsonReader;
using model::OperationKind;

namespace {

constexpr std::string_view kFormat = "draftboard.collective_calibration";
constexpr int kVersion = 1;
constexpr double kMaxConstant = 1e6;
constexpr std::size_t kMaxEntries = 10'000;

constexpr std::array<OperationKind, 5> kCollectives = {
    OperationKind::all_reduce, OperationKind::all_gather, OperationKind::reduce_scatter,
    OperationKind::all_to_all, OperationKind::send_receive};

}  // namespace

std::string_view to_name(Transport transport) {
    switch (transport) {
        case Transport::peer: return "peer";
        case Transport::staged: return "staged";
        case Transport::nvlink: return "nvlink";
    }
    return "?";
}

std::optional<OperationKind> collective_from_name(std::string_view name) {
    for (const OperationKind operation : kCollectives) {
        if (model::to_name(operation) == name) return operation;
    }
    return std::nullopt;
}

TransportConstants default_transport(Transport transport) {
    TransportConstants c;
    // NCCL 2.30.7 counts 1.0 us for a LL hop over PCIe (src/graph/tuning.cc); the route's own flag
    // latency is about 0.7 us of it (0.68-1.07 measured). Eight GPUs then need 20.6 us, as
    // 19.8-20.9 us measured (rtx6kpro, 16 KiB).
    c.ll_hop_us = 0.3;
    // A loop that polls its own memory, whose line has come while the one before it was handled: 57,344 bytes over
    // eight GPUs are two trips on one channel and take 24.5 us, 65,536 are one on each of two and take 22.1: 0.17 us
    // for each of 14 steps (rtx6kpro@e2c2b95, NCCL 2.30.3).
    c.ll_trip_us = 0.2;
    c.ll_efficiency = 0.9;
    // Gathers and all-reduces of one table differ by the steps between the ends: 0.5 us a trip there and 1.06 us
    // at both ends over peers, 1.3 and 1.4 us through host memory (aiconfigurator tables, RTX PRO 6000).
    c.ll_ends_us = 1.06;
    c.ll128_hop_us = 1.5;  // 2.5 us a hop (tuning.cc) less the route
    c.ll128_trip_us = 0.8;
    // 48.2 us for 32 KiB over 8 GPUs with Simple (rtx6kpro@e2c2b95, results.md): 3.1 us a hop with
    // route and slice. NCCL counts 5.7 (tuning.cc).
    c.simple_hop_us = 1.2;
    c.simple_slice_us = 1.0;
    c.simple_efficiency = 0.8;  // kernel stores 44.7 GB/s where copies reach 55.5 (vllm#56128)
    c.channel_gb_s =
        12;  // 22.2 GB/s with 2 channels, 37.6 with 8 (rtx6kpro@e2c2b95, nccl-tuning.md)
    if (transport == Transport::staged) {
        c.ll_hop_us =
            0.5;  // 13.2-13.9 us for small messages over four GPUs (rtx6kpro): 1.4 us a hop
        c.simple_hop_us = 3.0;
        c.ll_ends_us = 1.4;
        c.ll_trip_us = 1.2;  // polling host memory is a read round trip: 0.72-1.45 us (p2pmark)
        c.simple_efficiency = 0.55;  // 14.9 GB/s over SHM on 8 RTX 4090 whose links copy at 26.3
    }
    if (transport == Transport::nvlink) {
        // 0.6 / 1.9 / 3.4 us a hop (tuning.cc), of which the route has 0.6.
        c.ll_hop_us = 0.1;
        c.ll_efficiency = 0.8;
        c.ll_trip_us = 0.5;
        c.ll128_hop_us = 1.3;
        c.ll128_trip_us = 0.6;
        c.simple_hop_us = 2.0;
        c.simple_slice_us = 0.7;
        c.simple_efficiency = 0.95;
        c.channel_gb_s = 20;  // 24 channels reach what 18 links carry
    }
    return c;
}

double NamedConstant::get(const CollectiveConstants& constants) const {
    return scalar != nullptr ? constants.*scalar : constants.*transport.*field;
}

void NamedConstant::set(CollectiveConstants& constants, double value) const {
    if (scalar != nullptr) {
        constants.*scalar = value;
    } else {
        constants.*transport.*field = value;
    }
}

const std::vector<NamedConstant>& named_constants() {
    static const std::vector<NamedConstant> constants = [] {
        using C = CollectiveConstants;
        using T = TransportConstants;
        std::vector<NamedConstant> list;
        const std::array<std::pair<const char*, T C::*>, 3> transports = {
            {{"peer", &C::peer}, {"staged", &C::staged}, {"nvlink", &C::nvlink}}};
        const std::array<std::pair<const char*, double T::*>, 10> fields = {{
            {"ll_hop_us", &T::ll_hop_us},
            {"ll_trip_us", &T::ll_trip_us},
            {"ll_efficiency", &T::ll_efficiency},
            {"ll_ends_us", &T::ll_ends_us},
            {"ll128_hop_us", &T::ll128_hop_us},
            {"ll128_trip_us", &T::ll128_trip_us},
            {"simple_hop_us", &T::simple_hop_us},
            {"simple_slice_us", &T::simple_slice_us},
            {"simple_efficiency", &T::simple_efficiency},
            {"channel_gb_s", &T::channel_gb_s},
        }};
        for (const auto& transport : transports) {
            for (const auto& field : fields) {
                list.push_back({std::string(transport.first) + "." + field.first, nullptr,
                                transport.second, field.second});
            }
        }
        const std::array<std::pair<const char*, double C::*>, 15> scalars = {{
            {"kernel_us", &C::kernel_us},
            {"simple_drain", &C::simple_drain},
            {"nvls_us", &C::nvls_us},
            {"nvls_efficiency", &C::nvls_efficiency},
            {"exchange_us", &C::exchange_us},
            {"exchange_peer_us", &C::exchange_peer_us},
            {"exchange_channel_gb_s", &C::exchange_channel_gb_s},
            {"exchange_efficiency", &C::exchange_efficiency},
            {"custom_us", &C::custom_us},
            {"custom_efficiency", &C::custom_efficiency},
            {"custom_peer_us", &C::custom_peer_us},
            {"custom_phase_us", &C::custom_phase_us},
            {"host_flag_us", &C::host_flag_us},
            {"inter_cpu_gb_s", &C::inter_cpu_gb_s},
            {"peer_ranks", &C::peer_ranks},
        }};
        for (const auto& scalar : scalars)
            list.push_back({scalar.first, scalar.second, nullptr, nullptr});
        return list;
    }();
    return constants;
}

const CollectiveFitEntry* CollectiveConstants::entry(OperationKind operation,
                                                     std::string_view implementation,
                                                     int gpus) const {
    for (const CollectiveFitEntry& candidate : entries) {
        if (candidate.operation == operation && candidate.implementation == implementation &&
            candidate.gpus == gpus) {
            return &candidate;
        }
    }
    return nullptr;
}

Expected<CollectiveConstants> parse_collective_constants(const Json& json,
                                                         const std::string& name) {
    std::vector<model::Problem> problems;
    const JsonReader reader(json, problems);
    CollectiveConstants constants;
    if (!reader.expect_object()) return tl::unexpected(model::to_error(problems, name));
    reader.expect_format(kFormat, kVersion);
    constants.name = reader.string_or("name", name);
    constants.system = reader.string_or("system", "");
    constants.machines = reader.strings_or("machines");
    if (reader.has("constants")) {
        const JsonReader values = reader.at("constants");
        for (const NamedConstant& constant : named_constants()) {
            // A number, or {"value", ...} with what the fit says about it.
            const bool object =
                values.has(constant.name) && values.value()[constant.name].is_object();
            const bool zero_ok = constant.name.find("efficiency") == std::string::npos &&
                                 constant.name.find("gb_s") == std::string::npos;
            const double low = zero_ok || constant.name == "inter_cpu_gb_s" ? 0 : 1e-6;
            const double fallback = constant.get(constants);
            constant.set(constants,
                         object ? values.at(constant.name).number("value", low, kMaxConstant)
                                : values.number_or(constant.name, fallback, low, kMaxConstant));
        }
    }
    if (reader.has("entries")) {
        const JsonReader entries = reader.at("entries");
        const std::size_t count = entries.size();
        if (count > kMaxEntries) problems.push_back({"/entries", "more than 10000 entries"});
        for (std::size_t i = 0; i < std::min(count, kMaxEntries); ++i) {
            const JsonReader item = entries.at(i);
            CollectiveFitEntry entry;
            const auto operation = collective_from_name(item.string("operation"));
            if (!operation)
                problems.push_back({item.pointer() + "/operation", "no such collective"});
            entry.operation = operation.value_or(OperationKind::all_reduce);
            entry.implementation = item.string_or("implementation", "nccl");
            entry.gpus = static_cast<int>(item.integer("gpus", 1, 100'000));
            entry.error = item.number("error", 0, 1e3);
            entry.bytes_low = item.integer("bytes_low", 0, std::int64_t{1} << 60);
            entry.bytes_high = item.integer("bytes_high", 0, std::int64_t{1} << 60);
            entry.points = static_cast<int>(item.integer_or("points", 0, 0, 1'000'000'000));
            constants.entries.push_back(std::move(entry));
        }
    }
    if (reader.has("provenance")) constants.provenance = json["provenance"];
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));
    return constants;
}

Expected<CollectiveConstants> load_collective_constants(const std::string& path) {
    const auto json = model::load_json(path);
    if (!json) return tl::unexpected(json.error());
    return parse_collective_constants(*json, path);
}

Json to_json(const CollectiveConstants& constants) {
    Json json;
    json["format"] = kFormat;
    json["version"] = kVersion;
    json["name"] = constants.name;
    json["system"] = constants.system;
    json["machines"] = constants.machines;
    Json values = Json::object();
    for (const NamedConstant& constant : named_constants()) {
        values[constant.name] = constant.get(constants);
    }
    json["constants"] = std::move(values);
    Json entries = Json::array();
    for (const CollectiveFitEntry& entry : constants.entries) {
        Json item;
        item["operation"] = model::to_name(entry.operation);
        item["implementation"] = entry.implementation;
        item["gpus"] = entry.gpus;
        item["error"] = entry.error;
        item["bytes_low"] = entry.bytes_low;
        item["bytes_high"] = entry.bytes_high;
        item["points"] = entry.points;
        entries.push_back(std::move(item));
    }
    json["entries"] = std::move(entries);
    if (!constants.provenance.is_null()) json["provenance"] = constants.provenance;
    return json;
}

}  // namespace draftboard::sim
