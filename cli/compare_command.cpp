// SPDX-License-Identifier: Apache-2.0
// `draftboard compare A B [C...]`: scenarios side by side, term by term. "NAME,path=value,..." is NAME with fields changed.

#include <memory>

#include "calibration/cost_constants.h"
#include "cli/document_output.h"
#include "planning/axis.h"
#include "planning/comparison.h"
#include "planning/scenario_variants.h"

namespace draftboard::cli {

namespace {

struct Options {
    std::vector<std::string> scenarios;
    model::Edits edits;
    DocumentOutput output;
};

/// "NAME,path=value,path=value" as a name and edits. Commas inside brackets belong to the value.
std::pair<std::string, model::Edits> parts_of(const std::string& text) {
    const auto comma = text.find(',');
    if (comma == std::string::npos) return {text, {}};
    return {text.substr(0, comma), planning::split_list(text.substr(comma + 1))};
}

void run(const Options& options, CommandContext& context) {
    std::vector<planning::Compared> compared;
    std::vector<model::Json> documents;
    for (const std::string& text : options.scenarios) {
        auto [name, edits] = parts_of(text);
        edits.insert(edits.begin(), options.edits.begin(), options.edits.end());
        auto base = planning::load_base(name, context.data_directory, edits);
        if (!base) return context.report(base.error());
        auto scenario = model::scenario_from_document(base->document, name, context.data_directory, base->directory);
        if (!scenario) return context.report(scenario.error());
        auto constants = calibration::load_cost_constants(*scenario, context.data_directory);
        if (!constants) return context.report(constants.error());
        auto prediction = sim::Predictor(std::move(*constants)).predict(*scenario);
        if (!prediction) return context.report(prediction.error());
        for (const std::string& warning : prediction->warnings) context.note(name + ": " + warning);
        const bool edited = text.size() > name.size();
        compared.push_back({edited ? text.substr(name.size() + 1) : name, std::move(*scenario), std::move(*prediction)});
        documents.push_back(std::move(base->document));
    }
    const planning::Comparison comparison = planning::compare(std::move(compared), documents);
    print_document(planning::comparison_document(comparison), planning::comparison_json(comparison), options.output, context);
}

}  // namespace

void add_compare_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("compare", "Scenarios side by side, term by term");
    command->add_option("scenarios", options->scenarios, "Two or more; NAME,path=value,... is NAME with fields changed")
        ->required()
        ->expected(2, 16);
    command->add_option("--set", options->edits, "Change a field of all of them: path=value (repeatable)")
        ->take_all()
        ->allow_extra_args(false);
    add_document_output(*command, options->output);
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
