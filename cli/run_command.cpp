// SPDX-License-Identifier: Apache-2.0
// `draftboard run WEIGHTS`: real speculative inference; text to stdout as it comes, then what it took.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/loop_report.h"
#include "backend/operation_table.h"
#include "cli/inference_options.h"
#include "cli/interrupt.h"

namespace draftboard::cli {

namespace {

struct Options {
    InferenceOptions inference;
    std::vector<std::string> prompts;
    std::string prompts_file;
    std::string tokens_file;
    std::string profile;
    bool operations = false;
};

model::Expected<std::vector<Prompt>> read_all_prompts(const Options& options, const std::string& data_directory) {
    const int sources =
        (options.prompts.empty() ? 0 : 1) + (options.prompts_file.empty() ? 0 : 1) + (options.tokens_file.empty() ? 0 : 1);
    if (sources != 1) {
        return model::fail(model::ErrorCode::invalid_input,
                           sources == 0 ? "nothing to go on from" : "more than one source of prompts", "run",
                           "give one of --prompt, --prompts-file and --tokens-file");
    }
    if (!options.prompts_file.empty()) return read_prompts(options.prompts_file, data_directory);
    if (!options.tokens_file.empty()) return read_token_lines(options.tokens_file);
    std::vector<Prompt> out;
    for (const std::string& text : options.prompts) out.push_back({text, {}});
    for (const Prompt& prompt : out) {
        if (prompt.text.empty())
            return model::fail(model::ErrorCode::invalid_input, "is empty", "--prompt", "give some text");
    }
    return out;
}

/// Tokens of the running text as they come: text through the tokenizer, else ids.
class Printer {
 public:
    explicit Printer(bool bytes) : bytes_(bytes) {}
    static void write(const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    }
    void print(std::span<const int> tokens) {
        if (bytes_) return write(stream_.push(tokens));
        for (const int token : tokens) write(fmt::format("{} ", token));
    }
    void finish() { write((bytes_ ? stream_.finish() : std::string()) + "\n"); }

