// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bandwidth and latency of links for which nobody states figures: priors, to be replaced by a
// calibration or by numbers in the machine file. Not a theory of PCIe; each constant names the
// measurement it comes from.
//
//   pcie:  C = C16(generation) * width / 16
//     C16 = 3.2, 6.4, 13.1, 26.3, 55.5, 111 GB/s for Gen1 .. Gen6
//   latency of a way = sum over its links, split so that the sums come out as measured:
//     GPU - switch - GPU                                340 + 340               =  680 ns
//     GPU - switch - port - NUMA - port - switch - GPU  2 * (340 + 120 + 70)    = 1060 ns
//     GPU - port - NUMA - port - GPU                    2 * (280 + 70)          =  700 ns
//     the last over two sockets, one link of 100        700 + 100               =  800 ns
//   A remote read takes 2 L + c where a flag takes L + o: behind one switch 720 and 680 ns, through
//   the CPU 1400 and 1062, so both rise by about 360 ns of L. Across sockets only reads are known.
// Worked example: Gen4 x8 below a root port: 26.3 / 2 = 13.15 GB/s, 1.2 * 280 = 336 ns.

#include <optional>
#include <string>

#include "model/machine.h"

namespace draftboard::model {

struct LinkFigures {
    LinkCapacity capacity;  ///< each direction
    double latency_ns = 0;
    double flow_gb_s = 0;  ///< see MachineLink::flow_gb_s
    std::string source;
};

inline constexpr int kMaxPcieGeneration = 6;

/// Figures of a PCIe link between nodes of these kinds. width 0 counts as 16 (as NCCL has it).
/// nullopt: no such generation (1..6) or width (0..32).
[[nodiscard]] std::optional<LinkFigures> pcie_figures(int generation, int width, NodeKind a,
                                                      NodeKind b);

/// Inside a CPU between a root port and its NUMA node, or inside a switch chip: wider than any x16
/// link.
[[nodiscard]] LinkFigures internal_figures();

/// One NUMA node's DRAM.
[[nodiscard]] LinkFigures memory_figures();

/// `count` bonded NVLinks of GPUs of this compute capability ("9.0"). nullopt: a GPU without known
/// NVLink.
[[nodiscard]] std::optional<LinkFigures> nvlink_figures(int count,
                                                        const std::string& compute_capability);

/// Between two sockets, by the CPU and the generation of the GPUs' links: AMD of family 26 (Turin),
/// other AMD, Intel and the rest, each with how sure it is in the source.
[[nodiscard]] LinkFigures inter_socket_figures(const HostSpec& host, int pcie_generation);

/// Between two NUMA nodes of one socket (NPS2/NPS4, sub-NUMA clustering).
[[nodiscard]] LinkFigures same_socket_figures();

}  // namespace draftboard::model
