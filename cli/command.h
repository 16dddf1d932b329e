// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the subcommands share: where data lies, how results and errors are written, and exit codes.
// Each subcommand is one file with an add_*_command() that registers itself; its callback stores the
// exit code in the context. No command computes anything: they read, call a library, print.

#include <string>

#include <CLI/CLI.hpp>

#include "model/error.h"
#include "model/json_reader.h"

namespace draftboard::cli {

/// Exit codes of the contract.
enum ExitCode : int { kOk = 0, kFinding = 1, kBadInput = 2, kUnavailable = 3 };

struct CommandContext {
    std::string data_directory;
    bool json = false;
    bool quiet = false;
    int exit_code = kOk;

    /// Writes the error to stderr and sets the exit code.
    void report(const model::Error& error);
    /// Progress and remarks, to stderr, unless quiet.
    void note(const std::string& text) const;
    /// One JSON document to stdout.
    void print(const model::Json& document) const;
    /// Text to stdout; a missing final newline is added.
    void print(const std::string& text) const;
};

/// $DRAFTBOARD_DATA, else beside the program: ../../data (build tree), ../share/draftboard (installed).
[[nodiscard]] std::string find_data_directory();

/// Whole text of a file or, for "-", of standard input.
[[nodiscard]] model::Expected<std::string> read_input(const std::string& path);

/// Replaces the file in one step: a failed write leaves what was there.
[[nodiscard]] model::Expected<void> write_file(const std::string& path, const std::string& text);

void add_predict_command(CLI::App& app, CommandContext& context);
void add_explain_command(CLI::App& app, CommandContext& context);
void add_collective_command(CLI::App& app, CommandContext& context);
void add_model_command(CLI::App& app, CommandContext& context);
void add_machine_command(CLI::App& app, CommandContext& context);
void add_calibrate_command(CLI::App& app, CommandContext& context);
void add_backtest_command(CLI::App& app, CommandContext& context);
void add_validate_command(CLI::App& app, CommandContext& context);
void add_run_command(CLI::App& app, CommandContext& context);
void add_acceptance_command(CLI::App& app, CommandContext& context);
void add_compare_command(CLI::App& app, CommandContext& context);
void add_plan_command(CLI::App& app, CommandContext& context);
void add_optimize_command(CLI::App& app, CommandContext& context);
void add_sweep_command(CLI::App& app, CommandContext& context);

}  // namespace draftboard::cli
