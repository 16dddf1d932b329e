// SPDX-License-Identifier: Apache-2.0
#include "model/import/lstopo_xml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "model/import/nvlink_matrix.h"
#include "model/import/xml_source.h"

namespace draftboard::model {
namespace {

std::string_view type_of(pugi::xml_node object) { return object.attribute("type").value(); }

// "0302 [10de:1db8] ..."
struct PciType {
    int code = -1;  // class and subclass
    std::string vendor;
    std::string device;
};

PciType pci_type_of(pugi::xml_node object) {
    const std::string text = lower_case(text_attribute(object, "pci_type", 80));
    PciType type;
    char* end = nullptr;
    const long code = std::strtol(text.c_str(), &end, 16);
    if (end != text.c_str() && code >= 0 && code <= 0xffff) {
        type.code = static_cast<int>(code);
    }
    const std::size_t open = text.find('[');
    const std::size_t colon = text.find(':', open == std::string::npos ? text.size() : open);
    if (colon != std::string::npos) {
        type.vendor = text.substr(open + 1, colon - open - 1);
        type.device = text.substr(colon + 1, 4);
    }
    return type;
}

std::string info(pugi::xml_node object, std::string_view key) {
    for (const pugi::xml_node item : object.children("info")) {
        if (item.attribute("name").value() == key) {
            return text_attribute(item, "value", 120);
        }
    }
    return {};
}

// "11796032KiB" (hwloc 3) or "11796032" in KiB (hwloc 2), in bytes.
double kibibytes(const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return std::isfinite(value) && value > 0 && value < 1e15 ? value * 1024 : 0;
}

struct Gpu {
    int device = 0;
    pugi::xml_node object;
    PciType type;
    pugi::xml_node os_device;  // cuda, nvml, rsmi or opencl, if any
    int number = -1;           // of that device
};

struct NumaNodes {
    int first = -1;  // device
    int count = 0;
};

struct Place {
    int parent = -1;      // device to hang below; -1: no host bridge yet
    bool at_port = false; // the bridge above is a root or downstream port: the next one begins a switch
    pugi::xml_node owner; // the package, group or machine around the host bridge
};

class Reader {
   public:
    Reader(const XmlSource& source, const std::string& name) : source_(source), name_(name) {}
    Expected<DeviceTree> read();

   private:
    using Result = tl::expected<void, Error>;
    Result visit(pugi::xml_node object, Place place, int depth);
    Result find_numa_nodes(pugi::xml_node object, int socket, int depth);
    Result add_pci_device(pugi::xml_node object, const Place& place);
    int host_bridge(const Place& place);
    int numa_below(pugi::xml_node owner);
    void set_link(pugi::xml_node object, Device& device, bool is_gpu);
    void read_host();
    void choose_gpus();
    void order_gpus();
    Result describe_gpus();
    void read_nvlinks();

