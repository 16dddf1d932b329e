// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_session.h"

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
/// Cycles of a shape before any is kept. A wider shape, another model or another copy of the weights has had the caches: it
/// takes some cycles until the experts that text goes to lie in the last-level cache again, as they do in steady decoding
/// (the first three cycles of two rows took 600 us where the next took 250).
constexpr int kWarmCycles = 8;
/// Cycles of the widest shape when a round begins: the other models and ranks have had the caches meanwhile. Without them the
/// first shape of each round, two rows on a short text, was measured a fifth slower than its neighbours.
constexpr int kArrivalCycles = 24;
/// Draft passes of one width in a row: a chain of four drafts has as many beyond its first pass, and each finds more of the
/// drafter in a near cache.
constexpr int kDraftSteps = 3;
constexpr int kSteadyCycles = 4;      // of one shape, in each of the two ways
constexpr int kCountEvery = 4;        // rounds between counts of experts
constexpr int kDriftRows = 48;        // or by this many rows, where it is short

std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

}  // namespace

std::string model_name(const std::string& folder) { return std::filesystem::path(without_slash(folder)).filename().string(); }

Expected<backend::DraftMethod> default_draft_method(const std::string& folder) {
    std::error_code ec;
    if (std::filesystem::exists(without_slash(folder) + "-eagle3/config.json", ec)) return backend::DraftMethod::eagle3;
    auto checkpoint = backend::Checkpoint::open(folder);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    const auto architecture = checkpoint->architecture();
    if (!architecture) return tl::unexpected(architecture.error());
    return architecture->mtp.empty() ? backend::DraftMethod::none : backend::DraftMethod::mtp;
}

Expected<CpuSession> CpuSession::open(CpuSessionOptions options, std::vector<std::vector<int>> texts) {
    const auto empty = [](const std::vector<int>& list) { return list.empty() || *std::min_element(list.begin(), list.end()) < 1; };
    if (texts.empty() || std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text.size() < 2; }) ||
        empty(options.contexts) || empty(options.sequences) || empty(options.tokens) || empty(options.branches)) {
        return model::fail(model::ErrorCode::invalid_input, "a session needs texts, contexts, batch sizes and widths", options.folder,
                           "give positive numbers and texts of at least two tokens");
    }
    const auto method = default_draft_method(options.folder);
    if (!method) return tl::unexpected(method.error());
    CpuSession session;
    session.most_sequences_ = *std::max_element(options.sequences.begin(), options.sequences.end());
    const int widest = std::max(2, *std::max_element(options.tokens.begin(), options.tokens.end()));
    const int longest = *std::max_element(options.contexts.begin(), options.contexts.end());
    backend::InferenceSettings settings;
    settings.model = options.folder;
    settings.method = *method;
    settings.steps = widest - 1;
    settings.ranks = options.ranks;
    settings.batch = session.most_sequences_ * static_cast<int>(options.contexts.size());
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

int CpuSession::token_at(int slot, std::int64_t position) const {
    const auto& text = texts_[static_cast<std::size_t>(slot) % texts_.size()];
    return text[static_cast<std::size_t>(position) % text.size()];
}

void CpuSession::take_rows(const std::vector<int>& slots, int tokens, std::int64_t ahead, std::vector<int>& ids) const {
    ids.clear();
    for (const int slot : slots) {
        const std::int64_t length = inference_->target().length(slot);
        for (int t = 0; t < tokens; ++t) ids.push_back(token_at(slot, length + t + ahead));
    }
}

