// SPDX-License-Identifier: Apache-2.0
// draftboard: predict, explain and plan speculative decoding on multi-GPU boxes. See `draftboard --help`.

#include <cstdio>
#include <exception>

#include "cli/command.h"
#include "sim/version.h"

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
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
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
