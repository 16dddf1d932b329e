// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_engines.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/model_weights.h"
#include "backend/cuda/ceilings.h"
#include "backend/cuda/chain_cycle.h"
#include "backend/cuda/check.h"
#include "backend/cuda/engine.h"
#include "backend/cuda/launch_costs.h"

namespace draftboard::backend::cuda {

namespace {

using model::Expected;
using Made = Expected<std::unique_ptr<backend::Engine>>;
constexpr std::uint64_t kSeed = 1;

class CudaEngines final : public EngineFactory {
   public:
    explicit CudaEngines(const CudaSettings& settings) : settings_(settings) {}

    Made target(const Checkpoint& checkpoint, const EngineRequest& request) override {
        auto planned = plan_target(checkpoint, layout(), formats(), request.feature_layers);
        if (!planned) return tl::unexpected(planned.error());
        const ModelShape shape = planned->shape;
        return make_target(std::move(*planned), request, [&, shape](int rank) {
            return cpu::load_weights(checkpoint, shape.architecture, shape.numerics, shape.layout, rank);
        });
    }

    Made random_target(const model::Architecture& architecture, const EngineRequest& request) override {
        auto planned = plan_target(architecture, {}, layout(), formats(), request.feature_layers);
        if (!planned) return tl::unexpected(planned.error());
        const ModelShape shape = planned->shape;
        return make_target(std::move(*planned), request, [shape](int rank) {
            return cpu::random_weights(shape.architecture, shape.layout, rank, kSeed, cpu::RandomNumbers::left_out);
        });
    }

    Made mtp(const Checkpoint& checkpoint, const model::Speculation& speculation, const EngineRequest& request) override {
        auto planned = plan_mtp(target_->shape(), speculation, checkpoint.path());
        return make_drafter(std::move(planned), request, [&](int rank) {
            const ModelShape& shape = target_->shape();
            return cpu::load_mtp(checkpoint, shape.architecture, shape.numerics, shape.layout, rank, lender(rank));
        });
    }

    Made eagle3(const Checkpoint& head, const model::Speculation& speculation, const EngineRequest& request) override {
        const ModelShape& shape = target_->shape();
        auto description = head.eagle3(shape.architecture);
        if (!description) return tl::unexpected(description.error());
        auto planned = plan_eagle3(shape, speculation, std::move(description->numerics), head.path());
        if (!planned) return tl::unexpected(planned.error());
        const model::Architecture architecture = planned->shape.architecture;
        return make_drafter(std::move(planned), request, [&](int rank) {
            return cpu::load_eagle3(head, architecture, shape.architecture, shape.layout, rank, lender(rank));
        });
    }

    Made random_drafter(const model::Speculation& speculation, const EngineRequest& request) override {
        const ModelShape& shape = target_->shape();
        const bool eagle3 = speculation.method == model::SpeculationMethod::eagle3;
        auto planned = eagle3 ? plan_eagle3(shape, speculation, {}, shape.architecture.name)
                              : plan_mtp(shape, speculation, shape.architecture.name);
        if (!planned) return tl::unexpected(planned.error());
        const model::Architecture architecture = planned->shape.architecture;
        return make_drafter(std::move(planned), request, [&](int rank) {
            return eagle3 ? cpu::random_eagle3(architecture, static_cast<int>(shape.feature_layers.size()), shape.architecture,
                                               shape.layout, rank, kSeed, lender(rank), cpu::RandomNumbers::left_out)
                          : cpu::random_mtp(shape.architecture, shape.layout, rank, kSeed, lender(rank),
                                            cpu::RandomNumbers::left_out);
        });
    }

    Made draft_model(const Checkpoint& checkpoint, const model::Speculation& speculation, const EngineRequest& request) override {
        auto planned = plan_draft_model(checkpoint, target_->shape(), speculation, formats());
        if (!planned) return tl::unexpected(planned.error());
        const ModelShape shape = planned->shape;
        return make_drafter(std::move(planned), request, [&, shape](int rank) {
            return cpu::load_weights(checkpoint, shape.architecture, shape.numerics, shape.layout, rank);
        });
    }

    Expected<std::unique_ptr<FusedCycle>> fused_cycle(int steps) override {
        const LaunchModes& modes = settings_.launch;
        const bool graphs =
            modes.decode == LaunchMode::full && modes.verify == LaunchMode::full && modes.draft == LaunchMode::full;
        if (!settings_.fused_cycles || target_ == nullptr || !graphs) return std::unique_ptr<FusedCycle>();
        auto made = ChainCycle::create(*target_, steps > 0 ? drafter_ : nullptr, steps);
        if (!made) return tl::unexpected(made.error());
        return std::unique_ptr<FusedCycle>(std::move(*made));
    }
    Expected<model::Json> device_costs() override {
        if (group_ == nullptr) return model::fail(model::ErrorCode::invalid_input, "no engine was made yet", "device costs");
        model::Json json;
        auto measured = group_->run([&](int rank) -> Expected<void> {
            if (rank == 0) json = costs_of_device();
            return {};
        });
        if (!measured) return tl::unexpected(measured.error());
        return json;
    }
    double read_ceiling_gb_per_s() override {
        double rate = 0;
        const auto measured = group_ == nullptr ? Expected<void>() : group_->run([&](int rank) -> Expected<void> {
            if (rank == 0) rate = measure_memory().read_gb_per_s;
            return {};
        });
        return measured ? rate : 0;
    }
    model::Json environment() const override {
        model::Json json = {{"device", "cuda"},
                            {"ranks", settings_.ranks},
                            {"tensor", layout().tensor},
                            {"expert_parallel", settings_.expert_parallel},
                            {"activations", settings_.bf16_activations ? "bf16" : "fp32"},
                            {"cache", settings_.bf16_cache ? "bf16" : "fp32"},
                            {"launch",
                             {{"decode", to_name(settings_.launch.decode)},
                              {"verify", to_name(settings_.launch.verify)},
                              {"draft", to_name(settings_.launch.draft)}}},
                            {"peer_access", settings_.peer_access}};
        if (group_ != nullptr) json["gpu"] = gpu_name();
        return json;
    }

