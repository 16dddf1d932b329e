// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/nsight_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>
#include <sqlite3.h>

#include "calibration/logs/log_text.h"

namespace draftboard::calibration {
namespace {

using model::ErrorCode;
using model::Expected;
using model::fail;

constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr const char* kHowTo = "export a recording with `nsys export --type sqlite REPORT.nsys-rep`";
constexpr int kMaxCellBytes = 1 << 20;
constexpr int kStepsPerCall = 100'000;       // virtual machine steps between looks at the budget
constexpr std::int64_t kMaxCalls = 100'000;  // of those: 1e10 steps, hundreds of times what the largest allowed table takes
constexpr std::int64_t kMaxTime = std::int64_t{1} << 60;  // ns, 36 years

struct Closer {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Closer>;
using Statement = std::unique_ptr<sqlite3_stmt, Closer>;

struct Kernel {
    std::int64_t start = 0;
    std::int64_t end = 0;
    std::int64_t correlation = -1;
    std::int64_t process = 0;
    std::int64_t name = -1;
    int device = 0;
    int stream = 0;
    int grid = 0;
};

struct Call {
    std::int64_t start = 0;
    std::int64_t end = 0;
    std::int64_t thread = 0;
    std::int64_t correlation = -1;
    bool graph = false;
};

struct Message {
    std::int64_t start = 0;
    std::int64_t end = 0;
    std::string call;
    std::int64_t bytes = -1;
};

TimeSummary summary_of(std::vector<std::int64_t> ns) {
    TimeSummary out;
    out.count = static_cast<std::int64_t>(ns.size());
    if (ns.empty()) return out;
    std::sort(ns.begin(), ns.end());
    const auto at = [&](double q) {
        return static_cast<double>(ns[static_cast<std::size_t>(q * static_cast<double>(ns.size() - 1) + 0.5)]) * 1e-3;
    };
    out.median = at(0.5);
    out.p10 = at(0.1);
    out.p90 = at(0.9);
    for (const std::int64_t one : ns) out.total += static_cast<double>(one) * 1e-3;
    return out;
}

bool is_nccl(std::string_view name) { return starts_with(name, "nccl") && (contains(name, "Dev") || contains(name, "Kernel")); }

/// Host and process of a global thread, as the export packs them: the low 24 bits are the thread's.
std::int64_t process_of(std::int64_t global_thread) { return global_thread & ~std::int64_t{0xffffff}; }

/// "Message size [bytes]" in NCCL's payload as the export writes it; -1: not there.
std::int64_t message_bytes(std::string_view json) {
    const auto rest = after(json, "essage size");
    if (!rest) return -1;
    const auto colon = rest->find(':');
    if (colon == std::string_view::npos) return -1;
    std::string_view digits = trimmed(rest->substr(colon + 1));
    if (!digits.empty() && digits.front() == '"') digits.remove_prefix(1);
    digits = digits.substr(0, std::min(digits.find_first_not_of("0123456789"), digits.size()));
    const auto value = whole_number(digits);
    return value && *value >= 0 ? *value : -1;
}

class ExportReader {
 public:
    ExportReader(sqlite3* db, const std::string& name) : db_(db), name_(name) {}

    Expected<NsightExport> read() {
        harden();
        if (auto ok = find_tables(); !ok) return tl::unexpected(ok.error());
        const bool kernels = has("CUPTI_ACTIVITY_KIND_KERNEL");
        const bool graphs = has("CUPTI_ACTIVITY_KIND_GRAPH_TRACE");
        if (!kernels && !graphs) {
            return fail(ErrorCode::invalid_input,
                        has("StringIds")
                            ? "is an export of Nsight Systems without any kernel: nothing ran on a GPU, or CUDA was not traced"
                            : "is a database, but no export of Nsight Systems: it has no table of kernels",
                        name_,
                        has("StringIds") ? "record with `nsys profile --trace=cuda,nvtx --cuda-graph-trace=node`" : kHowTo);
        }
        for (const auto step :
             {&ExportReader::read_names, &ExportReader::read_kernels, &ExportReader::read_calls, &ExportReader::read_messages,
              &ExportReader::read_graphs, &ExportReader::read_copies, &ExportReader::read_facts}) {
            if (auto ok = (this->*step)(); !ok) return tl::unexpected(ok.error());
        }
        if (kernels_.empty() && log_.graphs.count == 0) {
            return fail(ErrorCode::invalid_input, "holds no kernel and no graph", name_,
                        "record with `nsys profile --trace=cuda,nvtx --cuda-graph-trace=node` while the GPU works");
        }
        if (kernels_.empty())
            remark(log_.warnings, "graphs were recorded whole: their kernels are not listed; --cuda-graph-trace=node lists them");
        summarize();
        return std::move(log_);
    }

