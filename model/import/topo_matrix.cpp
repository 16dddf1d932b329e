// SPDX-License-Identifier: Apache-2.0
#include "model/import/topo_matrix.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "model/import/device_tree.h"
#include "model/import/topo_text.h"

namespace draftboard::model {
namespace {

const char* const kRunTopo = "save the whole output of `nvidia-smi topo -m` and import that";

std::string at_line(const std::string& name, int line) { return fmt::format("{}:{}", name, line); }

// The peer-to-peer table says whether, not how: every cell is OK, CNS, ...
bool is_peer_table(const TopoBlock& block) {
    for (const TopoRow& row : block.rows) {
        for (const std::string& token : row.tokens) {
            const TopoLabelKind kind = parse_topo_label(token).kind;
            if (kind == TopoLabelKind::peer) {
                return true;
            }
            if (kind == TopoLabelKind::path) {
                return false;
            }
        }
    }
    return false;
}

// Columns for a table whose header is missing or cut off: the rows' own labels, in order.
void complete_columns(TopoBlock& block, std::vector<std::string>& warnings) {
    if (block.has_header && !block.affinities.empty()) {
        return;
    }
    std::unordered_map<std::string, std::size_t> known;
    for (const std::string& device : block.devices) {
        if (!is_gpu_label(device)) {
            return;  // NIC columns follow the GPUs: the GPU columns are all there
        }
        known[device] = 0;
    }
    std::size_t added = 0;
    for (const TopoRow& row : block.rows) {
        if (known.count(row.label) == 0) {
            block.devices.push_back(row.label);
            ++added;
        }
    }
    if (added > 0) {
        warnings.push_back(fmt::format(
            "line {}: the header names no column for {} of the rows; the rows' own order is taken",
            block.line, added));
    }
}

int parse_numa(const std::string& token) {
    if (token.empty() || token.size() > 6 ||
        !std::all_of(token.begin(), token.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; })) {
        return -1;  // "N/A", empty, or a list such as "0-1" that names no single node
    }
    return std::stoi(token);
}

// The columns behind the device cells: CPU and NUMA affinity.
void read_affinities(const TopoBlock& block, const TopoRow& row, std::size_t cells, int& numa,
                     std::string& cpus) {
    std::vector<std::string> values;
    // nvidia-smi's own tabs keep empty columns apart; it prints two tabs behind the NUMA affinity.
    bool by_tab = row.fields.size() > cells;
    for (std::size_t i = 0; by_tab && i < cells; ++i) {
        by_tab = row.fields[i] == row.tokens[i];
    }
    if (by_tab) {
        values.assign(row.fields.begin() + static_cast<std::ptrdiff_t>(cells), row.fields.end());
    } else {
        values.assign(row.tokens.begin() + static_cast<std::ptrdiff_t>(cells), row.tokens.end());
    }
    std::size_t at = 0;
    for (const TopoColumn column : block.affinities) {
        if (at >= values.size()) {
            return;
        }
        if (column == TopoColumn::cpu) {
            cpus = values[at++];
            // A list broken at its commas: "0, 2, 4".
            while (!by_tab && at < values.size() && !cpus.empty() && cpus.back() == ',') {
                cpus += values[at++];
            }
        } else if (column == TopoColumn::numa) {
            numa = parse_numa(values[at++]);
        }
    }
}

class MatrixReader {
   public:
    MatrixReader(TopoBlock block, std::string name) : block_(std::move(block)), name_(std::move(name)) {}
    Expected<TopoMatrix> read();

   private:
    tl::expected<void, Error> read_columns();
    tl::expected<void, Error> read_row(const TopoRow& row);
    tl::expected<void, Error> merge_sides();

