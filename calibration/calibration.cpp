// SPDX-License-Identifier: Apache-2.0
#include "calibration/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "calibration/gpu_datasheet.h"
#include "model/data_library.h"

namespace draftboard::calibration {

namespace {

using model::Expected;
using model::Json;
using model::JsonReader;
using model::Problem;
using sim::Coverage;

constexpr const char* kFormat = "draftboard.calibration";
constexpr int kVersion = 1;
constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kMaxResiduals = 1024;
constexpr std::array<const char*, 7> kKnownKeys = {"format", "version", "name", "description",
                                                   "gpu", "provenance", "kernels"};

std::optional<Coverage> coverage_from_name(std::string_view name) {
    for (const Coverage coverage : {Coverage::measured, Coverage::published, Coverage::interpolated,
                                    Coverage::extrapolated, Coverage::datasheet}) {
        if (sim::to_name(coverage) == name) return coverage;
    }
    return std::nullopt;
}

// A JSON pointer's step: ~ and / are escaped.
std::string escaped(std::string_view key) {
    std::string out;
    for (const char c : key) {
        if (c == '~') out += "~0";
        else if (c == '/') out += "~1";
        else out += c;
    }
    return out;
}

model::GpuSpec read_gpu(const JsonReader& reader) {
    model::GpuSpec gpu;
    if (!reader.expect_object()) return gpu;
    gpu.name = reader.string("name");
    gpu.compute_capability = reader.string_or("compute_capability", "");
    gpu.memory_bytes = reader.number_or("memory_bytes", 0, 0, 1e15);
    gpu.memory_gb_s = reader.number_or("memory_gb_s", 0, 0, 1e9);
    gpu.l2_bytes = reader.number_or("l2_bytes", 0, 0, 1e12);
    gpu.multiprocessors = static_cast<int>(reader.integer_or("multiprocessors", 0, 0, 1 << 20));
    gpu.bf16_tflops = reader.number_or("bf16_tflops", 0, 0, 1e9);
    gpu.fp8_tflops = reader.number_or("fp8_tflops", 0, 0, 1e9);
    gpu.fp4_tflops = reader.number_or("fp4_tflops", 0, 0, 1e9);
    gpu.source = reader.string_or("source", "");
    return gpu;
}

void read_residuals(const JsonReader& reader, sim::KernelConstants& constants) {
    const JsonReader list = reader.at("residuals");
    const std::size_t count = list.size();
    if (count > kMaxResiduals) {
        reader.problem("residuals", fmt::format("has more than {} points", kMaxResiduals));
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const Json& point = list.value()[i];
        if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) {
            list.problem(std::to_string(i), "must be a pair [log2_m, factor] of numbers");
            return;
        }
        const double log2_m = point[0].get<double>();
        const double factor = point[1].get<double>();
        if (!(log2_m >= 0 && log2_m <= 62) || !(factor >= 0.01 && factor <= 100)) {
            list.problem(std::to_string(i), "log2_m must be 0 to 62 and the factor 0.01 to 100");
            return;
        }
        if (!constants.residuals.empty() && log2_m <= constants.residuals.back().log2_m) {
            list.problem(std::to_string(i), "log2_m must grow from point to point");
            return;
        }
        constants.residuals.push_back({log2_m, factor});
    }
}

ErrorSummary read_errors(const JsonReader& reader, std::string_view key) {
    ErrorSummary errors;
    if (!reader.has(key)) return errors;
    const JsonReader part = reader.at(key);
    if (!part.expect_object()) return errors;
    errors.rows = static_cast<int>(part.integer_or("rows", 0, 0, 1 << 30));
    errors.median = part.number_or("median", 0, 0, 1e12);
    errors.p90 = part.number_or("p90", 0, 0, 1e12);
    errors.worst = part.number_or("worst", 0, 0, 1e12);
    errors.bias = part.number_or("bias", 0, -1e12, 1e12);
    return errors;
}

void read_fits(const JsonReader& reader, const std::string& key, std::vector<TableFit>& fits) {
    if (!reader.has("fit")) return;
    const JsonReader list = reader.at("fit");
    const std::size_t count = std::min<std::size_t>(list.size(), 256);
    for (std::size_t i = 0; i < count; ++i) {
        const JsonReader part = list.at(i);
        if (!part.expect_object()) return;
        TableFit fit;
        fit.key = key;
        fit.table = part.string("table");
        fit.pooled = part.boolean_or("pooled", false);
        fit.rows = static_cast<int>(part.integer_or("rows", 0, 0, 1 << 30));
        fit.cold = static_cast<int>(part.integer_or("cold", 0, 0, 1 << 30));
        fit.between = static_cast<int>(part.integer_or("between", 0, 0, 1 << 30));
        fit.warm = static_cast<int>(part.integer_or("warm", 0, 0, 1 << 30));
        fit.copies = static_cast<int>(part.integer_or("copies", 1, 1, 1024));
        fit.all_errors = read_errors(part, "all_errors");
        fit.cold_errors = read_errors(part, "cold_errors");
        fit.warm_errors = read_errors(part, "warm_errors");
        fits.push_back(std::move(fit));
    }
}

sim::KernelConstants read_constants(const JsonReader& reader) {
    sim::KernelConstants constants;
    if (!reader.expect_object()) return constants;
    constexpr double kMaxUs = 1e9;
    constants.floor_us = reader.number_or("floor_us", 0, 0, kMaxUs);
    constants.fixed_us = reader.number_or("fixed_us", 0, 0, kMaxUs);
    constants.per_item_us = reader.number_or("per_item_us", 0, 0, kMaxUs);
    constants.serial_us = reader.number_or("serial_us", 0, 0, kMaxUs);
    constants.serial_limit = reader.number_or("serial_limit", 0, 0, 1e15);
    constants.verify_serial_us = reader.number_or("verify_serial_us", 0, 0, kMaxUs);
    constants.bandwidth_gb_s = reader.number("bandwidth_gb_s", 1e-3, 1e9);
    constants.warm_bandwidth_gb_s = reader.number_or("warm_bandwidth_gb_s", 0, 0, 1e9);
    constants.rate_tflops = reader.number_or("rate_tflops", 0, 0, 1e9);
    constants.near_bytes = reader.number_or("near_bytes", 0, 0, 1e15);
    constants.far_factor = reader.number_or("far_factor", 1, 1, 1e3);
    constants.head_tile = reader.number_or("head_tile", sim::kMlaHeadTile, 1, 1024);
    constants.relative_error = reader.number("relative_error", 0, 100);
    constants.common_error = reader.number_or("common_error", 0, 0, 100);
    constants.m_low = reader.number_or("m_low", 0, 0, 1e18);
    constants.m_high = reader.number_or("m_high", 0, 0, 1e18);
    if (constants.m_low > constants.m_high) reader.problem("m_low", "must not be above m_high");
    constants.points = static_cast<int>(reader.integer_or("points", 0, 0, 1 << 30));
    const auto name = reader.string("coverage");
    const auto coverage = coverage_from_name(name);
    if (coverage) {
        constants.coverage = *coverage;
    } else {
        reader.problem("coverage", "must be measured, published, interpolated, extrapolated or datasheet");
    }
    constants.source = reader.string("source");
    if (reader.has("residuals")) read_residuals(reader, constants);
    return constants;
}

// Five significant digits: more than any fit carries, and the file stays readable.
Json rounded(double value) {
    if (value == 0 || !std::isfinite(value)) return 0;
    const double scale = std::pow(10.0, 4 - std::floor(std::log10(std::abs(value))));
    return std::round(value * scale) / scale;
}

Json errors_json(const ErrorSummary& errors) {
    Json json = Json::object();
    json["rows"] = errors.rows;
    json["median"] = rounded(errors.median);
    json["p90"] = rounded(errors.p90);
    json["worst"] = rounded(errors.worst);
    json["bias"] = rounded(errors.bias);
    return json;
}

Json constants_json(const sim::KernelConstants& constants) {
    Json json = Json::object();
    json["floor_us"] = rounded(constants.floor_us);
    json["fixed_us"] = rounded(constants.fixed_us);
    json["per_item_us"] = rounded(constants.per_item_us);
    json["serial_us"] = rounded(constants.serial_us);
    json["serial_limit"] = constants.serial_limit;
    if (constants.verify_serial_us > 0) json["verify_serial_us"] = rounded(constants.verify_serial_us);
    json["bandwidth_gb_s"] = rounded(constants.bandwidth_gb_s);
    json["warm_bandwidth_gb_s"] = rounded(constants.warm_bandwidth_gb_s);
    json["rate_tflops"] = rounded(constants.rate_tflops);
    if (constants.far_factor > 1) {
        json["near_bytes"] = rounded(constants.near_bytes);
        json["far_factor"] = rounded(constants.far_factor);
    }
    if (constants.head_tile != sim::kMlaHeadTile) json["head_tile"] = constants.head_tile;
    Json residuals = Json::array();
    for (const auto& point : constants.residuals) {
        residuals.push_back(Json::array({rounded(point.log2_m), rounded(point.factor)}));
    }
    json["residuals"] = std::move(residuals);
    json["relative_error"] = rounded(constants.relative_error);
    if (constants.common_error > 0) json["common_error"] = rounded(constants.common_error);
    json["m_low"] = constants.m_low;
    json["m_high"] = constants.m_high;
    json["points"] = constants.points;
    json["coverage"] = std::string(sim::to_name(constants.coverage));
    json["source"] = constants.source;
    return json;
}

}  // namespace

