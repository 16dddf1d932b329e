// SPDX-License-Identifier: Apache-2.0
#include "model/import/hwloc_probe.h"

#include <memory>
#include <type_traits>

#include <fmt/format.h>
#include <hwloc.h>

#include "model/import/lstopo_xml.h"

namespace draftboard::model {
namespace {

struct TopologyDeleter {
    void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

constexpr const char* kThisHost = "this host";

tl::unexpected<Error> hwloc_failed(const char* step) {
    return fail(ErrorCode::unavailable, fmt::format("hwloc could not {}", step), kThisHost,
                "import a file instead: `nvidia-smi topo -m`, NCCL's XML or lstopo's");
}

std::string cpu_model(hwloc_topology_t topology) {
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
        hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, 0);
        const char* model = object != nullptr ? hwloc_obj_get_info_by_name(object, "CPUModel") : nullptr;
        if (model != nullptr) {
            return quoted(model, 80);
        }
    }
    return "unknown CPU";
}

}  // namespace

Expected<ImportedMachine> probe_machine(const ImportOptions& options) {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) {
        return hwloc_failed("start");
    }
    const Topology topology(raw);
    hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology.get()) != 0) {
        return hwloc_failed("look at the hardware");
    }
    // One reader for files and for this host: hwloc's own XML in between.
    char* buffer = nullptr;
    int length = 0;
    if (hwloc_topology_export_xmlbuffer(topology.get(), &buffer, &length, 0) != 0) {
        return hwloc_failed("describe the hardware");
    }
    const std::string xml(buffer);
    hwloc_free_xmlbuffer(topology.get(), buffer);

    Expected<DeviceTree> tree = read_lstopo_xml(xml, kThisHost);
    if (!tree) {
        const bool empty = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PCI_DEVICE) == 0;
        return fail(
            ErrorCode::unavailable,
            fmt::format("no machine to describe: {} ({} with {} NUMA nodes)", tree.error().message,
                        cpu_model(topology.get()),
                        hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE)),
            kThisHost,
            empty ? "PCI devices may be hidden here (container?); import a file from the GPU host"
                  : "run it on the GPU host, or import a file from there");
    }
    tree->source = "hwloc on this host";
    tree->gpu.source = tree->source;
    tree->host.source = tree->source;
    Expected<Machine> machine = to_machine(*tree, kThisHost, options);
    if (!machine) {
        return tl::unexpected<Error>(machine.error());
    }
    machine->name = "this-host";
    return ImportedMachine{std::move(*machine), "hwloc", tree->warnings};
}

}  // namespace draftboard::model
