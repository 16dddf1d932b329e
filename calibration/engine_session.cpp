// SPDX-License-Identifier: Apache-2.0
#include "calibration/engine_session.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "calibration/disturbance.h"

namespace draftboard::calibration {

using backend::Batch;
using model::Expected;
using model::Pass;

namespace {

constexpr int kPrefillRows = 256;
constexpr double kDrift = 0.15;       // a context that has grown by more is filled again
constexpr std::size_t kLeastSamples = 3;
/// Cycles of the widest shape when a round begins: the other models and ranks have had the caches meanwhile. Without them the
/// first shape of each round, two rows on a short text, was measured a fifth slower than its neighbours.
constexpr int kArrivalCycles = 24;
/// Draft passes of one width in a row: a chain of four drafts has as many beyond its first pass, and each finds more of the
/// drafter in a near cache.
constexpr int kDraftSteps = 3;
constexpr int kCountEvery = 4;        // rounds between counts of experts
constexpr int kDriftRows = 48;        // or by this many rows, where it is short

}  // namespace

Expected<EngineSession> EngineSession::open(EngineSessionOptions options, std::vector<std::vector<int>> texts) {
    const std::string& name = options.model.name;
    const auto empty = [](const std::vector<int>& list) { return list.empty() || *std::min_element(list.begin(), list.end()) < 1; };
    if (texts.empty() || std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text.size() < 2; }) ||
        empty(options.contexts) || empty(options.sequences) || empty(options.tokens) || empty(options.branches)) {
        return model::fail(model::ErrorCode::invalid_input, "a session needs texts, contexts, batch sizes and widths", name,
                           "give positive numbers and texts of at least two tokens");
    }
    EngineSession session;
    session.most_sequences_ = *std::max_element(options.sequences.begin(), options.sequences.end());
    const int widest = std::max(2, *std::max_element(options.tokens.begin(), options.tokens.end()));
    const int longest = *std::max_element(options.contexts.begin(), options.contexts.end());
    const bool gpu = options.device.is_gpu();
    backend::InferenceSettings settings = settings_of(options.model, options.device);
    settings.steps = widest - 1;
    settings.batch = session.most_sequences_ * (gpu ? 1 : static_cast<int>(options.contexts.size()));
    settings.text_length = static_cast<std::int64_t>(longest * (1 + 2 * kDrift)) + 4 * kDriftRows + 8 * widest;
    auto inference = backend::Inference::open(settings);
    if (!inference) return tl::unexpected(inference.error());
    session.inference_ = std::make_unique<backend::Inference>(std::move(*inference));
    const int vocabulary = session.inference_->target().vocabulary();
    for (std::vector<int>& text : texts) {
        for (int& token : text) token = std::clamp(token, 0, vocabulary - 1);
    }
    session.texts_ = std::move(texts);
    if (options.eviction) session.sweep_.resize(static_cast<std::size_t>(std::max(options.l3_bytes, 1.0) * 2 / sizeof(float)));
    session.options_ = std::move(options);
    return session;
}

int EngineSession::token_at(int slot, std::int64_t position) const {
    const auto& text = texts_[static_cast<std::size_t>(slot) % texts_.size()];
    return text[static_cast<std::size_t>(position) % text.size()];
}

std::vector<int> EngineSession::text(int slot, int length) const {
    std::vector<int> tokens;
    for (int position = 0; position < length; ++position) tokens.push_back(token_at(slot, position));
    return tokens;
}

void EngineSession::take_rows(const std::vector<int>& slots, int tokens, std::int64_t ahead, std::vector<int>& ids) const {
    ids.clear();
    for (const int slot : slots) {
        const std::int64_t length = inference_->target().length(slot);
        for (int t = 0; t < tokens; ++t) ids.push_back(token_at(slot, length + t + ahead));
    }
}

void EngineSession::evict() {
    if (sweep_.empty()) return;
    constexpr std::size_t kLine = 64 / sizeof(float);
    float sum = 0;
    for (std::size_t i = 0; i < sweep_.size(); i += kLine) {
        sweep_[i] += 1;
        sum += sweep_[i];
    }
    swept_ += sum;
}