 private:
    /// A file from outside may hold anything as its schema: no views, no triggers, no code of extensions, bounded work.
    void harden() {
        sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
        sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
        sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
        sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
        sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxCellBytes);
        sqlite3_progress_handler(
            db_, kStepsPerCall, [](void* self) { return ++static_cast<ExportReader*>(self)->calls_ > kMaxCalls ? 1 : 0; }, this);
    }

    [[nodiscard]] model::Error broken(const std::string& table) const {
        return {ErrorCode::invalid_input, fmt::format("can't be read as a database: {}", shown(sqlite3_errmsg(db_), 120)),
                table.empty() ? name_ : name_ + ":" + table, "export the recording again: the file may be cut"};
    }

    Expected<Statement> prepare(const std::string& sql, const std::string& table) const {
        sqlite3_stmt* raw = nullptr;
        if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) return tl::unexpected(broken(table));
        return Statement(raw);
    }

    Expected<void> find_tables() {
        auto query = prepare("SELECT name FROM sqlite_master WHERE type = 'table'", "");
        if (!query) return tl::unexpected(query.error());
        int code = 0;
        while ((code = sqlite3_step(query->get())) == SQLITE_ROW) {
            const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(query->get(), 0));
            if (text != nullptr && tables_.size() < 4096) tables_.insert(text);
        }
        if (code != SQLITE_DONE) return tl::unexpected(broken(""));
        return {};
    }

    [[nodiscard]] bool has(const std::string& table) const { return tables_.count(table) != 0; }

