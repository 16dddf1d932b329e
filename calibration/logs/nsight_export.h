// SPDX-License-Identifier: Apache-2.0
#pragma once
// What Nsight Systems recorded, from its SQLite export (`nsys export --type sqlite`): kernels by name, NCCL's kernels by
// message, gaps between kernels, what launching costs the host, copies, and the share of busy time in collectives. It draws no
// conclusions: log_import.h puts launch costs and gaps into a calibration. Next: nsight_report.cpp, how it is shown.
//
// Tables and columns as exports of 2023 to 2025 have them; tables are written only where there was something to record, so all
// but one of kernels and graphs may be missing:
//   StringIds(id, value)    TARGET_INFO_GPU(id, name)    META_DATA_EXPORT(name, value)
//   CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, shortName, demangledName, gridX)
//   CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)
//   CUPTI_ACTIVITY_KIND_MEMCPY(start, end, bytes, copyKind)
//   CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start, end)
//   NVTX_EVENTS(start, end, globalTid, text, textId, jsonText)
//
//   gap       start of a kernel - latest end before it on its device and stream; 0 where they overlap. Within a graph: both
//             have the correlation of one launch. Queued: launched before its predecessor ended, so that the GPU alone makes it.
//   interval  from one kernel launch of a host thread to the next, those up to kMaxLaunchIntervalUs: what eager launching costs
//             a framework
//   busy      union over streams of the times in which a kernel ran; collectives: the union of NCCL's kernels. These wait for
//             other ranks too: the share is transport and wait.
// Worked example: kernels 0..10 and 12..20 us, the second NCCL's: busy 18, in collectives 8, share 0.44, one gap of 2 us.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

inline constexpr std::int64_t kMaxNsightRows = 20'000'000;  ///< of one table
inline constexpr std::size_t kMaxNsightNames = 100'000;
inline constexpr double kMaxLaunchIntervalUs = 100;  ///< longer: the host did something else

/// Of times in us.
struct TimeSummary {
    std::int64_t count = 0;
    double median = 0;
    double p10 = 0;
    double p90 = 0;
    double total = 0;
};

struct NsightKernel {
    std::string name;
    TimeSummary us;
    bool collective = false;
};

/// NCCL's kernels of one message; without NVTX payloads bytes are -1 and the grid (NCCL's channels) tells messages apart.
struct NsightCollective {
    std::string kernel;
    std::string call;  ///< "ncclAllReduce"; empty: not recorded
    std::int64_t bytes = -1;
    int channels = 0;  ///< thread blocks
    TimeSummary us;
};

struct NsightCopies {
    std::string kind;  ///< "host to device"
    TimeSummary us;
    double bytes = 0;
    [[nodiscard]] double gb_s() const { return us.total > 0 ? bytes / us.total * 1e-3 : 0; }
};

struct NsightDevice {
    int device = 0;
    double span_us = 0;  ///< first start to last end
    double busy_us = 0;
    double collective_us = 0;
    [[nodiscard]] double collective_share() const { return busy_us > 0 ? collective_us / busy_us : 0; }
};

struct NsightExport {
    std::string version;  ///< of the export; empty: not written
    std::vector<std::string> gpus;
    std::vector<NsightKernel> kernels;          ///< most total time first
    std::vector<NsightCollective> collectives;  ///< by kernel, bytes, channels
    std::vector<NsightCopies> copies;
    std::vector<NsightDevice> devices;
    TimeSummary graphs;           ///< whole graphs, where kernels inside were not recorded
    TimeSummary graph_gaps;       ///< between kernels of one graph launch
    TimeSummary queued_gaps;      ///< between kernels launched one by one, the second queued
    TimeSummary host_gaps;        ///< the GPU waited for the launch
    TimeSummary kernel_launches;  ///< host time of cudaLaunchKernel and its kin
    TimeSummary graph_launches;
    TimeSummary launch_intervals;
    TimeSummary launch_latency;  ///< from a kernel's launch to its start on an idle stream
    std::vector<std::string> warnings;
};

/// By content: the first bytes of a SQLite database. Pipes and the like are none.
[[nodiscard]] bool is_sqlite(std::string_view bytes);
[[nodiscard]] model::Expected<bool> is_sqlite_file(const std::string& path);

/// Errors: no such file, no database, none of the tables, a column missing or of the wrong type, a kernel that ends before it
/// starts.
[[nodiscard]] model::Expected<NsightExport> load_nsight_export(const std::string& path);
/// The same from memory.
[[nodiscard]] model::Expected<NsightExport> read_nsight_export(std::string_view bytes, const std::string& name);

[[nodiscard]] std::string to_text(const NsightExport& log, const std::string& name);
[[nodiscard]] model::Json to_json(const NsightExport& log, const std::string& name);

}  // namespace draftboard::calibration