   private:
    [[nodiscard]] model::Layout layout() const {
        model::Layout layout;
        layout.tensor = settings_.tensor_rank_of > 0 ? settings_.tensor_rank_of : settings_.ranks;
        layout.expert = settings_.expert_parallel ? layout.tensor : 1;
        return layout;
    }
    [[nodiscard]] ComputeFormats formats() const {
        return {settings_.bf16_activations ? model::NumberFormat::bf16 : model::NumberFormat::fp32,
                settings_.bf16_cache ? model::NumberFormat::bf16 : model::NumberFormat::fp32};
    }
    [[nodiscard]] RankOptions options(const EngineRequest& request) const {
        RankOptions options;
        options.sequences = request.sequences;
        options.max_length = request.max_length;
        options.max_rows = request.max_rows;
        options.precision = settings_.bf16_activations ? Precision::bf16 : Precision::fp32;
        options.cache = settings_.bf16_cache ? CacheFormat::bf16 : CacheFormat::fp32;
        options.dense = settings_.cublaslt_for_all ? DenseChoice::library : DenseChoice::few_rows;
        options.fuse_norm = settings_.fuse_norm;
        options.outputs_hidden = request.hidden_read;
        options.launch = settings_.launch;
        return options;
    }
    [[nodiscard]] const cpu::ModelWeights& lender(int rank) const { return std::as_const(*target_).rank(rank).weights().host(); }

    Made make_target(PlannedModel planned, const EngineRequest& request, const Engine::LoadWeights& weights) {
        const model::Architecture& architecture = planned.shape.architecture;
        if (group_ == nullptr) {
            const std::int64_t share = architecture.vocabulary / layout().tensor;
            auto group = RankGroup::create(settings_, request.max_rows * std::max<std::int64_t>(architecture.hidden, share));
            if (!group) return tl::unexpected(group.error());
            group_ = std::move(*group);
        }
        auto made = Engine::create(std::move(planned), options(request), weights, nullptr, *group_);
        if (!made) return tl::unexpected(made.error());
        target_ = made->get();
        drafter_ = nullptr;
        return std::move(*made);
    }
    Made make_drafter(Expected<PlannedModel> planned, const EngineRequest& request, const Engine::LoadWeights& weights) {
        if (!planned) return tl::unexpected(planned.error());
        RankOptions own = options(request);
        own.outputs_hidden = true;  // its further steps feed on its own states
        auto made = Engine::create(std::move(*planned), own, weights, target_, *group_);
        if (!made) return tl::unexpected(made.error());
        drafter_ = made->get();
        return std::move(*made);
    }
    /// The current device's; see launch_costs.h for the terms.
    [[nodiscard]] static model::Json costs_of_device() {
        int device = 0;
        cudaDeviceProp properties{};
        check(cudaGetDevice(&device), "device");
        check(cudaGetDeviceProperties(&properties, device), "device");
        int driver = 0;
        int runtime = 0;
        check(cudaDriverGetVersion(&driver), "driver");
        check(cudaRuntimeGetVersion(&runtime), "runtime");
        const LaunchCosts costs = measure_launch_costs();
        const MemoryRates memory = measure_memory();
        return {{"format", "draftboard.device_costs"},
                {"version", 1},
                {"gpu", properties.name},
                {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
                {"memory_bytes", properties.totalGlobalMem},
                {"l2_bytes", properties.l2CacheSize},
                {"multiprocessors", properties.multiProcessorCount},
                {"driver", driver},
                {"runtime", runtime},
                {"eager_launch_us", costs.eager_launch_us},
                {"graph_launch_us", costs.graph_launch_us},
                {"kernel_gap_us", costs.kernel_gap_us},
                {"stream_gap_us", costs.stream_gap_us},
                {"launch_latency_us", costs.launch_latency_us},
                {"sync_us", costs.sync_us},
                {"round_trip_us", costs.round_trip_us},
                {"read_back_us", costs.read_back_us},
                {"event_us", costs.event_us},
                {"event_kernel_us", costs.event_kernel_us},
                {"event_stream_us", costs.event_stream_us},
                {"to_device_gb_s", costs.to_device_gb_s},
                {"to_host_gb_s", costs.to_host_gb_s},
                {"memory_read_gb_s", memory.read_gb_per_s},
                {"memory_copy_gb_s", memory.copy_gb_per_s}};
    }
    [[nodiscard]] static std::string gpu_name() {
        cudaDeviceProp properties{};
        return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "unknown";
    }

    CudaSettings settings_;
    std::unique_ptr<RankGroup> group_;
    Engine* target_ = nullptr;
    Engine* drafter_ = nullptr;
};

}  // namespace

std::unique_ptr<EngineFactory> cuda_engines(const CudaSettings& settings) { return std::make_unique<CudaEngines>(settings); }

}  // namespace draftboard::backend::cuda
