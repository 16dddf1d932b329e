// SPDX-License-Identifier: Apache-2.0
#include "calibration/engine_cycles.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "backend/decode_loop.h"
#include "backend/model_drafter.h"
#include "backend/scripted_drafter.h"

namespace draftboard::calibration {

using backend::DraftMethod;
using model::Expected;

namespace {

constexpr int kWarmCycles = 8;         // the first are eager, then graphs are made
constexpr double kScriptedRate = 0.7;
constexpr double kPrefillMs = 0.02;    // looking for waiting texts takes less, running one more

Expected<std::unique_ptr<backend::Drafter>> drafter_of(EngineSession& session, DraftMethod method, int steps) {
    backend::Inference& inference = session.inference();
    if (method == DraftMethod::none) return std::unique_ptr<backend::Drafter>();
    if (method == DraftMethod::scripted) {
        auto made = backend::ScriptedDrafter::create(std::vector<double>(static_cast<std::size_t>(steps), kScriptedRate), {});
        if (!made) return tl::unexpected(made.error());
        return std::unique_ptr<backend::Drafter>(std::make_unique<backend::ScriptedDrafter>(std::move(*made)));
    }
    backend::Engine* engine = inference.drafter_engine();
    const auto reads = method == DraftMethod::eagle3 ? backend::DrafterReads::features : backend::DrafterReads::hidden;
    auto made =
        backend::ModelDrafter::create(*engine, inference.target().vocabulary(), {reads, steps, 1, 0, engine->target_of_draft()});
    if (!made) return tl::unexpected(made.error());
    return std::unique_ptr<backend::Drafter>(std::make_unique<backend::ModelDrafter>(std::move(*made)));
}

struct Case {
    DraftMethod method = DraftMethod::none;
    int steps = 0;
    int sequences = 1;
};

Expected<void> measure_case(EngineSession& session, const CycleOptions& options, const Case& one, EngineMeasurements& m) {
    backend::Inference& inference = session.inference();
    auto drafter = drafter_of(session, one.method, one.steps);
    if (!drafter) return tl::unexpected(drafter.error());
    std::unique_ptr<backend::FusedCycle> fused;
    if (options.fused) {
        auto made = inference.make_fused_cycle(one.steps);
        if (!made) return tl::unexpected(made.error());
        if (*made == nullptr) return {};  // a device, or a launch mode, without whole cycles
        fused = std::move(*made);
    }
    std::atomic<bool> enough{false};
    backend::LoopOptions loop_options;
    loop_options.batch = one.sequences;
    loop_options.fused = fused.get();
    loop_options.cancel = &enough;
    backend::DecodeLoop loop(inference.target(), drafter->get(), loop_options);
    for (int text = 0; text < one.sequences; ++text) {
        backend::Request request;
        request.prompt = session.text(text, options.context);
        request.max_tokens = (options.cycles + kWarmCycles + 4) * (one.steps + 1);
        if (auto submitted = loop.submit(std::move(request)); !submitted) return tl::unexpected(submitted.error());
    }
    std::vector<double> cycle_us;
    std::vector<double> draft_us;
    std::vector<double> verify_us;
    double context = 0;
    double length = options.context;
    for (int seen = 0; !enough;) {
        auto more = loop.step();
        if (!more) return tl::unexpected(more.error());
        const backend::CycleReport& report = loop.last_cycle();
        length += static_cast<double>(report.emitted) / one.sequences;
        const bool counts = report.sequences == one.sequences && report.passes == 1 && report.prefill_ms < kPrefillMs;
        if (counts && ++seen > kWarmCycles) {
            cycle_us.push_back(report.cycle_ms() * 1e3);
            draft_us.push_back(report.draft_ms * 1e3);
            verify_us.push_back(report.verify_ms * 1e3);
            context += length;
        }
        enough = static_cast<int>(cycle_us.size()) >= options.cycles;
        if (!*more) break;
    }
    if (enough) {  // what is in flight comes down
        auto last = loop.step();
        if (!last) return tl::unexpected(last.error());
    }
    if (cycle_us.empty()) return {};
    EngineCycleSample sample;
    sample.model = session.options().model.name;
    sample.ranks = session.options().device.ranks;
    sample.launch = options.fused ? "fused" : session.options().launch;
    sample.method = to_name(one.method);
    sample.steps = one.steps;
    sample.sequences = one.sequences;
    sample.cycles = static_cast<double>(cycle_us.size());
    sample.context = context / sample.cycles;
    sample.cycle_us = median_of(std::move(cycle_us));
    sample.draft_us = median_of(std::move(draft_us));
    sample.verify_us = median_of(std::move(verify_us));
    m.cycles.push_back(std::move(sample));
    return {};
}

}  // namespace

Expected<void> measure_cycles(EngineSession& session, const CycleOptions& options, EngineMeasurements& measurements) {
    const DraftMethod method = session.options().model.method;
    std::vector<Case> cases;
    for (const int sequences : options.sequences) {
        cases.push_back({DraftMethod::none, 0, sequences});
        for (const int steps : options.steps) {
            if (method != DraftMethod::none) cases.push_back({method, steps, sequences});
            if (!options.fused && steps == options.steps.back()) cases.push_back({DraftMethod::scripted, steps, sequences});
        }
    }
    for (const Case& one : cases) {
        if (one.sequences * (one.steps + 1) > session.options().most_rows) continue;
        if (auto ok = measure_case(session, options, one, measurements); !ok) return ok;
    }
    return {};
}

}  // namespace draftboard::calibration
