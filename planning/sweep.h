// SPDX-License-Identifier: Apache-2.0
#pragma once
// Thousands of predictions: the rows of a grid, computed by threads of one or several processes, logged as they are finished,
// gathered into one file. A row's answer depends on nothing but its values, so the file is the same whatever computed it.
//
//   row          values -> edits -> document -> scenario -> prediction -> line of CSV        (scenario_variants.h, sweep_row.h)
//   block        kBlockRows neighbouring rows that are missing; block b belongs to process b mod size
//   thread       takes its process's next block, appends its lines to a queue
//   first        writes its own queue and what the others send into the log (result_log.h), in the order of arrival
//   finish       the log's rows in their own order
//
// Cost: a row whose passes are known is a scenario read from its document (some 60 us) and a few additions (some 20 us);
// docs/sweeps.md has measured rates.

#include <atomic>
#include <functional>
#include <string>

#include "planning/gang.h"
#include "planning/grid.h"
#include "planning/result_log.h"
#include "planning/scenario_variants.h"

namespace draftboard::planning {

inline constexpr std::uint64_t kBlockRows = 32;

struct SweepQuestion {
    std::string scenario;
    model::Edits edits;
    Grid grid;
};

struct SweepProgress {
    std::uint64_t done = 0;
    std::uint64_t rows = 0;
    double rows_per_second = 0;  ///< since this run began
    double seconds_left = 0;
};

struct SweepOptions {
    std::string output;
    int threads = 0;  ///< 0: the cores, shared with the processes of the gang on this machine
    bool restart = false;
    const std::atomic<bool>* stop = nullptr;
    std::function<void(const SweepProgress&)> progress;  ///< on the first process, from the calling thread
};

struct SweepResult {
    bool first = true;               ///< this process wrote the file; the others have nothing to tell
    bool complete = false;           ///< false: stopped; the same command goes on
    bool was_there = false;          ///< complete before anything was computed
    bool acceptance_pinned = false;  ///< a scalar acceptance was taken as measured at the scenario's own depth
    std::uint64_t rows = 0;
    std::uint64_t found = 0;     ///< rows of an earlier run
    std::uint64_t computed = 0;  ///< by this run
    double seconds = 0;
    int threads = 0;
    ResultSummary summary;  ///< if complete and not was_there
    std::vector<std::string> columns;
};

/// Errors: a scenario that can't be read, paths that are no fields, a file that can't be written or belongs to another sweep.
/// Rows whose values contradict each other are rows with the status "refused".
[[nodiscard]] model::Expected<SweepResult> run_sweep(const SweepQuestion& question, const SweepOptions& options,
                                                     const std::string& data_directory, Gang& gang);

/// One row as run_sweep() logs it.
[[nodiscard]] std::string sweep_line(Variants& variants, const Grid& grid, std::uint64_t row);

/// Path of each axis and its value, as edits.
[[nodiscard]] model::Edits row_edits(const Grid& grid, const std::vector<std::string>& values);

}  // namespace draftboard::planning
