// SPDX-License-Identifier: Apache-2.0
// draftboard: predict, explain and plan speculative decoding on multi-GPU boxes. See `draftboard --help`.

#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "sim/version.h"

namespace {

/// A word that stands where a command must and is none: the parser only says that one is missing.
bool report_unknown_command(const CLI::App& app, int argc, char** argv) {
    const CLI::App* here = &app;
    for (int i = 1; i < argc && here->get_require_subcommand_min() > 0; ++i) {
        const std::string word = argv[i];
        if (word.starts_with("-")) continue;
        std::vector<std::string> known;
        const CLI::App* next = nullptr;
        for (const CLI::App* command : here->get_subcommands(nullptr)) {
            known.push_back(command->get_name());
            if (command->get_name() == word) next = command;
        }
        if (next == nullptr) {
            fmt::print(stderr, "error: '{}' is not a command of {}\n  its commands are {}\n", word,
                       here->get_name(), fmt::join(known, ", "));
            return true;
        }
        here = next;
    }
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    using namespace draftboard::cli;
    CommandContext context;
    context.data_directory = find_data_directory();

    CLI::App app{"Predicts what speculative decoding brings on a box of GPUs, and why."};
    app.name("draftboard");
    app.set_version_flag("--version", std::string("draftboard ") + draftboard::sim::kVersion);
    app.require_subcommand(1);
    app.fallthrough();
    app.add_flag("--json", context.json, "Print one JSON document to stdout");
    app.add_flag("--quiet", context.quiet, "No progress and remarks on stderr");
    app.footer("Shipped scenarios, machines and models are listed in the data folder; results go to "
               "stdout.\nExit codes: 0 ok, 1 a finding, 2 usage or bad input, 3 environment not "
               "available.");
    add_predict_command(app, context);
    add_explain_command(app, context);
    add_collective_command(app, context);
    add_model_command(app, context);
    add_machine_command(app, context);
    add_calibrate_command(app, context);
    add_backtest_command(app, context);
    add_validate_command(app, context);
    add_run_command(app, context);
    add_acceptance_command(app, context);
    add_compare_command(app, context);
    add_plan_command(app, context);
    add_optimize_command(app, context);
    add_sweep_command(app, context);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const bool help = error.get_exit_code() == 0;
        if (!help && report_unknown_command(app, argc, argv)) return kBadInput;
        const int code = app.exit(error);
        return code == 0 ? kOk : kBadInput;
    } catch (const std::bad_alloc&) {
        std::fputs("error: out of memory\n  the input asks for more than this machine has\n", stderr);
        return kBadInput;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return kBadInput;
    }
    return context.exit_code;
}
