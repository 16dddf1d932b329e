// SPDX-License-Identifier: Apache-2.0
#include "backend/inference.h"

#include <algorithm>
#include <array>
#include <variant>

#include <fmt/format.h>

#include "backend/cuda/cuda_module.h"
#include "backend/ngram_drafter.h"
#include "backend/decode_loop.h"
#include "backend/scripted_drafter.h"
#include "model/eagle3_head.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

constexpr std::array<std::pair<DraftMethod, std::string_view>, 6> kMethods{{{DraftMethod::none, "none"},
                                                                            {DraftMethod::eagle3, "eagle3"},
                                                                            {DraftMethod::mtp, "mtp"},
                                                                            {DraftMethod::ngram, "ngram"},
                                                                            {DraftMethod::draft, "draft"},
                                                                            {DraftMethod::scripted, "scripted"}}};
constexpr std::int64_t kMaxTextLength = 1 << 20;
constexpr int kMaxRanks = 256;
constexpr int kMaxBatch = 1024;
constexpr std::size_t kTraceRows = 256;  // of a pass that records routing

std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

Expected<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path) {
    auto opened = Checkpoint::open(path);
    if (!opened) return tl::unexpected(opened.error());
    return std::make_unique<Checkpoint>(std::move(*opened));
}

/// Keeps a made drafter behind the interface.
template <class Made>
Expected<std::unique_ptr<Drafter>> boxed(Expected<Made> made) {
    if (!made) return tl::unexpected(made.error());
    return std::make_unique<Made>(std::move(*made));
}

/// Rows of the widest pass: a chunk of a prompt, or the verified rows of a full batch, or a drafter's.
int rows_of_a_pass(const InferenceSettings& settings) {
    const int drafted = std::max({settings.draft_tokens, settings.steps + 1, settings.top_k});
    return std::max(kPrefillRows, settings.batch * (settings.method == DraftMethod::none ? 1 : drafted));
}

Expected<void> check_settings(const InferenceSettings& settings) {
    const auto refuse = [](std::string message, std::string context) {
        return fail(ErrorCode::invalid_input, std::move(message), std::move(context));
    };
    if (settings.ranks < 1 || settings.ranks > kMaxRanks)
        return refuse(fmt::format("must lie in 1 .. {}", kMaxRanks), "ranks");
    if (settings.batch < 1 || settings.batch > kMaxBatch)
        return refuse(fmt::format("must lie in 1 .. {}", kMaxBatch), "batch");
    if (settings.text_length < 1 || settings.text_length > kMaxTextLength) {
        return refuse(fmt::format("prompt and output must have 1 .. {} tokens together", kMaxTextLength), "text");
    }
    if (settings.method == DraftMethod::none) return {};
    if (settings.steps < 1 || settings.steps > 64) return refuse("must lie in 1 .. 64", "steps");
    if (settings.top_k < 1 || settings.top_k > 64) return refuse("must lie in 1 .. 64", "top_k");
    if (settings.draft_tokens < 0 || settings.draft_tokens == 1 || settings.draft_tokens > 1024) {
        return refuse("must be 0 or lie in 2 .. 1024 (the root is one of them)", "draft_tokens");
    }
    return {};
}

}  // namespace

std::string_view to_name(DraftMethod method) {
    for (const auto& [known, name] : kMethods) {
        if (known == method) return name;
    }
    return "unknown";
}

std::optional<DraftMethod> draft_method_from_name(std::string_view name) {
    for (const auto& [method, known] : kMethods) {
        if (known == name) return method;
    }
    return std::nullopt;
}

std::optional<Device> device_from_name(std::string_view name) {
    if (name == "cpu") return Device::cpu;
    if (name == "cuda") return Device::cuda;
    return std::nullopt;
}