/// Brings slots to their context, target and drafter alike; leaves those that are near it.
Expected<void> EngineSession::fill(int first_slot, int count, int context) {
    backend::Engine& target = inference_->target();
    backend::Engine* drafter = inference_->drafter_engine();
    for (int slot = first_slot; slot < first_slot + count; ++slot) {
        const auto limit = context + std::max<std::int64_t>(kDriftRows, static_cast<std::int64_t>(kDrift * context));
        const bool fits = target.length(slot) >= context && target.length(slot) <= limit &&
                          (drafter == nullptr || (drafter->length(slot) >= context / 2 && drafter->length(slot) <= limit + kDriftRows));
        if (fits) continue;
        const bool goes_on = options_.device.is_gpu() && target.length(slot) <= context &&
                             (drafter == nullptr || drafter->length(slot) >= target.length(slot) / 2);
        if (!goes_on) {
            target.clear(slot);
            if (drafter != nullptr) drafter->clear(slot);
        }
        for (int done = static_cast<int>(target.length(slot)); done < context;) {
            Batch batch;
            batch.pass = Pass::prefill;
            batch.greedy = options_.device.is_gpu();
            batch.sequences = {slot};
            batch.tokens = std::min(kPrefillRows, context - done);
            for (int t = 0; t < batch.tokens; ++t) batch.token_ids.push_back(token_at(slot, done + t));
            if (auto ok = target.forward(batch, {}, output_); !ok) return ok;
            if (drafter != nullptr) {
                const auto width = static_cast<std::size_t>(drafter->feature_width(Pass::prefill)) * batch.token_ids.size();
                const std::vector<float>& states = target.shape().feature_layers.empty() ? output_.hidden : output_.features;
                for (int t = 0; t < batch.tokens; ++t) batch.token_ids[static_cast<std::size_t>(t)] = token_at(slot, done + t + 1);
                batch.features.assign(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(std::min(width, states.size())));
                if (auto ok = drafter->forward(batch, {}, draft_output_); !ok) return ok;
            }
            done += batch.tokens;
        }
    }
    return {};
}

/// One pass: whole, or with the time of every operation. After it its rows are dropped, or the first `commit_rows` of each
/// sequence kept. What was disturbed is not kept, unless there is next to nothing yet.
Expected<void> EngineSession::measure(backend::Engine& engine, Batch& batch, std::span<const int> logits_rows, const Visit& visit,
                                   int commit_rows) {
    const bool drafter = &engine != &inference_->target();
    backend::ForwardOutput& output = drafter ? draft_output_ : output_;
    EnginePassKey key;
    key.model = options_.model.name + (drafter ? "/drafter" : "");
    key.ranks = options_.device.ranks;
    key.launch = options_.launch;
    key.pass = batch.pass;
    key.sequences = static_cast<int>(batch.sequences.size());
    key.tokens = batch.tokens;
    key.context = visit.context;
    double cached = 0;
    for (const int slot : batch.sequences) cached += static_cast<double>(engine.length(slot));

    evict();
    profile_.clear();
    batch.greedy = options_.device.is_gpu();
    if (visit.profiled) engine.set_profile(&profile_);
    const Disturbance disturbance;
    const std::int64_t begin = backend::cpu::now_ns();
    auto ok = engine.forward(batch, logits_rows, output);
    const double total_us = static_cast<double>(backend::cpu::now_ns() - begin) * 1e-3;
    const bool disturbed = disturbance.happened();
    engine.set_profile(nullptr);
    if (!ok) return ok;
    if (batch.pass != Pass::decode) {
        std::vector<int> path(static_cast<std::size_t>(commit_rows));
        std::iota(path.begin(), path.end(), 0);
        for (const int slot : batch.sequences) {
            if (commit_rows > 0) engine.commit(slot, path);
            else engine.discard(slot);
        }
    }

    EnginePassSamples& samples = visit.measurements->passes[key];
    if (!visit.profiled) {
        if (disturbed && samples.total_us.size() >= kLeastSamples) return {};
        samples.total_us.push_back(static_cast<float>(total_us));
        samples.context.push_back(static_cast<float>(cached / key.sequences));
        return {};
    }
    const auto found = profile_.passes().find({key.pass, key.sequences, key.tokens});
    if (found == profile_.passes().end()) return {};
    const auto& operations = found->second.operations;
    samples.operation_us.resize(operations.size());
    samples.wait_us.resize(operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i) {
        if (operations[i].us.empty() || (disturbed && samples.operation_us[i].size() >= kLeastSamples)) continue;
        const float us = operations[i].us.back() - static_cast<float>(visit.measurements->clock_us);
        samples.operation_us[i].push_back(std::max(us, 0.0f));
        if (operations[i].wait_us.back() > 0) samples.wait_us[i].push_back(operations[i].wait_us.back());
    }
    return rounds_ % kCountEvery == 0 ? count_experts(engine, batch, logits_rows, samples) : Expected<void>{};
}

