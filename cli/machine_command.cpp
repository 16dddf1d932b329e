// SPDX-License-Identifier: Apache-2.0
// `draftboard machine import|probe|show|list`: machines from what tools print, from this host, or shipped.

#include "cli/command.h"
#include "model/data_library.h"
#include "model/import/hwloc_probe.h"
#include "model/import/import_machine.h"
#include "model/machine_json.h"
#include "model/machine_report.h"

namespace draftboard::cli {

namespace {

struct ImportOptionsCli {
    std::string file;
    std::string output;
    std::string gpu_from;  ///< a machine whose GPU the imported one has
    model::ImportOptions import;
};

/// Writes the machine file where asked, else prints the report.
void deliver(const model::Machine& machine, const std::string& output,
             const std::vector<std::string>& warnings, const std::string& format,
             CommandContext& context) {
    for (const std::string& warning : warnings) context.note("warning: " + warning);
    if (!output.empty()) {
        if (auto written = write_file(output, model::machine_to_json(machine).dump(2) + "\n"); !written) {
            return context.report(written.error());
        }
        context.note("machine written to " + output);
        return;
    }
    if (context.json) {
        model::Json report = model::machine_report(machine);
        report["imported_as"] = format;
        report["warnings"] = warnings;
        return context.print(report);
    }
    context.print(model::machine_text(machine));
}

model::Expected<void> adopt_gpu(const std::string& name, const std::string& data_directory,
                                model::Machine& machine) {
    if (name.empty()) return {};
    auto other = model::find_machine(name, data_directory, "");
    if (!other) return tl::unexpected(other.error());
    machine.gpu = other->gpu;
    if (machine.calibration.empty()) machine.calibration = other->calibration;
    return {};
}

void run_import(const ImportOptionsCli& options, CommandContext& context) {
    auto text = read_input(options.file);
    if (!text) return context.report(text.error());
    auto imported = model::import_machine(*text, options.file, options.import);
    if (!imported) return context.report(imported.error());
    if (auto adopted = adopt_gpu(options.gpu_from, context.data_directory, imported->machine);
        !adopted) {
        return context.report(adopted.error());
    }
    deliver(imported->machine, options.output, imported->warnings, imported->format, context);
}

void run_probe(const std::string& output, CommandContext& context) {
    auto probed = model::probe_machine();
    if (!probed) return context.report(probed.error());
    deliver(probed->machine, output, probed->warnings, probed->format, context);
}

void run_show(const std::string& name, CommandContext& context) {
    auto machine = model::find_machine(name, context.data_directory, "");
    if (!machine) return context.report(machine.error());
    if (context.json) return context.print(model::machine_report(*machine));
    context.print(model::machine_text(*machine));
}

}  // namespace

void add_machine_command(CLI::App& app, CommandContext& context) {
    CLI::App* machine = app.add_subcommand("machine", "Machines: import, probe, show");
    machine->require_subcommand(1);

    auto options = std::make_shared<ImportOptionsCli>();
    CLI::App* import = machine->add_subcommand(
        "import", "Read `nvidia-smi topo -m`, an NCCL topology XML or lstopo's XML");
    import->add_option("file", options->file, "The tool's output, or - for standard input")->required();
    import->add_option("-o,--output", options->output, "Write a machine file");
    import->add_option("--gpu-of", options->gpu_from,
                       "Take the GPU's figures from this machine (the topology does not name them)");
    import->add_option("--pcie-generation", options->import.pcie_generation,
                       "PCIe generation where the input does not say")
        ->check(CLI::Range(1, 6));
    import->add_option("--pcie-width", options->import.pcie_width,
                       "PCIe lanes where the input does not say")
        ->check(CLI::IsMember({1, 2, 4, 8, 16}));
    import->callback([options, &context] { run_import(*options, context); });

    auto output = std::make_shared<std::string>();
    CLI::App* probe = machine->add_subcommand("probe", "This host's topology, through hwloc");
    probe->add_option("-o,--output", *output, "Write a machine file");
    probe->callback([output, &context] { run_probe(*output, context); });

    auto name = std::make_shared<std::string>();
    CLI::App* show = machine->add_subcommand("show", "Topology, routes and sources of a machine");
    show->add_option("machine", *name, "A machine file, or the name of a shipped one")->required();
    show->callback([name, &context] { run_show(*name, context); });

    CLI::App* list = machine->add_subcommand("list", "Names of the shipped machines");
    list->callback([&context] {
        const auto names = model::shipped_names("machines", context.data_directory);
        if (context.json) return context.print(model::Json(names));
        std::string text;
        for (const std::string& item : names) text += item + "\n";
        context.print(text);
    });
}

}  // namespace draftboard::cli
