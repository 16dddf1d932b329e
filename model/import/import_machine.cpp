// SPDX-License-Identifier: Apache-2.0
#include "model/import/import_machine.h"

#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "model/import/lstopo_xml.h"
#include "model/import/nccl_xml.h"
#include "model/import/topo_matrix.h"
#include "model/import/topo_tree.h"

namespace draftboard::model {
namespace {

const char* const kReadable =
    "give the output of `nvidia-smi topo -m`, NCCL's XML (NCCL_TOPO_DUMP_FILE=file.xml) or `lstopo "
    "--whole-io file.xml`";

// The name of the first element, past prolog, doctype and comments; empty if the text is no XML.
std::string root_element(std::string_view text) {
    std::size_t at = 0;
    while (true) {
        at = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF", at);
        if (at == std::string_view::npos || text[at] != '<') {
            return {};
        }
        const std::string_view rest = text.substr(at);
        if (rest.substr(0, 4) == "<!--") {
            const std::size_t end = text.find("-->", at + 4);
            if (end == std::string_view::npos) {
                return {};
            }
            at = end + 3;
        } else if (rest.substr(0, 2) == "<?" || rest.substr(0, 2) == "<!") {
            const std::size_t end = text.find('>', at);
            if (end == std::string_view::npos) {
                return {};
            }
            at = end + 1;
        } else {
            std::size_t end = 1;
            while (end < rest.size() && end < 64 &&
                   (std::isalnum(static_cast<unsigned char>(rest[end])) != 0 || rest[end] == '_')) {
                ++end;
            }
            return std::string(rest.substr(1, end - 1));
        }
    }
}

// Outputs that people hand in by mistake, by a word that only they have.
struct Mistaken {
    std::string_view mark;
    std::string_view what;
    std::string_view hint;
};
constexpr std::array<Mistaken, 11> kMistaken = {{
    {"nThread ", "this is the log of nccl-tests, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"nccl-tests", "this is the log of nccl-tests, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"(us)  (GB/s)  (GB/s)", "this is a table of nccl-tests, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"nvbandwidth", "this is the output of nvbandwidth, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"_memcpy_", "this is the output of nvbandwidth, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"P2P=", "this is the output of p2pBandwidthLatencyTest, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"P2P Connectivity Matrix",
     "this is the output of p2pBandwidthLatencyTest, a measurement and no topology",
     "import it with `draftboard calibrate import`"},
    {"-[0000:", "this is the tree of `lspci -tv`, which names no NUMA nodes",
     "run `lstopo --whole-io file.xml` or `nvidia-smi topo -m`"},
    {"LnkSta:", "this is the output of `lspci -vv`, whose link speeds drop while idle",
     "run `lstopo --whole-io file.xml` or `nvidia-smi topo -m`"},
    {"HostBridge", "this is lstopo's text output, which leaves link speeds out",
     "write XML instead: `lstopo --whole-io file.xml`"},
    {"ROCm System Management", "this is the output of rocm-smi, which is not read",
     "dump RCCL's topology with NCCL_TOPO_DUMP_FILE=file.xml"},
}};

tl::unexpected<Error> refuse_unknown(const std::string& text, const std::string& name) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    const std::string context = name + ":1";
    if (begin == std::string::npos) {
        return fail(ErrorCode::invalid_input, "the input is empty", context, kReadable);
    }
    const std::string root = root_element(text);
    if (root == "graphs" || root == "graph") {
        return fail(ErrorCode::unsupported,
                    "this is NCCL's graph dump (rings and trees), which does not say how the box is wired",
                    context, "dump the topology instead: NCCL_TOPO_DUMP_FILE=file.xml");
    }
    if (!root.empty()) {
        return fail(ErrorCode::unsupported,
                    fmt::format("XML with the root element <{}> describes no topology", root), context,
                    kReadable);
    }
    for (const Mistaken& mistaken : kMistaken) {
        if (text.find(mistaken.mark) != std::string::npos) {
            return fail(ErrorCode::unsupported, std::string(mistaken.what), context,
                        std::string(mistaken.hint));
        }
    }
    if (text[begin] == '{' || text[begin] == '[') {
        return fail(ErrorCode::unsupported, "this is JSON, which no topology tool of these writes",
                    context,
                    "a Draftboard machine file is used as it is (`machine show`); to import, "
                    "give nvidia-smi, NCCL or lstopo output");
    }
    return fail(ErrorCode::invalid_input,
                fmt::format("no topology in it; it begins with: {}",
                            quoted(text.substr(begin, text.find('\n', begin) - begin))),
                context, kReadable);
}

// "dir/box.xml" -> "box".
std::string stem(const std::string& name) {
    const std::size_t slash = name.find_last_of("/\\");
    std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
    const std::size_t dot = last.find_last_of('.');
    if (dot != std::string::npos && dot > 0) {
        last.resize(dot);
    }
    return last.empty() ? std::string("machine") : quoted(last, 100);
}

Expected<DeviceTree> read_tree(const std::string& text, const std::string& name,
                               MachineFormat format) {
    switch (format) {
        case MachineFormat::nccl_xml: return read_nccl_xml(text, name);
        case MachineFormat::lstopo_xml: return read_lstopo_xml(text, name);
        case MachineFormat::topo_matrix: {
            const Expected<TopoMatrix> matrix = read_topo_matrix(text, name);
            if (!matrix) {
                return tl::unexpected<Error>(matrix.error());
            }
            return to_device_tree(*matrix, name);
        }
        case MachineFormat::unknown: break;
    }
    return refuse_unknown(text, name);
}

std::string format_name(MachineFormat format) {
    switch (format) {
        case MachineFormat::topo_matrix: return "nvidia-smi topo -m";
        case MachineFormat::nccl_xml: return "NCCL topology XML";
        case MachineFormat::lstopo_xml: return "hwloc XML";
        case MachineFormat::unknown: break;
    }
    return "unknown";
}

}  // namespace

MachineFormat detect_machine_format(const std::string& text) {
    const std::string root = root_element(text);
    if (root == "system") {
        return MachineFormat::nccl_xml;
    }
    if (root == "topology" || root == "root") {  // <root>: hwloc 0.9
        return MachineFormat::lstopo_xml;
    }
    if (!root.empty()) {
        return MachineFormat::unknown;
    }
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos || text[begin] == '{') {
        return MachineFormat::unknown;
    }
    return looks_like_topo_matrix(text) ? MachineFormat::topo_matrix : MachineFormat::unknown;
}

Expected<ImportedMachine> import_machine(const std::string& text, const std::string& name,
                                         const ImportOptions& options) {
    const MachineFormat format = detect_machine_format(text);
    const Expected<DeviceTree> tree = read_tree(text, name, format);
    if (!tree) {
        return tl::unexpected<Error>(tree.error());
    }
    Expected<Machine> machine = to_machine(*tree, name, options);
    if (!machine) {
        Error error = machine.error();
        if (error.hint.empty()) {
            error.hint = "the input contradicts itself; take it anew from the machine";
        }
        return tl::unexpected<Error>(std::move(error));
    }
    machine->name = stem(name);
    return ImportedMachine{std::move(*machine), format_name(format), tree->warnings};
}

}  // namespace draftboard::model
