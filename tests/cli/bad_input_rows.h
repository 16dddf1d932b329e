// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of bad inputs: a row is a command, its input, the exit status, and what the message on
// standard error has to name. bad_input_rows.cpp holds the rows, grouped by what they break; to add
// a case, add a row there. bad_input_test.cpp runs them, bad_files.h makes their files.

#include <ostream>
#include <string>
#include <vector>

#include "tests/cli/bad_files.h"

namespace draftboard::tests {

inline constexpr int kUsageOrInput = 2;  ///< exit status of bad usage and bad input

struct Row {
    std::string name;                    ///< words with '_', unique
    std::vector<std::string> arguments;  ///< {file} is the row's file, {tmp} its folder
    std::string place;                   ///< standard error has to hold this
    BadFile file = missing_file();
    int exit_status = kUsageOrInput;
    std::string endless_input = {};  ///< repeated on standard input; empty: nothing is there
};

inline void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

/// The shipped scenario that the rows break.
inline constexpr const char* kScenario = "kimi-k2.5-eagle3-founding";

[[nodiscard]] std::vector<Row> all_rows();

/// The sound files that rows about machines and model configs break in one place each.
[[nodiscard]] BadFile sound_machine();
[[nodiscard]] BadFile sound_config();

}  // namespace draftboard::tests
