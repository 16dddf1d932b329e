// SPDX-License-Identifier: Apache-2.0
// Runs golden transcripts against the built command line and compares byte for byte. transcript.h
// has the format. With DRAFTBOARD_UPDATE_GOLDEN=1 in the environment it rewrites the outputs and
// exit statuses instead; "stderr contains" lines are still checked.
//
//   golden_tests BINARY SOURCE_DIR FILE.golden...
//
// Exit 0: all as expected, 1: a difference, 2: a file that is no transcript or can't be read.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/golden/transcript.h"
#include "tests/support/process.h"

namespace draftboard::tests {
namespace {

constexpr double kSecondsPerCommand = 60;

struct Setting {
    std::string binary;
    Placeholders placeholders;
    std::string directory;  ///< where the commands run, {tmp}
    bool update = false;
};

/// The problems of one step; in update mode `step` takes over what the command gave.
std::vector<std::string> run_step(const Setting& setting, GoldenStep& step) {
    auto words = split_command(expand(step.command, setting.placeholders));
    if (!words || words->empty() || words->front() != "draftboard") {
        return {"a command has to start with 'draftboard' and to close its quotes"};
    }
    words->front() = setting.binary;
    ProcessOptions options;
    options.directory = setting.directory;
    options.timeout_seconds = kSecondsPerCommand;
    const ProcessResult result = run_process(*words, options);

    std::vector<std::string> problems;
    if (result.exit_status < 0) return {result.ending() + "\n" + result.errors};
    const std::string output = mask_revision(contract(result.output, setting.placeholders));
    const std::string errors = contract(result.errors, setting.placeholders);
    if (!output.empty() && output.back() != '\n') {
        problems.push_back("standard output does not end with a newline");
    }
    if (setting.update) {
        step.exit_status = result.exit_status;
        step.output = output;
    } else {
        if (result.exit_status != step.exit_status) {
            problems.push_back("expected exit " + std::to_string(step.exit_status) + ", got " +
                               result.ending() + "; it said: " + errors);
        }
        if (std::string difference = describe_difference(step.output, output);
            !difference.empty()) {
            problems.push_back(std::move(difference));
        }
    }
    for (const std::string& part : step.errors_contain) {
        if (errors.find(part) == std::string::npos) {
            problems.push_back("standard error lacks '" + part + "'; it says: " + errors);
        }
    }
    return problems;
}

int run_file(Setting setting, const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream),
                           std::istreambuf_iterator<char>()};
    std::string error = "line 1: the file can't be read";
    auto transcript = stream ? parse_transcript(text, error) : std::nullopt;
    if (!transcript) {
        std::cerr << path << ": " << error << "\n";
        return 2;
    }
    const TemporaryDirectory temporary;
    setting.directory = temporary.path();
    setting.placeholders.insert(setting.placeholders.begin(), {"{tmp}", temporary.path()});

    int failed = 0;
    for (GoldenStep& step : transcript->steps) {
        const std::vector<std::string> problems = run_step(setting, step);
        failed += problems.empty() ? 0 : 1;
        for (const std::string& problem : problems) {
            std::cerr << path << ":" << step.line << ": $ " << step.command << "\n  " << problem
                      << "\n";
        }
    }
    if (setting.update) {
        if (const std::string updated = write_transcript(*transcript); updated != text) {
            std::ofstream(path, std::ios::binary) << updated;
            std::cerr << path << ": rewritten, look at the difference before committing it\n";
        }
    } else if (failed > 0) {
        std::cerr << "If the new output is right: DRAFTBOARD_UPDATE_GOLDEN=1 scripts/test.sh "
                     "golden, and review.\n";
    }
    std::cout << path << ": " << transcript->steps.size() << " commands, " << failed << " failed\n";
    return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace draftboard::tests

int main(int argc, char** argv) {
    using namespace draftboard::tests;
    if (argc < 4) {
        std::cerr << "usage: golden_tests BINARY SOURCE_DIR FILE.golden...\n";
        return 2;
    }
    const std::string source = std::filesystem::canonical(argv[2]).string();
    const char* update = std::getenv("DRAFTBOARD_UPDATE_GOLDEN");
    Setting setting;
    setting.binary = std::filesystem::absolute(argv[1]).string();
    setting.placeholders = {{"{data}", source + "/data"}, {"{source}", source}};
    setting.update = update != nullptr && std::string(update) == "1";
    int worst = 0;
    for (int i = 3; i < argc; ++i) worst = std::max(worst, run_file(setting, argv[i]));
    return worst;
}
