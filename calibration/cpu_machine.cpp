// SPDX-License-Identifier: Apache-2.0
#include "calibration/cpu_machine.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include <fmt/format.h>
#include <hwloc.h>

#include "model/machine_builder.h"

namespace draftboard::calibration {

using model::Json;
using model::JsonReader;

namespace {

constexpr double kMaxBytes = 1e15;
constexpr double kMaxRate = 1e6;
constexpr double kCoreLatencyNs = 50;  // one core sees another's line through the shared cache; prices nothing

struct TopologyDeleter {
    void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

std::string info_of(hwloc_topology_t topology, const char* key) {
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
        hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, 0);
        const char* text = object != nullptr ? hwloc_obj_get_info_by_name(object, key) : nullptr;
        if (text == nullptr) continue;
        std::string value(text);
        value.resize(std::min<std::size_t>(value.size(), 120));
        while (!value.empty() && value.back() == ' ') value.pop_back();
        return value;
    }
    return {};
}

double cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache != nullptr && cache->attr != nullptr ? static_cast<double>(cache->attr->cache.size) : 0.0;
}

int usable_cores(hwloc_topology_t topology) {
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    int count = 0;
    for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE); ++i) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
        if (core != nullptr && hwloc_bitmap_intersects(core->cpuset, allowed) != 0) ++count;
    }
    return std::max(count, 1);
}

std::string compiler_name() {
#if defined(__clang__)
    return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
    return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
    return "unknown compiler";
#endif
}

}  // namespace

model::Expected<CpuFacts> probe_cpu() {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) {
        return model::fail(model::ErrorCode::unavailable, "hwloc could not start", "this host");
    }
    const Topology topology(raw);
    if (hwloc_topology_load(topology.get()) != 0) {
        return model::fail(model::ErrorCode::unavailable, "hwloc could not look at the hardware", "this host");
    }
    CpuFacts facts;
    if (const std::string name = info_of(raw, "CPUModel"); !name.empty()) facts.name = name;
    facts.vendor = info_of(raw, "CPUVendor");
    facts.cores = usable_cores(raw);
    facts.numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE));
    facts.l1_bytes = cache_bytes(raw, HWLOC_OBJ_L1CACHE);
    facts.l2_bytes = cache_bytes(raw, HWLOC_OBJ_L2CACHE);
    facts.l3_bytes = cache_bytes(raw, HWLOC_OBJ_L3CACHE);
    hwloc_obj_t machine = hwloc_get_root_obj(raw);
    facts.memory_bytes = machine != nullptr ? static_cast<double>(machine->total_memory) : 0;
    facts.compiler = compiler_name();
    return facts;
}

model::Expected<model::Machine> cpu_machine(const CpuFacts& facts, const CpuCeilings& ceilings, const std::string& name) {
    if (facts.cores < 1 || facts.cores > model::kMaxGpus) {
        return model::fail(model::ErrorCode::unsupported, fmt::format("a machine of {} cores", facts.cores), name,
                           fmt::format("1 to {} are modelled", model::kMaxGpus));
    }
    const double bandwidth = std::clamp(ceilings.memory_gb_s, 0.1, model::kMaxLinkGbS);
    model::MachineBuilder builder(name);
    model::Machine& machine = builder.machine();
    machine.gpu.name = "CPU core";
    machine.gpu.compute_capability = "cpu";
    machine.gpu.memory_bytes = facts.memory_bytes / facts.cores;
    machine.gpu.memory_gb_s = bandwidth;
    machine.gpu.l2_bytes = facts.l2_bytes;
    machine.gpu.multiprocessors = 1;
    machine.gpu.bf16_tflops = ceilings.gflop_s * 1e-3;
    machine.gpu.fp8_tflops = machine.gpu.bf16_tflops;
    machine.gpu.source = "ceilings measured on one core; weights of any format are multiplied in float";
    machine.host.cpu = facts.name;
    machine.host.vendor = facts.vendor;
    machine.host.source = "hwloc";
    machine.description = fmt::format("{} core(s) of {}, each a rank of the CPU engine", facts.cores, facts.name);
    const int nodes = std::clamp(facts.numa_nodes, 1, facts.cores);
    std::vector<int> numa;
    for (int n = 0; n < nodes; ++n) numa.push_back(builder.add_numa(n, 0));
    const model::LinkFigures figures{{bandwidth, bandwidth}, kCoreLatencyNs, 0, "measured read bandwidth of one core"};
    for (int core = 0; core < facts.cores; ++core) {
        // add_gpu() makes the link of a PCIe slot; a core's has the figures of its way to memory.
        builder.add_gpu(numa[static_cast<std::size_t>(core % nodes)], 5, 16);
        model::MachineLink& link = machine.links.back();
        link.kind = model::LinkKind::internal;
        link.generation = 0;
        link.width = 0;
        link.forward = link.backward = figures.capacity;
        link.latency_ns = figures.latency_ns;
        link.source = figures.source;
    }
    if (nodes > 1) builder.connect_all_numa(5);
    return builder.build(name);
}

