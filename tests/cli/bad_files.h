// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that no reader should choke on: the inputs of bad_input_test.cpp. Each is made on demand in
// the folder of one test. What the command line has to make of them stands in that test, not here.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace draftboard::tests {

/// Something kept alive while the program under test runs, such as the writer of a pipe.
using Keeper = std::shared_ptr<void>;

struct BadFile {
    std::string name;  ///< a word, for the test's name
    std::function<Keeper(const std::string& path)>
        make;  ///< creates it at `path`; may return nullptr
};

[[nodiscard]] BadFile text_file(std::string name, std::string text);
/// Made only when its test runs; for texts of megabytes.
[[nodiscard]] BadFile generated_file(std::string name, std::function<std::string()> text);
[[nodiscard]] BadFile missing_file();
[[nodiscard]] BadFile directory_file();
/// Sparse: `bytes` zeros that take no room on the disk.
[[nodiscard]] BadFile huge_file(std::int64_t bytes);
/// A named pipe whose writer never stops.
[[nodiscard]] BadFile endless_pipe(std::string repeated);
/// Reproducible bytes of all values, from a linear congruential generator.
[[nodiscard]] std::string garbage_bytes(std::size_t count);

/// What can be wrong with a file before its format matters.
[[nodiscard]] std::vector<BadFile> bad_files();

}  // namespace draftboard::tests