/// Distinct experts of each layer, from one more run of the pass.
Expected<void> EngineSession::count_experts(backend::Engine& engine, const Batch& batch, std::span<const int> logits_rows,
                                         EnginePassSamples& samples) {
    routing_.clear();
    engine.set_routing_record(&routing_);
    backend::ForwardOutput ignored;
    auto ok = engine.forward(batch, logits_rows, ignored);
    engine.set_routing_record(nullptr);
    for (const int slot : batch.sequences) engine.discard(slot);
    if (!ok) return ok;
    const auto rows = batch.token_ids.size();
    std::size_t at = 0;
    std::size_t mixture = 0;
    for (const model::Layer& layer : engine.shape().architecture.layers) {
        const auto* experts = std::get_if<model::MoeFeedForward>(&layer.feed_forward);
        if (experts == nullptr) continue;
        const std::size_t count = rows * static_cast<std::size_t>(experts->experts_per_token);
        if (at + count > routing_.size()) return {};
        std::vector<std::uint16_t> chosen(routing_.begin() + static_cast<std::ptrdiff_t>(at),
                                          routing_.begin() + static_cast<std::ptrdiff_t>(at + count));
        at += count;
        std::sort(chosen.begin(), chosen.end());
        const auto distinct = std::unique(chosen.begin(), chosen.end()) - chosen.begin();
        if (samples.distinct_experts.size() <= mixture) samples.distinct_experts.resize(mixture + 1);
        samples.distinct_experts[mixture++] += static_cast<double>(distinct);
    }
    samples.expert_rounds += 1;
    return {};
}

Expected<void> EngineSession::decode(const Visit& visit, bool after_verify) {
    Batch batch;
    batch.pass = Pass::decode;
    batch.tokens = 1;
    for (int i = 0; i < visit.sequences; ++i) batch.sequences.push_back(visit.first_slot + i);
    take_rows(batch.sequences, 1, 0, batch.token_ids);
    batch.greedy = options_.device.is_gpu();
    // What the last verify pass left to be moved is moved here, and not in a pass that is measured.
    if (after_verify) return inference_->target().forward(batch, {}, output_);
    return measure(inference_->target(), batch, {}, visit, 0);
}