    TopoBlock block_;
    std::string name_;
    TopoMatrix matrix_;
    std::vector<TopoCell> sides_;        // as the rows say: row-major, may differ from its transpose
    std::vector<std::ptrdiff_t> gpu_at_; // by device column: GPU index, -1 for a NIC
    std::unordered_map<std::string, std::size_t> index_;
};

tl::expected<void, Error> MatrixReader::read_columns() {
    for (const std::string& device : block_.devices) {
        if (!is_gpu_label(device)) {
            gpu_at_.push_back(-1);
            matrix_.nics.push_back(device);
            continue;
        }
        if (!index_.emplace(device, matrix_.gpus.size()).second) {
            return fail(ErrorCode::invalid_input, fmt::format("the header names {} twice", device),
                        at_line(name_, block_.line), kRunTopo);
        }
        gpu_at_.push_back(static_cast<std::ptrdiff_t>(matrix_.gpus.size()));
        matrix_.gpus.push_back(device);
    }
    const std::size_t count = matrix_.gpus.size();
    if (count > static_cast<std::size_t>(kMaxGpus)) {
        return fail(ErrorCode::too_large, fmt::format("the table has {} GPUs", count),
                    at_line(name_, block_.line), fmt::format("at most {} are read", kMaxGpus));
    }
    matrix_.numa.assign(count, -1);
    matrix_.cpus.assign(count, {});
    sides_.assign(count * count, {});
    return {};
}

tl::expected<void, Error> MatrixReader::read_row(const TopoRow& row) {
    const auto found = index_.find(row.label);
    if (found == index_.end()) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("row {} has no column in the header", row.label),
                    at_line(name_, row.line), kRunTopo);
    }
    const std::size_t self = found->second;
    const std::size_t count = matrix_.gpus.size();
    std::size_t column = 0;
    for (; column < gpu_at_.size() && column < row.tokens.size(); ++column) {
        const std::string& token = row.tokens[column];
        const TopoLabel label = parse_topo_label(token);
        const bool last = column + 1 == row.tokens.size();
        const bool short_row = last && column + 1 < gpu_at_.size();
        if (label.kind == TopoLabelKind::other && std::isdigit(static_cast<unsigned char>(token[0]))) {
            break;  // affinities begin early: cells are missing
        }
        if (label.kind == TopoLabelKind::cut && last) {
            break;
        }
        const std::ptrdiff_t gpu = gpu_at_[column];
        if (gpu < 0) {
            continue;
        }
        const auto other = static_cast<std::size_t>(gpu);
        const bool on_diagonal = other == self;
        if (label.kind == TopoLabelKind::missing && !on_diagonal) {
            continue;
        }
        if ((label.kind == TopoLabelKind::self) != on_diagonal) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("row {} has {} under {}: its columns are shifted", row.label,
                                    quoted(token, 20), matrix_.gpus[other]),
                        at_line(name_, row.line), kRunTopo);
        }
        if (label.kind == TopoLabelKind::peer) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("'{}' between {} and {} belongs to the peer-to-peer table, "
                                    "among labels of the topology table",
                                    quoted(token, 20), row.label, matrix_.gpus[other]),
                        at_line(name_, row.line), kRunTopo);
        }
        if (label.kind == TopoLabelKind::other || label.kind == TopoLabelKind::cut) {
            return fail(ErrorCode::unsupported,
                        fmt::format("'{}' between {} and {} is no label of `nvidia-smi topo -m`",
                                    quoted(token, 20), row.label, matrix_.gpus[other]),
                        at_line(name_, row.line),
                        "known are X, NV#, PIX, PXB, PHB, NODE, SYS and SOC");
        }
        const bool maybe_cut = short_row && label.type == PathType::nvlink;  // "NV1" of "NV18"
        if (!on_diagonal && !maybe_cut) {
            sides_[self * count + other] = {label.type, label.nvlinks};
        }
    }
    if (column == gpu_at_.size()) {
        read_affinities(block_, row, column, matrix_.numa[self], matrix_.cpus[self]);
    } else if (column < row.tokens.size()) {
        // NIC cells were left out: the affinities still stand at the row's end.
        const bool gpus_complete = std::all_of(
            gpu_at_.begin() + static_cast<std::ptrdiff_t>(column), gpu_at_.end(),
            [](std::ptrdiff_t gpu) { return gpu < 0; });
        if (gpus_complete) {
            read_affinities(block_, row, column, matrix_.numa[self], matrix_.cpus[self]);
        }
    }
    return {};
}

tl::expected<void, Error> MatrixReader::merge_sides() {
    const std::size_t count = matrix_.gpus.size();
    matrix_.cells.assign(count * count, {});
    std::size_t one_sided = 0;
    std::size_t contradictions = 0;
    std::string first_one_sided;
    for (std::size_t a = 0; a < count; ++a) {
        matrix_.cells[a * count + a] = {PathType::self, 0};
        for (std::size_t b = a + 1; b < count; ++b) {
            const TopoCell forward = sides_[a * count + b];
            const TopoCell backward = sides_[b * count + a];
            const bool has_forward = forward.type != PathType::disconnected;
            const bool has_backward = backward.type != PathType::disconnected;
            TopoCell cell = has_forward ? forward : backward;
            if (!has_forward && !has_backward) {
                return fail(ErrorCode::invalid_input,
                            fmt::format("the table does not say how {} and {} are connected: both "
                                        "rows are cut or missing",
                                        matrix_.gpus[a], matrix_.gpus[b]),
                            at_line(name_, block_.line), kRunTopo);
            }
            if (has_forward != has_backward && one_sided++ == 0) {
                first_one_sided = fmt::format("{} and {}", matrix_.gpus[a], matrix_.gpus[b]);
            }
            if (has_forward && has_backward && !(forward == backward)) {
                const bool backward_farther =
                    forward.type != backward.type ? forward.type < backward.type
                                                  : forward.nvlinks > backward.nvlinks;
                cell = backward_farther ? backward : forward;
                if (contradictions++ < 8) {
                    matrix_.warnings.push_back(
                        fmt::format("{} and {} are labelled differently in their two rows; the "
                                    "farther label counts",
                                    matrix_.gpus[a], matrix_.gpus[b]));
                }
            }
            matrix_.cells[a * count + b] = cell;
            matrix_.cells[b * count + a] = cell;
        }
    }
    if (contradictions > 8) {
        matrix_.warnings.push_back(
            fmt::format("{} more pairs are labelled differently in their two rows",
                        contradictions - 8));
    }
    if (one_sided > 0) {
        matrix_.warnings.push_back(
            fmt::format("rows are cut or missing: {} pairs ({} first) are known from one side only",
                        one_sided, first_one_sided));
    }
    return {};
}

