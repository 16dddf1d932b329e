// SPDX-License-Identifier: Apache-2.0
// `draftboard acceptance WEIGHTS --prompts F ...`: how many drafts are accepted, by position and by kind of text.
// The document is itself the scenario's acceptance object: predict --set "speculation.acceptance=$(cat FILE)".

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "backend/loop_report.h"
#include "cli/inference_options.h"
#include "cli/interrupt.h"

namespace draftboard::cli {

namespace {

struct Options {
    InferenceOptions inference;
    std::vector<std::string> prompts;
    int limit = 0;
    std::string output;
    std::string routing_trace;
};

struct PromptSet {
    std::string name;
    std::size_t first = 0;  ///< among all prompts
    std::size_t count = 0;
    backend::AcceptanceCounter counter;
};

void run(Options& options, CommandContext& context) {
    if (options.inference.method == "none") {
        return context.report({model::ErrorCode::invalid_input, "plain decoding accepts nothing", "--speculation none",
                               "choose eagle3, mtp, ngram or draft"});
    }
    std::vector<Prompt> prompts;
    std::vector<PromptSet> sets;
    for (const std::string& path : options.prompts) {
        auto read = read_prompts(path, context.data_directory);
        if (!read) return context.report(read.error());
        if (options.limit > 0 && read->size() > static_cast<std::size_t>(options.limit))
            read->resize(static_cast<std::size_t>(options.limit));
        sets.push_back(
            {std::filesystem::path(path).stem().string(), prompts.size(), read->size(), backend::AcceptanceCounter(0)});
        prompts.insert(prompts.end(), read->begin(), read->end());
    }
    auto inference = open_inference(options.inference, prompts, context.data_directory);
    if (!inference) return context.report(inference.error());

    const Interrupt interrupt;
    backend::LoopOptions loop_options;
    loop_options.cancel = &interrupt.flag();
    loop_options.batch = options.inference.settings.batch;
    loop_options.seed = options.inference.seed;
    backend::DecodeLoop loop(inference->target(), inference->drafter(), loop_options);
    for (const Prompt& prompt : prompts) {
        const auto submitted = loop.submit(request_of(options.inference, prompt, *inference));
        if (!submitted) return context.report(submitted.error());
    }
    context.note(fmt::format("{} prompts, {}", prompts.size(), inference->describe()));
    if (const auto done = loop.run(); !done) return context.report(done.error());
    if (interrupt.flag()) {
        context.note("interrupted; what follows is of the tokens so far");
        context.exit_code = kInterrupted;
    }

    std::vector<backend::AcceptanceSet> measured;
    std::vector<std::vector<int>> texts;
    for (PromptSet& set : sets) {
        for (std::size_t i = set.first; i < set.first + set.count; ++i) {
            const backend::Result& result = loop.result(static_cast<int>(i));
            set.counter.add(result.acceptance);
            texts.push_back(prompts[i].tokens);
            texts.back().insert(texts.back().end(), result.tokens.begin(), result.tokens.end());
        }
        measured.push_back({set.name, static_cast<std::int64_t>(set.count), set.counter});
    }
    const std::string source =
        fmt::format("{} with {}, measured", inference->target().shape().architecture.name, inference->describe());
    const model::Json document = backend::acceptance_document(measured, source);
    if (!options.output.empty()) {
        if (auto written = write_file(options.output, document.dump(1) + "\n"); !written)
            return context.report(written.error());
        context.note("acceptance written to " + options.output);
    }
    if (!options.routing_trace.empty()) {
        const auto trace = inference->routing_trace(texts);
        if (!trace) return context.report(trace.error());
        if (auto written = write_file(options.routing_trace, backend::to_text(*trace)); !written)
            return context.report(written.error());
        context.note(fmt::format("experts of {} tokens written to {}", trace->tokens(), options.routing_trace));
    }
    if (context.json) return context.print(document);
    for (const auto& set : measured)
        context.print(fmt::format("{} ({} prompts): {}", set.name, set.prompts, backend::acceptance_text(set.counter)));
    if (measured.size() > 1) context.print("together: " + backend::acceptance_text(backend::together(measured)));
}

}  // namespace

void add_acceptance_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("acceptance", "Measured acceptance by position and kind of text");
    add_inference_options(*command, options->inference);
    command
        ->add_option("--prompts", options->prompts,
                     "JSON Lines with \"prompt\", or shipped sets: code, prose, structured; one or more")
        ->required();
    command->add_option("--limit", options->limit, "Prompts of each set that are used; 0: all")
        ->check(CLI::NonNegativeNumber);
    command->add_option("-o,--output", options->output, "Write the document to FILE");
    command->add_option("--routing-trace", options->routing_trace, "Write the experts of every token to FILE");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