 private:
    bool bytes_;
    backend::ByteStream stream_;
};

std::string text_of(const backend::Inference& inference, std::span<const int> tokens) {
    if (!inference.tokenizer()) return fmt::format("{}", fmt::join(tokens, " "));
    backend::ByteStream stream;
    const std::string text = stream.push(tokens);
    return text + stream.finish();
}

model::Json result_json(const backend::Inference& inference, const backend::DecodeLoop& loop, std::size_t requests) {
    model::Json json = model::Json::object();
    json["text"] = text_of(inference, loop.result(0).tokens);
    json["tokens"] = loop.result(0).tokens;
    json.update(backend::loop_json(loop));
    json["speculation"] = inference.describe();
    json["sequences"] = model::Json::array();
    for (std::size_t i = 0; i < requests; ++i) {
        const backend::Result& result = loop.result(static_cast<int>(i));
        json["sequences"].push_back({{"text", text_of(inference, result.tokens)},
                                     {"tokens", result.tokens},
                                     {"finish", backend::to_name(result.finish)},
                                     {"near_ties", result.near_ties}});
    }
    return json;
}

backend::LoopOptions loop_options(const Options& options, const std::atomic<bool>& cancel) {
    backend::LoopOptions out;
    out.cancel = &cancel;
    out.batch = options.inference.settings.batch;
    out.seed = options.inference.seed;
    return out;
}

model::Expected<void> submit_all(backend::DecodeLoop& loop, const Options& options, const std::vector<Prompt>& prompts,
                                 const backend::Inference& inference, int most_tokens) {
    for (const Prompt& prompt : prompts) {
        backend::Request request = request_of(options.inference, prompt, inference);
        request.max_tokens = std::min(request.max_tokens, most_tokens);
        if (const auto submitted = loop.submit(std::move(request)); !submitted) return tl::unexpected(submitted.error());
    }
    return {};
}

/// Once more over the same prompts, each operation timed; the run before was not slowed down by it.
model::Expected<std::vector<backend::PassTable>> time_operations(const Options& options, const std::vector<Prompt>& prompts,
                                                                 backend::Inference& inference, const std::atomic<bool>& cancel) {
    constexpr int kTokens = 32;
    inference.start_profile();
    backend::DecodeLoop loop(inference.target(), inference.drafter(), loop_options(options, cancel));
    model::Expected<void> done = submit_all(loop, options, prompts, inference, kTokens);
    if (done) done = loop.run();
    inference.stop_profile();
    if (!done) return tl::unexpected(done.error());
    const auto profile = inference.profile();
    if (!profile) return tl::unexpected(profile.error());
    return backend::operation_tables(*profile);
}

void run(const Options& options, CommandContext& context) {
    auto prompts = read_all_prompts(options, context.data_directory);
    if (!prompts) return context.report(prompts.error());
    if (const auto folder = std::filesystem::path(options.profile).parent_path(); !folder.empty() && !std::filesystem::is_directory(folder)) {
        return context.report({model::ErrorCode::not_found, "the folder for the profile does not exist", folder.string(), "make it first"});
    }
    auto inference = open_inference(options.inference, *prompts, context.data_directory);
    if (!inference) return context.report(inference.error());
    if (inference->settings().method == backend::DraftMethod::scripted) {
        context.note("scripted acceptance: the text means nothing, only the times do");
    }
    if (!options.profile.empty()) inference->start_profile();

    // One text streams; of several each is printed whole, when all are done.
    const bool streams = !context.json && prompts->size() == 1;
    Printer printer(inference->tokenizer().has_value());
    const Interrupt interrupt;
    backend::LoopOptions of_loop = loop_options(options, interrupt.flag());
    if (const auto fused = inference->fused_cycle(); fused) {
        of_loop.fused = *fused;
    } else {
        context.note("the host drives each pass: " + fused.error().to_text());
    }
    if (streams) of_loop.on_tokens = [&](int, std::span<const int> tokens) { printer.print(tokens); };
    backend::DecodeLoop loop(inference->target(), inference->drafter(), of_loop);
    if (auto ok = submit_all(loop, options, *prompts, *inference, options.inference.max_tokens); !ok) {
        return context.report(ok.error());
    }
    if (streams) Printer::write(prompts->front().text);
    const auto done = loop.run();
    if (streams) printer.finish();
    if (!done) return context.report(done.error());
    if (interrupt.flag()) {
        context.note("interrupted; what follows is of the tokens so far");
        context.exit_code = kInterrupted;
    }

    if (!options.profile.empty()) {
        const auto profile = inference->profile();
        if (!profile) return context.report(profile.error());
        if (auto written = write_file(options.profile, profile->dump(1) + "\n"); !written)
            return context.report(written.error());
        context.note("profile written to " + options.profile);
    }
    std::vector<backend::PassTable> tables;
    double ceiling = 0;
    if (options.operations && !interrupt.flag()) {
        auto timed = time_operations(options, *prompts, *inference, interrupt.flag());
        if (!timed) return context.report(timed.error());
        tables = std::move(*timed);
        ceiling = inference->read_ceiling_gb_per_s();
    }
    if (context.json) {
        model::Json json = result_json(*inference, loop, prompts->size());
        if (options.operations) json["operations"] = backend::to_json(tables, ceiling);
        return context.print(json);
    }
    if (!streams) {
        for (std::size_t i = 0; i < prompts->size(); ++i) {
            context.print(fmt::format("--- {} ({})", i + 1, backend::to_name(loop.result(static_cast<int>(i)).finish)));
            context.print(text_of(*inference, loop.result(static_cast<int>(i)).tokens));
        }
    }
    context.print("\n" + inference->describe() + ": " + backend::loop_text(loop));
    if (options.operations) context.print(backend::to_text(tables, ceiling));
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("run", "Speculative inference on this machine");
    add_inference_options(*command, options->inference);
    command->add_option("--prompt", options->prompts, "Text to go on from; several make a batch");
    command->add_option("--prompts-file", options->prompts_file,
                        "JSON Lines with \"prompt\", or a shipped set: code, prose, structured");
    command->add_option("--tokens-file", options->tokens_file,
                        "Token ids, a sequence a line, for models without a byte tokenizer");
    command->add_option("--profile", options->profile, "Write the measured time of each operation to FILE");
    command->add_flag("--operations", options->operations, "Then time each operation: its rate beside what memory can do");
    command->callback([options, &context] { run(*options, context); });
}

}  // namespace draftboard::cli
