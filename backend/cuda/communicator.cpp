// SPDX-License-Identifier: Apache-2.0
// Set-up, the choice of a method, waiting, and errors that name ranks. Kernels: collective_kernels.cu; their memory:
// collective_staging.cpp; NCCL: nccl_ranks.cpp.
#include "backend/cuda/communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "backend/cuda/check.h"
#include "backend/cuda/collective_staging.h"
#include "backend/cuda/nccl_ranks.h"

namespace draftboard::backend::cuda {

namespace {

constexpr std::pair<CollectiveMethod, std::string_view> kNames[] = {{CollectiveMethod::nccl, "nccl"},
                                                                    {CollectiveMethod::one_shot, "one_shot"},
                                                                    {CollectiveMethod::two_shot, "two_shot"},
                                                                    {CollectiveMethod::host_staged, "host_staged"}};

/// How long a stream may take to run dry once its kernels have been told to give up.
constexpr std::chrono::seconds kDrain{2};

bool shared_gpu(const std::vector<int>& devices) { return std::set<int>(devices.begin(), devices.end()).size() < devices.size(); }

}  // namespace

std::string_view to_name(CollectiveMethod method) {
    for (const auto& [of, name] : kNames) {
        if (of == method) return name;
    }
    return "unknown";
}

std::optional<CollectiveMethod> collective_method_from_name(std::string_view name) {
    for (const auto& [method, of] : kNames) {
        if (of == name) return method;
    }
    return {};
}

CollectiveMethod choose(const CollectiveCutoffs& cutoffs, std::int64_t bytes) {
    if (bytes <= cutoffs.host_staged) return CollectiveMethod::host_staged;
    if (bytes <= cutoffs.one_shot) return CollectiveMethod::one_shot;
    if (bytes <= cutoffs.two_shot) return CollectiveMethod::two_shot;
    return CollectiveMethod::nccl;
}

std::vector<model::Problem> validate(const CommunicatorOptions& options) {
    std::vector<model::Problem> problems;
    const auto require = [&](bool holds, const char* place, std::string message) {
        if (!holds) problems.push_back({place, std::move(message)});
    };
    const auto ranks = options.devices.size();
    const auto& cutoffs = options.cutoffs;
    require(ranks >= 1, "devices", "there has to be a GPU for at least one rank");
    require(ranks <= kMaxRanks, "devices", fmt::format("{} ranks; at most {} are possible", ranks, kMaxRanks));
    require(std::all_of(options.devices.begin(), options.devices.end(), [](int device) { return device >= 0; }), "devices",
            "GPUs are numbered from 0");
    require(options.max_count >= 1, "max_count",
            fmt::format("{} numbers in the largest message; it has to be at least 1", options.max_count));
    require(options.timeout_s > 0 && options.timeout_s < 1e6, "timeout_s",
            fmt::format("{} s; it has to be positive", options.timeout_s));
    require(options.nccl_channels >= 0, "nccl_channels", fmt::format("{}; 0 lets NCCL choose", options.nccl_channels));
    require(cutoffs.host_staged >= 0 && cutoffs.one_shot >= 0 && cutoffs.two_shot >= 0, "cutoffs",
            "a size in bytes can't be negative");
    require(options.peer_access || (cutoffs.one_shot == 0 && cutoffs.two_shot == 0), "cutoffs",
            "one_shot and two_shot need peer access, which peer_access turns off");
    if (ranks > 1 && options.max_count >= 1 && shared_gpu(options.devices)) {
        require(choose(cutoffs, 4 * options.max_count) != CollectiveMethod::nccl, "cutoffs",
                fmt::format("ranks that share a GPU have no NCCL; a cut-off has to reach {} bytes, {} numbers as float",
                            4 * options.max_count, options.max_count));
    }
    return problems;
}

struct Communicator::State {
    struct Rank {
        std::atomic<std::uint64_t> enqueued{0};
        std::atomic<std::uint64_t> waits{0};
        std::atomic<bool> used_nccl{false};
        void* bf16 = nullptr;  ///< max_count numbers: NCCL's message
        float* sum = nullptr;  ///< max_count numbers: NCCL's result where a norm follows
    };
    CommunicatorOptions options;
    std::unique_ptr<CollectiveStaging> staging;
    std::unique_ptr<NcclRanks> nccl;
    std::vector<Rank> ranks;
    std::mutex failing;
    std::atomic<bool> failed{false};
    model::Error error;  ///< the first, once failed

    explicit State(CommunicatorOptions o) : options(std::move(o)), ranks(options.devices.size()) {}
    ~State() {
        nccl.reset();
        staging.reset();
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            if (ranks[r].bf16 == nullptr && ranks[r].sum == nullptr) continue;
            cudaSetDevice(options.devices[r]);
            cudaFree(ranks[r].bf16);
            cudaFree(ranks[r].sum);
        }
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    Rank& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
    [[nodiscard]] bool bf16() const { return options.format == MessageFormat::bf16; }
    [[nodiscard]] bool aborted() const { return *static_cast<volatile std::uint32_t*>(&staging->failure().abort) != 0; }