std::vector<Problem> Calibration::validate() const {
    std::vector<Problem> problems;
    for (const auto& [key, constants] : kernels.entries) {
        const std::string place = "/kernels/" + escaped(key);
        const auto parts = sim::parse_kernel_key(key);
        if (!parts) problems.push_back({place, parts.error().message});
        for (const double value :
             {constants.floor_us, constants.fixed_us, constants.per_item_us, constants.serial_us,
              constants.serial_limit, constants.warm_bandwidth_gb_s, constants.rate_tflops,
              constants.relative_error, constants.m_low, constants.m_high}) {
            if (!std::isfinite(value) || value < 0) {
                problems.push_back({place, "a constant is negative or not finite"});
                break;
            }
        }
        if (!(constants.bandwidth_gb_s > 0) || !std::isfinite(constants.bandwidth_gb_s)) {
            problems.push_back({place + "/bandwidth_gb_s", "must be a positive number"});
        }
    }
    return problems;
}

Expected<Calibration> parse_calibration(std::string_view text, const std::string& name) {
    const auto json = model::parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<Problem> problems;
    const JsonReader reader(*json, problems);
    Calibration calibration;
    if (reader.expect_object()) {
        reader.expect_format(kFormat, kVersion);
        calibration.name = reader.string("name");
        calibration.description = reader.string_or("description", "");
        calibration.gpu = read_gpu(reader.at("gpu"));
        calibration.provenance = reader.strings_or("provenance");
        const JsonReader kernels = reader.at("kernels");
        if (kernels.expect_object()) {
            if (kernels.value().size() > kMaxEntries) {
                reader.problem("kernels", fmt::format("has more than {} entries", kMaxEntries));
            } else {
                for (const auto& item : kernels.value().items()) {
                    const std::string& key = item.key();
                    const auto parts = sim::parse_kernel_key(key);
                    if (!parts) {
                        kernels.problem(escaped(key.substr(0, 80)), parts.error().message);
                        continue;
                    }
                    const JsonReader entry = kernels.at(key);
                    calibration.kernels.entries[key] = read_constants(entry);
                    if (entry.value().is_object()) read_fits(entry, key, calibration.fits);
                }
            }
        }
        for (const auto& item : json->items()) {
            const auto known = std::find(kKnownKeys.begin(), kKnownKeys.end(), item.key());
            if (known == kKnownKeys.end()) calibration.unknown[item.key()] = item.value();
        }
    }
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));
    calibration.kernels.name = calibration.name;
    calibration.kernels.source = name;
    return calibration;
}