    const XmlSource& source_;
    const std::string& name_;
    DeviceTree tree_;
    std::vector<Gpu> gpus_;
    std::unordered_map<const void*, NumaNodes> numa_in_;  // element -> NUMA nodes at or below it
    std::set<int> numa_numbers_;
    std::unordered_map<std::string, int> gpu_of_index_;   // gp_index of a GPU or its OS devices -> device
    std::set<std::string> nvswitch_indexes_;
    pugi::xml_node package_;
    int pci_devices_ = 0;
    int displays_ = 0;
    int networks_ = 0;
    int trained_down_ = 0;
    bool unclear_numa_ = false;
};

Reader::Result Reader::find_numa_nodes(pugi::xml_node object, int socket, int depth) {
    if (depth > kMaxXmlDepth) {
        return fail(ErrorCode::too_large,
                    fmt::format("objects are nested more than {} deep", kMaxXmlDepth),
                    source_.place(object), "take the file anew with lstopo");
    }
    const std::string_view type = type_of(object);
    NumaNodes below;
    if (type == "Package" || type == "Socket") {
        socket = static_cast<int>(integer_attribute(object, "os_index", -1, 0, 1 << 16));
        package_ = package_ ? package_ : object;
    } else if (type == "NUMANode") {
        Device device;
        device.kind = NodeKind::numa_node;
        device.numa = static_cast<int>(integer_attribute(object, "os_index", -1, 0, 1 << 20));
        device.socket = socket;
        if (device.numa < 0 || !numa_numbers_.insert(device.numa).second) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("NUMA node {} is there twice or has no number", device.numa),
                        source_.place(object), "take the file anew with lstopo");
        }
        if (tree_.devices.size() >= static_cast<std::size_t>(kMaxNodes)) {
            return fail(ErrorCode::too_large, fmt::format("it has more than {} NUMA nodes", kMaxNodes),
                        source_.place(object), "take the topology of one machine");
        }
        below = {tree_.add(device), 1};
    }
    for (const pugi::xml_node child : object.children("object")) {
        if (const Result done = find_numa_nodes(child, socket, depth + 1); !done) {
            return done;
        }
        const auto inside = numa_in_.find(child.internal_object());
        // A NUMANode speaks for itself, whatever hwloc 1 puts inside it.
        if (inside != numa_in_.end() && type != "NUMANode") {
            below.first = below.count == 0 ? inside->second.first : below.first;
            below.count += inside->second.count;
        }
    }
    if (below.count > 0) {
        numa_in_[object.internal_object()] = below;
    }
    return {};
}

// The NUMA node that owns a host bridge hanging at `owner`: the object itself, else the nearest node
// below or above; of several the first.
int Reader::numa_below(pugi::xml_node owner) {
    for (pugi::xml_node at = owner; at; at = at.parent()) {
        const auto found = numa_in_.find(at.internal_object());
        if (found != numa_in_.end()) {
            unclear_numa_ = unclear_numa_ || found->second.count > 1;
            return found->second.first;
        }
    }
    // hwloc 1 names no NUMA node on a machine with one.
    Device device;
    device.kind = NodeKind::numa_node;
    device.numa = 0;
    const int node = tree_.add(device);
    numa_in_[source_.root().internal_object()] = {node, 1};
    tree_.notes.push_back("the file names no NUMA node: one is assumed");
    return node;
}

int Reader::host_bridge(const Place& place) {
    Device bridge;
    bridge.kind = NodeKind::root_port;
    bridge.parent = numa_below(place.owner);
    return tree_.add(bridge);
}

void Reader::set_link(pugi::xml_node object, Device& device, bool is_gpu) {
    device.bus_id = lower_case(text_attribute(object, "pci_busid", 32));
    const double speed = std::strtod(object.attribute("pci_link_speed").value(), nullptr);
    const PcieLink link = link_from_speed(speed);
    if (link.generation == 1) {
        trained_down_ += is_gpu ? 1 : 0;
        return;
    }
    device.generation = link.generation;
    device.width = link.width;
}

