// SPDX-License-Identifier: Apache-2.0
// Calibration files, kernel tables and measurements that were kept: any bytes give a document or an error; a calibration
// that was accepted is sound, is written as it was read, and prices in finite time, a CPU's on any number of ranks; what logs and the GPU engine's loops add to it is read and
// written back alike.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calibration/calibration.h"
#include "calibration/engine_measurements.h"
#include "calibration/cpu_terms.h"
#include "calibration/cuda_terms.h"
#include "calibration/gpu_facts.h"
#include "calibration/imported_terms.h"
#include "calibration/validation_progress.h"

using namespace draftboard;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto read = calibration::parse_calibration(text, "fuzz.json")) {
        require(read->validate().empty());
        const auto written = calibration::to_text(*read);
        const auto again = calibration::parse_calibration(written, "again.json");
        require(again.has_value() && calibration::to_text(*again) == written);
        model::Operation operation;
        operation.m = 4;
        operation.weight_bytes = 1e9;
        operation.flops = 1e12;
        const auto time = sim::KernelModel(read->gpu, read->kernels, {}).time(operation);
        require(std::isfinite(time.us) && time.us >= 0);
        if (const auto terms = calibration::cpu_terms(*read)) {
            for (const int ranks : {1, 2, 3, 64}) {
                sim::CostConstants constants;
                constants.kernels = read->kernels;
                require(calibration::apply(*terms, ranks, constants).has_value());
                const auto at_ranks = sim::KernelModel(read->gpu, constants.kernels, {}).time(operation);
                require(std::isfinite(at_ranks.us) && at_ranks.us >= 0);
            }
        }
    }
    if (const auto read = calibration::parse_calibration(text, "fuzz.json")) {
        if (const auto terms = calibration::cuda_terms(*read)) {
            sim::CostConstants constants;
            require(calibration::apply(*terms, constants).has_value());
            calibration::Calibration again = *read;
            calibration::set_cuda_terms(again, *terms);
            require(calibration::cuda_terms(again).has_value());
        }
        if (const auto terms = calibration::imported_terms(*read)) {
            sim::CostConstants constants;
            require(calibration::apply(*terms, constants).has_value());
            calibration::Calibration again = *read;
            calibration::set_imported_terms(again, *terms);
            require(calibration::imported_terms(again).has_value());
        }
        std::vector<model::Problem> problems;
        const model::JsonReader cuda(read->unknown, problems);
        if (cuda.has("cuda") && cuda.at("cuda").value().is_object() && cuda.at("cuda").has("gpu")) {
            const auto facts = calibration::gpu_facts_from_json(cuda.at("cuda").at("gpu"));
            if (problems.empty()) require(calibration::differences(facts, facts).empty());
        }
    }
    if (const auto read = calibration::parse_engine_progress(text, "fuzz.json.partial")) {
        require(calibration::parse_engine_progress(to_json(*read).dump(-1, ' ', false, model::Json::error_handler_t::replace), "again").has_value());
    }
    if (const auto read = calibration::parse_validation_progress(text, "fuzz.html.partial")) {
        const auto written = to_json(*read).dump(-1, ' ', false, model::Json::error_handler_t::replace);
        require(calibration::parse_validation_progress(written, "again").has_value());
        for (const auto& [name, one] : read->configurations) (void)calibration::joined(one.profiles);
    }
    if (const auto read = calibration::parse_kernel_measurements(text, "fuzz.csv", {"gpu"})) {
        for (const auto& row : read->rows) {
            require(row.us > 0 && std::isfinite(row.operation.weight_bytes + row.operation.flops));
        }
    }
    return 0;
}
