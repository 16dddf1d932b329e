// SPDX-License-Identifier: Apache-2.0
#pragma once
// A scenario: one question to Draftboard. Which model, on which machine, laid out how, run by an engine
// with which switches, speculating how, under what load. A file of format "draftboard.scenario"; it names
// its architecture, machine and calibrations by path (relative to itself) or by the name of a shipped one,
// or holds them inline. Every field can be reached by a dotted path (`--set speculation.steps=4`).
//
// Here is what the scenario says. What it costs is sim/prediction.h.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/architecture.h"
#include "model/collective_settings.h"
#include "model/json_reader.h"
#include "model/layout.h"
#include "model/machine.h"
#include "model/reference_cache.h"
#include "model/routing.h"
#include "model/speculation.h"

namespace draftboard::model {

/// How a pass reaches the GPU. piecewise: attention eagerly, the rest in graph pieces.
enum class LaunchMode { eager, piecewise, graph };
[[nodiscard]] std::string_view to_name(LaunchMode mode);

struct EngineSettings {
    std::string name;  ///< label: "SGLang", "vLLM", ...
    LaunchMode decode_launch = LaunchMode::graph;
    LaunchMode verify_launch = LaunchMode::graph;
    LaunchMode draft_launch = LaunchMode::graph;
    bool overlap_scheduling = false;       ///< host work of a cycle hidden behind the next (SGLang spec v2)
    bool fused_all_reduce_norm = false;    ///< residual add + norm inside the all-reduce kernel
    bool overlap_shared_experts = false;   ///< shared expert on a second stream beside router and routed experts
    int overlap_token_limit = 0;           ///< passes with more tokens use one stream; 0: none
    std::vector<std::string> host_sync_after;  ///< roles behind which the host waits for the device
    int graph_token_limit = 0;             ///< passes with more tokens than captured run eagerly; 0: none
    int full_graph_token_limit = 0;        ///< passes with more tokens than fully captured run piecewise; 0: none
    std::map<std::string, std::string> implementations;  ///< {"experts/int4_g32": "marlin"}
};

struct Workload {
    int concurrency = 1;              ///< sequences decoded at once over all replicas
    std::int64_t context_tokens = 1024;  ///< cached tokens per sequence
    /// All sequences go on from one and the same context and share its cache, as benchmarks with a prefix
    /// cache do: it is read from memory once a layer and from L2 by the others, as far as it stays there.
    bool shared_context = false;
};

/// How much of a GPU's memory the engine may fill, and the cache format.
struct MemorySettings {
    double usable_fraction = 0.92;  ///< vLLM's default gpu-memory-utilization
    std::optional<NumberFormat> kv_format;  ///< overrides the checkpoint's
};

struct Scenario {
    std::string name;
    std::string description;
    std::vector<std::string> sources;
    Architecture architecture;
    Machine machine;
    std::string calibration;             ///< kernels: name or path; empty: the machine's, else datasheet
    std::string collective_calibration;  ///< the same for collectives
    Layout layout;
    EngineSettings engine;
    CollectiveSettings collective;
    Speculation speculation;
    Routing routing;
    Workload workload;
    MemorySettings memory;
    /// Constants of the simulator that this scenario overrides, by name ("host.eager_launch_us"), each
    /// openly: they are listed in every report. sim/constants.h says what there is.
    std::map<std::string, double> constants;
    std::map<std::string, std::string> constant_reasons;  ///< why and whence, by the same names
    std::uint64_t seed = 1;
    std::vector<std::string> unknown_fields;  ///< paths in the file that no field is known for; ignored
    std::string directory;  ///< where relative paths start
    std::string digest;     ///< hash of the complete document, for provenance

    [[nodiscard]] NumberFormat kv_format() const {
        return memory.kv_format.value_or(architecture.kv_format);
    }
    [[nodiscard]] int sequences_per_replica() const;
    /// Contradictions between the parts (GPUs against machine, steps against acceptance, ...).
    [[nodiscard]] std::vector<Problem> validate() const;
};

/// `path=value` edits; value is JSON, else taken as a string; "a,b,c" where the field is a list.
using Edits = std::vector<std::string>;

/// The scenario's document with references left as they are and all defaults filled in, then edited.
/// An unknown path in an edit is an error that names the nearest known ones.
[[nodiscard]] Expected<Json> load_scenario_document(const std::string& name_or_path,
                                                    const std::string& data_directory,
                                                    const Edits& edits, std::string& directory);

/// One more edit of such a document; a document that it only names and the edit reaches into is brought inline first.
[[nodiscard]] Expected<void> edit_scenario_document(Json& document, const std::string& edit,
                                                    const std::string& data_directory, const std::string& directory);

/// Reads everything the document refers to and validates the whole. `cache`: what was read before.
[[nodiscard]] Expected<Scenario> scenario_from_document(const Json& document,
                                                        const std::string& source,
                                                        const std::string& data_directory,
                                                        const std::string& directory,
                                                        ReferenceCache* cache = nullptr);

/// Both steps.
[[nodiscard]] Expected<Scenario> load_scenario(const std::string& name_or_path,
                                               const std::string& data_directory,
                                               const Edits& edits = {});

}  // namespace draftboard::model