Expected<Calibration> load_calibration(const std::string& path) {
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse_calibration(*text, path);
}

Json to_json(const Calibration& calibration) {
    Json json = Json::object();
    json["format"] = kFormat;
    json["version"] = kVersion;
    json["name"] = calibration.name;
    json["description"] = calibration.description;
    Json gpu = Json::object();
    gpu["name"] = calibration.gpu.name;
    gpu["compute_capability"] = calibration.gpu.compute_capability;
    gpu["memory_bytes"] = calibration.gpu.memory_bytes;
    gpu["memory_gb_s"] = calibration.gpu.memory_gb_s;
    gpu["l2_bytes"] = calibration.gpu.l2_bytes;
    gpu["multiprocessors"] = calibration.gpu.multiprocessors;
    gpu["bf16_tflops"] = calibration.gpu.bf16_tflops;
    gpu["fp8_tflops"] = calibration.gpu.fp8_tflops;
    gpu["fp4_tflops"] = calibration.gpu.fp4_tflops;
    gpu["source"] = calibration.gpu.source;
    json["gpu"] = std::move(gpu);
    json["provenance"] = calibration.provenance;
    Json kernels = Json::object();
    for (const auto& [key, constants] : calibration.kernels.entries) {
        Json entry = constants_json(constants);
        Json fits = Json::array();
        for (const auto& fit : calibration.fits) {
            if (fit.key != key) continue;
            Json part = Json::object();
            part["table"] = fit.table;
            part["pooled"] = fit.pooled;
            part["rows"] = fit.rows;
            part["cold"] = fit.cold;
            part["between"] = fit.between;
            part["warm"] = fit.warm;
            part["copies"] = fit.copies;
            part["all_errors"] = errors_json(fit.all_errors);
            part["cold_errors"] = errors_json(fit.cold_errors);
            part["warm_errors"] = errors_json(fit.warm_errors);
            fits.push_back(std::move(part));
        }
        if (!fits.empty()) entry["fit"] = std::move(fits);
        kernels[key] = std::move(entry);
    }
    json["kernels"] = std::move(kernels);
    for (const auto& item : calibration.unknown.items()) json[item.key()] = item.value();
    return json;
}