Reader::Result Reader::add_pci_device(pugi::xml_node object, const Place& place) {
    ++pci_devices_;
    const PciType type = pci_type_of(object);
    const int base = type.code >> 8;
    networks_ += base == 0x02 ? 1 : 0;
    displays_ += base == 0x03 ? 1 : 0;
    const bool nvidia = type.vendor == "10de";
    if (std::string_view(object.attribute("subtype").value()) == "NVSwitch" ||
        (nvidia && type.code == 0x0680)) {
        nvswitch_indexes_.insert(text_attribute(object, "gp_index", 24));
        return {};
    }
    const bool amd = type.vendor == "1002";
    if (!(nvidia && base == 0x03) && !(amd && (base == 0x03 || base == 0x12))) {
        return {};
    }
    if (gpus_.size() >= static_cast<std::size_t>(kMaxGpus)) {
        return fail(ErrorCode::too_large, fmt::format("it has more than {} GPUs", kMaxGpus),
                    source_.place(object), "take the topology of one machine");
    }
    Device device;
    device.kind = NodeKind::gpu;
    device.parent = place.parent >= 0 ? place.parent : host_bridge(place);
    set_link(object, device, true);
    Gpu gpu;
    gpu.object = object;
    gpu.type = type;
    gpu.device = tree_.add(std::move(device));
    gpu_of_index_.emplace(text_attribute(object, "gp_index", 24), gpu.device);
    for (const pugi::xml_node child : object.children("object")) {
        if (type_of(child) != "OSDev") {
            continue;
        }
        gpu_of_index_.emplace(text_attribute(child, "gp_index", 24), gpu.device);
        const std::string os_name = text_attribute(child, "name", 32);
        for (const std::string_view kind : {"nvml", "cuda", "rsmi", "opencl"}) {
            // opencl0d3: the device's number comes last
            const bool match = os_name.rfind(kind, 0) == 0;
            if (!match) {
                continue;
            }
            const std::size_t digits = os_name.find_last_not_of("0123456789") + 1;
            const int number = digits < os_name.size() && os_name.size() - digits < 6
                                   ? std::atoi(os_name.c_str() + digits)
                                   : -1;
            // nvidia-smi's order first; the CUDA device tells more about the GPU.
            if (gpu.number < 0 || kind == "nvml") {
                gpu.number = number;
            }
            if (!gpu.os_device || kind == "cuda") {
                gpu.os_device = child;
            }
        }
    }
    gpus_.push_back(gpu);
    return {};
}

Reader::Result Reader::visit(pugi::xml_node object, Place place, int depth) {
    if (depth > kMaxXmlDepth) {
        return fail(ErrorCode::too_large,
                    fmt::format("objects are nested more than {} deep", kMaxXmlDepth),
                    source_.place(object), "take the file anew with lstopo");
    }
    if (tree_.devices.size() >= static_cast<std::size_t>(kMaxNodes)) {
        return fail(ErrorCode::too_large, fmt::format("it has more than {} devices", kMaxNodes),
                    source_.place(object), "take the topology of one machine");
    }
    const std::string_view type = type_of(object);
    if (type == "PCIDev") {
        return add_pci_device(object, place);
    }
    if (type == "Bridge") {
        const bool is_host = std::string_view(object.attribute("bridge_type").value()).substr(0, 2) == "0-";
        if (is_host || place.parent < 0) {
            place.parent = host_bridge(place);
            place.at_port = !is_host;  // without a host bridge above, this is a root port
        } else if (!place.at_port) {
            place.at_port = true;
        } else {
            Device device;
            device.kind = NodeKind::pcie_switch;
            device.parent = place.parent;
            set_link(object, device, false);
            place.parent = tree_.add(std::move(device));
            place.at_port = false;
        }
    } else {
        place = {-1, false, object};
    }
    for (const pugi::xml_node child : object.children("object")) {
        if (const Result done = visit(child, place, depth + 1); !done) {
            return done;
        }
    }
    return {};
}

void Reader::read_host() {
    HostSpec& host = tree_.host;
    const pugi::xml_node machine = source_.root().child("object");
    const auto find = [&](std::string_view key) {
        const std::string value = info(package_, key);
        return value.empty() ? info(machine, key) : value;
    };
    host.cpu = find("CPUModel");
    host.vendor = find("CPUVendor");
    host.family = std::atoi(find("CPUFamilyNumber").substr(0, 6).c_str());
    host.model = std::atoi(find("CPUModelNumber").substr(0, 6).c_str());
    if (host.vendor.empty() && !find("CPUImplementer").empty()) {
        host.vendor = "ARM";
    }
    if (host.cpu.empty()) {
        host.cpu = host.vendor;
    }
    host.source = tree_.source;
}

