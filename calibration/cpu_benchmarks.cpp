// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_benchmarks.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/team.h"
#include "backend/decode_loop.h"
#include "backend/model_drafter.h"
#include "calibration/engine_session.h"
#include "calibration/cpu_texts.h"
#include "calibration/disturbance.h"
#include "calibration/timed_model.h"

namespace draftboard::calibration {

using model::Expected;

namespace {

constexpr std::size_t kLeastSamples = 5;

double us_since(std::int64_t begin_ns) { return static_cast<double>(backend::cpu::now_ns() - begin_ns) * 1e-3; }

}  // namespace

void measure_machine(const CpuCalibrationOptions& options, EngineMeasurements& m) {
    m.facts.instruction_set = backend::cpu::instruction_set();
    const int together = std::max(1, *std::max_element(options.ranks.begin(), options.ranks.end()));
    const auto ceilings = backend::cpu::measure_ceilings(together, 3);
    m.ceilings = {ceilings.one.memory_gb_per_s,      ceilings.one.l3_gb_per_s,      ceilings.one.fma_gflop_per_s, ceilings.cores,
                  ceilings.together.memory_gb_per_s, ceilings.together.l3_gb_per_s, ceilings.together.fma_gflop_per_s};
    constexpr int kLooks = 1000;
    std::vector<double> clocks;
    for (int i = 0; i < 20; ++i) {
        const std::int64_t begin = backend::cpu::now_ns();
        std::int64_t last = begin;
        for (int look = 0; look < kLooks; ++look) last = backend::cpu::now_ns();
        clocks.push_back(static_cast<double>(last - begin) * 1e-3 / kLooks);
    }
    m.clock_us = median_of(clocks);
    for (const int ranks : options.ranks) {
        backend::cpu::Team team(ranks);
        std::vector<double> starts;
        for (int i = 0; i < 200; ++i) {
            const std::int64_t begin = backend::cpu::now_ns();
            team.run([](int) {});
            starts.push_back(us_since(begin));
        }
        m.team_start_us[ranks] = median_of(starts);
    }
}

/// All sizes in turn, round after round; the median of each.
void measure_collectives(const CpuCalibrationOptions& options, int ranks, EngineMeasurements& m) {
    struct Case {
        model::OperationKind operation;
        bool ring;
        std::int64_t bytes;
        std::vector<double> us;
    };
    std::vector<Case> cases;
    for (std::int64_t bytes = 256; bytes <= (1 << 20); bytes *= 4) {
        cases.push_back({model::OperationKind::all_reduce, false, bytes, {}});
        cases.push_back({model::OperationKind::all_reduce, true, bytes, {}});
        cases.push_back({model::OperationKind::all_gather, false, bytes, {}});
    }
    backend::cpu::Team team(ranks);
    std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks));
    std::vector<std::vector<float>> gathered(static_cast<std::size_t>(ranks));
    team.run([&](int rank) {
        data[static_cast<std::size_t>(rank)].assign((1 << 20) / sizeof(float), 1.0f);
        gathered[static_cast<std::size_t>(rank)].assign(static_cast<std::size_t>(ranks) * (1 << 20) / sizeof(float), 0.0f);
    });
    std::vector<double> us(static_cast<std::size_t>(ranks));
    for (int round = 0; round < options.collective_rounds; ++round) {
        for (Case& one : cases) {
            const std::int64_t count = one.bytes / static_cast<std::int64_t>(sizeof(float));
            const Disturbance disturbance;
            team.run([&](int rank) {
                const auto r = static_cast<std::size_t>(rank);
                std::fill_n(data[r].begin(), count, 1.0f);  // fresh from this core, as a layer's output is
                team.communicator().barrier(rank);
                backend::cpu::CollectiveTime time;
                if (one.operation == model::OperationKind::all_gather) {
                    time = team.communicator().all_gather(rank, data[r].data(), 1, count, count, gathered[r].data(), ranks * count);
                } else {
                    time = team.communicator().all_reduce(rank, data[r].data(), count,
                                                          one.ring ? backend::cpu::AllReduceAlgorithm::ring
                                                                   : backend::cpu::AllReduceAlgorithm::one_shot);
                }
                us[r] = static_cast<double>(time.total_ns - time.wait_ns) * 1e-3;
            });
            if (disturbance.happened() && one.us.size() >= kLeastSamples) continue;
            double sum = 0;
            for (const double one_rank : us) sum += one_rank;
            one.us.push_back(sum / ranks);
        }
    }
    for (const Case& one : cases) {
        m.collectives.push_back({one.operation, one.ring, ranks, one.bytes, std::max(0.0, median_of(one.us) - m.clock_us)});
    }
}

