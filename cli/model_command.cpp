// SPDX-License-Identifier: Apache-2.0
// `draftboard model show CONFIG`: what an architecture is made of.

#include "cli/command.h"
#include "model/architecture_library.h"
#include "model/architecture_report.h"
#include "model/data_library.h"

namespace draftboard::cli {

void add_model_command(CLI::App& app, CommandContext& context) {
    CLI::App* model_command = app.add_subcommand("model", "Architectures from Hugging Face configs");
    model_command->require_subcommand(1);

    auto name = std::make_shared<std::string>();
    CLI::App* show = model_command->add_subcommand(
        "show", "Parameters, bytes, active parameters, collectives per forward pass");
    show->add_option("config", *name, "A config.json, its folder, or the name of a shipped model")
        ->required();
    show->callback([name, &context] {
        auto architecture = model::find_architecture(*name, context.data_directory, "");
        if (!architecture) return context.report(architecture.error());
        if (context.json) {
            context.print(model::architecture_report(*architecture));
        } else {
            context.print(model::architecture_text(*architecture));
        }
    });

    CLI::App* list = model_command->add_subcommand("list", "Names of the shipped models");
    list->callback([&context] {
        model::Json names = model::shipped_names("architectures", context.data_directory);
        if (context.json) return context.print(names);
        std::string text;
        for (const auto& item : names) text += item.get<std::string>() + "\n";
        context.print(text);
    });
}

}  // namespace draftboard::cli