Expected<void> EngineSession::cycle(const Visit& visit, int tokens) {
    backend::Engine& target = inference_->target();
    backend::Engine* drafter = inference_->drafter_engine();
    // On a GPU what is kept costs the same, however much it is; little of it keeps the context where it is.
    const int kept = std::max(1, options_.device.is_gpu() ? std::min(tokens / 2, 2) : tokens / 2);
    Batch batch;
    batch.pass = Pass::verify;
    batch.tokens = tokens;
    for (int i = 0; i < visit.sequences; ++i) batch.sequences.push_back(visit.first_slot + i);
    take_rows(batch.sequences, tokens, 0, batch.token_ids);
    if (auto ok = measure(target, batch, {}, visit, kept); !ok) return ok;
    if (drafter == nullptr) return {};

    Batch extend;
    extend.pass = Pass::draft_extend;
    extend.tokens = tokens;
    extend.sequences = batch.sequences;
    take_rows(extend.sequences, tokens, 1, extend.token_ids);
    const std::vector<float>& states = target.shape().feature_layers.empty() ? output_.hidden : output_.features;
    extend.features.assign(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(std::min(
        states.size(), extend.token_ids.size() * static_cast<std::size_t>(drafter->feature_width(Pass::draft_extend)))));
    const std::vector<int> wanted(batch.sequences.size(), kept - 1);
    if (auto ok = measure(*drafter, extend, wanted, visit, kept); !ok) return ok;

    const auto hidden = static_cast<std::size_t>(drafter->hidden());
    for (const int branches : options_.branches) {
        Batch draft;
        draft.pass = Pass::draft;
        draft.tokens = branches;
        draft.sequences = batch.sequences;
        take_rows(draft.sequences, branches, 1, draft.token_ids);
        draft.parents.assign(draft.token_ids.size(), -1);
        for (std::size_t row = 0; row < draft.token_ids.size(); ++row) {
            const std::size_t first = row % (draft_output_.hidden.size() / hidden) * hidden;
            draft.features.insert(draft.features.end(), draft_output_.hidden.begin() + static_cast<std::ptrdiff_t>(first),
                                  draft_output_.hidden.begin() + static_cast<std::ptrdiff_t>(first + hidden));
        }
        for (int step = 0; step < kDraftSteps; ++step) {
            if (auto ok = measure(*drafter, draft, {}, visit, 0); !ok) return ok;
        }
    }
    return {};
}

/// Cycles of one shape after one another, as decoding has them: the first shows nobody's caches but the last shape's.
Expected<void> EngineSession::steady(Visit visit, int tokens) {
    EngineMeasurements& kept = *visit.measurements;
    EngineMeasurements ignored;
    ignored.clock_us = kept.clock_us;
    if (auto ok = fill(visit.first_slot, visit.sequences, visit.context); !ok) return ok;
    for (const bool profiled : {false, true}) {
        if (profiled && !options_.profiles) break;
        visit.profiled = profiled;
        // On a GPU a timed pass is a graph of its own, which is made in its first runs.
        const int warm = profiled && !options_.device.is_gpu() ? 0 : options_.warm_cycles;
        for (int i = -warm; i < options_.steady_cycles; ++i) {
            visit.measurements = i < 0 ? &ignored : &kept;
            if (auto ok = tokens > 0 ? cycle(visit, tokens) : decode(visit, i < 0); !ok) return ok;
        }
    }
    return {};
}

Expected<void> EngineSession::arrive(double clock_us) {
    EngineMeasurements ignored;
    ignored.clock_us = clock_us;
    Visit visit;
    visit.measurements = &ignored;
    visit.context = options_.contexts.front();
    if (auto ok = fill(visit.first_slot, visit.sequences, visit.context); !ok) return ok;
    const int widest = *std::max_element(options_.tokens.begin(), options_.tokens.end());
    for (int i = 0; i < kArrivalCycles; ++i) {
        if (auto ok = cycle(visit, widest); !ok) return ok;
    }
    return {};
}

Expected<void> EngineSession::visit(std::size_t context, int sequences, EngineMeasurements& measurements) {
    Visit visit;
    visit.measurements = &measurements;
    visit.context = options_.contexts[context];
    visit.first_slot = options_.device.is_gpu() ? 0 : static_cast<int>(context) * most_sequences_;
    visit.sequences = sequences;
    for (const int tokens : options_.tokens) {
        if (sequences * tokens > options_.most_rows) continue;
        if (auto ok = steady(visit, tokens); !ok) return ok;
    }
    return steady(visit, 0);
}

Expected<void> EngineSession::round(EngineMeasurements& measurements) {
    if (auto ok = arrive(measurements.clock_us); !ok) return ok;
    for (std::size_t context = 0; context < options_.contexts.size(); ++context) {
        for (const int sequences : options_.sequences) {
            if (auto ok = visit(context, sequences, measurements); !ok) return ok;
        }
    }
    ++rounds_;
    return {};
}

}  // namespace draftboard::calibration
