// SPDX-License-Identifier: Apache-2.0
#pragma once
// A golden transcript: command lines with the exact standard output that they have to give. This
// file is the format and the comparison; golden_tests.cpp runs the commands. docs/testing.md shows
// how to add one.
//
//   # Lines before the first command are comments.
//   $ draftboard predict kimi-k2.5-eagle3-founding --set layout.tensor=0
//   # exit 2
//   # stderr contains: /layout/tensor
//   expected standard output, up to the next line that starts with "$ "
//
// Lines right below a command that start with "# " are directives (`exit N`, default 0; `stderr
// contains: TEXT`, any number of them); those that start with "## " are comments. One blank line
// before a command is a separator. A line of output that starts with '$', '#' or '\' is written
// with a leading '\'. {data} stands for the shipped data folder, {source} for the repository, {tmp}
// for an empty folder.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace draftboard::tests {

struct GoldenStep {
    std::string command;                ///< as written, with placeholders
    std::vector<std::string> comments;  ///< the "## " lines, whole
    int exit_status = 0;
    std::vector<std::string> errors_contain;
    std::string output;  ///< unescaped, with placeholders
    int line = 0;        ///< of the command, from 1
};

struct Transcript {
    std::vector<std::string> preamble;
    std::vector<GoldenStep> steps;
};

/// Placeholder name with braces, and the path that it stands for.
using Placeholders = std::vector<std::pair<std::string, std::string>>;

/// nullopt and `error` ("line 3: ...") where the text is not a transcript.
[[nodiscard]] std::optional<Transcript> parse_transcript(const std::string& text,
                                                         std::string& error);
/// The inverse: parsing the result gives the same transcript.
[[nodiscard]] std::string write_transcript(const Transcript& transcript);

/// Words of a command line: spaces separate, '...' and "..." group, \ keeps the next character.
[[nodiscard]] std::optional<std::vector<std::string>> split_command(const std::string& command);

[[nodiscard]] std::string expand(std::string text, const Placeholders& placeholders);
/// Puts placeholders for paths, in their order: list a folder before those that contain it.
[[nodiscard]] std::string contract(std::string text, const Placeholders& placeholders);

/// Puts {revision} for the source revision that JSON output carries ("revision": "..."): it changes
/// with every commit and says nothing about the answer.
[[nodiscard]] std::string mask_revision(std::string text);

/// Where two texts first differ, for a person: line number, both lines. Empty if they are equal.
[[nodiscard]] std::string describe_difference(const std::string& expected,
                                              const std::string& actual);

}  // namespace draftboard::tests