void CpuSession::evict() {
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
Expected<void> CpuSession::fill(int first_slot, int count, int context) {
    backend::Engine& target = inference_->target();
    backend::Engine* drafter = inference_->drafter_engine();
    for (int slot = first_slot; slot < first_slot + count; ++slot) {
        const auto limit = context + std::max<std::int64_t>(kDriftRows, static_cast<std::int64_t>(kDrift * context));
        const bool fits = target.length(slot) >= context && target.length(slot) <= limit &&
                          (drafter == nullptr || (drafter->length(slot) >= context / 2 && drafter->length(slot) <= limit + kDriftRows));
        if (fits) continue;
        target.clear(slot);
        if (drafter != nullptr) drafter->clear(slot);
        for (int done = 0; done < context;) {
            Batch batch;
            batch.pass = Pass::prefill;
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
Expected<void> CpuSession::measure(backend::Engine& engine, Batch& batch, std::span<const int> logits_rows, const Visit& visit,
                                   int commit_rows) {
    const bool drafter = &engine != &inference_->target();
    backend::ForwardOutput& output = drafter ? draft_output_ : output_;
    CpuPassKey key;
    key.model = options_.name + (drafter ? "/drafter" : "");
    key.ranks = options_.ranks;
    key.pass = batch.pass;
    key.sequences = static_cast<int>(batch.sequences.size());
    key.tokens = batch.tokens;
    key.context = visit.context;
    double cached = 0;
    for (const int slot : batch.sequences) cached += static_cast<double>(engine.length(slot));

    evict();
    profile_.clear();
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

    CpuPassSamples& samples = visit.measurements->passes[key];
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
Expected<void> CpuSession::count_experts(backend::Engine& engine, const Batch& batch, std::span<const int> logits_rows,
                                         CpuPassSamples& samples) {
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

Expected<void> CpuSession::decode(const Visit& visit, bool after_verify) {
    Batch batch;
    batch.pass = Pass::decode;
    batch.tokens = 1;
    for (int i = 0; i < visit.sequences; ++i) batch.sequences.push_back(visit.first_slot + i);
    take_rows(batch.sequences, 1, 0, batch.token_ids);
    // What the last verify pass left to be moved is moved here, and not in a pass that is measured.
    if (after_verify) return inference_->target().forward(batch, {}, output_);
    return measure(inference_->target(), batch, {}, visit, 0);
}

Expected<void> CpuSession::cycle(const Visit& visit, int tokens) {
    backend::Engine& target = inference_->target();
    backend::Engine* drafter = inference_->drafter_engine();
    const int kept = std::max(1, tokens / 2);
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
Expected<void> CpuSession::steady(Visit visit, int tokens) {
    CpuMeasurements& kept = *visit.measurements;
    CpuMeasurements ignored;
    ignored.clock_us = kept.clock_us;
    if (auto ok = fill(visit.first_slot, visit.sequences, visit.context); !ok) return ok;
    for (const bool profiled : {false, true}) {
        visit.profiled = profiled;
        for (int i = profiled ? 0 : -kWarmCycles; i < kSteadyCycles; ++i) {
            visit.measurements = i < 0 ? &ignored : &kept;
            if (auto ok = tokens > 0 ? cycle(visit, tokens) : decode(visit, i < 0); !ok) return ok;
        }
    }
    return {};
}

Expected<void> CpuSession::arrive(double clock_us) {
    CpuMeasurements ignored;
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

Expected<void> CpuSession::round(CpuMeasurements& measurements) {
    if (auto ok = arrive(measurements.clock_us); !ok) return ok;
    for (std::size_t c = 0; c < options_.contexts.size(); ++c) {
        Visit visit;
        visit.measurements = &measurements;
        visit.context = options_.contexts[c];
        visit.first_slot = static_cast<int>(c) * most_sequences_;
        for (const int sequences : options_.sequences) {
            visit.sequences = sequences;
            for (const int tokens : options_.tokens) {
                if (auto ok = steady(visit, tokens); !ok) return ok;
            }
            if (auto ok = steady(visit, 0); !ok) return ok;
        }
    }
    ++rounds_;
    return {};
}

Expected<model::Plan> CpuSession::plan(const CpuPassKey& key, std::int64_t context) {
    const bool drafter = key.model.ends_with("/drafter");
    backend::Engine* engine = drafter ? inference_->drafter_engine() : &inference_->target();
    if (engine == nullptr) {
        return model::fail(model::ErrorCode::not_found, "the session has no drafter", key.model);
    }
    return engine->plan(key.pass, key.sequences, key.tokens, context);
}

}  // namespace draftboard::calibration