Expected<Inference> Inference::open(InferenceSettings settings) {
    if (auto ok = check_settings(settings); !ok) return tl::unexpected(ok.error());
    Inference out;
    out.settings_ = std::move(settings);
    if (out.settings_.method == DraftMethod::scripted)
        out.settings_.steps = static_cast<int>(out.settings_.scripted_rates.size());
    if (out.settings_.draft_tokens == 0 || out.settings_.top_k == 1) {
        out.settings_.draft_tokens = 1 + out.settings_.steps * out.settings_.top_k;
    }
    if (auto ok = out.make_engines(); !ok) return tl::unexpected(ok.error());
    out.set_requests();
    const bool random = out.settings_.synthetic.has_value();
    if (auto ok = random ? out.make_random_target() : out.load_target(); !ok) return tl::unexpected(ok.error());
    if (auto ok = out.load_drafter(); !ok) return tl::unexpected(ok.error());
    return out;
}

Expected<void> Inference::make_engines() {
    if (settings_.device == Device::cpu) {
        engines_ = cpu::cpu_engines({settings_.ranks, settings_.expert_parallel, settings_.all_reduce});
        return {};
    }
    cuda::CudaSettings of_cuda = settings_.cuda;
    of_cuda.ranks = settings_.ranks;
    of_cuda.expert_parallel = settings_.expert_parallel;
    auto engines = cuda::load_cuda_engines(of_cuda);
    if (!engines) return tl::unexpected(engines.error());
    engines_ = std::move(*engines);
    return {};
}

std::int64_t Inference::room() const {
    if (settings_.method == DraftMethod::none) return 0;
    // Rows of the verify pass, or of a drafter's padded extend and its draft steps.
    return std::max(settings_.draft_tokens, settings_.steps + 1 + settings_.top_k * settings_.steps);
}

void Inference::set_requests() {
    request_.sequences = settings_.batch;
    request_.max_length = settings_.text_length + room();
    request_.max_rows = rows_of_a_pass(settings_);
    request_.hidden_read = settings_.method == DraftMethod::mtp;
    speculation_.steps = settings_.steps;
    speculation_.top_k = settings_.top_k;
    speculation_.draft_tokens = settings_.draft_tokens;
}

Expected<void> Inference::load_target() {
    auto checkpoint = open_checkpoint(settings_.model);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    checkpoint_ = std::move(*checkpoint);

    if (settings_.method == DraftMethod::eagle3) {  // the target is told which states the head will read
        if (settings_.draft_model.empty()) settings_.draft_model = without_slash(settings_.model) + "-eagle3";
        auto head = open_checkpoint(settings_.draft_model);
        if (!head) return tl::unexpected(head.error());
        draft_checkpoint_ = std::move(*head);
        const auto architecture = checkpoint_->architecture();
        if (!architecture) return tl::unexpected(architecture.error());
        auto described = draft_checkpoint_->eagle3(*architecture);
        if (!described) return tl::unexpected(described.error());
        speculation_.method = model::SpeculationMethod::eagle3;
        speculation_.head = described->head;
        request_.feature_layers = described->aux_layers;
    }
    auto target = engines_->target(*checkpoint_, request_);
    if (!target) return tl::unexpected(target.error());
    target_ = std::move(*target);
    end_tokens_ = target_->shape().numerics.end_tokens;
    return read_tokenizer();
}

Expected<void> Inference::make_random_target() {
    const model::Architecture& architecture = *settings_.synthetic;
    if (settings_.method == DraftMethod::eagle3) {
        speculation_.method = model::SpeculationMethod::eagle3;
        speculation_.head = model::default_eagle3_head(architecture);
        // Three states, low, middle and high, as published heads read them.
        const int layers = static_cast<int>(architecture.layers.size());
        for (const int layer : {std::min(2, layers), layers / 2, std::max(layers - 3, 0)}) request_.feature_layers.push_back(layer);
    }
    auto target = engines_->random_target(architecture, request_);
    if (!target) return tl::unexpected(target.error());
    target_ = std::move(*target);
    return {};
}

Expected<void> Inference::read_tokenizer() {
    if (!checkpoint_->has_byte_tokenizer()) return {};
    auto tokenizer = ByteTokenizer::load(without_slash(settings_.model) + "/byte_tokenizer.json");
    if (!tokenizer) return tl::unexpected(tokenizer.error());
    tokenizer_ = *tokenizer;
    if (tokenizer_->end_token() >= 0) end_tokens_.push_back(tokenizer_->end_token());
    return {};
}