    /// Each row of a table through `take(statement)`; columns that the table lacks are NULL if `optional`, else an error.
    template <class Take>
    Expected<void> each(const std::string& table, const std::vector<const char*>& needed,
                        const std::vector<const char*>& optional, Take take) {
        std::set<std::string> columns;
        auto info = prepare("SELECT name FROM pragma_table_info('" + table + "')", table);
        if (!info) return tl::unexpected(info.error());
        while (sqlite3_step(info->get()) == SQLITE_ROW) {
            const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(info->get(), 0));
            if (text != nullptr) columns.insert(text);
        }
        std::string list;
        for (const char* column : needed) {
            if (columns.count(column) == 0) {
                return fail(ErrorCode::invalid_input, fmt::format("the table has no column {}", column), name_ + ":" + table,
                            "exports of Nsight Systems 2023 to 2025 are read; export the report again with one of them");
            }
            list += fmt::format("{}\"{}\"", list.empty() ? "" : ",", column);
        }
        for (const char* column : optional) list += columns.count(column) == 0 ? ",NULL" : fmt::format(",\"{}\"", column);
        auto query = prepare(fmt::format("SELECT {} FROM \"{}\"", list, table), table);
        if (!query) return tl::unexpected(query.error());
        std::int64_t rows = 0;
        int code = 0;
        while ((code = sqlite3_step(query->get())) == SQLITE_ROW) {
            if (++rows > kMaxNsightRows) {
                return fail(ErrorCode::too_large, fmt::format("the table has more than {} rows", kMaxNsightRows),
                            name_ + ":" + table, "record a shorter time, or cut it with `nsys export --times`");
            }
            if (auto ok = take(query->get(), rows); !ok) return ok;
        }
        if (code == SQLITE_INTERRUPT) {
            return fail(ErrorCode::too_large, "reading takes more work than any recording needs", name_ + ":" + table, kHowTo);
        }
        if (code != SQLITE_DONE) return tl::unexpected(broken(table));
        return {};
    }

    static std::int64_t whole(sqlite3_stmt* row, int column, std::int64_t otherwise) {
        return sqlite3_column_type(row, column) == SQLITE_INTEGER ? sqlite3_column_int64(row, column) : otherwise;
    }
    static std::string text(sqlite3_stmt* row, int column) {
        const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
        return data == nullptr ? std::string() : std::string(data);
    }
    /// An index that fits an int, as devices and streams are; others are -1.
    static int index(sqlite3_stmt* row, int column) {
        const std::int64_t value = whole(row, column, -1);
        return value >= 0 && value <= 1 << 30 ? static_cast<int>(value) : -1;
    }

    /// Columns 0 and 1 are start and end.
    Expected<std::pair<std::int64_t, std::int64_t>> span(sqlite3_stmt* row, std::int64_t number, const char* table) const {
        const bool numbers = sqlite3_column_type(row, 0) == SQLITE_INTEGER && sqlite3_column_type(row, 1) == SQLITE_INTEGER;
        const std::int64_t start = sqlite3_column_int64(row, 0);
        const std::int64_t end = sqlite3_column_int64(row, 1);
        const std::string place = fmt::format("{}:{}: row {}", name_, table, number);
        if (!numbers) return fail(ErrorCode::invalid_input, "start or end is no whole number of nanoseconds", place, kHowTo);
        if (start < -kMaxTime || end > kMaxTime || end < start) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("ends at {} ns, before or too far from its start at {} ns", end, start), place,
                        "the file contradicts itself; export the recording again");
        }
        return std::pair{start, end};
    }

    Expected<void> read_names() {
        if (!has("StringIds")) {
            remark(log_.warnings, "there is no table of names: kernels are told apart by number");
            return {};
        }
        return each("StringIds", {"id", "value"}, {}, [&](sqlite3_stmt* row, std::int64_t) -> Expected<void> {
            if (names_.size() < static_cast<std::size_t>(kMaxNsightRows)) names_[whole(row, 0, -1)] = text(row, 1);
            return {};
        });
    }

    [[nodiscard]] std::string name_of(std::int64_t id) const {
        const auto found = names_.find(id);
        return found == names_.end() ? fmt::format("name {}", id) : shown(found->second, 200);
    }

    Expected<void> read_kernels() {
        constexpr const char* kTable = "CUPTI_ACTIVITY_KIND_KERNEL";
        if (!has(kTable)) return {};
        return each(kTable, {"start", "end", "deviceId", "streamId"},
                    {"correlationId", "globalPid", "shortName", "demangledName", "gridX"},
                    [&](sqlite3_stmt* row, std::int64_t number) -> Expected<void> {
                        const auto at = span(row, number, kTable);
                        if (!at) return tl::unexpected(at.error());
                        Kernel kernel;
                        std::tie(kernel.start, kernel.end) = *at;
                        kernel.device = index(row, 2);
                        kernel.stream = index(row, 3);
                        kernel.correlation = whole(row, 4, -1);
                        kernel.process = process_of(whole(row, 5, 0));
                        kernel.name = whole(row, 6, whole(row, 7, -1));
                        kernel.grid = std::max(0, index(row, 8));
                        kernels_.push_back(kernel);
                        return {};
                    });
    }

    Expected<void> read_calls() {
        constexpr const char* kTable = "CUPTI_ACTIVITY_KIND_RUNTIME";
        if (!has(kTable)) {
            remark(log_.warnings, "calls of the host were not recorded: no launch costs, and gaps are not told apart");
            return {};
        }
        std::set<std::int64_t> plain;
        std::set<std::int64_t> graph;
        for (const auto& [id, value] : names_) {
            if (starts_with(value, "cudaGraphLaunch") || starts_with(value, "cuGraphLaunch")) graph.insert(id);
            if (starts_with(value, "cudaLaunchKernel") || starts_with(value, "cuLaunchKernel") ||
                starts_with(value, "cudaLaunchCooperative"))
                plain.insert(id);
        }
        return each(kTable, {"start", "end", "nameId"}, {"globalTid", "correlationId"},
                    [&](sqlite3_stmt* row, std::int64_t number) -> Expected<void> {
                        const std::int64_t id = whole(row, 2, -1);
                        const bool of_graph = graph.count(id) != 0;
                        if (!of_graph && plain.count(id) == 0) return {};
                        const auto at = span(row, number, kTable);
                        if (!at) return tl::unexpected(at.error());
                        calls_made_.push_back({at->first, at->second, whole(row, 3, 0), whole(row, 4, -1), of_graph});
                        return {};
                    });
    }

    /// Ranges that NCCL itself opens around its calls, with the message in their payload.
    Expected<void> read_messages() {
        if (!has("NVTX_EVENTS")) return {};
        return each("NVTX_EVENTS", {"start", "end"}, {"globalTid", "text", "textId", "jsonText"},
                    [&](sqlite3_stmt* row, std::int64_t) -> Expected<void> {
                        if (sqlite3_column_type(row, 0) != SQLITE_INTEGER || sqlite3_column_type(row, 1) != SQLITE_INTEGER)
                            return {};  // marks have no end
                        std::string call = text(row, 3);
                        if (call.empty() && sqlite3_column_type(row, 4) == SQLITE_INTEGER) {
                            const auto found = names_.find(sqlite3_column_int64(row, 4));
                            if (found != names_.end()) call = found->second;
                        }
                        if (!starts_with(call, "nccl")) return {};
                        messages_[whole(row, 2, 0)].push_back({sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
                                                               shown(call, 60), message_bytes(text(row, 5))});
                        return {};
                    });
    }

    Expected<void> read_graphs() {
        constexpr const char* kTable = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
        if (!has(kTable)) return {};
        std::vector<std::int64_t> ns;
        auto ok = each(kTable, {"start", "end"}, {}, [&](sqlite3_stmt* row, std::int64_t number) -> Expected<void> {
            const auto at = span(row, number, kTable);
            if (!at) return tl::unexpected(at.error());
            ns.push_back(at->second - at->first);
            return {};
        });
        log_.graphs = summary_of(std::move(ns));
        return ok;
    }

    Expected<void> read_copies() {
        constexpr const char* kTable = "CUPTI_ACTIVITY_KIND_MEMCPY";
        if (!has(kTable)) return {};
        static const std::map<std::int64_t, const char*> kKinds = {
            {1, "host to device"}, {2, "device to host"}, {8, "within a device"}, {10, "device to device"}};
        std::map<std::string, std::pair<std::vector<std::int64_t>, double>> kinds;
        auto ok =
            each(kTable, {"start", "end", "bytes"}, {"copyKind"}, [&](sqlite3_stmt* row, std::int64_t number) -> Expected<void> {
                const auto at = span(row, number, kTable);
                if (!at) return tl::unexpected(at.error());
                const auto kind = kKinds.find(whole(row, 3, -1));
                auto& [ns, bytes] = kinds[kind == kKinds.end() ? "other copies" : kind->second];
                ns.push_back(at->second - at->first);
                bytes += static_cast<double>(std::max<std::int64_t>(0, whole(row, 2, 0)));
                return {};
            });
        if (!ok) return ok;
        for (auto& [kind, what] : kinds) log_.copies.push_back({kind, summary_of(std::move(what.first)), what.second});
        return {};
    }

    Expected<void> read_facts() {
        if (has("TARGET_INFO_GPU")) {
            auto ok = each("TARGET_INFO_GPU", {"name"}, {}, [&](sqlite3_stmt* row, std::int64_t) -> Expected<void> {
                if (log_.gpus.size() < static_cast<std::size_t>(kMaxLogDevices)) log_.gpus.push_back(shown(text(row, 0), 60));
                return {};
            });
            if (!ok) return ok;
        }
        if (!has("META_DATA_EXPORT")) return {};
        return each("META_DATA_EXPORT", {"name", "value"}, {}, [&](sqlite3_stmt* row, std::int64_t) -> Expected<void> {
            const std::string key = text(row, 0);
            if (key == "EXPORT_PRODUCT_VERSION" || (log_.version.empty() && key == "EXPORT_SCHEMA_VERSION"))
                log_.version = shown(text(row, 1), 60);
            return {};
        });
    }

    void summarize() {
        std::sort(kernels_.begin(), kernels_.end(), [](const Kernel& a, const Kernel& b) {
            return std::tie(a.start, a.end, a.device, a.stream, a.correlation, a.name) <
                   std::tie(b.start, b.end, b.device, b.stream, b.correlation, b.name);
        });
        summarize_names();
        summarize_gaps();
        summarize_devices();
        summarize_launches();
        summarize_messages();
    }

    void summarize_names() {
        std::map<std::string, std::vector<std::int64_t>> by_name;
        std::unordered_map<std::int64_t, std::string> shown_names;
        bool many = false;
        for (const Kernel& kernel : kernels_) {
            auto found = shown_names.find(kernel.name);
            if (found == shown_names.end()) found = shown_names.emplace(kernel.name, name_of(kernel.name)).first;
            if (by_name.size() >= kMaxNsightNames && by_name.count(found->second) == 0) {
                many = true;
                by_name["other kernels"].push_back(kernel.end - kernel.start);
            } else {
                by_name[found->second].push_back(kernel.end - kernel.start);
            }
        }
        if (many) remark(log_.warnings, fmt::format("more than {} names of kernels: the rest stands together", kMaxNsightNames));
        for (auto& [name, ns] : by_name) log_.kernels.push_back({name, summary_of(std::move(ns)), is_nccl(name)});
        std::stable_sort(log_.kernels.begin(), log_.kernels.end(),
                         [](const auto& a, const auto& b) { return a.us.total > b.us.total; });
    }

    void summarize_gaps() {
        std::map<std::pair<std::int64_t, std::int64_t>, const Call*> launched;
        for (const Call& call : calls_made_) launched[{process_of(call.thread), call.correlation}] = &call;
        struct Last {
            std::int64_t end = 0;
            std::int64_t correlation = -1;
            bool any = false;
        };
        std::map<std::tuple<std::int64_t, int, int>, Last> streams;
        std::vector<std::int64_t> graph;
        std::vector<std::int64_t> queued;
        std::vector<std::int64_t> host;
        std::vector<std::int64_t> latency;
        for (const Kernel& kernel : kernels_) {
            Last& last = streams[{kernel.process, kernel.device, kernel.stream}];
            const auto call = launched.find({kernel.process, kernel.correlation});
            const bool known = call != launched.end();
            const bool idle = !last.any || (known && call->second->start >= last.end);
            if (last.any) {
                const std::int64_t gap = std::max<std::int64_t>(0, kernel.start - last.end);
                const bool same = kernel.correlation >= 0 && kernel.correlation == last.correlation;
                if (same)
                    graph.push_back(gap);
                else if (known && call->second->end <= last.end)
                    queued.push_back(gap);
                else
                    host.push_back(gap);
            }
            if (known && !call->second->graph && idle && kernel.start >= call->second->start)
                latency.push_back(kernel.start - call->second->start);
            last = {std::max(last.any ? last.end : kernel.end, kernel.end), kernel.correlation, true};
        }
        log_.graph_gaps = summary_of(std::move(graph));
        log_.queued_gaps = summary_of(std::move(queued));
        log_.host_gaps = summary_of(std::move(host));
        log_.launch_latency = summary_of(std::move(latency));
    }

    void summarize_devices() {
        struct Union {
            std::int64_t first = 0;
            std::int64_t end = 0;
            std::int64_t busy = 0;
            bool any = false;
            void add(std::int64_t start, std::int64_t stop) {  // starts ascend
                if (!any) first = end = start;
                any = true;
                busy += std::max<std::int64_t>(0, stop - std::max(start, end));
                end = std::max(end, stop);
            }
        };
        std::map<int, std::pair<Union, Union>> devices;
        std::unordered_map<std::int64_t, bool> nccl;
        for (const Kernel& kernel : kernels_) {
            auto [found, fresh] = nccl.try_emplace(kernel.name, false);
            if (fresh) found->second = is_nccl(name_of(kernel.name));
            auto& [all, collectives] = devices[kernel.device];
            all.add(kernel.start, kernel.end);
            if (found->second) collectives.add(kernel.start, kernel.end);
        }
        for (const auto& [device, spans] : devices) {
            log_.devices.push_back({device, static_cast<double>(spans.first.end - spans.first.first) * 1e-3,
                                    static_cast<double>(spans.first.busy) * 1e-3, static_cast<double>(spans.second.busy) * 1e-3});
        }
    }

    void summarize_launches() {
        std::sort(calls_made_.begin(), calls_made_.end(), [](const Call& a, const Call& b) {
            return std::tie(a.thread, a.start, a.end, a.correlation) < std::tie(b.thread, b.start, b.end, b.correlation);
        });
        std::vector<std::int64_t> plain;
        std::vector<std::int64_t> graph;
        std::vector<std::int64_t> intervals;
        for (std::size_t i = 0; i < calls_made_.size(); ++i) {
            const Call& call = calls_made_[i];
            (call.graph ? graph : plain).push_back(call.end - call.start);
            if (i == 0 || call.graph || calls_made_[i - 1].graph || calls_made_[i - 1].thread != call.thread) continue;
            const std::int64_t interval = call.start - calls_made_[i - 1].start;
            if (static_cast<double>(interval) <= kMaxLaunchIntervalUs * 1e3) intervals.push_back(interval);
        }
        log_.kernel_launches = summary_of(std::move(plain));
        log_.graph_launches = summary_of(std::move(graph));
        log_.launch_intervals = summary_of(std::move(intervals));
    }

    void summarize_messages() {
        for (auto& [thread, list] : messages_) {
            std::sort(list.begin(), list.end(),
                      [](const Message& a, const Message& b) { return std::tie(a.start, a.end) < std::tie(b.start, b.end); });
        }
        // The innermost range of the launching thread that was open at the launch: ranges of one thread nest.
        std::map<std::pair<std::int64_t, std::int64_t>, const Message*> message_of;
        for (const auto& [thread, list] : messages_) {
            std::vector<const Message*> open;
            std::size_t next = 0;
            const auto from = std::lower_bound(calls_made_.begin(), calls_made_.end(), thread,
                                               [](const Call& call, std::int64_t t) { return call.thread < t; });
            for (auto call = from; call != calls_made_.end() && call->thread == thread; ++call) {
                while (next < list.size() && list[next].start <= call->start) open.push_back(&list[next++]);
                while (!open.empty() && open.back()->end < call->start) open.pop_back();
                if (!open.empty()) message_of[{process_of(thread), call->correlation}] = open.back();
            }
        }
        std::map<std::tuple<std::string, std::string, std::int64_t, int>, std::vector<std::int64_t>> groups;
        bool unknown = false;
        for (const Kernel& kernel : kernels_) {
            const std::string name = name_of(kernel.name);
            if (!is_nccl(name)) continue;
            const auto found = message_of.find({kernel.process, kernel.correlation});
            const bool known = found != message_of.end() && found->second->bytes >= 0;
            unknown = unknown || !known;
            groups[{name, found == message_of.end() ? std::string() : found->second->call, known ? found->second->bytes : -1,
                    kernel.grid}]
                .push_back(kernel.end - kernel.start);
        }
        if (unknown) {
            remark(log_.warnings,
                   "sizes of some of NCCL's messages are not recorded (they come with NVTX payloads, not from graphs): told "
                   "apart by channels");
        }
        for (auto& [key, ns] : groups) {
            log_.collectives.push_back(
                {std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key), summary_of(std::move(ns))});
        }
    }

    sqlite3* db_;
    const std::string& name_;
    NsightExport log_;
    std::set<std::string> tables_;
    std::unordered_map<std::int64_t, std::string> names_;
    std::vector<Kernel> kernels_;
    std::vector<Call> calls_made_;
    std::map<std::int64_t, std::vector<Message>> messages_;  // by thread
    std::int64_t calls_ = 0;                                 // of the progress handler
};

}  // namespace

