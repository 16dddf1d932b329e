// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/collective_network.h"
#include "sim/custom_collective.h"
#include "sim/nccl_collective.h"
#include "sim/shared_memory_collective.h"

namespace draftboard::sim {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::OperationKind;

namespace {

constexpr double kUncalibratedError = 0.3;
constexpr double kExtrapolatedError = 0.15;  // least, beyond what a fit saw
constexpr double kLeastError = 0.02;         // repeatability of the measurements
constexpr std::size_t kMaxRemembered = 65'536;
constexpr std::size_t kMaxSamples = 200'000;

}  // namespace

struct CollectiveModel::Impl {
    using Key = std::tuple<OperationKind, std::int64_t, bool, std::vector<int>>;

    model::Machine machine;
    CollectiveSettings settings;
    CollectiveConstants constants;
    model::Router router;
    CollectiveNetwork network;
    NcclCollectives nccl;
    CustomCollectives custom;
    std::map<Key, CollectiveTime> remembered;

    Impl(const model::Machine& the_machine, CollectiveSettings the_settings,
         const CollectiveConstants& the_constants)
        : machine(the_machine),
          settings(the_settings),
          constants(the_constants),
          router(machine),
          network(machine, router),
          nccl(machine, router, network, constants, settings),
          custom(router, network, constants, settings) {}

    [[nodiscard]] Expected<bool> check(const CollectiveRequest& request) const {
        const std::string context = machine.name.empty() ? "collective" : machine.name;
        switch (request.operation) {
            case OperationKind::all_reduce:
            case OperationKind::all_gather:
            case OperationKind::reduce_scatter:
            case OperationKind::all_to_all:
            case OperationKind::send_receive: break;
            default:
                return fail(ErrorCode::invalid_input, "the operation is no collective", context,
                            "price it with the kernel model");
        }
        const int known = static_cast<int>(machine.gpus().size());
        if (request.gpus.empty()) {
            return fail(ErrorCode::invalid_input, "a collective needs at least one GPU", context,
                        "");
        }
        std::set<int> seen;
        for (const int gpu : request.gpus) {
            if (gpu < 0 || gpu >= known) {
                return fail(ErrorCode::invalid_input,
                            fmt::format("GPU {} does not exist: the machine has {}", gpu, known),
                            context, "use fewer ranks or another machine");
            }
            if (!seen.insert(gpu).second) {
                return fail(ErrorCode::invalid_input, fmt::format("GPU {} takes part twice", gpu),
                            context, "name each GPU once");
            }
        }
        if (request.bytes < 0 || request.bytes > kMaxCollectiveBytes) {
            return fail(ErrorCode::too_large, fmt::format("a message of {} bytes", request.bytes),
                        context, "give 0 to 2^50 bytes");
        }
        return true;
    }

    void state_coverage(const CollectiveRequest& request, CollectiveTime& time) const {
        if (constants.entries.empty()) {
            time.coverage = Coverage::datasheet;
            time.relative_uncertainty = kUncalibratedError;
            return;
        }
        const std::string_view implementation = to_name(time.choice.implementation);
        const int ranks = static_cast<int>(request.gpus.size());
        const CollectiveFitEntry* entry = constants.entry(request.operation, implementation, ranks);
        const std::int64_t bytes = nccl_bytes(request.operation, request.bytes, ranks);
        const bool forced = settings.algorithm != Algorithm::automatic ||
                            settings.protocol != Protocol::automatic || settings.channels > 0 ||
                            settings.graph_file || !settings.peer_to_peer ||
                            settings.peer_level != model::PathType::pxb;
        if (entry == nullptr) {
            double worst = 0;
            for (const CollectiveFitEntry& other : constants.entries) {
                if (other.implementation == implementation) worst = std::max(worst, other.error);
            }
            // Nothing of this implementation was measured: only the links' part of it is known.
            time.coverage = worst > 0 ? Coverage::extrapolated : Coverage::datasheet;
            time.relative_uncertainty =
                worst > 0 ? std::max(kExtrapolatedError, 1.5 * worst) : kUncalibratedError;
            return;
        }
        const bool inside = bytes >= entry->bytes_low && bytes <= entry->bytes_high;
        // Below the range the time is its latency, which the smallest measured size has shown.
        const bool floor = bytes < entry->bytes_low;
        time.coverage = (inside || floor) && !forced ? Coverage::measured : Coverage::extrapolated;
        time.relative_uncertainty = std::max(kLeastError, entry->error);
        if (time.coverage == Coverage::extrapolated) {
            time.relative_uncertainty = std::max(kExtrapolatedError, time.relative_uncertainty);
        }
    }

    [[nodiscard]] Expected<CollectiveTime> price_shared_memory(const CollectiveRequest& request, int ranks) const {
        const auto priced = shared_memory_time(constants.shared_memory, request.operation, settings.algorithm, ranks,
                                               static_cast<double>(request.bytes));
        if (!priced) return tl::unexpected(priced.error());
        CollectiveTime time;
        time.choice.implementation = Implementation::one_shot;
        time.choice.algorithm = settings.algorithm;
        time.choice.protocol = Protocol::simple;
        time.choice.through_host = true;
        time.latency = from_us(std::min(priced->latency_us, 1e12));
        time.transport = from_us(std::min(priced->transport_us, 1e12));
        time.total = time.latency + time.transport;
        time.skew = from_us(std::min(priced->skew_us, 1e12));
        time.skew_share = priced->skew_share;
        time.coverage = constants.shared_memory.empty() ? Coverage::datasheet
                                                        : (priced->inside ? Coverage::measured : Coverage::extrapolated);
        time.relative_uncertainty = time.coverage == Coverage::measured ? priced->relative_error
                                                                        : std::max(kExtrapolatedError, priced->relative_error);
        time.formula = priced->formula;
        return time;
    }

