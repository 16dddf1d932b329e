// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the table that `nvidia-smi topo -m` prints, as people paste it: with prose around it, colours,
// lost tabs, glued or wrapped headers, missing or cut rows, columns for NICs and affinities in any
// subset. Not the peer-to-peer table (`topo -p2p`), which is refused by name. A table becomes a
// TopoMatrix here and a DeviceTree in topo_tree.h.
//
// A pair's label comes from both rows. One side missing: the other counts. Both there and different:
// the farther counts (NV1..n < PIX < PXB < PHB < NODE < SYS; of two NV# the fewer links). Missing on
// both sides: an error that names the pair.

#include <string>
#include <vector>

#include "model/error.h"
#include "model/machine.h"

namespace draftboard::model {

struct TopoCell {
    PathType type = PathType::disconnected;  ///< disconnected: not known
    int nvlinks = 0;                         ///< of NV#
    bool operator==(const TopoCell&) const = default;
};

struct TopoMatrix {
    std::vector<std::string> gpus;   ///< "GPU0", ... in column order
    std::vector<TopoCell> cells;     ///< gpus.size() squared, symmetric, complete, diagonal self
    std::vector<int> numa;           ///< by GPU, -1 unknown
    std::vector<std::string> cpus;   ///< CPU affinity as printed, may be empty
    std::vector<std::string> nics;   ///< other device columns, in order
    int line = 0;                    ///< of the header (or the first row), 1-based
    std::vector<std::string> warnings;

    [[nodiscard]] const TopoCell& at(std::size_t row, std::size_t column) const {
        return cells[row * gpus.size() + column];
    }
};

/// The first `topo -m` table in the text. `name` leads the context of errors ("NAME:LINE").
[[nodiscard]] Expected<TopoMatrix> read_topo_matrix(const std::string& text,
                                                    const std::string& name);

/// True if some line could be a header or a row of such a table (or nvidia-smi's own failure to print it).
[[nodiscard]] bool looks_like_topo_matrix(const std::string& text);

}  // namespace draftboard::model
