// SPDX-License-Identifier: Apache-2.0
#include "sim/kernel_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include <fmt/format.h>

namespace draftboard::sim {

namespace {

using model::OperationKind;

enum class Subkind : std::uint8_t {
    gemm, batched_gemm, attention_mla, attention_gqa, experts, delta_net, norm, elementwise,
    router, embedding, sample, accept, copy, indexer,
};

const std::vector<std::string_view>& names() {
    static const std::vector<std::string_view> kNames = {
        "gemm",   "batched_gemm", "attention_mla", "attention_gqa", "experts",
        "delta_net", "norm",      "elementwise",   "router",        "embedding",
        "sample", "accept",       "copy",          "indexer"};
    return kNames;
}

Subkind subkind_of(const model::Operation& operation) {
    switch (operation.kind) {
        case OperationKind::embedding: return Subkind::embedding;
        case OperationKind::gemm: return Subkind::gemm;
        case OperationKind::batched_gemm: return Subkind::batched_gemm;
        case OperationKind::norm: return Subkind::norm;
        case OperationKind::elementwise: return Subkind::elementwise;
        case OperationKind::attention:
            return operation.role == "attention.mla" ? Subkind::attention_mla
                                                     : Subkind::attention_gqa;
        case OperationKind::indexer: return Subkind::indexer;
        case OperationKind::delta_net: return Subkind::delta_net;
        case OperationKind::router: return Subkind::router;
        case OperationKind::experts: return Subkind::experts;
        case OperationKind::sample: return Subkind::sample;
        case OperationKind::accept: return Subkind::accept;
        case OperationKind::copy: return Subkind::copy;
        case OperationKind::all_reduce:
        case OperationKind::all_gather:
        case OperationKind::reduce_scatter:
        case OperationKind::all_to_all:
        case OperationKind::send_receive: return Subkind::copy;  // precondition violated
    }
    return Subkind::copy;
}

// A format as one number: number format, kind of grouping (0 none, 1 group, 2 block), its width.
// Two formats have the same code exactly if WeightFormat::name() is the same.
constexpr std::uint32_t kAnyFormat = 0xffffffffu;

std::uint32_t pack(model::NumberFormat format, std::uint32_t grouping, std::int64_t width) {
    const auto bounded = static_cast<std::uint32_t>(std::clamp<std::int64_t>(width, 0, 0xfffff));
    return (static_cast<std::uint32_t>(format) << 24) | (grouping << 20) | bounded;
}

std::uint32_t format_code(const model::WeightFormat& format) {
    if (format.block_rows == 1 && format.block_columns > 0) {
        return pack(format.format, 1, format.block_columns);
    }
    if (format.block_rows > 1) return pack(format.format, 2, format.block_columns);
    return pack(format.format, 0, 0);
}

std::uint32_t number_format_of(std::uint32_t code) { return code >> 24; }

std::optional<std::uint32_t> parse_format(std::string_view name) {
    if (name == "any") return kAnyFormat;
    if (const auto plain = model::number_format_from_name(name)) return pack(*plain, 0, 0);
    const auto bar = name.rfind('_');
    if (bar == std::string_view::npos || bar + 2 >= name.size()) return std::nullopt;
    const auto base = model::number_format_from_name(name.substr(0, bar));
    const char letter = name[bar + 1];
    if (!base || (letter != 'g' && letter != 'b')) return std::nullopt;
    std::int64_t width = 0;
    for (const char c : name.substr(bar + 2)) {
        if (c < '0' || c > '9' || width > 99999) return std::nullopt;
        width = width * 10 + (c - '0');
    }
    if (width == 0) return std::nullopt;
    return pack(*base, letter == 'g' ? 1 : 2, width);
}

// Where nobody chose: what the engines run by default on the formats they load
// (SGLang and vLLM: Marlin for INT4 and MXFP4, Triton for FP8 blocks and BF16, CUTLASS for NVFP4).
constexpr std::array<std::string_view, 8> kDefaultOrder = {
    "any", "marlin", "triton", "cutlass", "torch", "sgl", "flashinfer", "fla"};

std::string_view without_engine(std::string_view implementation) {
    return implementation.substr(0, implementation.find('@'));
}

// Lower is better; map order breaks ties.
int default_rank(std::string_view implementation) {
    const auto base = without_engine(implementation);
    for (std::size_t i = 0; i < kDefaultOrder.size(); ++i) {
        if (base == kDefaultOrder[i]) return static_cast<int>(i);
    }
    return static_cast<int>(kDefaultOrder.size());
}

// Negative: not what was asked for.
int choice_rank(std::string_view implementation, const std::string* asked) {
    if (asked == nullptr) return default_rank(implementation);
    if (implementation == *asked) return 0;
    if (without_engine(implementation) == *asked) return 1;
    return -1;
}

double non_negative(double value) { return std::isfinite(value) && value > 0 ? value : 0.0; }

// A year of microseconds: the end of the scale, so that no input overflows simulated time.
constexpr double kLongestUs = 3.15e13;

// Beyond the fitted range of m, the uncertainty grows by this share an octave (own convention: the fits'
// errors at the ends of their range are about twice those in its middle, some three octaves away).
constexpr double kErrorPerOctave = 0.1;
// Another grouping of the same number format, or a format-independent entry of a calibration (own convention).
constexpr double kSubstituteError = 0.2;

double octaves_outside(const KernelConstants& constants, double m) {
    if (constants.m_low <= 0 || constants.m_high <= 0) return 0;
    if (m < constants.m_low) return std::log2(constants.m_low / std::max(m, 1e-3));
    if (m > constants.m_high) return std::log2(m / constants.m_high);
    return 0;
}

}  // namespace

const std::vector<std::string_view>& kernel_subkinds() { return names(); }

model::Expected<KernelKeyParts> parse_kernel_key(std::string_view key) {
    const auto refuse = [&](const std::string& why) {
        return model::fail(model::ErrorCode::invalid_input,
                           "kernel key \"" + std::string(key.substr(0, 80)) + "\" " + why, {},
                           "write subkind/format/implementation, e.g. experts/int4_g32/marlin");
    };
    const auto first = key.find('/');
    const auto second = first == std::string_view::npos ? first : key.find('/', first + 1);
    if (second == std::string_view::npos || key.find('/', second + 1) != std::string_view::npos ||
        second + 1 == key.size()) {
        return refuse("does not have three parts");
    }
    KernelKeyParts parts{std::string(key.substr(0, first)), {},
                         std::string(key.substr(first + 1, second - first - 1)),
                         std::string(key.substr(second + 1))};
    if (const auto at = parts.subkind.find('@'); at != std::string::npos) {
        parts.role = parts.subkind.substr(at + 1);
        parts.subkind.resize(at);
        if (parts.role.empty()) return refuse("names no role behind its @");
    }
    const auto& known = kernel_subkinds();
    if (std::find(known.begin(), known.end(), parts.subkind) == known.end()) {
        return refuse("does not begin with a known kind of kernel");
    }
    if (!parse_format(parts.format)) return refuse("names an unknown number format");
    return parts;
}

std::string kernel_subkind(const model::Operation& operation) {
    return std::string(names()[static_cast<std::size_t>(subkind_of(operation))]) + "/" +
           operation.weight_format.name();
}

KernelWork kernel_work(const model::Operation& operation, double head_tile) {
    KernelWork work;
    work.m = std::max<double>(1.0, static_cast<double>(operation.m));
    work.bytes = non_negative(operation.weight_bytes) + non_negative(operation.activation_bytes) +
                 non_negative(operation.cache_bytes);
    work.flops = non_negative(operation.flops);
    switch (operation.kind) {
        case OperationKind::gemm:
        case OperationKind::batched_gemm:
            work.length = static_cast<double>(std::max<std::int64_t>(0, operation.k));
            break;
        case OperationKind::experts:
            work.length = static_cast<double>(std::max<std::int64_t>(0, operation.k));
            work.items = non_negative(operation.distinct_experts);
            break;
        case OperationKind::attention: {
            work.length = static_cast<double>(std::max<std::int64_t>(0, operation.k));
            const double heads = static_cast<double>(std::max<std::int64_t>(1, operation.n));
            // All heads of MLA share one cache and are multiplied in tiles of rows, full or not.
            const double padded =
                operation.role == "attention.mla" && head_tile > 1 ? head_tile * std::ceil(heads / head_tile) : heads;
            work.items = work.m * padded;
            work.flops *= padded / heads;
            work.several_rows = operation.m > operation.batch;
            break;
        }
        default: break;
    }
    return work;
}

double near_share(double bytes, double cache_bytes) {
    if (!(cache_bytes > 0)) return 0;
    const double ratio = bytes / cache_bytes;
    if (!(ratio > 1)) return 1;
    // From 0 the iteration climbs to the smaller solution, which is the stable one; 1 solves the equation too.
    double share = 0;
    for (int i = 0; i < 200; ++i) {
        const double next = std::exp(-ratio * (1 - share));
        if (next - share < 1e-9) break;
        share = next;
    }
    return share;
}

double near_share(const model::Plan& plan, double cache_bytes) {
    if (plan.pass != model::Pass::decode && plan.pass != model::Pass::draft) return 0;
    double bytes = 0;
    for (const model::Operation& operation : plan.operations) {
        if (!model::is_collective(operation.kind)) bytes += kernel_work(operation).bytes;
    }
    return near_share(bytes, cache_bytes);
}

double priced_bytes(const KernelConstants& constants, double bytes) {
    if (!(constants.far_factor > 1)) return bytes;
    return bytes + (constants.far_factor - 1) * std::max(0.0, bytes - constants.near_bytes);
}

double residual_factor(const std::vector<ResidualPoint>& residuals, double m) {
    if (residuals.empty()) return 1.0;
    const double x = std::log2(std::max(m, 1.0));
    if (x <= residuals.front().log2_m) return residuals.front().factor;
    for (std::size_t i = 1; i < residuals.size(); ++i) {
        const auto& right = residuals[i];
        if (x > right.log2_m) continue;
        const auto& left = residuals[i - 1];
        const double width = right.log2_m - left.log2_m;
        const double share = width > 0 ? (x - left.log2_m) / width : 1.0;
        return left.factor + share * (right.factor - left.factor);
    }
    return residuals.back().factor;
}

namespace {

struct Terms {
    double items = 0;
    double serial = 0;
    double bytes = 0;
    double flops = 0;
};

Terms terms_of(const KernelConstants& constants, const KernelWork& work, bool warm) {
    Terms terms;
    terms.items = constants.per_item_us * work.items;
    const double length = constants.serial_limit > 0
                              ? std::min(work.length, constants.serial_limit)
                              : work.length;
    terms.serial = constants.serial_us * length / 1024.0;
    if (work.several_rows && constants.verify_serial_us > 0) {
        terms.serial = constants.verify_serial_us * work.length / 1024.0;
    }
    const double bandwidth = warm && constants.warm_bandwidth_gb_s > 0
                                 ? constants.warm_bandwidth_gb_s
                                 : constants.bandwidth_gb_s;
    // GB/s are 1e3 bytes a microsecond, TFLOP/s 1e6 operations a microsecond.
    double us_per_kb = bandwidth > 0 ? 1 / bandwidth : 0;
    if (!warm && bandwidth > 0 && work.near_share > 0 && constants.warm_bandwidth_gb_s > 0) {
        us_per_kb = (1 - work.near_share) / bandwidth + work.near_share / constants.warm_bandwidth_gb_s;
    }
    terms.bytes = priced_bytes(constants, work.bytes) * us_per_kb * 1e-3;
    if (constants.rate_tflops > 0) terms.flops = work.flops / (constants.rate_tflops * 1e6);
    return terms;
}

}  // namespace

double kernel_us(const KernelConstants& constants, const KernelWork& work, bool warm) {
    const Terms terms = terms_of(constants, work, warm);
    const double sum = constants.fixed_us + terms.items +
                       std::hypot(terms.serial, terms.bytes, terms.flops);
    double us = std::max(constants.floor_us, sum);
    if (!warm) us *= residual_factor(constants.residuals, work.m);
    if (std::isnan(us)) return kLongestUs;
    return std::clamp(us, 0.0, kLongestUs);
}

KernelModel::KernelModel(const model::GpuSpec& gpu, KernelTable table,
                         ImplementationChoice choice) {
    add(table, false, choice);
    add(datasheet_kernels(gpu), true, {});
}

void KernelModel::add(const KernelTable& table, bool datasheet,
                      const ImplementationChoice& choice) {
    struct Best {
        int rank = 0;
        std::size_t index = 0;
    };
    std::map<std::tuple<std::uint8_t, std::uint32_t, std::string>, Best> best;
    for (const auto& [key, constants] : table.entries) {
        const auto parts = parse_kernel_key(key);
        if (!parts) continue;  // readers of calibrations refuse such keys
        const auto& known = names();
        const auto subkind = static_cast<std::uint8_t>(
            std::find(known.begin(), known.end(), parts->subkind) - known.begin());
        const std::uint32_t format = *parse_format(parts->format);
        auto asked = choice.find(parts->subkind + "/" + parts->format);
        if (asked == choice.end()) asked = choice.find(parts->subkind);
        const int rank = choice_rank(parts->implementation,
                                     asked == choice.end() ? nullptr : &asked->second);
        if (rank < 0) continue;
        const auto [at, fresh] = best.try_emplace({subkind, format, parts->role}, Best{rank, entries_.size()});
        if (fresh) {
            entries_.push_back({subkind, format, parts->role, datasheet, key, constants});
        } else if (rank < at->second.rank) {
            at->second.rank = rank;
            entries_[at->second.index] = {subkind, format, parts->role, datasheet, key, constants};
        }
    }
}

KernelModel::Match KernelModel::find(const model::Operation& operation) const {
    const auto subkind = static_cast<std::uint8_t>(subkind_of(operation));
    const std::uint32_t format = format_code(operation.weight_format);
    // The cache's format changes the bytes that attention reads more than how it reads them.
    const bool attention = operation.kind == OperationKind::attention;
    const Entry* whole_kind = nullptr;
    const Entry* role_any = nullptr;
    const Entry* grouping = nullptr;
    const Entry* any = nullptr;
    const Entry* sheet = nullptr;
    const Entry* sheet_any = nullptr;
    for (const Entry& entry : entries_) {
        if (entry.subkind != subkind || (!entry.role.empty() && entry.role != operation.role)) continue;
        if (entry.datasheet) {
            if (entry.format == format) sheet = &entry;
            if (entry.format == kAnyFormat) sheet_any = &entry;
            continue;
        }
        if (!entry.role.empty()) {
            if (entry.format == format) return {&entry, false};
            if (entry.format == kAnyFormat) role_any = &entry;
            continue;
        }
        if (entry.format == format) {
            whole_kind = &entry;
        } else if (entry.format == kAnyFormat) {
            any = &entry;
        } else if (grouping == nullptr &&
                   (attention || number_format_of(entry.format) == number_format_of(format))) {
            grouping = &entry;
        }
    }
    if (role_any != nullptr) return {role_any, false};
    if (whole_kind != nullptr) return {whole_kind, false};
    if (grouping != nullptr) return {grouping, true};
    // An entry for any format is how kernels without weights are kept.
    if (any != nullptr) return {any, false};
    return {sheet != nullptr ? sheet : sheet_any, false};
}

KernelTime KernelModel::time(const model::Operation& operation, double near_share) const {
    return price(operation, near_share, false);
}

KernelTime KernelModel::explain(const model::Operation& operation, double near_share) const {
    return price(operation, near_share, true);
}

KernelTime KernelModel::price(const model::Operation& operation, double near_share, bool with_formula) const {
    const Match match = find(operation);
    KernelTime time;
    if (match.entry == nullptr) return time;  // can't be: datasheet_kernels() has every subkind
    const KernelConstants& constants = match.entry->constants;
    KernelWork work = kernel_work(operation, constants.head_tile);
    work.near_share = near_share;
    time.us = kernel_us(constants, work);
    const Terms terms = terms_of(constants, work, false);
    const double occupied = std::max(terms.bytes, terms.flops);
    time.occupied_us = occupied < time.us ? occupied : time.us;
    time.key = match.entry->key;
    time.coverage = constants.coverage;
    double error = constants.relative_error;
    const double outside = octaves_outside(constants, work.m);
    if (outside > 0 || match.substitute) {
        time.coverage = worse(time.coverage, Coverage::extrapolated);
        error = std::hypot(error, kErrorPerOctave * std::min(outside, 10.0),
                           match.substitute ? kSubstituteError : 0.0);
    }
    time.relative_uncertainty = error;
    // Beyond the measured range the fit is off for all operations alike.
    const bool told_apart = constants.common_error > 0 && error == constants.relative_error;
    time.common_uncertainty = told_apart ? std::min(constants.common_error, error) : error;
    if (with_formula) {
        const double residual = residual_factor(constants.residuals, work.m);
        time.formula = fmt::format(
            "max({:.2f}, {:.2f} + {:.2f} + sqrt({:.2f}^2 + {:.2f}^2 + {:.2f}^2)) x {:.3f} = {:.2f} us "
            "(floor; fixed; {:g} items x {:.3g} us; loop of {:g} at {:.3g} us per 1024; {:.4g} MB at {:.4g} GB/s; "
            "{:.4g} GFLOP at {:.4g} TFLOP/s; residual at m = {:g})",
            constants.floor_us, constants.fixed_us, terms.items, terms.serial, terms.bytes,
            terms.flops, residual, time.us, work.items, constants.per_item_us,
            constants.serial_limit > 0 ? std::min(work.length, constants.serial_limit) : work.length,
            constants.serial_us, work.bytes * 1e-6, constants.bandwidth_gb_s, work.flops * 1e-9,
            constants.rate_tflops, work.m);
        if (near_share > 0 && constants.warm_bandwidth_gb_s > 0) {
            time.formula += fmt::format("; {:.0f} % of the bytes at {:.4g} GB/s from the core's own cache", 100 * near_share,
                                        constants.warm_bandwidth_gb_s);
        }
    }
    return time;
}

KernelTable datasheet_kernels(const model::GpuSpec& gpu) {
    // Share of the datasheet's memory bandwidth that kernels reach, and time per kernel:
    // aiconfigurator's system constants (NVIDIA ai-dynamo/aiconfigurator, Apache-2.0).
    constexpr double kBandwidthShare = 0.8;
    constexpr double kKernelUs = 3.0;
    // Share of the dense peak rate at decoding sizes: the step of Calculon's matrix efficiency for 1 to 16 GFLOP.
    constexpr double kRateShare = 0.6;
    // Standard deviation of log(measured / this): own comparison with kernel tables of RTX PRO 6000 and H200.
    constexpr double kDatasheetError = 0.3;

    const double bandwidth = std::max(1.0, non_negative(gpu.memory_gb_s) * kBandwidthShare);
    const double bf16 = non_negative(gpu.bf16_tflops) * kRateShare;
    const double fp8 = gpu.fp8_tflops > 0 ? gpu.fp8_tflops * kRateShare : bf16;
    // Without FP4 units NVFP4 weights are unpacked and multiplied in bf16 (Marlin).
    const double fp4 = gpu.fp4_tflops > 0 ? gpu.fp4_tflops * kRateShare : bf16;

    KernelTable table;
    table.name = "datasheet";
    table.source = "datasheet of " + (gpu.name.empty() ? std::string("the GPU") : gpu.name) +
                   (gpu.source.empty() ? "" : " (" + gpu.source + ")");
    const auto add = [&](const std::string& key, int kernels, double rate) {
        KernelConstants constants;
        constants.fixed_us = kernels * kKernelUs;
        constants.bandwidth_gb_s = bandwidth;
        constants.rate_tflops = rate;
        constants.relative_error = kDatasheetError;
        constants.source = fmt::format(
            "{}: {:g} x peak bandwidth and {:g} us a kernel (aiconfigurator), {} kernel(s){}",
            table.source, kBandwidthShare, kKernelUs, kernels,
            rate > 0 ? fmt::format(", {:g} x peak rate (Calculon)", kRateShare) : std::string());
        table.entries[key] = constants;
    };
    for (const std::string kind : {"gemm", "batched_gemm", "experts"}) {
        // Routed experts: sort by expert, gate/up, activation, down, sum over the chosen experts.
        const int kernels = kind == "experts" ? 5 : 1;
        // Weight-only formats (INT4, MXFP4) multiply in bf16.
        add(kind + "/any/any", kernels, bf16);
        for (const char* format : {"fp8", "fp8_b128", "int8"}) {
            add(kind + "/" + format + "/any", kernels, fp8);
        }
        add(kind + "/nvfp4_g16/any", kernels, fp4);
        // fp32 runs as TF32, half the bf16 rate on every generation since Ampere.
        add(kind + "/fp32/any", kernels, bf16 / 2);
    }
    // Split over the context, then merge the parts.
    add("attention_mla/any/any", 2, bf16);
    add("attention_gqa/any/any", 2, bf16);
    add("indexer/any/any", 2, bf16);  // score, then top-k
    add("delta_net/any/any", 2, 0);   // convolution, recurrence
    add("norm/any/any", 1, 0);
    add("elementwise/any/any", 1, 0);
    add("router/any/any", 1, 0);
    add("embedding/any/any", 1, 0);
    add("sample/any/any", 2, 0);  // reduce within blocks, then across
    add("accept/any/any", 1, 0);
    add("copy/any/any", 1, 0);
    return table;
}

}  // namespace draftboard::sim
