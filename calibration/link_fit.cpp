// SPDX-License-Identifier: Apache-2.0
#include "calibration/link_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "calibration/engine_measurements.h"
#include "calibration/logs/log_text.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::LinkKind;
using model::TransferKind;

namespace {

constexpr double kMadToSigma = 1.4826;  // of a normal distribution

bool names_gpu(const std::string& kind) { return kind == "GPU"; }
bool names_host(const std::string& kind) { return kind == "CPU"; }

/// Nothing: the machine has no such way for one copy.
Expected<model::Route> route_of(const model::Router& router, const PairMatrix& matrix, const PairValue& value) {
    const TransferKind transfer = contains(matrix.what, "read") ? TransferKind::read : TransferKind::write;
    if (names_gpu(matrix.from_kind) && names_gpu(matrix.to_kind)) return router.gpu_to_gpu(value.from, value.to, transfer);
    if (names_host(matrix.from_kind)) return router.host_to_gpu(value.to, -1, transfer);
    return router.gpu_to_host(value.from, -1, transfer);
}

/// The link that limits the route; links within a chip or of memory limit no copy that is measured here.
LinkKind limiting_kind(const model::Machine& machine, const model::Route& route, TransferKind transfer) {
    LinkKind kind = LinkKind::pcie;
    double least = 1e300;
    for (const model::Hop& hop : route.hops) {
        const model::MachineLink& link = machine.links[static_cast<std::size_t>(hop.link)];
        const model::LinkCapacity& way = hop.forward ? link.forward : link.backward;
        double capacity = transfer == TransferKind::read ? way.read_gb_s : way.write_gb_s;
        if (link.flow_gb_s > 0) capacity = std::min(capacity, link.flow_gb_s);
        if (capacity < least) {
            least = capacity;
            kind = link.kind;
        }
    }
    return kind;
}

std::string end_name(const std::string& kind, int index) {
    return index < 0 || kind == "CPU" ? kind : fmt::format("{} {}", kind, index);
}

/// Why a matrix is no measurement of single links; empty: it is.
std::string left_aside(const PairMatrix& matrix) {
    if (matrix.unit != "GB/s") return "latencies: they are mostly the launch's";
    if (matrix.bidirectional) return "both directions at once";
    if (matrix.peer_access == "off") return "peer access off: copies go through host memory";
    const bool pair = names_gpu(matrix.from_kind) && names_gpu(matrix.to_kind);
    const bool host = (names_host(matrix.from_kind) && names_gpu(matrix.to_kind)) ||
                      (names_gpu(matrix.from_kind) && names_host(matrix.to_kind));
    if (!pair && !host) return "several devices at once";
    if (contains(matrix.what, "all_to") || contains(matrix.what, "_all_") || contains(matrix.what, "multi"))
        return "several devices at once";
    return contains(matrix.what, "_sm") ? "kernels' own loads and stores" : "";
}

}  // namespace

Expected<LinkFit> fit_links(const std::vector<NamedLinkLog>& logs, const model::Machine& machine) {
    LinkFit fit;
    const model::Router router(machine);
    std::map<LinkKind, std::vector<double>> ratios;
    std::set<std::string> seen;
    const auto note = [&](const std::string& text) {
        if (seen.insert(text).second) fit.notes.push_back(text);
    };
    for (const NamedLinkLog& named : logs) {
        for (const PairMatrix& matrix : named.log.matrices) {
            const std::string why = left_aside(matrix);
            if (!why.empty()) {
                note(fmt::format("{}: {} is left aside: {}", named.file, matrix.what.empty() ? "a matrix" : matrix.what, why));
                continue;
            }
            for (const PairValue& value : matrix.values) {
                const bool gpus = names_gpu(matrix.from_kind) && names_gpu(matrix.to_kind);
                if (!(value.value > 0) || (gpus && (value.from == value.to || value.from < 0 || value.to < 0))) continue;
                for (const auto& [kind, index] : {std::pair{matrix.from_kind, value.from}, std::pair{matrix.to_kind, value.to}}) {
                    if (names_gpu(kind) && index >= router.gpu_count()) {
                        return model::fail(
                            ErrorCode::invalid_input,
                            fmt::format("GPU {} was measured, the machine {} has {}", index, machine.name, router.gpu_count()),
                            at_line(named.file, matrix.line), "name the machine that was measured");
                    }
                }
                const auto route = route_of(router, matrix, value);
                if (!route || !(route->bottleneck_gb_s > 0)) {
                    note(fmt::format("{}: GPUs of {} do not reach each other directly: {} is left aside", named.file,
                                     machine.name, matrix.what));
                    continue;
                }
                PairResidual row;
                row.what = fmt::format("{} to {}, {}", end_name(matrix.from_kind, value.from), end_name(matrix.to_kind, value.to),
                                       matrix.what.empty() ? "copies" : matrix.what);
                row.file = named.file;
                row.line = matrix.line;
                row.kind =
                    limiting_kind(machine, *route, contains(matrix.what, "read") ? TransferKind::read : TransferKind::write);
                row.measured_gb_s = value.value;
                row.described_gb_s = route->bottleneck_gb_s;
                ratios[row.kind].push_back(row.measured_gb_s / row.described_gb_s);
                fit.residuals.push_back(std::move(row));
            }
        }
    }
    for (auto& [kind, list] : ratios) {
        LinkFactor factor;
        factor.kind = kind;
        factor.pairs = static_cast<int>(list.size());
        factor.factor = median_of(list);
        std::vector<double> off;
        for (const double one : list) off.push_back(std::abs(one - factor.factor));
        factor.standard_error = kMadToSigma * median_of(off) / std::sqrt(static_cast<double>(list.size()));
        fit.factors.push_back(factor);
    }
    for (PairResidual& row : fit.residuals) {
        const auto found =
            std::find_if(fit.factors.begin(), fit.factors.end(), [&](const auto& one) { return one.kind == row.kind; });
        row.fitted_gb_s = row.described_gb_s * found->factor;
    }
    std::stable_sort(fit.residuals.begin(), fit.residuals.end(),
                     [](const auto& a, const auto& b) { return std::abs(a.error()) > std::abs(b.error()); });
    if (fit.empty()) return fit;
    for (const model::MachineLink& link : machine.links) {
        if (link.kind == LinkKind::internal || link.kind == LinkKind::memory || ratios.count(link.kind) != 0) continue;
        note(fmt::format("no pair is limited by the machine's {} links: these logs do not determine them",
                         model::to_name(link.kind)));
    }
    return fit;
}

model::Machine with_links(model::Machine machine, const LinkFit& fit) {
    for (const LinkFactor& factor : fit.factors) {
        for (model::MachineLink& link : machine.links) {
            if (link.kind != factor.kind) continue;
            for (model::LinkCapacity* way : {&link.forward, &link.backward}) {
                way->write_gb_s *= factor.factor;
                way->read_gb_s *= factor.factor;
            }
            link.flow_gb_s *= factor.factor;
            link.source += fmt::format("{}x {:.3f} +- {:.3f}, measured over {} pairs", link.source.empty() ? "" : "; ",
                                       factor.factor, factor.standard_error, factor.pairs);
        }
    }
    return machine;
}

}  // namespace draftboard::calibration
