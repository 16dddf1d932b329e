// SPDX-License-Identifier: Apache-2.0
#include "calibration/configuration_run.h"

#include <algorithm>
#include <cmath>

#include "backend/decode_loop.h"
#include "backend/ngram_drafter.h"
#include "backend/scripted_drafter.h"
#include "calibration/engine_measurements.h"
#include "calibration/disturbance.h"

namespace draftboard::calibration {

using model::Expected;
using model::SpeculationMethod;

namespace {

/// Cycles of a visit before any counts: as many as the calibration leaves out (engine_session.cpp), for the same reason.
constexpr int kWarmUpCycles = 8;
constexpr double kLeastCycles = 5;
constexpr double kPrefillMs = 0.02;  // looking for waiting texts takes less, running one more

backend::DraftMethod draft_method(SpeculationMethod method) {
    switch (method) {
        case SpeculationMethod::eagle3: return backend::DraftMethod::eagle3;
        case SpeculationMethod::mtp: return backend::DraftMethod::mtp;
        case SpeculationMethod::ngram: return backend::DraftMethod::ngram;
        case SpeculationMethod::draft_model: return backend::DraftMethod::draft;
        case SpeculationMethod::none: break;
    }
    return backend::DraftMethod::none;
}

TextAcceptance text_acceptance(const backend::AcceptanceCounter& counter) {
    TextAcceptance text;
    text.cycles = static_cast<double>(counter.cycles());
    text.hits = static_cast<double>(counter.hits());
    for (int i = 1; i <= counter.depth(); ++i) text.reached.push_back(static_cast<double>(counter.reached(i)));
    return text;
}

}  // namespace

MeasuredAcceptance acceptance_of(const std::vector<TextAcceptance>& texts, int steps) {
    MeasuredAcceptance measured;
    measured.texts = static_cast<double>(texts.size());
    double cycles = 0;
    double hits = 0;
    std::vector<double> reached(static_cast<std::size_t>(std::max(steps, 0)), 0.0);
    std::vector<std::pair<double, double>> rows;  // tokens, cycles
    for (const TextAcceptance& text : texts) {
        cycles += text.cycles;
        hits += text.hits;
        double tokens = text.cycles;
        for (std::size_t i = 0; i < std::min(reached.size(), text.reached.size()); ++i) {
            reached[i] += text.reached[i];
            tokens += text.reached[i];
        }
        rows.emplace_back(tokens, text.cycles);
    }
    for (const double count : reached) measured.acceptance.per_position.push_back(hits > 0 ? count / hits : 0.0);
    measured.acceptance.hit = cycles > 0 ? hits / cycles : 1.0;
    if (!(cycles > 0)) return measured;
    double tokens = cycles;
    for (const double count : reached) tokens += count;
    measured.length = tokens / cycles;
    const double n = measured.texts;
    double squares = 0;
    for (const auto& [text_tokens, text_cycles] : rows) {
        const double residual = text_tokens - measured.length * text_cycles;
        squares += residual * residual;
    }
    if (n > 1) measured.acceptance.relative_spread = std::min(1.0, std::sqrt(squares * n / (n - 1)) / tokens);
    return measured;
}

bool has_draft_model(SpeculationMethod method) { return method != SpeculationMethod::none && method != SpeculationMethod::ngram; }

Expected<std::shared_ptr<backend::Inference>> open_engines(const std::vector<SuiteConfiguration>& configurations,
                                                           const MeasuredModel& model, const MeasuredDevice& device, int text_length) {
    backend::InferenceSettings settings = settings_of(model, device);
    settings.method = backend::DraftMethod::none;
    settings.text_length = text_length;
    int rows = 0;  // of drafts, beside a text
    for (const SuiteConfiguration& one : configurations) {
        settings.ranks = one.ranks;
        settings.batch = std::max(settings.batch, one.batch);
        rows = std::max({rows, one.verify_tokens(), one.steps + 1 + one.top_k * one.steps});
        if (!has_draft_model(one.method)) continue;
        settings.method = draft_method(one.method);
        settings.steps = std::max(settings.steps, one.steps);
    }
    settings.text_length += rows;
    auto inference = backend::Inference::open(settings);
    if (!inference) return tl::unexpected(inference.error());
    if (!model.architecture && !inference->tokenizer()) {
        return model::fail(model::ErrorCode::unsupported, "the model has no byte tokenizer, so the prompts can't be given to it", model.folder,
                           "choose a model that has one");
    }
    return std::make_shared<backend::Inference>(std::move(*inference));
}

Expected<ConfigurationRun> ConfigurationRun::open(const SuiteConfiguration& configuration,
                                                  std::shared_ptr<backend::Inference> engines) {
    ConfigurationRun run;
    run.configuration_ = configuration;
    run.inference_ = std::move(engines);
    const backend::InferenceSettings& settings = run.inference_->settings();
    const int steps = std::max(1, configuration.steps);
    if (configuration.scripted()) {
        auto made = backend::ScriptedDrafter::create(configuration.scripted_rates, {});
        if (!made) return tl::unexpected(made.error());
        run.drafter_ = std::make_unique<backend::ScriptedDrafter>(std::move(*made));
    } else if (configuration.method == SpeculationMethod::ngram) {
        auto made = backend::NgramDrafter::create({steps, settings.ngram_min, settings.ngram_max, settings.pad_misses});
        if (!made) return tl::unexpected(made.error());
        run.drafter_ = std::make_unique<backend::NgramDrafter>(std::move(*made));
    } else if (has_draft_model(configuration.method)) {
        backend::Engine* engine = run.inference_->drafter_engine();
        if (engine == nullptr || settings.method != draft_method(configuration.method)) {
            return model::fail(model::ErrorCode::invalid_input, "the engines were opened for another drafter",
                               configuration.name());
        }
        const backend::DrafterReads reads = configuration.method == SpeculationMethod::eagle3 ? backend::DrafterReads::features
                                            : configuration.method == SpeculationMethod::mtp  ? backend::DrafterReads::hidden
                                                                                              : backend::DrafterReads::nothing;
        const int drafts = configuration.top_k > 1 ? configuration.verify_tokens() : 0;
        auto made = backend::ModelDrafter::create(
            *engine, run.inference_->target().vocabulary(),
            {reads, steps, configuration.top_k, drafts, engine->target_of_draft()});
        if (!made) return tl::unexpected(made.error());
        run.drafter_ = std::make_unique<backend::ModelDrafter>(std::move(*made));
    }
    // As `run` decodes: greedy chains and plain decoding whole on the device, where it can.
    const bool chain = configuration.method == SpeculationMethod::none ||
                       (configuration.top_k == 1 && (configuration.method == SpeculationMethod::eagle3 || configuration.method == SpeculationMethod::mtp));
    if (chain && configuration.launch == "full") {
        auto fused = run.inference_->make_fused_cycle(configuration.method == SpeculationMethod::none ? 0 : configuration.steps);
        if (fused) run.fused_ = std::move(*fused);  // else the host drives each pass, as run does
    }
    return run;
}

Expected<RoundSample> ConfigurationRun::decode(const std::vector<std::vector<int>>& texts, int tokens) {
    backend::LoopOptions options;
    options.batch = configuration_.batch;
    options.fused = profiling_ ? nullptr : fused_.get();  // operations are timed in passes of the host's
    backend::DecodeLoop loop(inference_->target(), drafter_.get(), options);
    for (const std::vector<int>& text : texts) {
        backend::Request request;
        request.prompt = text;
        request.max_tokens = tokens;
        if (auto submitted = loop.submit(std::move(request)); !submitted) return tl::unexpected(submitted.error());
    }
    RoundSample sample;
    double us = 0;
    double all_us = 0;
    double all_cycles = 0;
    int cycles = 0;
    for (;;) {
        const Disturbance disturbance;
        auto more = loop.step();
        if (!more) return tl::unexpected(more.error());
        const backend::CycleReport& report = loop.last_cycle();
        const bool counts = report.sequences == configuration_.batch && report.passes == 1 && report.prefill_ms < kPrefillMs;
        if (counts && ++cycles > kWarmUpCycles) {
            all_us += report.cycle_ms() * 1e3;
            all_cycles += 1;
            if (!disturbance.happened()) {
                us += report.cycle_ms() * 1e3;
                sample.cycles += 1;
            }
        }
        if (!*more) break;
    }
    sample.disturbed = all_cycles > 0 ? 1 - sample.cycles / all_cycles : 0;
    if (sample.cycles < kLeastCycles) {  // nothing is left of a round that was disturbed throughout: all of it counts
        us = all_us;
        sample.cycles = all_cycles;
    }
    if (sample.cycles > 0) sample.cycle_us = us / sample.cycles;
    for (int request = 0; request < static_cast<int>(texts.size()); ++request) {
        sample.texts.push_back(text_acceptance(loop.result(request).acceptance));
    }
    return sample;
}

Expected<ProfiledPasses> ConfigurationRun::profile(const std::vector<std::vector<int>>& texts, int tokens) {
    backend::Profile target_profile;
    backend::Profile drafter_profile;
    backend::Engine* drafter = drafter_ && has_draft_model(configuration_.method) ? inference_->drafter_engine() : nullptr;
    inference_->target().set_profile(&target_profile);
    if (drafter != nullptr) drafter->set_profile(&drafter_profile);
    profiling_ = true;
    const auto decoded = decode(texts, tokens);
    profiling_ = false;
    inference_->target().set_profile(nullptr);
    if (drafter != nullptr) drafter->set_profile(nullptr);
    if (!decoded) return tl::unexpected(decoded.error());
    ProfiledPasses passes;
    for (const auto& [name, profile] :
         {std::pair<const char*, const backend::Profile*>{"target", &target_profile}, {"drafter", &drafter_profile}}) {
        for (const auto& [key, samples] : profile->passes()) {
            const auto& [pass, sequences, width] = key;
            if (sequences != configuration_.batch || pass == model::Pass::prefill) continue;
            ProfiledPass& out = passes[{name, pass, sequences, width}];
            for (const backend::OperationSamples& operation : samples.operations) {
                out.us.push_back(median_of(operation.us));
                out.wait_us.push_back(median_of(operation.wait_us));
            }
        }
    }
    return passes;
}

}  // namespace draftboard::calibration