/// What cycles take beyond their passes, from real decoding.
Expected<void> measure_host(const CpuCalibrationOptions& options, const std::string& folder, int ranks,
                            const std::vector<std::vector<std::string>>& prompts, EngineMeasurements& m) {
    const auto method = default_draft_method(folder);
    if (!method) return tl::unexpected(method.error());
    struct Configuration {
        backend::DraftMethod method;
        int steps;
        int batch;
    };
    const int batch = *std::max_element(options.sequences.begin(), options.sequences.end());
    std::vector<Configuration> configurations = {{backend::DraftMethod::none, 0, 1}, {backend::DraftMethod::none, 0, batch},
                                                 {backend::DraftMethod::ngram, 3, 1}};
    if (*method != backend::DraftMethod::none) {
        configurations.push_back({*method, 1, 1});
        configurations.push_back({*method, 5, 1});
        configurations.push_back({*method, 3, batch});
    }
    for (const Configuration& configuration : configurations) {
        backend::InferenceSettings settings;
        settings.model = folder;
        settings.method = configuration.method;
        settings.steps = std::max(1, configuration.steps);
        settings.ranks = ranks;
        settings.batch = configuration.batch;
        settings.text_length = 64 + options.host_tokens;
        auto inference = backend::Inference::open(settings);
        if (!inference) return tl::unexpected(inference.error());
        if (!inference->tokenizer()) return {};
        TimedModel target(inference->target());
        std::unique_ptr<TimedModel> draft_model;
        std::unique_ptr<backend::Drafter> own;
        backend::Drafter* drafter = inference->drafter();
        if (backend::Engine* engine = inference->drafter_engine(); engine != nullptr) {
            draft_model = std::make_unique<TimedModel>(*engine);
            auto made = backend::ModelDrafter::create(
                *draft_model, target.vocabulary(),
                {configuration.method == backend::DraftMethod::eagle3 ? backend::DrafterReads::features : backend::DrafterReads::hidden,
                 settings.steps, 1, 0, engine->target_of_draft()});
            if (!made) return tl::unexpected(made.error());
            own = std::make_unique<backend::ModelDrafter>(std::move(*made));
            drafter = own.get();
        }
        backend::LoopOptions loop_options;
        loop_options.batch = configuration.batch;
        backend::DecodeLoop loop(target, drafter, loop_options);
        const auto texts = texts_of_length(prompts, 64, *inference->tokenizer());
        const std::size_t count = std::min(texts.size(), static_cast<std::size_t>(std::max(options.host_prompts, configuration.batch)));
        for (std::size_t i = 0; i < count; ++i) {
            backend::Request request;
            request.prompt = texts[i];
            request.max_tokens = options.host_tokens;
            if (auto submitted = loop.submit(std::move(request)); !submitted) return tl::unexpected(submitted.error());
        }
        std::vector<double> host;
        std::vector<double> cycles;
        for (;;) {
            const double passes_before = target.us() + (draft_model ? draft_model->us() : 0);
            const Disturbance disturbance;
            auto more = loop.step();
            if (!more) return tl::unexpected(more.error());
            const backend::CycleReport& report = loop.last_cycle();
            const bool kept = !disturbance.happened() || host.size() < kLeastSamples;
            if (report.sequences == configuration.batch && report.passes == 1 && report.cycle_ms() > 0 && kept) {
                const double passes = target.us() + (draft_model ? draft_model->us() : 0) - passes_before;
                host.push_back(report.cycle_ms() * 1e3 - passes);
                cycles.push_back(report.cycle_ms() * 1e3);
            }
            if (!*more) break;
        }
        if (host.empty()) continue;
        const bool drafts = draft_model != nullptr;
        m.hosts.push_back({fmt::format("{} {} x{} b{}", model_name(folder), to_name(configuration.method), configuration.steps, configuration.batch),
                           ranks, configuration.batch, configuration.method != backend::DraftMethod::none,
                           drafts ? configuration.steps : 0, median_of(host), median_of(cycles)});
    }
    return {};
}

}  // namespace draftboard::calibration