Expected<void> Inference::load_drafter() {
    const auto keep = [&](auto made) -> Expected<void> {
        if (!made) return tl::unexpected(made.error());
        drafter_ = std::move(*made);
        return {};
    };
    const auto use_engine = [&](Expected<std::unique_ptr<Engine>> loaded, DrafterReads reads) -> Expected<void> {
        if (!loaded) return tl::unexpected(loaded.error());
        draft_engine_ = std::move(*loaded);
        return make_model_drafter(reads, draft_engine_->target_of_draft());
    };
    EngineRequest own = request_;
    own.feature_layers.clear();
    const bool random = settings_.synthetic.has_value();
    switch (settings_.method) {
        case DraftMethod::none: return {};
        case DraftMethod::ngram:
            return keep(boxed(
                NgramDrafter::create({settings_.steps, settings_.ngram_min, settings_.ngram_max, settings_.pad_misses})));
        case DraftMethod::scripted: return keep(boxed(ScriptedDrafter::create(settings_.scripted_rates, end_tokens_)));
        case DraftMethod::eagle3:
            return use_engine(random ? engines_->random_drafter(speculation_, own) : engines_->eagle3(*draft_checkpoint_, speculation_, own),
                              DrafterReads::features);
        case DraftMethod::mtp:
            speculation_.method = model::SpeculationMethod::mtp;
            return use_engine(random ? engines_->random_drafter(speculation_, own) : engines_->mtp(*checkpoint_, speculation_, own),
                              DrafterReads::hidden);
        case DraftMethod::draft: break;
    }
    if (settings_.draft_model.empty()) {
        return fail(ErrorCode::invalid_input, "a stand-alone drafter needs its folder", "draft model",
                    "name it with --draft-model");
    }
    auto checkpoint = open_checkpoint(settings_.draft_model);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    draft_checkpoint_ = std::move(*checkpoint);
    speculation_.method = model::SpeculationMethod::draft_model;
    speculation_.draft_model = settings_.draft_model;
    return use_engine(engines_->draft_model(*draft_checkpoint_, speculation_, own), DrafterReads::nothing);
}

Expected<void> Inference::make_model_drafter(DrafterReads reads, std::vector<int> target_of_draft) {
    auto made =
        ModelDrafter::create(*draft_engine_, target_->vocabulary(),
                             {reads, settings_.steps, settings_.top_k, settings_.draft_tokens, std::move(target_of_draft)});
    if (!made) return tl::unexpected(made.error());
    drafter_ = std::make_unique<ModelDrafter>(std::move(*made));
    return {};
}

Expected<FusedCycle*> Inference::fused_cycle() {
    const bool chain = settings_.method == DraftMethod::none ||
                       (settings_.top_k == 1 && (settings_.method == DraftMethod::eagle3 || settings_.method == DraftMethod::mtp));
    if (!chain || target_profile_ != nullptr) return nullptr;
    if (fused_ == nullptr) {
        auto made = engines_->fused_cycle(settings_.method == DraftMethod::none ? 0 : settings_.steps);
        if (!made) return tl::unexpected(made.error());
        fused_ = std::move(*made);
    }
    return fused_.get();
}

std::string Inference::describe() const {
    if (settings_.method == DraftMethod::none) return "plain decoding";
    std::string text =
        fmt::format("{}, {} step{}", to_name(settings_.method), settings_.steps, settings_.steps == 1 ? "" : "s");
    if (settings_.top_k > 1) text += fmt::format(", top-k {}, {} draft tokens", settings_.top_k, drafter_->width());
    return text;
}

void Inference::start_profile() {
    target_profile_ = std::make_unique<Profile>();
    target_->set_profile(target_profile_.get());
    if (!draft_engine_) return;
    draft_profile_ = std::make_unique<Profile>();
    draft_engine_->set_profile(draft_profile_.get());
}

void Inference::stop_profile() {
    target_->set_profile(nullptr);
    if (draft_engine_) draft_engine_->set_profile(nullptr);
}

