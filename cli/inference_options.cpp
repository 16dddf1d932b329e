// SPDX-License-Identifier: Apache-2.0
#include "cli/inference_options.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/prompt_file.h"
#include "model/architecture_library.h"
#include "model/data_library.h"
#include "model/limits.h"

namespace draftboard::cli {

namespace fs = std::filesystem;
using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

std::vector<std::string> folders_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(folder, ec)) {
        if (fs::exists(entry.path() / "config.json", ec)) names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// What only the GPU engine knows.
void add_cuda_options(CLI::App& command, InferenceOptions& options) {
    backend::cuda::CudaSettings& cuda = options.settings.cuda;
    const std::string group = "On GPUs (--device cuda)";
    const auto modes = CLI::IsMember({"eager", "piecewise", "full"});
    command.add_option("--launch", options.launch, "eager, piecewise or full: graphs of all passes")->check(modes)->group(group);
    command.add_option("--launch-decode", options.launch_decode, "Of plain steps alone")->check(modes)->group(group);
    command.add_option("--launch-verify", options.launch_verify, "Of verify passes alone")->check(modes)->group(group);
    command.add_option("--launch-draft", options.launch_draft, "Of the drafter's passes alone")->check(modes)->group(group);
    command.add_flag("!--no-fused-cycles", cuda.fused_cycles, "The host drives each pass, also of greedy chains")->group(group);
    command.add_flag("--bf16", cuda.bf16_activations, "Inputs of matrices and messages in bf16 instead of float")->group(group);
    command.add_flag("--bf16-cache", cuda.bf16_cache, "Keys, values and latents in bf16 instead of float")->group(group);
    command.add_flag("--library-matrices", cuda.cublaslt_for_all, "cuBLASLt also for few rows")->group(group);
    command.add_flag("!--no-fused-norm", cuda.fuse_norm, "All-reduce and norm as two kernels")->group(group);
    command.add_flag("!--no-p2p", cuda.peer_access, "No peer access: through host memory, as on boxes without it")->group(group);
    command.add_option("--host-staged-up-to", cuda.host_staged_up_to, "Bytes of a message up to which the host-staged one-shot carries it")
        ->check(CLI::Range(0, 1 << 28))->group(group);
    command.add_option("--one-shot-up-to", cuda.one_shot_up_to, "The same for one-shot over peer access")
        ->check(CLI::Range(0, 1 << 28))->group(group);
    command.add_option("--two-shot-up-to", cuda.two_shot_up_to, "The same for two-shot; NCCL carries the rest")
        ->check(CLI::Range(0, 1 << 28))->group(group);
    command.add_option("--nccl-algorithm", cuda.nccl_algorithm, "Ring or Tree; NCCL's choice by default")->group(group);
    command.add_option("--nccl-protocol", cuda.nccl_protocol, "LL, LL128 or Simple; NCCL's choice by default")->group(group);
    command.add_option("--nccl-channels", cuda.nccl_channels, "Channels; NCCL's choice by default")->check(CLI::Range(0, 64))->group(group);
    command.add_flag("--share-gpu", cuda.share_device, "All ranks on the first GPU, for tests; needs --host-staged-up-to or --one-shot-up-to")
        ->group(group);
    command.add_option("--collective-timeout", cuda.timeout_s, "Seconds until a rank that does not arrive ends the run")
        ->check(CLI::Range(0.01, 3600.0))->group(group);
    command.add_option("--synthetic", options.synthetic, "Random weights of an architecture instead of a checkpoint")->group("Shapes alone");
    command.add_option("--layers", options.synthetic_layers, "Of --synthetic: its first layers alone")->check(CLI::Range(1, 1024))->group("Shapes alone");
    command.add_option("--tp-rank-of", cuda.tensor_rank_of, "One rank's share of a layout of so many, alone on one GPU")
        ->check(CLI::Range(1, 256))->group("Shapes alone");
}

}  // namespace