Expected<TopoMatrix> MatrixReader::read() {
    matrix_.line = block_.line;
    complete_columns(block_, matrix_.warnings);
    if (const auto done = read_columns(); !done) {
        return tl::unexpected<Error>(done.error());
    }
    for (const TopoRow& row : block_.rows) {
        if (const auto done = read_row(row); !done) {
            return tl::unexpected<Error>(done.error());
        }
    }
    if (const auto done = merge_sides(); !done) {
        return tl::unexpected<Error>(done.error());
    }
    return std::move(matrix_);
}

// The first line that says anything, for the message about a text without a table.
std::string first_words(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) {
        return {};
    }
    return quoted(text.substr(begin, text.find('\n', begin) - begin));
}

}  // namespace

bool looks_like_topo_matrix(const std::string& text) {
    const TopoText scanned = scan_topo_text(text);
    if (scanned.failure_line != 0) {
        return true;
    }
    for (const TopoBlock& block : scanned.blocks) {
        if (!block.rows.empty() || block.devices.size() > 1 || !block.affinities.empty()) {
            return true;
        }
    }
    return false;
}

Expected<TopoMatrix> read_topo_matrix(const std::string& text, const std::string& name) {
    const TopoText scanned = scan_topo_text(text);
    const TopoBlock* chosen = nullptr;
    const TopoBlock* peer = nullptr;
    const TopoBlock* next = nullptr;
    const TopoBlock* bare_header = nullptr;
    for (const TopoBlock& block : scanned.blocks) {
        if (block.rows.empty()) {
            bare_header = bare_header == nullptr ? &block : bare_header;
        } else if (is_peer_table(block)) {
            peer = peer == nullptr ? &block : peer;
        } else if (chosen == nullptr) {
            chosen = &block;
        } else if (next == nullptr) {
            next = &block;
        }
    }
    if (scanned.too_many_rows) {
        return fail(ErrorCode::too_large, "the table has more rows than any machine has GPUs",
                    at_line(name, chosen != nullptr ? chosen->line : 1),
                    fmt::format("at most {} GPUs are read", kMaxGpus));
    }
    if (chosen == nullptr) {
        if (peer != nullptr) {
            return fail(ErrorCode::unsupported,
                        "this is the peer-to-peer table of `nvidia-smi topo -p2p`, which does not "
                        "say how the GPUs are connected",
                        at_line(name, peer->line), "run `nvidia-smi topo -m` and import its output");
        }
        if (scanned.failure_line != 0) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("nvidia-smi failed instead of printing a table: {}",
                                    quoted(scanned.failure)),
                        at_line(name, scanned.failure_line),
                        "run `nvidia-smi topo -m` on the machine itself, where the driver works");
        }
        if (bare_header != nullptr) {
            return fail(ErrorCode::invalid_input, "the table has a header and no rows",
                        at_line(name, bare_header->line), kRunTopo);
        }
        const std::string words = first_words(text);
        return fail(ErrorCode::invalid_input,
                    words.empty() ? std::string("the input is empty")
                                  : fmt::format("no topology table in it; it begins with: {}", words),
                    at_line(name, 1), kRunTopo);
    }
    Expected<TopoMatrix> matrix = MatrixReader(*chosen, name).read();
    if (!matrix && next != nullptr && next->restarted) {
        return fail(ErrorCode::invalid_input,
                    "the rows begin anew without a header: tables of several machines are mixed and "
                    "the first is incomplete",
                    at_line(name, next->line), "keep the table of one machine in the file");
    }
    if (!matrix) {
        return matrix;
    }
    if (next != nullptr) {
        matrix->warnings.push_back(
            fmt::format("line {} begins another table; only the first, at line {}, is read",
                        next->line, chosen->line));
    }
    if (peer != nullptr) {
        matrix->warnings.push_back(
            fmt::format("the peer-to-peer table at line {} is not read", peer->line));
    }
    return matrix;
}

}  // namespace draftboard::model