    [[nodiscard]] Expected<CollectiveTime> price(const CollectiveRequest& request) {
        CollectiveTime time;
        const int ranks = static_cast<int>(request.gpus.size());
        if (ranks == 1 || request.bytes == 0) {
            time.coverage = Coverage::measured;
            time.relative_uncertainty = 0;
            time.formula =
                ranks == 1 ? "one GPU: nothing to exchange" : "no bytes: nothing to exchange";
            return time;
        }
        if (model::is_cpu(machine.gpu)) return price_shared_memory(request, ranks);
        Expected<CollectiveTerms> terms = CollectiveTerms{};
        std::string why_not = "nccl";
        if (settings.implementation != Implementation::nccl) {
            why_not = request.operation == OperationKind::all_reduce
                          ? custom.why_not(request.gpus, request.bytes)
                          : "only all_reduce has it";
        }
        if (why_not.empty()) {
            time.choice.implementation = settings.implementation;
            time.choice.through_host = settings.implementation == Implementation::host_staged;
            time.choice.protocol = Protocol::simple;
            terms = custom.price(request.gpus, static_cast<double>(request.bytes));
        } else {
            if (settings.implementation != Implementation::nccl) {
                time.remarks.push_back(fmt::format("NCCL instead of {}: {}",
                                                   to_name(settings.implementation), why_not));
            }
            terms = nccl.price(request, time);
        }
        if (!terms) return tl::unexpected(terms.error());
        // A time beyond 10^12 us does not fit the clock; links this slow are nobody's.
        constexpr double kLongestUs = 1e12;
        if (!(terms->latency_us + terms->transport_us < kLongestUs)) {
            return fail(ErrorCode::unsupported, "the collective would take longer than 10 days",
                        machine.name, "check the capacities of the machine's links");
        }
        time.latency = from_us(terms->latency_us);
        time.transport = from_us(terms->transport_us);
        time.total = time.latency + time.transport;
        time.formula = std::move(terms->formula);
        state_coverage(request, time);
        return time;
    }
};

CollectiveModel::CollectiveModel(const model::Machine& machine, CollectiveSettings settings)
    : CollectiveModel(machine, settings, CollectiveConstants{}) {}

CollectiveModel::CollectiveModel(const model::Machine& machine, CollectiveSettings settings,
                                 const CollectiveConstants& constants)
    : impl_(std::make_unique<Impl>(machine, settings, constants)) {}

CollectiveModel::~CollectiveModel() = default;
CollectiveModel::CollectiveModel(CollectiveModel&&) noexcept = default;
CollectiveModel& CollectiveModel::operator=(CollectiveModel&&) noexcept = default;

Expected<CollectiveTime> CollectiveModel::time(const CollectiveRequest& request) {
    const Impl::Key key{request.operation, request.bytes, request.graph_launch, request.gpus};
    const auto known = impl_->remembered.find(key);
    if (known != impl_->remembered.end()) return known->second;
    const auto sound = impl_->check(request);
    if (!sound) return tl::unexpected(sound.error());
    auto time = impl_->price(request);
    if (!time) return time;
    if (impl_->remembered.size() >= kMaxRemembered) impl_->remembered.clear();
    impl_->remembered.emplace(key, *time);
    return time;
}

Expected<std::vector<LinkSample>> CollectiveModel::link_samples(const CollectiveRequest& request) {
    const auto priced = time(request);
    if (!priced) return tl::unexpected(priced.error());
    std::vector<LinkSample> samples;
    const int ranks = static_cast<int>(request.gpus.size());
    if (ranks == 1 || request.bytes == 0) return samples;
    if (ranks > kMaxSampledRanks) {
        return fail(ErrorCode::too_large, fmt::format("link samples of {} ranks", ranks),
                    impl_->machine.name, fmt::format("use at most {}", kMaxSampledRanks));
    }
    // Bytes move after the kernel has started: samples begin there.
    const Time start =
        from_us(priced->choice.implementation == Implementation::nccl ? impl_->constants.kernel_us
                                                                      : impl_->constants.custom_us);
    std::vector<double> before(impl_->network.capacities().size(), 0.0);
    const auto record = [&](Time at, const std::vector<double>& load) {
        for (std::size_t r = 0; r < load.size(); ++r) {
            if (load[r] == before[r] || samples.size() >= kMaxSamples) continue;
            samples.push_back({start + at, static_cast<int>(r / 2), r % 2 == 0, load[r]});
        }
        before = load;
    };
    const auto sampled = priced->choice.implementation == Implementation::nccl
                             ? impl_->nccl.sample(request, priced->choice, record)
                             : impl_->custom.sample(request.gpus, static_cast<double>(request.bytes), record);
    if (!sampled) return tl::unexpected(sampled.error());
    return samples;
}

}  // namespace draftboard::sim
