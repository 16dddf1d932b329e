// SPDX-License-Identifier: Apache-2.0
#include "model/import/nccl_xml.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "model/import/xml_source.h"

namespace draftboard::model {
namespace {

constexpr int kMaxLinksPerBond = 64;

bool named(pugi::xml_node node, const char* name) { return std::string_view(node.name()) == name; }

// The upper two bytes of "0x060400" (base class and subclass); -1 if there is no class.
int class_of(pugi::xml_node pci) {
    const auto code = integer_attribute(pci, "class", -1, 0, 0xffffff);
    return code < 0 ? -1 : static_cast<int>(code >> 8);
}

struct Gpu {
    int device = 0;
    pugi::xml_node element;  // <gpu>, or <pci> of a skeleton
    std::string vendor;
    std::string pci_device;
};

class Reader {
   public:
    Reader(const XmlSource& source, const std::string& name) : source_(source), name_(name) {}
    Expected<DeviceTree> read();

   private:
    using Result = tl::expected<void, Error>;
    Result read_cpu(pugi::xml_node cpu, int number);
    Result read_pci(pugi::xml_node pci, int parent, int depth);
    Result add_gpu(pugi::xml_node pci, pugi::xml_node gpu, int parent, int depth);
    Result check_gpus();
    void read_host(pugi::xml_node cpu);
    void read_links();
    void read_chip_links();
    [[nodiscard]] bool is_gpu(pugi::xml_node pci) const;
    [[nodiscard]] tl::unexpected<Error> no_gpu() const;
    int device_below(int parent);
    void set_link(pugi::xml_node pci, Device& device) const;