std::string to_text(const Calibration& calibration) {
    // Names read from hostile files may hold broken UTF-8; the writer replaces it and doesn't throw.
    return to_json(calibration).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Expected<Calibration> find_calibration(const std::string& name_or_path, const std::string& data_directory,
                                       const std::string& relative_to) {
    const auto path = model::find_data_file(name_or_path, "calibrations", data_directory, relative_to);
    if (!path) return tl::unexpected(path.error());
    return load_calibration(*path);
}

Expected<ImportResult> import_calibration(const ImportOptions& options) {
    const auto gpu = gpu_datasheet(options.gpu);
    if (!gpu) return tl::unexpected(gpu.error());
    if (options.files.empty() && options.scale_from == nullptr) {
        return model::fail(model::ErrorCode::invalid_input, "there is nothing to import", {},
                           "name measured tables, or a calibration to move from another GPU");
    }
    ImportResult result;
    const auto aliases = gpu_aliases(options.gpu);
    if (!options.files.empty()) {
        auto report = fit_kernel_tables(options.files, *gpu, aliases);
        if (!report) return tl::unexpected(report.error());
        result.report = std::move(*report);
    }
    Calibration& calibration = result.calibration;
    calibration.name = options.name.empty() ? aliases.front() : options.name;
    calibration.gpu = *gpu;
    calibration.kernels = result.report.kernels;
    calibration.kernels.name = calibration.name;
    calibration.fits = result.report.tables;
    if (!options.source.empty()) calibration.provenance.push_back(options.source);
    calibration.provenance.insert(calibration.provenance.end(), result.report.notes.begin(),
                                  result.report.notes.end());
    if (options.scale_from != nullptr) {
        const int moved = add_scaled_kernels(calibration.kernels, options.scale_from->kernels,
                                             options.scale_from->gpu, *gpu);
        const auto note =
            fmt::format("{} kernels were not measured on {}: moved from calibration \"{}\" by datasheet ratios, coverage "
                        "datasheet", moved, gpu->name, options.scale_from->name);
        calibration.provenance.push_back(note);
        result.report.notes.push_back(note);
    }
    const int measured = static_cast<int>(std::count_if(
        calibration.kernels.entries.begin(), calibration.kernels.entries.end(),
        [](const auto& entry) { return entry.second.points > 0; }));
    calibration.description = fmt::format("Kernel times on {}: {} entries, {} of them fitted to measurements",
                                          gpu->name, calibration.kernels.entries.size(), measured);
    return result;
}

}  // namespace draftboard::calibration