// Of the display controllers that could be GPUs keep those that a GPU runtime sees, of one maker.
void Reader::choose_gpus() {
    const std::size_t before = gpus_.size();
    const auto keep_if = [&](const auto& wanted) {
        if (std::any_of(gpus_.begin(), gpus_.end(), wanted)) {
            gpus_.erase(std::remove_if(gpus_.begin(), gpus_.end(),
                                       [&](const Gpu& gpu) { return !wanted(gpu); }),
                        gpus_.end());
        }
    };
    keep_if([](const Gpu& gpu) { return gpu.type.vendor == "10de"; });
    keep_if([](const Gpu& gpu) { return static_cast<bool>(gpu.os_device); });
    if (gpus_.size() < before) {
        tree_.notes.push_back(
            fmt::format("{} further display controllers are left out", before - gpus_.size()));
    }
}

// GPU order is nvml's or cuda's; without numbers, by PCI address, as nvidia-smi counts.
void Reader::order_gpus() {
    std::set<int> numbers;
    for (const Gpu& gpu : gpus_) {
        numbers.insert(gpu.number);
    }
    const bool numbered = numbers.size() == gpus_.size() && *numbers.begin() >= 0;
    std::stable_sort(gpus_.begin(), gpus_.end(), [&](const Gpu& a, const Gpu& b) {
        return numbered ? a.number < b.number
                        : tree_.devices[static_cast<std::size_t>(a.device)].bus_id <
                              tree_.devices[static_cast<std::size_t>(b.device)].bus_id;
    });
    // The others stay in the tree as what they are to it: nothing.
    std::set<int> kept;
    int ordinal = 0;
    for (const Gpu& gpu : gpus_) {
        tree_.devices[static_cast<std::size_t>(gpu.device)].ordinal = ordinal++;
        kept.insert(gpu.device);
    }
    for (std::size_t i = 0; i < tree_.devices.size(); ++i) {
        Device& device = tree_.devices[i];
        if (device.kind == NodeKind::gpu && kept.count(static_cast<int>(i)) == 0) {
            device.kind = NodeKind::pcie_switch;  // a leaf switch leads to no GPU and is dropped
        }
    }
}

Reader::Result Reader::describe_gpus() {
    const Gpu& first = gpus_.front();
    for (const Gpu& gpu : gpus_) {
        if (gpu.type.vendor != first.type.vendor || gpu.type.device != first.type.device) {
            return fail(ErrorCode::unsupported,
                        fmt::format("its GPUs are not alike: PCI devices {}:{} and {}:{}",
                                    first.type.vendor, first.type.device, gpu.type.vendor,
                                    gpu.type.device),
                        source_.place(gpu.object),
                        "a machine has GPUs of one kind; remove the others from the file");
        }
    }
    GpuSpec& spec = tree_.gpu;
    spec.source = tree_.source;
    spec.name = info(first.os_device, "GPUModel");
    spec.memory_bytes = kibibytes(info(first.os_device, "CUDAGlobalMemorySize"));
    spec.l2_bytes = kibibytes(info(first.os_device, "CUDAL2CacheSize"));
    spec.multiprocessors = std::clamp(
        std::atoi(info(first.os_device, "CUDAMultiProcessors").substr(0, 6).c_str()), 0, 100000);
    if (spec.name.empty()) {
        tree_.notes.push_back(fmt::format("the file does not name the GPU model: PCI device {}:{}",
                                          first.type.vendor, first.type.device));
    }
    return {};
}