    model::Expected<void> set_up();
    void begin(int rank, std::int64_t count);
    void reduce(int rank, const ReduceRows& work, cudaStream_t stream);
    void reduce_by_nccl(int rank, const ReduceRows& work, cudaStream_t stream);
    model::Error fail(model::Error first);
    [[nodiscard]] model::Error late(int waiting);
};

model::Expected<void> Communicator::State::set_up() {
    auto made = CollectiveStaging::create(options);
    if (!made) return tl::unexpected(made.error());
    staging = std::move(*made);
    const std::int64_t largest = 4 * options.max_count;
    if (size() == 1 || choose(options.cutoffs, largest) != CollectiveMethod::nccl) return {};
    auto nccl_made = NcclRanks::create({options.devices, options.peer_access, options.nccl_algorithm, options.nccl_protocol,
                                        options.nccl_channels, largest, options.timeout_s});
    if (!nccl_made) return tl::unexpected(nccl_made.error());
    nccl = std::move(*nccl_made);
    try {
        for (int r = 0; r < size(); ++r) {
            check(cudaSetDevice(options.devices[static_cast<std::size_t>(r)]), "cudaSetDevice");
            check(cudaMalloc(reinterpret_cast<void**>(&at(r).sum), static_cast<std::size_t>(largest)), "cudaMalloc");
            if (bf16()) check(cudaMalloc(&at(r).bf16, static_cast<std::size_t>(largest / 2)), "cudaMalloc");
        }
    } catch (const std::runtime_error& caught) {
        return model::fail(model::ErrorCode::unavailable, caught.what(), "memory for NCCL's messages");
    }
    return {};
}

/// What every call does first.
void Communicator::State::begin(int rank, std::int64_t count) {
    if (failed) {
        const std::scoped_lock lock(failing);
        throw std::runtime_error("the collectives have failed: " + error.to_text());
    }
    if (count > options.max_count) {
        throw std::runtime_error(
            fmt::format("a collective of {} numbers; the communicator was made for {}", count, options.max_count));
    }
    check(cudaSetDevice(options.devices[static_cast<std::size_t>(rank)]), "cudaSetDevice");
    ++at(rank).enqueued;
}

void Communicator::State::reduce(int rank, const ReduceRows& work, cudaStream_t stream) {
    const std::int64_t count = work.rows * work.width;
    if (count == 0) return;
    begin(rank, count);
    if (size() == 1) {
        if (work.norm.hidden != nullptr) {
            launch_add_norm(work, stream);
        } else if (work.input != work.output) {
            check(cudaMemcpyAsync(work.output, work.input, static_cast<std::size_t>(count) * 4, cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
        }
        return;
    }
    switch (choose(options.cutoffs, count * (bf16() ? 2 : 4))) {
        case CollectiveMethod::host_staged:
            launch_words_all_reduce(staging->view(rank), staging->host_words(rank), bf16(), work, stream);
            break;
        case CollectiveMethod::one_shot:
            launch_words_all_reduce(staging->view(rank), staging->peer_words(rank), bf16(), work, stream);
            break;
        case CollectiveMethod::two_shot:
            launch_bulk_all_reduce(staging->view(rank), staging->peer_bulk(rank), bf16(), work, stream);
            break;
        case CollectiveMethod::nccl: reduce_by_nccl(rank, work, stream); break;
    }
}

void Communicator::State::reduce_by_nccl(int rank, const ReduceRows& work, cudaStream_t stream) {
    Rank& own = at(rank);
    own.used_nccl = true;
    const std::int64_t count = work.rows * work.width;
    float* sum = work.norm.hidden != nullptr ? own.sum : work.output;
    if (bf16()) {
        launch_to_bf16(work.input, own.bf16, count, stream);
        nccl->all_reduce(rank, own.bf16, own.bf16, count, true, stream);
        launch_from_bf16(own.bf16, sum, count, stream);
    } else {
        nccl->all_reduce(rank, work.input, sum, count, false, stream);
    }
    if (work.norm.hidden == nullptr) return;
    ReduceRows rest = work;
    rest.input = sum;
    launch_add_norm(rest, stream);
}

/// Ends everything on all ranks; all report the first error.
model::Error Communicator::State::fail(model::Error first) {
    const std::scoped_lock lock(failing);
    if (!failed) {
        error = std::move(first);
        failed = true;
        *static_cast<volatile std::uint32_t*>(&staging->failure().abort) = 1;
        if (nccl) nccl->abort();
    }
    return error;
}

/// The record that kernels left; where there is none, who is behind by the host's counts.
model::Error Communicator::State::late(int waiting) {
    if (const auto record = first_late(staging->failure(), size())) {
        return {model::ErrorCode::unavailable, describe(*record, options.devices, options.timeout_s), "collectives", ""};
    }
    std::vector<RankProgress> progress;
    for (const Rank& rank : ranks) progress.push_back({rank.enqueued, rank.waits});
    const std::uint32_t behind = ranks_behind(progress, waiting);
    const std::string within = seconds_text(options.timeout_s);
    if (behind != 0) {
        return {model::ErrorCode::unavailable,
                fmt::format("{} did not arrive at collective {} within {}; rank {} waited", name_ranks(behind, options.devices),
                            progress[static_cast<std::size_t>(waiting)].enqueued, within, waiting),
                "collectives", ""};
    }
    return {model::ErrorCode::unavailable,
            fmt::format("the collectives of rank {} did not end within {}; all ranks had come", waiting, within), "collectives",
            ""};
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::~Communicator() = default;

model::Expected<std::unique_ptr<Communicator>> Communicator::create(CommunicatorOptions options) {
    if (const auto problems = validate(options); !problems.empty())
        return tl::unexpected(model::to_error(problems, "communicator"));
    auto state = std::make_unique<State>(std::move(options));
    if (auto made = state->set_up(); !made) return tl::unexpected(made.error());
    return std::unique_ptr<Communicator>(new Communicator(std::move(state)));
}

int Communicator::ranks() const { return state_->size(); }
const CommunicatorOptions& Communicator::options() const { return state_->options; }
CollectiveMethod Communicator::method(std::int64_t count) const {
    return choose(state_->options.cutoffs, count * (state_->bf16() ? 2 : 4));
}
CollectiveMethod Communicator::gather_method(std::int64_t count) const { return choose(state_->options.cutoffs, count * 4); }

void Communicator::all_reduce(int rank, const float* input, float* output, std::int64_t count, cudaStream_t stream) {
    state_->reduce(rank, {input, output, 1, count, {}}, stream);
}

void Communicator::all_reduce_add_norm(int rank, const float* block, float* hidden, const float* weight, int m, int width,
                                       float epsilon, float* normed, std::int64_t normed_stride, float* kept,
                                       std::int64_t kept_stride, cudaStream_t stream) {
    state_->reduce(rank, {block, nullptr, m, width, {hidden, weight, epsilon, normed, normed_stride, kept, kept_stride}}, stream);
}

void Communicator::all_gather(int rank, const float* input, int rows, std::int64_t width, float* output, cudaStream_t stream) {
    State& state = *state_;
    const std::int64_t count = rows * width;
    if (count == 0) return;
    state.begin(rank, count);
    if (state.size() == 1) {
        if (input != output) {
            check(cudaMemcpyAsync(output, input, static_cast<std::size_t>(count) * 4, cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
        }
        return;
    }
    const GatherRows work{input, output, rows, width};
    switch (gather_method(count)) {
        case CollectiveMethod::host_staged:
            launch_words_all_gather(state.staging->view(rank), state.staging->host_words(rank), work, stream);
            break;
        case CollectiveMethod::one_shot:
            launch_words_all_gather(state.staging->view(rank), state.staging->peer_words(rank), work, stream);
            break;
        case CollectiveMethod::two_shot:
            launch_bulk_all_gather(state.staging->view(rank), state.staging->peer_bulk(rank), work, stream);
            break;
        case CollectiveMethod::nccl:
            state.at(rank).used_nccl = true;
            state.nccl->all_gather(rank, input, rows, width, output, stream);
            break;
    }
}

model::Expected<void> Communicator::wait(int rank, cudaStream_t stream) {
    using Clock = std::chrono::steady_clock;
    State& state = *state_;
    ++state.at(rank).waits;
    if (state.failed) {
        const std::scoped_lock lock(state.failing);
        return tl::unexpected(state.error);
    }
    if (const cudaError_t status = cudaSetDevice(state.options.devices[static_cast<std::size_t>(rank)]); status != cudaSuccess) {
        return tl::unexpected(
            state.fail({model::ErrorCode::unavailable, fmt::format("cudaSetDevice: {}", cudaGetErrorString(status)), "", ""}));
    }
    const auto begin = Clock::now();
    const bool endless = state.at(rank).used_nccl;
    std::optional<model::Error> error;
    std::optional<Clock::time_point> given_up;
    for (std::uint32_t round = 0;; ++round) {
        const cudaError_t status = cudaStreamQuery(stream);
        if (!error && state.aborted()) error = state.fail(state.late(rank));
        if (status == cudaSuccess) break;
        if (status != cudaErrorNotReady) {
            if (error) break;
            return tl::unexpected(
                state.fail({model::ErrorCode::unavailable,
                            fmt::format("rank {} (GPU {}): {}", rank, state.options.devices[static_cast<std::size_t>(rank)],
                                        cudaGetErrorString(status)),
                            "collectives", ""}));
        }
        const auto now = Clock::now();
        if (error) {
            if (!given_up) given_up = now;
            if (now - *given_up > kDrain) break;
        } else if (endless && now - begin > std::chrono::duration<double>(state.options.timeout_s)) {
            error = state.fail(state.late(rank));
        } else if (endless && round % 1024 == 0) {
            if (const auto noticed = state.nccl->asynchronous_error(rank)) {
                error = state.fail(
                    {model::ErrorCode::unavailable, fmt::format("rank {}: NCCL: {}", rank, *noticed), "collectives", ""});
            }
        }
        std::this_thread::yield();
    }
    if (error) return tl::unexpected(*error);
    return {};
}

}  // namespace draftboard::backend::cuda
