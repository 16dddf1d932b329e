// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_engines.h"

#include <thread>
#include <utility>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/engine.h"

namespace draftboard::backend::cpu {

namespace {

using Made = model::Expected<std::unique_ptr<backend::Engine>>;

class CpuEngines final : public EngineFactory {
   public:
    explicit CpuEngines(const CpuSettings& settings) : settings_(settings), team_(settings.ranks) {}

    Made target(const Checkpoint& checkpoint, const EngineRequest& request) override {
        return keep(load_target(checkpoint, options(request), team_));
    }
    Made mtp(const Checkpoint& checkpoint, const model::Speculation& speculation, const EngineRequest& request) override {
        return load_mtp_drafter(checkpoint, speculation, *target_, options(request));
    }
    Made eagle3(const Checkpoint& head, const model::Speculation& speculation, const EngineRequest& request) override {
        return load_eagle3_drafter(head, speculation, *target_, options(request));
    }
    Made draft_model(const Checkpoint& checkpoint, const model::Speculation& speculation, const EngineRequest& request) override {
        return load_draft_model(checkpoint, speculation, *target_, options(request));
    }
    Made random_target(const model::Architecture& architecture, const EngineRequest& request) override {
        return keep(random_engine(architecture, options(request), kSeed, team_));
    }
    Made random_drafter(const model::Speculation& speculation, const EngineRequest& request) override {
        return random_drafter_engine(speculation, *target_, options(request), kSeed);
    }
    double read_ceiling_gb_per_s() override { return measure_ceilings(settings_.ranks, 3).together.memory_gb_per_s; }
    model::Json environment() const override {
        return {{"device", "cpu"},
                {"ranks", settings_.ranks},
                {"expert_parallel", settings_.expert_parallel},
                {"all_reduce", settings_.all_reduce == AllReduceAlgorithm::ring ? "ring" : "one_shot"},
                {"hardware_threads", std::thread::hardware_concurrency()}};
    }

   private:
    static constexpr std::uint64_t kSeed = 1;

    Made keep(model::Expected<std::unique_ptr<Engine>> made) {
        if (!made) return tl::unexpected(made.error());
        target_ = made->get();
        return std::move(*made);
    }
    [[nodiscard]] EngineOptions options(const EngineRequest& request) const {
        EngineOptions options;
        options.sequences = request.sequences;
        options.max_length = request.max_length;
        options.feature_layers = request.feature_layers;
        options.expert_parallel = settings_.expert_parallel;
        options.all_reduce = settings_.all_reduce;
        return options;
    }

    CpuSettings settings_;
    Team team_;
    const Engine* target_ = nullptr;
};

}  // namespace

std::unique_ptr<EngineFactory> cpu_engines(const CpuSettings& settings) { return std::make_unique<CpuEngines>(settings); }

}  // namespace draftboard::backend::cpu
