// SPDX-License-Identifier: Apache-2.0
// `draftboard collective`: one collective on one machine: its time, its parts, and what NCCL chooses.

#include "calibration/cost_constants.h"
#include "cli/command.h"
#include "model/machine_json.h"
#include "sim/collective_report.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::string machine;
    std::string operation = "all_reduce";
    int gpus = 0;
    std::int64_t bytes = 0;
    std::string implementation = "nccl";
    std::string algorithm = "auto";
    std::string protocol = "auto";
    std::string peer_level = "PXB";
    std::string launch = "graph";
    std::string calibration;
    int channels = 0;
    bool no_p2p = false;
    bool pull = false;
    bool graph_file = false;
};

model::Expected<model::OperationKind> operation_from(const std::string& name) {
    using Kind = model::OperationKind;
    for (const Kind kind :
         {Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all}) {
        if (model::to_name(kind) == name) return kind;
    }
    return model::fail(model::ErrorCode::invalid_input, "no such collective", "--op " + name,
                       "use all_reduce, all_gather, reduce_scatter or all_to_all");
}

void run(const Options& options, CommandContext& context) {
    const auto operation = operation_from(options.operation);
    if (!operation) return context.report(operation.error());
    auto machine = model::find_machine(options.machine, context.data_directory, "");
    if (!machine) return context.report(machine.error());
    const auto available = static_cast<int>(machine->gpus().size());
    const int gpus = options.gpus == 0 ? available : options.gpus;
    if (gpus < 1 || gpus > available) {
        return context.report({model::ErrorCode::invalid_input,
                               "the machine has " + std::to_string(available) + " GPUs",
                               "--gpus " + std::to_string(gpus),
                               "ask for 1 to " + std::to_string(available)});
    }
    auto constants = calibration::load_collective_constants(*machine, options.calibration,
                                                            context.data_directory);
    if (!constants) return context.report(constants.error());

    sim::CollectiveQuery query;
    query.settings.implementation = *model::implementation_from_name(options.implementation);
    query.settings.algorithm = *model::algorithm_from_name(options.algorithm);
    query.settings.protocol = *model::protocol_from_name(options.protocol);
    query.settings.peer_level = *model::path_type_from_name(options.peer_level);
    query.settings.channels = options.channels;
    query.settings.peer_to_peer = !options.no_p2p;
    query.settings.graph_file = options.graph_file;
    query.settings.pull = options.pull;
    query.operation = *operation;
    query.gpus = gpus;
    query.bytes = options.bytes;
    query.graph_launch = options.launch == "graph";
    auto answer = sim::price_collective(*machine, query, *constants);
    if (!answer) return context.report(answer.error());
    if (context.json) {
        context.print(sim::collective_json(*answer));
    } else {
        context.print(sim::collective_text(*answer));
    }
}

}  // namespace

void add_collective_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        app.add_subcommand("collective", "Time of one collective, and what NCCL would choose");
    command->add_option("--machine", options->machine, "A machine file, or the name of a shipped one")
        ->required();
    command->add_option("--op", options->operation,
                        "all_reduce, all_gather, reduce_scatter, all_to_all");
    command->add_option("--gpus", options->gpus, "GPUs taking part (default: all)")
        ->check(CLI::Range(1, model::kMaxGpus));
    command->add_option("--bytes", options->bytes,
                        "Payload of one rank (all_gather: its contribution)")
        ->required()
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
    command->add_option("--implementation", options->implementation,
                        "nccl, one_shot, two_shot, hierarchical, host_staged")
        ->check(CLI::IsMember({"nccl", "one_shot", "two_shot", "hierarchical", "host_staged"}));
    command->add_option("--algorithm", options->algorithm, "auto, ring, tree (NCCL_ALGO)")
        ->check(CLI::IsMember({"auto", "ring", "tree"}));
    command->add_option("--protocol", options->protocol, "auto, ll, ll128, simple (NCCL_PROTO)")
        ->check(CLI::IsMember({"auto", "ll", "ll128", "simple"}));
    command->add_option("--channels", options->channels, "NCCL channels, 0: NCCL's choice")
        ->check(CLI::Range(0, 64));
    command->add_option("--launch", options->launch, "graph or eager")
        ->check(CLI::IsMember({"graph", "eager"}));
    command->add_option("--p2p-level", options->peer_level, "NCCL_P2P_LEVEL")
        ->check(CLI::IsMember({"PIX", "PXB", "PHB", "NODE", "SYS"}));
    command->add_flag("--no-p2p", options->no_p2p, "NCCL_P2P_DISABLE=1");
    command->add_flag("--pull", options->pull, "Custom collectives read instead of writing");
    command->add_flag("--graph-file", options->graph_file, "NCCL_GRAPH_FILE is given");
    command->add_option("--calibration", options->calibration,
                        "Collective calibration (default: the machine's)");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
