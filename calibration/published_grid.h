// SPDX-License-Identifier: Apache-2.0
#pragma once
// A table of published end-to-end measurements: one row a cell of somebody's benchmark, as the publisher
// states it. The columns are found by name, in any order; unknown columns are ignored. What a cell was
// measured on is still in the publisher's words here; backtest_scenario.h makes a scenario of it.
//
//   required  model, engine, gpus, concurrency, output_tok_s_total
//   numbers   gpus, tp, dcp, ep, pp, spec_k, acceptance_rate, accept_length, concurrency, context_tokens,
//             output_tok_s_total, per_user_tok_s, step_ms; empty: not stated
//   text      id, weights_quant, kv_dtype, engine_notes, gpu_model, topology, spec_method, allreduce_impl,
//             nccl_env, cuda_graph, date, source_path, source_line, notes
//   per_position  acceptance by position, unconditional, separated by semicolons: "0.797;0.537;0.277"
//
// A malformed number is an error that names its line and column.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/error.h"

namespace draftboard::calibration {

inline constexpr std::size_t kMaxPublishedRows = 20'000;

struct PublishedRow {
    int line = 0;  ///< in the file, from 1
    std::string id;
    std::string model;
    std::string weights_quant;
    std::string kv_dtype;
    std::string engine;
    std::string engine_notes;
    std::string gpu_model;
    std::string topology;
    std::string spec_method;  ///< "none", "eagle3", "mtp", ...; empty: not stated
    std::string allreduce_impl;
    std::string nccl_env;
    std::string cuda_graph;   ///< "full", "piecewise", "unknown"
    std::string date;         ///< "2026-04-23", "2026-04"; empty: not stated
    std::string source_path;
    std::string notes;
    int gpus = 0;  ///< 0: not stated, here and below
    int tp = 0;
    int dcp = 0;
    int ep = 0;
    int pp = 0;
    int concurrency = 0;
    std::optional<int> spec_k;
    std::optional<std::int64_t> context_tokens;
    std::optional<double> acceptance_rate;  ///< in the engine's own definition
    std::optional<double> accept_length;    ///< bonus token included
    std::vector<double> per_position;
    std::optional<double> tokens_per_second;           ///< all users together
    std::optional<double> per_user_tokens_per_second;
    std::optional<double> step_ms;
};

[[nodiscard]] model::Expected<std::vector<PublishedRow>> parse_published_grid(std::string_view text,
                                                                              const std::string& name);
[[nodiscard]] model::Expected<std::vector<PublishedRow>> load_published_grid(const std::string& path);

}  // namespace draftboard::calibration
