// SPDX-License-Identifier: Apache-2.0
#pragma once
// Links of a machine from measured pairs: nvbandwidth and p2pBandwidthLatencyTest time one copy between two GPUs, or host and
// GPU, that has the machine to itself. One factor for each kind of link, so that few pairs say much and one odd pair little.
//
//   r_p = measured_p / bottleneck_p                     bottleneck: model/machine.h, by the machine as it is described
//   f_k = median of r_p over pairs whose least link is of kind k       sd(f_k) = 1.4826 MAD(r) / sqrt(n)
//   a link of kind k then carries f_k times what the description says, each way
// Worked example: pairs of one socket 54.4, 54.9, 55.1 GB/s where the description has 55.5: f = 54.9 / 55.5 = 0.989.
// Both directions at once, peer access off and latencies are not of one link, and are left aside with a note.

#include <string>
#include <vector>

#include "calibration/logs/link_log.h"
#include "model/machine.h"

namespace draftboard::calibration {

struct PairResidual {
    std::string what;  ///< "GPU 0 to GPU 4, device_to_device_memcpy_read_ce"
    std::string file;
    int line = 0;
    model::LinkKind kind = model::LinkKind::pcie;
    double measured_gb_s = 0;
    double described_gb_s = 0;
    double fitted_gb_s = 0;
    [[nodiscard]] double error() const { return fitted_gb_s / measured_gb_s - 1; }
};

struct LinkFactor {
    model::LinkKind kind = model::LinkKind::pcie;
    double factor = 1;
    double standard_error = 0;
    int pairs = 0;
};

struct LinkFit {
    std::vector<LinkFactor> factors;      ///< kinds that some pair is limited by
    std::vector<PairResidual> residuals;  ///< worst first
    std::vector<std::string> notes;       ///< what was left aside; kinds of link that no pair tells of
    [[nodiscard]] bool empty() const { return residuals.empty(); }
};

struct NamedLinkLog {
    std::string file;
    LinkLog log;
};

/// Errors: a GPU that the machine does not have.
[[nodiscard]] model::Expected<LinkFit> fit_links(const std::vector<NamedLinkLog>& logs, const model::Machine& machine);
/// The machine with its links' capacities multiplied; what was measured is written into their source.
[[nodiscard]] model::Machine with_links(model::Machine machine, const LinkFit& fit);

}  // namespace draftboard::calibration