void add_inference_options(CLI::App& command, InferenceOptions& options) {
    backend::InferenceSettings& settings = options.settings;
    command.add_option("weights", settings.model, "Folder of a checkpoint, or the name of a shipped model");
    command.add_option("--device", options.device, "Where it runs: cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
    command.add_option("--speculation", options.method, "none, eagle3, mtp, ngram, draft or scripted")
        ->check(CLI::IsMember({"none", "eagle3", "mtp", "ngram", "draft", "scripted"}));
    command.add_option("--draft-model", settings.draft_model,
                       "The EAGLE-3 head (default: the model's name with -eagle3) or the draft model");
    command.add_option("--steps", settings.steps, "Draft depth")->check(CLI::Range(1, 64));
    command.add_option("--top-k", settings.top_k, "Branches a draft step; 1: a chain")->check(CLI::Range(1, 64));
    command.add_option("--draft-tokens", settings.draft_tokens, "Verified tokens of a tree, root included")
        ->check(CLI::Range(2, 1024));
    command.add_option("--rates", settings.scripted_rates, "Scripted acceptance: conditional rates, one a position")
        ->delimiter(',');
    command.add_option("--ngram-min", settings.ngram_min, "Shortest suffix that is looked up")->check(CLI::Range(1, 64));
    command.add_option("--ngram-max", settings.ngram_max, "Longest suffix that is looked up")->check(CLI::Range(1, 64));
    command.add_flag("--plain-misses", options.plain_misses,
                     "n-gram: a cycle without a hit is a plain step, not a padded one");
    command.add_option("--ranks,--gpus", settings.ranks, "Ranks that share the model: threads, or GPUs")->check(CLI::Range(1, 256));
    command.add_flag("--ep", settings.expert_parallel, "Whole experts a rank instead of slices of each");
    command.add_option("--all-reduce", options.all_reduce, "one_shot or ring")->check(CLI::IsMember({"one_shot", "ring"}));
    command.add_option("--batch", settings.batch, "Sequences at once")->check(CLI::Range(1, 1024));
    command.add_option("--max-tokens", options.max_tokens, "Tokens to generate for each prompt")
        ->check(CLI::Range(1, 1 << 20));
    command.add_option("--temperature", options.sampling.temperature, "0: greedy");
    command.add_option("--top-p", options.sampling.top_p, "Nucleus of the distribution");
    command.add_option("--seed", options.seed, "Of all chance");
    command.add_flag("--ignore-end", options.ignore_end, "Go on after end tokens, for timing");
    add_cuda_options(command, options);
}

Expected<std::string> find_model(const std::string& name_or_path, const std::string& data_directory) {
    std::error_code ec;
    if (fs::is_directory(name_or_path, ec)) return name_or_path;
    const fs::path models = fs::path(data_directory) / "models";
    const std::vector<std::string> shipped = folders_in(models);
    if (std::find(shipped.begin(), shipped.end(), name_or_path) != shipped.end()) return (models / name_or_path).string();
    const auto near = model::nearest_names(name_or_path, shipped);
    return fail(ErrorCode::not_found, "is no folder and no shipped model", name_or_path,
                shipped.empty() ? "there is none in " + models.string()
                                : fmt::format("shipped: {}", fmt::join(near.empty() ? shipped : near, ", ")));
}

Expected<std::vector<Prompt>> read_prompts(const std::string& path, const std::string& data_directory) {
    std::error_code ec;
    const fs::path shipped = fs::path(data_directory) / "models" / "prompts" / (path + ".jsonl");
    const bool by_name = path != "-" && !fs::exists(path, ec) && fs::exists(shipped, ec);
    const auto text = read_input(by_name ? shipped.string() : path);
    if (!text) return tl::unexpected(text.error());
    auto texts = backend::parse_prompt_lines(*text, path);
    if (!texts) return tl::unexpected(texts.error());
    std::vector<Prompt> prompts;
    for (std::string& one : *texts) prompts.push_back({std::move(one), {}});
    return prompts;
}

Expected<std::vector<Prompt>> read_token_lines(const std::string& path) {
    const auto text = read_input(path);
    if (!text) return tl::unexpected(text.error());
    auto sequences = backend::parse_token_lines(*text, path);
    if (!sequences) return tl::unexpected(sequences.error());
    std::vector<Prompt> prompts;
    for (std::vector<int>& one : *sequences) prompts.push_back({{}, std::move(one)});
    return prompts;
}

namespace {

Expected<void> set_device(const InferenceOptions& options, backend::InferenceSettings& settings) {
    settings.device = *backend::device_from_name(options.device);
    const auto mode = [&](const std::string& own) {
        return *backend::cuda::launch_mode_from_name(own.empty() ? options.launch : own);
    };
    settings.cuda.launch = {mode(options.launch_decode), mode(options.launch_verify), mode(options.launch_draft)};
    if (settings.cuda.tensor_rank_of > 0 && settings.ranks > 1) {
        return fail(ErrorCode::invalid_input, "one rank alone and several ranks exclude each other", "--tp-rank-of",
                    "leave out --gpus, or --tp-rank-of");
    }
    if (settings.cuda.tensor_rank_of > 0 && settings.device != backend::Device::cuda) {
        return fail(ErrorCode::unsupported, "one rank alone runs on a GPU", "--tp-rank-of", "add --device cuda");
    }
    return {};
}

model::Error no_tokenizer(const std::string& model) {
    return {ErrorCode::unsupported, "the model has no byte tokenizer, so text can't be given to it", model,
            "give token ids with --tokens-file"};
}

/// A folder, or an architecture to be filled with random weights.
Expected<void> name_weights(const InferenceOptions& options, const std::string& data_directory, backend::InferenceSettings& settings) {
    if (settings.model.empty() == options.synthetic.empty()) {
        return fail(ErrorCode::invalid_input, settings.model.empty() ? "no weights are named" : "weights and --synthetic exclude each other",
                    "run", "name a folder, a shipped model, or --synthetic ARCHITECTURE");
    }
    if (options.synthetic.empty()) {
        auto folder = find_model(settings.model, data_directory);
        if (!folder) return tl::unexpected(folder.error());
        settings.model = *folder;
        return {};
    }
    auto architecture = model::find_architecture(options.synthetic, data_directory);
    if (!architecture) return tl::unexpected(architecture.error());
    const auto layers = static_cast<std::size_t>(options.synthetic_layers);
    if (layers > architecture->layers.size()) {
        return fail(ErrorCode::invalid_input, fmt::format("the model has {} layers", architecture->layers.size()), "--layers");
    }
    if (layers > 0) architecture->layers.resize(layers);
    settings.model = options.synthetic;
    settings.synthetic = std::move(*architecture);
    return {};
}

}  // namespace

Expected<backend::Inference> open_inference(const InferenceOptions& options, std::vector<Prompt>& prompts,
                                            const std::string& data_directory) {
    if (const auto problems = options.sampling.validate(); !problems.empty())
        return tl::unexpected(model::to_error(problems, "sampling"));
    backend::InferenceSettings settings = options.settings;
    settings.method = *backend::draft_method_from_name(options.method);
    settings.pad_misses = !options.plain_misses;
    settings.all_reduce =
        options.all_reduce == "ring" ? backend::cpu::AllReduceAlgorithm::ring : backend::cpu::AllReduceAlgorithm::one_shot;
    settings.batch = std::min(settings.batch, static_cast<int>(std::min(prompts.size(), backend::kMaxPrompts)));
    if (auto ok = set_device(options, settings); !ok) return tl::unexpected(ok.error());
    if (auto ok = name_weights(options, data_directory, settings); !ok) return tl::unexpected(ok.error());
    if (!settings.draft_model.empty()) {
        auto draft = find_model(settings.draft_model, data_directory);
        if (!draft) return tl::unexpected(draft.error());
        settings.draft_model = *draft;
    }
    const bool all_tokens = std::ranges::none_of(prompts, [](const Prompt& prompt) { return prompt.tokens.empty(); });
    if (settings.synthetic && !all_tokens) return tl::unexpected(no_tokenizer(settings.model));
    std::size_t longest = 1;  // bytes bound the tokens of a text, but for the begin token
    for (const Prompt& prompt : prompts) longest = std::max({longest, prompt.text.size() + 1, prompt.tokens.size()});
    settings.text_length = static_cast<std::int64_t>(longest) + options.max_tokens;
    auto inference = backend::Inference::open(settings);
    if (!inference) return inference;
    for (Prompt& prompt : prompts) {
        if (!prompt.tokens.empty()) continue;
        if (!inference->tokenizer()) return tl::unexpected(no_tokenizer(settings.model));
        prompt.tokens = inference->tokenizer()->encode(prompt.text);
    }
    return inference;
}

backend::Request request_of(const InferenceOptions& options, const Prompt& prompt, const backend::Inference& inference) {
    return {prompt.tokens, options.sampling, options.max_tokens,
            options.ignore_end ? std::vector<int>{} : inference.end_tokens()};
}

}  // namespace draftboard::cli
