// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines of a pasted terminal output that could belong to a `topo` table: colours and odd blanks
// removed, tokens told apart, headers and rows gathered into one block a table. It knows what a label
// looks like, not what a table means: that is topo_matrix.h's.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/machine.h"

namespace draftboard::model {

enum class TopoLabelKind {
    self,     ///< X
    path,     ///< NV#, PIX, PXB, PHB, NODE, SYS, SOC
    peer,     ///< a word of `topo -p2p`: OK, CNS, GNS, TNS, NS, DR, U
    missing,  ///< N/A, -, ?, ...
    cut,      ///< the beginning of a label: "NOD", "P"
    other,
};

struct TopoLabel {
    TopoLabelKind kind = TopoLabelKind::other;
    PathType type = PathType::disconnected;
    int nvlinks = 0;
};

[[nodiscard]] TopoLabel parse_topo_label(std::string_view token);

struct TopoRow {
    int line = 0;
    std::string label;                ///< "GPU3"
    std::vector<std::string> tokens;  ///< behind the label, blanks collapsed
    std::vector<std::string> fields;  ///< behind the label, split at each tab; empty if it has no tabs
};

enum class TopoColumn { cpu, numa, gpu_numa };

/// One table: a header, if it has one, and the GPU rows below it.
struct TopoBlock {
    int line = 0;  ///< of the header, else of the first row
    bool has_header = false;
    bool restarted = false;  ///< rows began anew without a header of their own
    std::vector<std::string> devices;  ///< columns before the affinities: GPUs and NICs
    std::vector<TopoColumn> affinities;
    std::vector<TopoRow> rows;
    std::unordered_map<std::string, std::size_t> row_of;
};

struct TopoText {
    std::vector<TopoBlock> blocks;  ///< in the order of their lines, at most kMaxTopoBlocks
    std::string failure;            ///< nvidia-smi's own words, if it failed
    int failure_line = 0;
    bool too_many_rows = false;
};

inline constexpr std::size_t kMaxTopoBlocks = 64;
inline constexpr std::size_t kMaxTopoColumns = 8192;
inline constexpr std::size_t kMaxTopoLine = 1u << 18;  ///< bytes; a row of 1024 GPUs has 6000

[[nodiscard]] bool is_gpu_label(std::string_view token);
[[nodiscard]] TopoText scan_topo_text(const std::string& text);

}  // namespace draftboard::model