void Reader::read_nvlinks() {
    const NvlinkMatrix matrix =
        read_nvlink_matrix(source_.root(), gpu_of_index_, nvswitch_indexes_);
    std::set<int> kept;
    for (const Gpu& gpu : gpus_) {
        kept.insert(gpu.device);
    }
    for (const NvlinkBond& bond : matrix.direct) {
        if (kept.count(bond.a) > 0 && kept.count(bond.b) > 0) {
            tree_.nvlinks.push_back(bond);
        }
    }
    int nvswitch = -1;
    for (const auto& [gpu, links] : matrix.switched) {
        if (kept.count(gpu) == 0) {
            continue;
        }
        if (nvswitch < 0) {
            Device device;
            device.kind = NodeKind::nvswitch;
            nvswitch = tree_.add(device);
            tree_.notes.push_back("all NVSwitches are taken as one fabric");
        }
        tree_.nvlinks.push_back({gpu, nvswitch, links});
    }
    if (matrix.broken) {
        tree_.warnings.push_back("the NVLinkBandwidth matrix is incomplete and left out");
    }
    if (matrix.gb_s_per_link > 0) {
        tree_.nvlink_gb_s = matrix.gb_s_per_link;
        tree_.nvlink_source = fmt::format("{} GB/s a link, line rate (hwloc NVLinkBandwidth)",
                                          matrix.gb_s_per_link);
    }
}

Expected<DeviceTree> Reader::read() {
    const pugi::xml_node machine = source_.root().child("object");
    if (!machine) {
        return fail(ErrorCode::invalid_input, "the XML has no <object> inside its root element",
                    source_.place(source_.root()), "write it with `lstopo --whole-io file.xml`");
    }
    tree_.source = fmt::format("hwloc XML: {}", name_);
    if (const Result done = find_numa_nodes(machine, -1, 1); !done) {
        return tl::unexpected<Error>(done.error());
    }
    if (const Result done = visit(machine, {-1, false, machine}, 1); !done) {
        return tl::unexpected<Error>(done.error());
    }
    if (gpus_.empty()) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("no GPU found in this topology: of {} PCI devices {} drive displays only "
                                "and {} are network devices",
                                pci_devices_, displays_, networks_),
                    source_.place(machine),
                    pci_devices_ == 0
                        ? "the file has no I/O devices; run `lstopo --whole-io file.xml` on the GPU host"
                        : "run `lstopo --whole-io file.xml` on the GPU host");
    }
    read_host();
    choose_gpus();
    order_gpus();
    if (const Result done = describe_gpus(); !done) {
        return tl::unexpected<Error>(done.error());
    }
    read_nvlinks();
    if (unclear_numa_) {
        tree_.notes.push_back("a host bridge belongs to several NUMA nodes: the first is taken");
    }
    if (trained_down_ > 0) {
        tree_.warnings.push_back(fmt::format(
            "{} GPU links ran at Gen1 when the file was written, as idle links do; their speed is "
            "taken as unknown",
            trained_down_));
    }
    if (networks_ > 0) {
        tree_.notes.push_back(fmt::format("{} network devices are left out", networks_));
    }
    tree_.description = fmt::format("{} GPUs, read from hwloc XML", gpus_.size());
    return std::move(tree_);
}

}  // namespace

PcieLink link_from_speed(double gb_s) {
    // One lane's line rate after encoding, GB/s, Gen1 .. Gen6: hwloc computes the same. 8b/10b to Gen2,
    // 128b/130b to Gen5, 242/256 flits in Gen6.
    static constexpr std::array<double, 6> kLane = {0.25,           0.5,           8.0 / 8 * 128 / 130,
                                                    16.0 / 8 * 128 / 130, 32.0 / 8 * 128 / 130, 7.5625};
    for (const int width : {16, 8, 4, 2, 1}) {
        for (std::size_t generation = 0; generation < kLane.size(); ++generation) {
            const double rate = kLane[generation] * width;
            if (std::fabs(gb_s - rate) < 0.005 * rate) {
                return {static_cast<int>(generation) + 1, width};
            }
        }
    }
    return {};
}

Expected<DeviceTree> read_lstopo_xml(const std::string& text, const std::string& name) {
    const Expected<XmlSource> source = XmlSource::parse(text, name);
    if (!source) {
        return tl::unexpected<Error>(source.error());
    }
    return Reader(*source, name).read();
}

}  // namespace draftboard::model