Expected<model::Json> Inference::profile() const {
    model::Json json = model::Json::object();
    json["format"] = "draftboard.profile";
    json["version"] = 1;
    json["name"] = target_->shape().architecture.name;
    json["environment"] = engines_->environment();
    json["passes"] = model::Json::array();
    const auto add = [&](const Engine* engine, const Profile* measured, const char* who) -> Expected<void> {
        if (engine == nullptr || measured == nullptr) return {};
        for (const auto& [key, samples] : measured->passes()) {
            const auto& [pass, sequences, tokens] = key;
            const double count = static_cast<double>(std::max<std::int64_t>(samples.count, 1));
            const auto plan =
                engine->plan(pass, sequences, tokens, static_cast<std::int64_t>(samples.context_sum / count + 0.5));
            if (!plan) return tl::unexpected(plan.error());
            model::Json entry = to_json(samples, *plan, sequences, tokens);
            entry["model"] = who;
            json["passes"].push_back(std::move(entry));
        }
        return {};
    };
    if (auto ok = add(target_.get(), target_profile_.get(), "target"); !ok) return tl::unexpected(ok.error());
    if (auto ok = add(draft_engine_.get(), draft_profile_.get(), "drafter"); !ok) return tl::unexpected(ok.error());
    return json;
}

Expected<model::RoutingTrace> Inference::routing_trace(const std::vector<std::vector<int>>& texts) {
    model::RoutingTrace trace;
    for (const model::Layer& layer : target_->shape().architecture.layers) {
        const auto* experts = std::get_if<model::MoeFeedForward>(&layer.feed_forward);
        if (experts == nullptr) continue;
        ++trace.layers;
        trace.experts = experts->experts;
        trace.experts_per_token = experts->experts_per_token;
    }
    if (trace.layers == 0) return fail(ErrorCode::unsupported, "the model has no experts to trace", settings_.model);
    const auto layers = static_cast<std::size_t>(trace.layers);
    const auto chosen = static_cast<std::size_t>(trace.experts_per_token);
    std::vector<std::uint16_t> record;
    target_->set_routing_record(&record);
    Expected<void> done;
    for (const std::vector<int>& text : texts) {
        target_->clear(0);
        for (std::size_t first = 0; first < text.size() && done; first += kTraceRows) {
            const std::size_t rows = std::min(kTraceRows, text.size() - first);
            Batch batch;
            batch.pass = model::Pass::prefill;
            batch.sequences = {0};
            batch.tokens = static_cast<int>(rows);
            batch.token_ids.assign(text.begin() + static_cast<std::ptrdiff_t>(first),
                                   text.begin() + static_cast<std::ptrdiff_t>(first + rows));
            ForwardOutput output;
            record.clear();
            done = target_->forward(batch, {}, output);
            if (done && record.size() != layers * rows * chosen)
                done = fail(ErrorCode::unsupported, "the engine recorded no complete routing", settings_.model);
            if (!done) break;
            for (std::size_t row = 0; row < rows;
                 ++row) {  // the engine records layer by layer, a trace goes token by token
                for (std::size_t layer = 0; layer < layers; ++layer) {
                    const auto at = record.begin() + static_cast<std::ptrdiff_t>((layer * rows + row) * chosen);
                    trace.choices.insert(trace.choices.end(), at, at + static_cast<std::ptrdiff_t>(chosen));
                }
            }
        }
    }
    target_->set_routing_record(nullptr);
    target_->clear(0);
    if (!done) return tl::unexpected(done.error());
    return trace;
}

std::string to_text(const model::RoutingTrace& trace) {
    std::string text = fmt::format(
        "{{\"format\": \"draftboard.routing_trace\", \"version\": 1, \"experts\": {}, \"experts_per_token\": {}, "
        "\"layers\": {},\n \"tokens\": [",
        trace.experts, trace.experts_per_token, trace.layers);
    const auto chosen = static_cast<std::size_t>(trace.experts_per_token);
    const auto row = chosen * static_cast<std::size_t>(trace.layers);
    for (std::size_t i = 0; i < trace.choices.size(); ++i) {
        if (i > 0) text += i % row == 0 ? "]],\n  " : i % chosen == 0 ? "], " : ", ";
        if (i % row == 0)
            text += "[[";
        else if (i % chosen == 0)
            text += "[";
        text += fmt::format("{}", trace.choices[i]);
    }
    return text + (trace.choices.empty() ? "]}\n" : "]]]}\n");
}

}  // namespace draftboard::backend
