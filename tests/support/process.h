// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program and collects what it says, for the tests of the command line. No shell is
// involved: arguments arrive as they are. A program that neither ends nor falls silent is killed at
// the time limit, and a result says so instead of an exit status. See golden/ and cli/ for the
// uses.

#include <cstddef>
#include <string>
#include <vector>

namespace draftboard::tests {

struct ProcessOptions {
    std::string directory;       ///< working directory; empty: the caller's
    std::string input;           ///< fed to standard input, which is then closed
    bool endless_input = false;  ///< repeats `input` until the program ends or closes its end
    double timeout_seconds = 60;
    std::size_t max_output_bytes = 16u << 20;  ///< of each stream; the rest is dropped
};

struct ProcessResult {
    bool started = false;
    bool timed_out = false;
    int exit_status = -1;  ///< -1: it did not exit (killed by a signal, or by the time limit)
    int signal = 0;        ///< the signal that ended it, 0: none
    double seconds = 0;
    std::string output;  ///< standard output
    std::string errors;  ///< standard error; why it did not start, if so

    /// "exit 2", "signal 11", "still running after 10 s", "did not start: ..."
    [[nodiscard]] std::string ending() const;
};

/// Environment of the child: the caller's, with LC_ALL=C, TZ=UTC and no COLUMNS, so that output is
/// stable.
[[nodiscard]] ProcessResult run_process(const std::vector<std::string>& arguments,
                                        const ProcessOptions& options = {});

/// A fresh directory below the system's temporary one; gone, with its content, at the end of its
/// scope.
class TemporaryDirectory {
 public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

 private:
    std::string path_;
};

}  // namespace draftboard::tests
