// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "calibration/logs/nsight_export.h"

namespace draftboard::calibration {
namespace {

using model::Json;

constexpr std::size_t kMostKernels = 40;

std::string line(const std::string& what, const TimeSummary& us) {
    if (us.count == 0) return {};
    return fmt::format("  {:<44} {:>9} {:>10.2f} {:>10.2f} {:>12.1f}\n", what, us.count, us.median, us.p90, us.total);
}

std::string cut(const std::string& name, std::size_t most) {
    return name.size() <= most ? name : name.substr(0, most - 3) + "...";
}

Json summary_json(const TimeSummary& us) {
    return {{"count", us.count}, {"median_us", us.median}, {"p10_us", us.p10}, {"p90_us", us.p90}, {"total_us", us.total}};
}

}  // namespace

std::string to_text(const NsightExport& log, const std::string& name) {
    std::string text = fmt::format("{}: Nsight Systems{}{}", name, log.version.empty() ? "" : ", export ", log.version);
    std::map<std::string, int> kinds;
    for (const std::string& gpu : log.gpus) ++kinds[gpu];
    for (const auto& [kind, count] : kinds) text += fmt::format(", {} x {}", count, kind);
    text += fmt::format("\n  {:<44} {:>9} {:>10} {:>10} {:>12}\n", "kernel", "count", "median us", "p90", "total us");
    for (std::size_t i = 0; i < log.kernels.size() && i < kMostKernels; ++i)
        text += line(cut(log.kernels[i].name, 44), log.kernels[i].us);
    if (log.kernels.size() > kMostKernels) text += fmt::format("  {} more with less time\n", log.kernels.size() - kMostKernels);
    if (!log.collectives.empty()) text += "  NCCL by message (its kernels also wait for other ranks)\n";
    for (const NsightCollective& one : log.collectives) {
        text += line(fmt::format("{} {} {} ch", cut(one.call.empty() ? one.kernel : one.call, 20),
                                 one.bytes < 0 ? std::string("? B") : fmt::format("{} B", one.bytes), one.channels),
                     one.us);
    }
    text += line("whole graphs", log.graphs);
    text += "  between kernels, and what launching costs\n";
    text += line("gap within a graph", log.graph_gaps);
    text += line("gap, launched one by one and queued", log.queued_gaps);
    text += line("gap, the GPU waited for the host", log.host_gaps);
    text += line("host: launching a kernel", log.kernel_launches);
    text += line("host: from one launch to the next", log.launch_intervals);
    text += line("host: launching a graph", log.graph_launches);
    text += line("from the launch to the start, idle stream", log.launch_latency);
    for (const NsightCopies& copies : log.copies)
        text += line(fmt::format("copies {}, {:.2f} GB/s", copies.kind, copies.gb_s()), copies.us);
    for (const NsightDevice& device : log.devices) {
        text += fmt::format("  GPU {}: busy {:.1f} of {:.1f} us, {:.1f} % of that in collectives\n", device.device,
                            device.busy_us, device.span_us, 100 * device.collective_share());
    }
    for (const std::string& warning : log.warnings) text += "  note: " + warning + "\n";
    return text;
}

Json to_json(const NsightExport& log, const std::string& name) {
    Json kernels = Json::array();
    for (const NsightKernel& kernel : log.kernels) {
        Json one = summary_json(kernel.us);
        one["name"] = kernel.name;
        one["collective"] = kernel.collective;
        kernels.push_back(std::move(one));
    }
    Json collectives = Json::array();
    for (const NsightCollective& message : log.collectives) {
        Json one = summary_json(message.us);
        one["kernel"] = message.kernel;
        one["call"] = message.call;
        one["bytes"] = message.bytes < 0 ? Json() : Json(message.bytes);
        one["channels"] = message.channels;
        collectives.push_back(std::move(one));
    }
    Json copies = Json::array();
    for (const NsightCopies& copy : log.copies) {
        Json one = summary_json(copy.us);
        one["kind"] = copy.kind;
        one["gb_s"] = copy.gb_s();
        copies.push_back(std::move(one));
    }
    Json devices = Json::array();
    for (const NsightDevice& device : log.devices) {
        devices.push_back({{"device", device.device},
                           {"span_us", device.span_us},
                           {"busy_us", device.busy_us},
                           {"collective_us", device.collective_us},
                           {"collective_share", device.collective_share()}});
    }
    return {{"file", name},
            {"tool", "Nsight Systems"},
            {"version", log.version},
            {"gpus", log.gpus},
            {"kernels", std::move(kernels)},
            {"collectives", std::move(collectives)},
            {"copies", std::move(copies)},
            {"devices", std::move(devices)},
            {"graphs", summary_json(log.graphs)},
            {"gaps",
             {{"graph", summary_json(log.graph_gaps)},
              {"queued", summary_json(log.queued_gaps)},
              {"host", summary_json(log.host_gaps)}}},
            {"launches",
             {{"kernel", summary_json(log.kernel_launches)},
              {"graph", summary_json(log.graph_launches)},
              {"interval", summary_json(log.launch_intervals)},
              {"latency", summary_json(log.launch_latency)}}},
            {"warnings", log.warnings}};
}

}  // namespace draftboard::calibration
