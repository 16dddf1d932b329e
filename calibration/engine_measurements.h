// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `calibrate` measures with the engine, as plain data: whole passes with their operations, collectives by size, host time of
// cycles, the machine. cpu_calibration.h and cuda_calibration.h measure, cpu_fit.h and cuda_fit.h fit; the file FILE.partial keeps it between the two, so
// that a run that was stopped goes on where it was.
//
// Times are medians over rounds, in microseconds. The cost of reading the clock is taken off each operation's.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/cpu_machine.h"
#include "model/json_reader.h"
#include "model/plan.h"

namespace draftboard::calibration {

/// A pass as it was asked for: what samples are kept under.
struct EnginePassKey {
    std::string model;      ///< "tiny-kimi", or "tiny-kimi/drafter"
    int ranks = 1;
    model::Pass pass = model::Pass::decode;
    int sequences = 1;
    int tokens = 1;         ///< a sequence
    int context = 0;        ///< aimed at; the samples hold the real ones
    std::string launch = {};  ///< GPU: "full", "eager"; CPU: empty
    auto operator<=>(const EnginePassKey&) const = default;
};

/// Samples of one pass, one entry a round.
struct EnginePassSamples {
    std::vector<float> total_us;                 ///< of passes that measured nothing inside
    std::vector<float> context;
    std::vector<std::vector<float>> operation_us;  ///< by operation of the plan: mean over ranks, waiting left out
    std::vector<std::vector<float>> wait_us;
    std::vector<double> distinct_experts;        ///< by MoE layer: sum over rounds, of the experts that were chosen
    double expert_rounds = 0;
};

struct EngineCollectiveSample {
    model::OperationKind operation = model::OperationKind::all_reduce;
    bool ring = false;
    int ranks = 2;
    std::int64_t bytes = 0;
    double us = 0;
};

/// Host time of a cycle: what it takes beyond its passes.
struct EngineHostSample {
    std::string configuration;
    int ranks = 1;
    int sequences = 1;
    bool speculates = false;
    int draft_calls = 0;
    double us = 0;        ///< a cycle
    double cycle_us = 0;  ///< the whole cycle
};

/// Cycles of real decoding, as `run` reports them.
struct EngineCycleSample {
    std::string model;
    int ranks = 1;
    std::string launch;    ///< "fused": whole cycles on the device; "full", "eager": the host drives each pass
    std::string method;    ///< "none", "eagle3", "mtp", "scripted"
    int steps = 0;
    int sequences = 1;
    double context = 0;    ///< mean over the counted cycles
    double cycle_us = 0;   ///< median
    double draft_us = 0;   ///< medians of the parts that the loop tells apart
    double verify_us = 0;
    double cycles = 0;     ///< counted
};

struct EngineMeasurements {
    CpuFacts facts;
    CpuCeilings ceilings;
    /// GPUs: what device and driver say of themselves, and what launching costs (gpu_facts.h, EngineFactory::device_costs);
    /// null: a CPU's measurements.
    model::Json gpu;
    model::Json device_costs;
    std::vector<EngineCycleSample> cycles;
    double clock_us = 0;                   ///< one look at the clock
    std::map<int, double> team_start_us;   ///< by ranks: an empty job
    std::map<EnginePassKey, EnginePassSamples> passes;
    std::vector<EngineCollectiveSample> collectives;
    std::vector<EngineHostSample> hosts;
};

/// By to_name(); nothing: no such pass.
[[nodiscard]] std::optional<model::Pass> pass_from_name(std::string_view name);

/// Median of unsorted samples; 0 without any.
[[nodiscard]] double median_of(std::vector<double> samples);
[[nodiscard]] double median_of(const std::vector<float>& samples);

/// The file between: {"format": "draftboard.engine_measurements", "version": 1, "settings": TEXT, "done": [...], ...}.
struct EngineProgress {
    std::string settings;            ///< what was asked for; another request can't go on from it
    std::vector<std::string> done;   ///< steps that need not be measured again
    std::vector<std::string> failed; ///< "STEP: why": not tried again
    EngineMeasurements measurements;
    [[nodiscard]] bool is_done(const std::string& step) const;
};
[[nodiscard]] model::Json to_json(const EngineProgress& progress);
[[nodiscard]] model::Expected<EngineProgress> parse_engine_progress(std::string_view text, const std::string& name);

}  // namespace draftboard::calibration