bool is_sqlite(std::string_view bytes) { return bytes.substr(0, kMagic.size()) == kMagic; }

Expected<bool> is_sqlite_file(const std::string& path) {
    std::error_code ec;
    // What is read of a pipe is gone for the reader that it is for.
    if (std::filesystem::exists(path, ec) && !std::filesystem::is_regular_file(path, ec)) return false;
    std::ifstream file(path, std::ios::binary);
    if (!file) return fail(ErrorCode::not_found, "can't be opened", path, "check the path");
    std::string head(kMagic.size(), '\0');
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    return is_sqlite(std::string_view(head).substr(0, static_cast<std::size_t>(file.gcount())));
}

Expected<NsightExport> load_nsight_export(const std::string& path) {
    sqlite3* raw = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
    const Database db(raw);
    if (code != SQLITE_OK) return fail(ErrorCode::not_found, "can't be opened", path, "check the path");
    return ExportReader(db.get(), path).read();
}

Expected<NsightExport> read_nsight_export(std::string_view bytes, const std::string& name) {
    if (!is_sqlite(bytes)) return fail(ErrorCode::invalid_input, "is no SQLite database", name, kHowTo);
    sqlite3* raw = nullptr;
    const int code = sqlite3_open_v2(":memory:", &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    const Database db(raw);
    if (code != SQLITE_OK)
        return fail(ErrorCode::unavailable, "SQLite can't open a database in memory", name, "free some memory");
    // The database belongs to SQLite then, padded by nothing: its own copy.
    auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
    if (copy == nullptr) return fail(ErrorCode::too_large, "does not fit in memory", name, "give the file by its path");
    std::memcpy(copy, bytes.data(), bytes.size());
    const auto size = static_cast<sqlite3_int64>(bytes.size());
    if (sqlite3_deserialize(db.get(), "main", copy, size, size, SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) !=
        SQLITE_OK) {
        return fail(ErrorCode::invalid_input, "is no whole SQLite database", name, kHowTo);
    }
    return ExportReader(db.get(), name).read();
}

}  // namespace draftboard::calibration