    const XmlSource& source_;
    const std::string& name_;
    DeviceTree tree_;
    bool skeleton_ = false;
    std::vector<Gpu> gpus_;
    std::unordered_map<std::string, int> gpu_at_;     // bus id -> device
    std::unordered_map<std::string, int> switch_at_;  // bus id -> device
    std::vector<std::pair<int, pugi::xml_node>> switches_;
    std::map<std::pair<int, std::string>, int> seen_switches_;  // (parent, bus id)
    std::map<int, int> numa_at_;                                // NUMA number -> device
    int pci_devices_ = 0;
    int without_class_ = 0;
    int nics_ = 0;
};

void Reader::set_link(pugi::xml_node pci, Device& device) const {
    device.bus_id = lower_case(text_attribute(pci, "busid", 32));
    device.generation = generation_from_speed(pci.attribute("link_speed").value());
    if (pci.attribute("link_width")) {
        const auto width = integer_attribute(pci, "link_width", 0, 0, 32);
        device.width = width == 0 ? 16 : static_cast<int>(width);  // as NCCL has it
    }
}

// Devices directly below a cpu get a host bridge of their own.
int Reader::device_below(int parent) {
    if (tree_.devices[static_cast<std::size_t>(parent)].kind != NodeKind::numa_node) {
        return parent;
    }
    Device bridge;
    bridge.kind = NodeKind::root_port;
    bridge.parent = parent;
    return tree_.add(bridge);
}

bool Reader::is_gpu(pugi::xml_node pci) const {
    if (pci.child("gpu")) {
        return true;
    }
    if (!skeleton_) {
        return false;
    }
    const int base = class_of(pci) >> 8;
    const std::string vendor = lower_case(text_attribute(pci, "vendor", 16));
    const bool maker = vendor.empty() || vendor == "0x10de" || vendor == "0x1002" ||
                       vendor == "0x0000" || vendor == "0xffff";
    return maker && (base == 0x03 || (base == 0x12 && vendor == "0x1002"));
}

Reader::Result Reader::add_gpu(pugi::xml_node pci, pugi::xml_node gpu, int parent, int depth) {
    (void)depth;
    Device device;
    device.kind = NodeKind::gpu;
    set_link(pci, device);
    if (!device.bus_id.empty() && gpu_at_.count(device.bus_id) > 0) {
        tree_.warnings.push_back(
            fmt::format("GPU {} is there twice; the first counts", device.bus_id));
        return {};
    }
    if (gpus_.size() >= static_cast<std::size_t>(kMaxGpus)) {
        return fail(ErrorCode::too_large, fmt::format("it has more than {} GPUs", kMaxGpus),
                    source_.place(pci), "dump the topology of one machine");
    }
    device.parent = device_below(parent);
    device.ordinal = static_cast<int>(integer_attribute(gpu, "dev", -1, 0, 1 << 20));
    const std::string bus_id = device.bus_id;
    const int index = tree_.add(std::move(device));
    gpu_at_.emplace(bus_id, index);
    gpus_.push_back({index, gpu ? gpu : pci, lower_case(text_attribute(pci, "vendor", 16)),
                     lower_case(text_attribute(pci, "device", 16))});
    return {};
}

Reader::Result Reader::read_pci(pugi::xml_node pci, int parent, int depth) {
    if (depth > kMaxXmlDepth) {
        return fail(ErrorCode::too_large,
                    fmt::format("elements are nested more than {} deep", kMaxXmlDepth),
                    source_.place(pci), "no PCIe tree is that deep; dump the topology anew");
    }
    if (tree_.devices.size() >= static_cast<std::size_t>(kMaxNodes)) {
        return fail(ErrorCode::too_large, fmt::format("it has more than {} devices", kMaxNodes),
                    source_.place(pci), "dump the topology of one machine");
    }
    ++pci_devices_;
    const int kind = class_of(pci);
    if (is_gpu(pci)) {
        return add_gpu(pci, pci.child("gpu"), parent, depth);
    }
    const bool bridge = (kind == 0x0604) || (kind < 0 && pci.child("pci"));
    if (!bridge) {
        without_class_ += kind < 0 ? 1 : 0;
        nics_ += pci.child("nic") || (kind >> 8) == 0x02 ? 1 : 0;
        return {};
    }
    Device device;
    device.kind = NodeKind::pcie_switch;
    set_link(pci, device);
    // A switch may be written once for each of its devices.
    const std::pair<int, std::string> key{parent, device.bus_id};
    const auto seen = device.bus_id.empty() ? seen_switches_.end() : seen_switches_.find(key);
    int index = -1;
    if (seen != seen_switches_.end()) {
        index = seen->second;
    } else {
        const std::string bus_id = device.bus_id;
        device.parent = device_below(parent);
        index = tree_.add(std::move(device));
        seen_switches_.emplace(key, index);
        switch_at_.emplace(bus_id, index);
        switches_.emplace_back(index, pci);
    }
    for (const pugi::xml_node child : pci.children("pci")) {
        if (const Result done = read_pci(child, index, depth + 1); !done) {
            return done;
        }
    }
    return {};
}

void Reader::read_host(pugi::xml_node cpu) {
    HostSpec& host = tree_.host;
    if (!host.vendor.empty()) {
        return;
    }
    const std::string arch = text_attribute(cpu, "arch", 32);
    host.vendor = text_attribute(cpu, "vendor", 64);
    if (host.vendor.empty() && arch.rfind("arm", 0) == 0) {
        host.vendor = "ARM";
    }
    const auto family = static_cast<int>(integer_attribute(cpu, "familyid", 0, 0, 1 << 16));
    host.family = normalized_family(host.vendor, family);
    host.model = static_cast<int>(integer_attribute(cpu, "modelid", 0, 0, 1 << 16));
    host.cpu = fmt::format("{} {} family {} model {}", arch, host.vendor, host.family, host.model);
    host.source = tree_.source;
    if (family != host.family) {
        tree_.notes.push_back(fmt::format("CPU family {} is NCCL's older notation for {}", family,
                                          host.family));
    }
}

Reader::Result Reader::read_cpu(pugi::xml_node cpu, int number) {
    read_host(cpu);
    auto found = numa_at_.find(number);
    if (found == numa_at_.end()) {
        Device device;
        device.kind = NodeKind::numa_node;
        device.numa = number;
        found = numa_at_.emplace(number, tree_.add(device)).first;
    }
    for (const pugi::xml_node child : cpu.children()) {
        Result done;
        if (named(child, "pci")) {
            done = read_pci(child, found->second, 1);
        } else if (named(child, "gpu")) {
            done = add_gpu(child, child, found->second, 1);
        }
        if (!done) {
            return done;
        }
    }
    return {};
}

// sm="90" is compute capability 9.0; with gcn it is RCCL's count of compute units.
Reader::Result Reader::check_gpus() {
    std::set<std::string> kinds;
    bool amd = false;
    for (const Gpu& gpu : gpus_) {
        const std::string gcn = text_attribute(gpu.element, "gcn", 16);
        const auto sm = integer_attribute(gpu.element, "sm", 0, 10, 999);
        const bool is_amd = !gcn.empty() || gpu.vendor == "0x1002";
        amd = amd || is_amd;
        if (is_amd && !gcn.empty()) {
            kinds.insert("AMD " + (gcn.rfind("gfx", 0) == 0 ? gcn : "gfx" + gcn));
        } else if (!is_amd && sm > 0) {
            kinds.insert(fmt::format("{}.{}", sm / 10, sm % 10));
        } else if (!gpu.pci_device.empty()) {
            kinds.insert("PCI device " + gpu.vendor + ":" + gpu.pci_device);
        }
    }
    if (kinds.size() > 1) {
        return fail(ErrorCode::unsupported,
                    fmt::format("its GPUs are not alike: {} and {}", *kinds.begin(), *kinds.rbegin()),
                    source_.place(gpus_.front().element),
                    "dump the topology with CUDA_VISIBLE_DEVICES set to GPUs of one kind");
    }
    const std::string kind = kinds.empty() ? std::string() : *kinds.begin();
    tree_.gpu.source = tree_.source;
    if (amd) {
        tree_.gpu.name = kind.empty() ? "AMD GPU" : kind;
        // RCCL's bandwidth of one xGMI link, GB/s: src/graph/topo.h (VEGA, MI200, GFX94X).
        static constexpr std::array<std::pair<std::string_view, double>, 3> kXgmi = {
            {{"910", 36}, {"90a", 36}, {"94", 48}}};
        tree_.nvlink_gb_s = 24;
        for (const auto& [mark, rate] : kXgmi) {
            if (kind.find(mark) != std::string::npos) {
                tree_.nvlink_gb_s = rate;
            }
        }
        tree_.nvlink_source = fmt::format("xGMI, {} GB/s a link (RCCL src/graph/topo.h)",
                                          tree_.nvlink_gb_s);
        tree_.notes.push_back("AMD GPUs: the fabric is read, the GPU itself is not specified");
    } else if (!kind.empty() && kind.rfind("PCI", 0) != 0) {
        tree_.gpu.compute_capability = kind;
        tree_.notes.push_back(fmt::format(
            "the XML gives compute capability {} and not the GPU's name", kind));
    } else {
        tree_.notes.push_back("the XML does not name the GPU model");
    }
    return {};
}

void Reader::read_links() {
    std::map<std::pair<int, int>, int> direct;  // (from, to) -> links
    std::map<int, int> switched;                // GPU -> links to NVSwitches
    int lost = 0;
    bool c2c = false;
    for (const Gpu& gpu : gpus_) {
        for (const pugi::xml_node link : gpu.element.children()) {
            c2c = c2c || named(link, "c2c");
            if (!named(link, "nvlink") && !named(link, "xgmi")) {
                continue;
            }
            const auto count =
                static_cast<int>(integer_attribute(link, "count", 1, 1, kMaxLinksPerBond));
            const auto target = gpu_at_.find(lower_case(text_attribute(link, "target", 32)));
            const auto target_class = integer_attribute(link, "tclass", 0, 0, 0xffffff);
            if (target != gpu_at_.end() && target->second != gpu.device) {
                int& links = direct[{gpu.device, target->second}];
                links = std::min(links + count, kMaxLinksPerBond);
            } else if (target_class == 0x068000) {  // 0x068001 is a CPU (POWER9)
                int& links = switched[gpu.device];
                links = std::min(links + count, kMaxLinksPerBond);
            } else {
                ++lost;
            }
        }
    }
    for (const auto& [ends, links] : direct) {
        const auto back = direct.find({ends.second, ends.first});
        if (back != direct.end() && back->second != links && ends.first < ends.second) {
            tree_.warnings.push_back(fmt::format(
                "GPUs {} and {} count their links differently ({} and {}); the fewer counts",
                tree_.devices[static_cast<std::size_t>(ends.first)].bus_id,
                tree_.devices[static_cast<std::size_t>(ends.second)].bus_id, links, back->second));
        }
        if (ends.first < ends.second || back == direct.end()) {
            const int fewer = back == direct.end() ? links : std::min(links, back->second);
            tree_.nvlinks.push_back({ends.first, ends.second, fewer});
        }
    }
    if (!switched.empty()) {
        Device device;
        device.kind = NodeKind::nvswitch;
        const int nvswitch = tree_.add(device);
        for (const auto& [gpu, links] : switched) {
            tree_.nvlinks.push_back({gpu, nvswitch, links});
        }
        tree_.notes.push_back("all NVSwitches are taken as one fabric");
    }
    if (lost > 0) {
        tree_.notes.push_back(
            fmt::format("{} NVLink entries lead to no GPU or NVSwitch of the file", lost));
    }
    if (c2c) {
        tree_.notes.push_back("the C2C links between GPU and CPU are left out: only PCIe leads there");
    }
}

void Reader::read_chip_links() {
    std::set<std::pair<int, int>> pairs;
    for (const auto& [index, pci] : switches_) {
        for (const pugi::xml_node link : pci.children("pcilink")) {
            const auto target = switch_at_.find(lower_case(text_attribute(link, "target", 32)));
            if (target != switch_at_.end() && target->second != index) {
                pairs.insert({std::min(index, target->second), std::max(index, target->second)});
            }
        }
    }
    tree_.chip_links.assign(pairs.begin(), pairs.end());
}

tl::unexpected<Error> Reader::no_gpu() const {
    if (pci_devices_ == 0) {
        return fail(ErrorCode::invalid_input, "the XML has no PCI devices", source_.place(source_.root()),
                    "dump it with NCCL_TOPO_DUMP_FILE=file.xml from a run that uses the GPUs");
    }
    if (without_class_ > 0) {
        return fail(ErrorCode::unsupported,
                    fmt::format("its {} PCI devices have no class, so GPUs can't be told from the rest",
                                without_class_),
                    source_.place(source_.root()),
                    "it is a skeleton that NCCL completes on the machine; dump the whole with "
                    "NCCL_TOPO_DUMP_FILE=file.xml");
    }
    return fail(ErrorCode::invalid_input,
                fmt::format("no GPU found in this topology: {} PCI devices, {} of them network devices",
                            pci_devices_, nics_),
                source_.place(source_.root()),
                "dump it with NCCL_TOPO_DUMP_FILE=file.xml from a run that uses the GPUs");
}

Expected<DeviceTree> Reader::read() {
    const pugi::xml_node system = source_.root();
    if (!named(system, "system")) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("the root element is <{}>, not <system>", quoted(system.name(), 40)),
                    source_.place(system), "give NCCL's topology XML (NCCL_TOPO_DUMP_FILE=file.xml)");
    }
    tree_.source = fmt::format("NCCL topology XML: {}", name_);
    skeleton_ = system.find_node([](pugi::xml_node node) { return named(node, "gpu"); }).empty();
    // Numbers first, so that NUMA nodes without one don't take another's.
    int next = 0;
    for (const pugi::xml_node cpu : system.children("cpu")) {
        next = std::max(next, static_cast<int>(integer_attribute(cpu, "numaid", -1, 0, 1 << 20)) + 1);
    }
    const std::string host = system.child("cpu").attribute("host_hash").value();
    int other_hosts = 0;
    for (const pugi::xml_node cpu : system.children("cpu")) {
        if (host != cpu.attribute("host_hash").value()) {
            ++other_hosts;
            continue;
        }
        auto number = static_cast<int>(integer_attribute(cpu, "numaid", -1, 0, 1 << 20));
        if (number < 0) {
            number = next++;
            tree_.notes.push_back(
                fmt::format("a cpu without a NUMA number is taken as NUMA node {}", number));
        }
        if (const Result done = read_cpu(cpu, number); !done) {
            return tl::unexpected<Error>(done.error());
        }
    }
    if (gpus_.empty()) {
        return no_gpu();
    }
    if (other_hosts > 0) {
        tree_.warnings.push_back(fmt::format(
            "{} cpus belong to other hosts; only the first host is read", other_hosts));
    }
    if (const Result done = check_gpus(); !done) {
        return tl::unexpected<Error>(done.error());
    }
    if (skeleton_) {
        tree_.notes.push_back("the file has no <gpu>: PCI devices of class 0x03 are taken as GPUs, "
                              "and NVLinks, if any, are unknown");
    }
    read_links();
    read_chip_links();
    if (nics_ > 0) {
        tree_.notes.push_back(fmt::format("{} network devices are left out", nics_));
    }
    tree_.description = fmt::format("{} GPUs, read from NCCL topology XML", gpus_.size());
    return std::move(tree_);
}

}  // namespace

int generation_from_speed(const std::string& speed) {
    char* end = nullptr;
    const double rate = std::strtod(speed.c_str(), &end);
    if (end == speed.c_str()) {
        return 0;
    }
    // GT/s of Gen1 .. Gen6.
    static constexpr std::array<double, 6> kRates = {2.5, 5, 8, 16, 32, 64};
    for (std::size_t i = 0; i < kRates.size(); ++i) {
        if (std::fabs(rate - kRates[i]) < 0.01) {
            return static_cast<int>(i) + 1;
        }
    }
    return 0;
}

int normalized_family(const std::string& vendor, int family) {
    const bool amd = vendor == "AuthenticAMD" || vendor == "HygonGenuine";
    return amd ? normalised_cpu_family(family) : family;
}

Expected<DeviceTree> read_nccl_xml(const std::string& text, const std::string& name) {
    const Expected<XmlSource> source = XmlSource::parse(text, name);
    if (!source) {
        return tl::unexpected<Error>(source.error());
    }
    return Reader(*source, name).read();
}

}  // namespace draftboard::model
