// SPDX-License-Identifier: Apache-2.0
// The JSON that nccl-tests writes with -J: "config" with the devices, "results" with one object a row, in which "out_of_place"
// and "in_place" hold time (us), alg_bw and bus_bw (GB/s) and nwrong (null: not checked). The text form is nccl_tests_log.cpp's.

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "calibration/logs/collective_rows.h"
#include "calibration/logs/log_text.h"
#include "calibration/logs/read_log.h"

namespace draftboard::calibration {
namespace {

using model::ErrorCode;
using nlohmann::json;

const char* const kRunJson = "save it again with `all_reduce_perf ... -J log.json`";

// JSON keeps six decimals or six digits, whichever is coarser.
double json_half(double value) { return std::max(5e-7, 5e-6 * value); }

double number_at(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return -1;
    const double value = found->get<double>();
    return value >= 0 && value <= 1e18 ? value : -1;
}

std::int64_t integer_at(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) return -1;
    if (found->is_number_integer()) {
        const bool beyond = found->is_number_unsigned() && found->get<std::uint64_t>() > 1'000'000'000'000'000'000ULL;
        return beyond ? -1 : found->get<std::int64_t>();
    }
    // The root is written as a padded string.
    return found->is_string() ? whole_number(trimmed(found->get_ref<const std::string&>())).value_or(-1) : -1;
}

bool read_timing(const json& result, const char* key, CollectiveTiming& timing, PrintedHalves& half) {
    const auto found = result.find(key);
    if (found == result.end() || found->is_null()) return true;  // not measured
    if (!found->is_object()) return false;
    const double time = found->contains("time") ? number_at(*found, "time") : number_at(*found, "cpu_time");
    const double algorithm = number_at(*found, "alg_bw");
    const double bus = number_at(*found, "bus_bw");
    if (time < 0 || algorithm < 0 || bus < 0) return false;
    timing = {true, time, algorithm, bus, number_at(*found, "nwrong")};
    half = {json_half(time), json_half(algorithm), json_half(bus)};
    return true;
}

void read_config(const json& document, CollectiveRun& run, LinkLog& log) {
    const auto config = document.find("config");
    if (config == document.end() || !config->is_object()) return;
    for (const auto& [key, label] : {std::pair{"nthreads", "threads"}, std::pair{"ngpus", "gpus a thread"},
                                     std::pair{"iterations", "iterations"}, std::pair{"graph", "graph launches"}}) {
        if (std::string value = json_text(*config, key); !value.empty()) log.facts.emplace_back(label, std::move(value));
    }
    const auto devices = config->find("devices");
    if (devices == config->end() || !devices->is_array()) return;
    std::unordered_set<std::string> hosts;
    std::unordered_set<std::int64_t> ranks;
    for (const json& device : *devices) {
        if (!device.is_object() || log.gpus.size() >= static_cast<std::size_t>(kMaxLogDevices)) continue;
        const std::int64_t rank = integer_at(device, "rank");
        if (rank < 0 || rank >= kMaxLogRanks) continue;
        LogGpu gpu;
        gpu.rank = static_cast<int>(rank);
        gpu.device = static_cast<int>(std::clamp<std::int64_t>(integer_at(device, "device"), -1, kMaxLogRanks));
        gpu.host = json_text(device, "hostname");
        gpu.bus_id = json_text(device, "device_hex");
        gpu.name = json_text(device, "device_info");
        if (!gpu.host.empty()) hosts.insert(gpu.host);
        ranks.insert(rank);
        run.listed_ranks = std::max(run.listed_ranks, gpu.rank + 1);
        log.gpus.push_back(std::move(gpu));
    }
    const auto few = [&](const char* key) { return std::clamp<std::int64_t>(integer_at(*config, key), 0, kMaxLogRanks); };
    const std::int64_t own = few("nthreads") * few("ngpus");
    // Without MPI only the first device is written, whatever their number is.
    if (ranks.size() == 1 && own > 1 && own <= kMaxLogRanks) {
        run.listed_ranks = static_cast<int>(own);
        remark(log.warnings, fmt::format("/config/devices holds one device; {} ranks are threads x GPUs", own));
    } else if (static_cast<int>(ranks.size()) < run.listed_ranks) {
        remark(log.warnings, fmt::format("the list of devices is cut: {} of {} ranks are in it", ranks.size(), run.listed_ranks));
    } else {
        log.nodes = static_cast<int>(hosts.size());
    }
}

}  // namespace

model::Expected<LinkLog> read_nccl_tests_json(const std::string& text, const std::string& name) {
    const auto document = parse_log_json(text, name);
    if (!document) return tl::unexpected<model::Error>(document.error());
    LinkLog log;
    log.tool = LogTool::nccl_tests;
    log.format = "JSON";
    const auto results = document->is_object() ? document->find("results") : document->end();
    if (results == document->end() || !results->is_array() || results->empty()) {
        return model::fail(ErrorCode::invalid_input, "there are no results of nccl-tests in it", name + ": /results", kRunJson);
    }
    if (results->size() > kMaxLogRows) {
        return model::fail(ErrorCode::too_large, fmt::format("there are more than {} results", kMaxLogRows), name + ": /results",
                           "split it");
    }
    log.version = json_text(*document, "version");
    if (std::string nccl = json_text(*document, "nccl_version"); !nccl.empty()) log.facts.emplace_back("NCCL", std::move(nccl));
    CollectiveRun run;
    read_config(*document, run, log);
    std::size_t index = 0;
    for (const json& result : *results) {
        const std::string place = fmt::format("{}: /results/{}", name, index++);
        PrintedRow printed;
        CollectiveRow& row = printed.row;
        if (result.is_object()) {
            row.bytes = integer_at(result, "size");
            row.count = integer_at(result, "count");
            row.dtype = json_text(result, "type");
            row.reduction = json_text(result, "redop");
            row.root = static_cast<int>(std::clamp<std::int64_t>(integer_at(result, "root"), -1, kMaxLogRanks));
        }
        const bool sound = result.is_object() && row.bytes >= 0 && row.count >= 0 &&
                           read_timing(result, "out_of_place", row.out_of_place, printed.out_of_place) &&
                           read_timing(result, "in_place", row.in_place, printed.in_place);
        if (!sound || (!row.out_of_place.measured && !row.in_place.measured)) {
            return model::fail(ErrorCode::invalid_input,
                               "a result has no size, count and time, alg_bw, bus_bw of at least one half", place, kRunJson);
        }
        std::string operation = json_text(result, "experiment_name");
        if (operation.size() > 5 && operation.substr(operation.size() - 5) == "_perf") operation.resize(operation.size() - 5);
        std::string known;
        for (char& c : operation) c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        for (const char* candidate :
             {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "broadcast", "reduce", "sendrecv"}) {
            std::string plain(candidate);
            plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
            if (operation == candidate || operation == plain) known = candidate;
        }
        if (run.operation.empty()) run.operation = known;
        run.rows.push_back(std::move(printed));
    }
    const auto bounds = document->find("out_of_bounds");
    if (bounds != document->end() && bounds->is_object() && number_at(*bounds, "count") > 0) {
        remark(log.findings,
               fmt::format("/out_of_bounds: the test failed: {:g} values out of bounds", number_at(*bounds, "count")));
    }
    settle_run(std::move(run), log);
    log.ranks = log.rows.front().ranks;
    return log;
}

}  // namespace draftboard::calibration