Json to_json(const CpuFacts& facts) {
    return {{"cpu", facts.name},           {"vendor", facts.vendor},
            {"cores", facts.cores},        {"numa_nodes", facts.numa_nodes},
            {"l1_bytes", facts.l1_bytes},  {"l2_bytes", facts.l2_bytes},
            {"l3_bytes", facts.l3_bytes},  {"memory_bytes", facts.memory_bytes},
            {"instruction_set", facts.instruction_set}, {"compiler", facts.compiler}};
}

CpuFacts cpu_facts_from_json(const JsonReader& reader) {
    CpuFacts facts;
    if (!reader.expect_object()) return facts;
    facts.name = reader.string_or("cpu", facts.name);
    facts.vendor = reader.string_or("vendor", "");
    facts.cores = static_cast<int>(reader.integer("cores", 1, model::kMaxGpus));
    facts.numa_nodes = static_cast<int>(reader.integer_or("numa_nodes", 1, 1, model::kMaxGpus));
    facts.l1_bytes = reader.number_or("l1_bytes", 0, 0, kMaxBytes);
    facts.l2_bytes = reader.number_or("l2_bytes", 0, 0, kMaxBytes);
    facts.l3_bytes = reader.number_or("l3_bytes", 0, 0, kMaxBytes);
    facts.memory_bytes = reader.number_or("memory_bytes", 0, 0, kMaxBytes);
    facts.instruction_set = reader.string_or("instruction_set", "");
    facts.compiler = reader.string_or("compiler", "");
    return facts;
}

Json to_json(const CpuCeilings& ceilings) {
    return {{"memory_gb_s", ceilings.memory_gb_s},
            {"l3_gb_s", ceilings.l3_gb_s},
            {"gflop_s", ceilings.gflop_s},
            {"cores_together", ceilings.cores_together},
            {"together_memory_gb_s", ceilings.together_memory_gb_s},
            {"together_l3_gb_s", ceilings.together_l3_gb_s},
            {"together_gflop_s", ceilings.together_gflop_s}};
}

CpuCeilings cpu_ceilings_from_json(const JsonReader& reader) {
    CpuCeilings ceilings;
    if (!reader.expect_object()) return ceilings;
    ceilings.memory_gb_s = reader.number("memory_gb_s", 1e-3, kMaxRate);
    ceilings.l3_gb_s = reader.number("l3_gb_s", 1e-3, kMaxRate);
    ceilings.gflop_s = reader.number("gflop_s", 1e-3, kMaxRate);
    ceilings.cores_together = static_cast<int>(reader.integer_or("cores_together", 1, 1, model::kMaxGpus));
    ceilings.together_memory_gb_s = reader.number_or("together_memory_gb_s", 0, 0, kMaxRate);
    ceilings.together_l3_gb_s = reader.number_or("together_l3_gb_s", 0, 0, kMaxRate);
    ceilings.together_gflop_s = reader.number_or("together_gflop_s", 0, 0, kMaxRate);
    return ceilings;
}

}  // namespace draftboard::calibration
