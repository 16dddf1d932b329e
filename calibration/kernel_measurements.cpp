// SPDX-License-Identifier: Apache-2.0
#include "calibration/kernel_measurements.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibration/benchmark_routing.h"
#include "calibration/csv_table.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

namespace {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::NumberFormat;
using model::Operation;
using model::OperationKind;
using model::WeightFormat;

constexpr double kMaxUs = 1e9;
constexpr std::int64_t kMaxDimension = 1 << 24;

// Reads fields of one row; remembers the first error, so that a row is straight-line code.
class Row {
   public:
    Row(const CsvTable& table, std::size_t row) : table_(&table), row_(row) {}
    std::int64_t integer(std::string_view column, std::int64_t low = 1,
                         std::int64_t high = kMaxDimension) {
        return take(table_->integer(row_, column, low, high));
    }
    double us() { return take(table_->number(row_, "latency_us", 1e-3, kMaxUs)); }
    std::string text(std::string_view column) { return take(table_->text(row_, column)); }
    int line() const { return table_->line(row_); }
    std::string place() const { return fmt::format("{}:{}", table_->name(), line()); }
    const std::optional<model::Error>& error() const { return error_; }

   private:
    template <class T>
    T take(Expected<T> value) {
        if (value) return *std::move(value);
        if (!error_) error_ = value.error();
        return T{};
    }
    const CsvTable* table_;
    std::size_t row_;
    std::optional<model::Error> error_;
};

std::optional<WeightFormat> weight_format(std::string_view dtype) {
    if (dtype == "bfloat16") return WeightFormat::plain(NumberFormat::bf16);
    if (dtype == "fp8") return WeightFormat::plain(NumberFormat::fp8_e4m3);
    if (dtype == "fp8_block") return WeightFormat{NumberFormat::fp8_e4m3, 128, 128, 32, 0};
    if (dtype == "nvfp4") return WeightFormat{NumberFormat::nvfp4, 1, 16, 8, 0};
    if (dtype == "int4_wo") return WeightFormat{NumberFormat::int4, 1, 32, 16, 0};
    if (dtype == "w4a16_mxfp4") return WeightFormat{NumberFormat::mxfp4, 1, 32, 8, 0};
    return std::nullopt;
}

std::string implementation_of(const std::string& kernel) {
    constexpr std::array<std::pair<const char*, const char*>, 9> kNames = {{
        {"marlin", "marlin"}, {"cutedsl", "cutedsl"}, {"trtllm", "trtllm"}, {"cutlass", "cutlass"},
        {"triton", "triton"}, {"torch", "torch"}, {"sgl_kernel", "sgl"}, {"gated_delta", "fla"},
        {"causal_conv1d", "fla"},
    }};
    for (const auto& [part, name] : kNames) {
        if (kernel.find(part) != std::string::npos) return name;
    }
    std::string name;
    for (const char c : kernel.substr(0, 40)) {
        name += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
    }
    return name.empty() ? "unnamed" : name;
}

// "sglang-0.5.14" -> "sglang"; from a kernel's name where there is no such column.
std::string engine_of(const std::string& text) {
    for (const char* engine : {"sglang", "vllm", "trtllm"}) {
        if (text.rfind(engine, 0) == 0) return engine;
    }
    return {};
}

std::string base_name(const std::string& path) {
    const auto slash = path.find_last_of("/\\");
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

tl::unexpected<model::Error> unknown_format(const Row& row, const std::string& dtype) {
    return fail(ErrorCode::unsupported, fmt::format("the format \"{}\" is not known", dtype.substr(0, 40)),
                row.place(), "known are bfloat16, fp8, fp8_block, nvfp4, int4_wo and w4a16_mxfp4");
}

double as_double(std::int64_t value) { return static_cast<double>(value); }

Expected<void> read_experts(const CsvTable& table, const std::vector<std::size_t>& rows,
                            KernelMeasurements& out) {
    std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, BenchmarkLoad>
        loads;
    int large = 0;
    for (const std::size_t at : rows) {
        Row row(table, at);
        const auto dtype = row.text("dtype");
        const auto kernel = row.text("kernel");
        const auto framework = row.text("fw");
        const auto distribution = row.text("dist");
        const auto hidden = row.integer("hidden");
        const auto inter = row.integer("inter");
        const auto experts = row.integer("experts");
        const auto top_k = row.integer("topk");
        const auto tp = row.integer("tp");
        const auto ep = row.integer("ep");
        const auto tokens = row.integer("tokens");
        const double us = row.us();
        if (row.error()) return tl::unexpected(*row.error());
        if (tokens > kMaxBenchmarkTokens) {
            ++large;
            continue;
        }
        const auto format = weight_format(dtype);
        if (!format) return unknown_format(row, dtype);
        const auto [load, fresh] = loads.try_emplace({distribution, tokens, experts, top_k, ep});
        if (fresh) {
            const auto found = benchmark_load(distribution, tokens, experts, top_k, ep);
            if (!found) {
                auto error = found.error();
                error.context = row.place();
                return tl::unexpected(std::move(error));
            }
            load->second = *found;
        }
        const std::int64_t width = std::max<std::int64_t>(1, inter / tp);
        KernelMeasurement one;
        Operation& operation = one.operation;
        operation.role = "moe.experts";
        operation.kind = OperationKind::experts;
        operation.m = tokens;
        operation.n = width;
        operation.k = hidden;
        operation.distinct_experts = load->second.distinct_experts;
        operation.expert_tokens = load->second.expert_tokens;
        operation.batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(operation.distinct_experts + 0.5));
        operation.weight_format = *format;
        operation.weight_bytes =
            operation.distinct_experts * (format->bytes(2 * width, hidden) + format->bytes(hidden, width));
        // As the plan counts: bf16, per token-expert pair hidden in and out, gate and up out and in, the product out and in.
        operation.activation_bytes =
            2.0 * operation.expert_tokens * (2.0 * as_double(hidden) + 6.0 * as_double(width));
        operation.flops = 6.0 * operation.expert_tokens * as_double(hidden) * as_double(width);
        one.table = fmt::format("{} {} {} {}", base_name(table.name()), framework, kernel, dtype);
        one.engine = engine_of(framework);
        one.implementation = implementation_of(kernel);
        one.resident_bytes = operation.weight_bytes;
        one.us = us;
        one.line = row.line();
        one.shape = fmt::format("{}x{} of {} top {}, ep {}, T = {}, {}", hidden, width, experts, top_k, ep,
                                tokens, distribution);
        out.rows.push_back(std::move(one));
    }
    if (large > 0) {
        out.notes.push_back(fmt::format("{}: {} rows with more than {} tokens left out (prefill)", base_name(table.name()),
                                        large, kMaxBenchmarkTokens));
    }
    return {};
}

Expected<void> read_gemm(const CsvTable& table, const std::vector<std::size_t>& rows,
                         KernelMeasurements& out) {
    for (const std::size_t at : rows) {
        Row row(table, at);
        const auto dtype = row.text("dtype");
        const auto kernel = row.text("kernel");
        KernelMeasurement one;
        Operation& operation = one.operation;
        operation.kind = OperationKind::gemm;
        operation.m = row.integer("m");
        operation.n = row.integer("n");
        operation.k = row.integer("k");
        one.us = row.us();
        if (row.error()) return tl::unexpected(*row.error());
        const auto format = weight_format(dtype);
        if (!format) return unknown_format(row, dtype);
        operation.role = "gemm";
        operation.weight_format = *format;
        operation.weight_bytes = format->bytes(operation.n, operation.k);
        operation.activation_bytes = 2.0 * as_double(operation.m) * (as_double(operation.n) + as_double(operation.k));
        operation.flops = 2.0 * as_double(operation.m) * as_double(operation.n) * as_double(operation.k);
        one.table = fmt::format("{} {} {}", base_name(table.name()), kernel, dtype);
        one.engine = engine_of(kernel);
        one.implementation = implementation_of(kernel);
        one.resident_bytes = operation.weight_bytes;
        one.line = row.line();
        one.shape = fmt::format("m = {}, {} x {}", operation.m, operation.n, operation.k);
        out.rows.push_back(std::move(one));
    }
    return {};
}

Expected<void> read_mla(const CsvTable& table, const std::vector<std::size_t>& rows,
                        KernelMeasurements& out) {
    // DeepSeek-V3 and Kimi-K2, whose shapes the tables use: kv_lora_rank 512 and qk_rope_head_dim 64 (their config.json).
    constexpr double kLatent = 512;
    constexpr double kRope = 64;
    for (const std::size_t at : rows) {
        Row row(table, at);
        const auto cache = row.text("kv_dtype");
        const auto kernel = row.text("kernel");
        const auto framework = row.text("fw");
        KernelMeasurement one;
        Operation& operation = one.operation;
        operation.role = "attention.mla";
        operation.kind = OperationKind::attention;
        operation.m = row.integer("bs");
        operation.n = row.integer("heads");
        operation.k = row.integer("isl", 0, std::int64_t{1} << 31) + row.integer("step", 0, std::int64_t{1} << 31);
        one.us = row.us();
        if (row.error()) return tl::unexpected(*row.error());
        const auto format = weight_format(cache);
        if (!format) return unknown_format(row, cache);
        const double sequences = as_double(operation.m);
        const double heads = as_double(operation.n);
        const double context = as_double(operation.k);
        operation.weight_format = *format;
        operation.cache_bytes =
            sequences * context * (kLatent + kRope) * bits_per_element(format->format) / 8.0;
        operation.activation_bytes = 2.0 * sequences * heads * (kLatent + kRope + kLatent);
        operation.flops = 2.0 * sequences * heads * context * (kLatent + kRope + kLatent);
        one.table = fmt::format("{} {} {} {}", base_name(table.name()), framework, kernel, cache);
        one.engine = engine_of(framework);
        one.implementation = implementation_of(kernel);
        one.resident_bytes = operation.cache_bytes;
        one.line = row.line();
        one.shape = fmt::format("{} sequences, {} heads, context {}", operation.m, operation.n, operation.k);
        out.rows.push_back(std::move(one));
    }
    return {};
}

Expected<void> read_delta_net(const CsvTable& table, const std::vector<std::size_t>& rows,
                              KernelMeasurements& out) {
    // Qwen3.5's config.json: key and value heads 128 wide, convolution over 4 tokens, state in fp32.
    constexpr double kHead = 128;
    constexpr double kConvolution = 4;
    struct Mean {
        double sum = 0;
        int count = 0;
        int line = 0;
    };
    using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // sequences, key heads, value heads
    std::map<Shape, std::array<Mean, 2>> shapes;
    int prefill = 0;
    for (const std::size_t at : rows) {
        Row row(table, at);
        const auto kernel = row.text("kernel");
        const auto phase = row.text("phase");
        const auto sequences = row.integer("bs");
        const auto key_heads = row.integer("kh", 1, 65536);
        const auto value_heads = row.integer("vh", 1, 65536);
        const double us = row.us();
        if (row.error()) return tl::unexpected(*row.error());
        if (phase != "generation") {
            ++prefill;
            continue;
        }
        const bool convolution = kernel.find("conv1d") != std::string::npos;
        Mean& mean = shapes[{sequences, key_heads, value_heads}][convolution ? 0 : 1];
        mean.sum += us;
        mean.count += 1;
        if (mean.line == 0) mean.line = row.line();
    }
    int single = 0;
    for (const auto& [shape, means] : shapes) {
        if (means[0].count == 0 || means[1].count == 0) {
            ++single;
            continue;
        }
        KernelMeasurement one;
        Operation& operation = one.operation;
        operation.role = "delta_net.core";
        operation.kind = OperationKind::delta_net;
        operation.m = std::get<0>(shape);
        operation.n = std::get<2>(shape);
        operation.k = std::get<1>(shape);
        const double sequences = as_double(operation.m);
        const double values = as_double(operation.n);
        const double channels = (2.0 * as_double(operation.k) + values) * kHead;
        // The fp32 state and the bf16 window of the convolution, read and written.
        operation.cache_bytes =
            sequences * 2.0 * (values * kHead * kHead * 4.0 + channels * (kConvolution - 1) * 2.0);
        operation.activation_bytes = 2.0 * sequences * (channels + 2.0 * values + values * kHead);
        operation.flops = sequences * values * kHead * kHead * 8.0;
        one.table = base_name(table.name()) + " causal_conv1d_update + fused_recurrent_gated_delta_rule";
        one.implementation = "fla";
        one.resident_bytes = operation.cache_bytes / 2;  // written where it was read
        one.us = means[0].sum / means[0].count + means[1].sum / means[1].count;
        one.line = means[1].line;
        one.shape = fmt::format("{} sequences, {} key heads, {} value heads", operation.m, operation.k, operation.n);
        out.rows.push_back(std::move(one));
    }
    if (prefill > 0) {
        out.notes.push_back(fmt::format("{}: {} rows of the context phase left out (prefill kernels)",
                                        base_name(table.name()), prefill));
    }
    if (single > 0) {
        out.notes.push_back(fmt::format(
            "{}: {} shapes with only one of the two kernels left out", base_name(table.name()), single));
    }
    return {};
}

Expected<std::vector<std::size_t>> rows_of(const CsvTable& table, const std::vector<std::string>& systems,
                                           KernelMeasurements& out) {
    std::vector<std::size_t> rows;
    std::set<std::string> present;
    const bool named = table.has("system");
    for (std::size_t row = 0; row < table.rows(); ++row) {
        if (named) {
            const auto system = table.text(row, "system");
            if (!system) return tl::unexpected(system.error());
            if (std::find(systems.begin(), systems.end(), *system) == systems.end()) {
                if (present.size() < 20) present.insert(system->substr(0, 60));
                continue;
            }
        }
        rows.push_back(row);
    }
    if (rows.empty()) {
        return fail(ErrorCode::not_found,
                    fmt::format("no row was measured on {}", systems.empty() ? "any GPU" : systems.front()),
                    table.name(),
                    present.empty() ? std::string("the file has no rows")
                                    : fmt::format("the file has rows of {}", fmt::join(present, ", ")));
    }
    if (!named) {
        out.notes.push_back(fmt::format("{}: the file does not say on which GPU it was measured; taken as {}",
                                        base_name(table.name()), systems.empty() ? "given" : systems.front()));
    }
    return rows;
}

Expected<KernelMeasurements> read(const CsvTable& table, const std::vector<std::string>& systems) {
    KernelMeasurements out;
    if (const auto latency = table.require({"latency_us", "kernel"}); !latency) {
        return tl::unexpected(latency.error());
    }
    const auto rows = rows_of(table, systems, out);
    if (!rows) return tl::unexpected(rows.error());
    Expected<void> done;
    if (table.has("experts")) {
        done = table.require({"fw", "dtype", "hidden", "inter", "topk", "tp", "ep", "dist", "tokens"});
        if (done) done = read_experts(table, *rows, out);
    } else if (table.has("kv_dtype")) {
        done = table.require({"fw", "heads", "bs", "isl", "step"});
        if (done) done = read_mla(table, *rows, out);
    } else if (table.has("kh")) {
        done = table.require({"phase", "bs", "vh"});
        if (done) done = read_delta_net(table, *rows, out);
    } else if (table.has("m")) {
        done = table.require({"dtype", "n", "k"});
        if (done) done = read_gemm(table, *rows, out);
    } else {
        return fail(ErrorCode::unsupported, "the columns are those of no known kernel table", table.name(),
                    "tables of routed experts, GEMM, MLA decoding and gated delta nets are read; see docs/kernels.md");
    }
    if (!done) return tl::unexpected(done.error());
    return out;
}

}  // namespace

Expected<KernelMeasurements> parse_kernel_measurements(std::string_view text, const std::string& name,
                                                       const std::vector<std::string>& systems) {
    const auto table = CsvTable::parse(text, name);
    if (!table) return tl::unexpected(table.error());
    return read(*table, systems);
}

Expected<KernelMeasurements> read_kernel_measurements(const std::string& path,
                                                      const std::vector<std::string>& systems) {
    const auto table = CsvTable::load(path);
    if (!table) return tl::unexpected(table.error());
    return read(*table, systems);
}

}  // namespace draftboard::calibration
