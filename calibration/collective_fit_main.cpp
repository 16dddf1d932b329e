// SPDX-License-Identifier: Apache-2.0
// draftboard-fit-collectives TABLE.csv SYSTEM MACHINE.json [MACHINE_NAME ...] -o OUT.json
// Fits the collective model to the rows of one system and writes the calibration; the report goes
// to stdout. Further names are machines that the calibration also goes with. Exit codes as
// draftboard's.

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "calibration/collective_fit.h"
#include "model/machine_json.h"

namespace {

int report(const draftboard::model::Error& error) {
    fmt::print(stderr, "{}\n", error.to_text());
    return error.code == draftboard::model::ErrorCode::unavailable ? 3 : 2;
}

}  // namespace

int main(int argc, char** argv) {
    using namespace draftboard;
    CLI::App app{"Fits the collective model to measured collectives"};
    std::string table;
    std::string system;
    std::string machine_path;
    std::vector<std::string> also;
    std::string out;
    std::string data_directory = "data";
    calibration::CollectiveFitOptions options;
    app.add_option("table", table, "CSV with system,impl,op,gpus,bytes,latency_us")->required();
    app.add_option("system", system, "value of the column system")->required();
    app.add_option("machine", machine_path, "machine file, or the name of a shipped one")
        ->required();
    app.add_option("names", also, "names of further machines that it goes with");
    app.add_option("-o,--output", out, "calibration file to write");
    app.add_option("--data", data_directory, "data directory, for shipped machines");
    app.add_option("--source", options.source, "where the measurements come from");
    bool sizes = false;
    app.add_flag("--leave-out", sizes, "print the errors of each message size, predicted from the others, alone");
    CLI11_PARSE(app, argc, argv);

    auto rows = calibration::read_collective_csv(table);
    if (!rows) return report(rows.error());
    std::erase_if(*rows, [&](const auto& row) { return row.system != system; });
    const auto machine = model::find_machine(machine_path, data_directory);
    if (!machine) return report(machine.error());
    auto fit = calibration::fit_collectives(*rows, *machine, options);
    if (!fit) return report(fit.error());
    for (const std::string& name : also) {
        if (name != machine->name) fit->constants.machines.push_back(name);
    }
    fmt::print("{}", sizes ? calibration::left_out_text(*fit) : calibration::fit_text(*fit));
    if (!out.empty()) {
        std::ofstream file(out);
        file << sim::to_json(fit->constants).dump(2) << '\n';
        if (!file) {
            return report({model::ErrorCode::unavailable, "can't write the calibration", out,
                           "check that the folder exists and can be written"});
        }
    }
    return 0;
}
