// SPDX-License-Identifier: Apache-2.0
#include "calibration/gpu_facts.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include <fmt/format.h>

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

namespace {

constexpr int kOk = 0;            // NVML_SUCCESS
constexpr unsigned kSmClock = 1;  // NVML_CLOCK_SM
constexpr unsigned kMemoryClock = 2;
constexpr unsigned kMostNvlinks = 18;
constexpr std::size_t kMostBoards = 64;
constexpr std::size_t kTextLength = 96;

using Handle = void*;
using Init = int (*)();
using Text = int (*)(char*, unsigned);
using Count = int (*)(unsigned*);
using ByIndex = int (*)(unsigned, Handle*);
using TextOf = int (*)(Handle, char*, unsigned);
using NumberOf = int (*)(Handle, unsigned*);
using ClockOf = int (*)(Handle, unsigned, unsigned*);
using Between = int (*)(Handle, Handle, unsigned*);

template <class Function>
Function function(const FindFunction& find, const char* name) {
    return reinterpret_cast<Function>(find(name));  // what dlsym is for
}

std::string text_of(const FindFunction& find, const char* name, Handle board) {
    std::array<char, kTextLength> text{};
    const auto get = function<TextOf>(find, name);
    return get != nullptr && get(board, text.data(), kTextLength - 1) == kOk ? std::string(text.data()) : std::string();
}

unsigned number_of(const FindFunction& find, const char* name, Handle board) {
    unsigned value = 0;
    const auto get = function<NumberOf>(find, name);
    return get != nullptr && get(board, &value) == kOk ? value : 0;
}

double clock_of(const FindFunction& find, const char* name, Handle board, unsigned kind) {
    unsigned mhz = 0;
    const auto get = function<ClockOf>(find, name);
    return get != nullptr && get(board, kind, &mhz) == kOk ? mhz : 0;
}

int nvlinks_of(const FindFunction& find, Handle board) {
    const auto get = function<ClockOf>(find, "nvmlDeviceGetNvLinkState");  // (board, link, state): the same shape
    int active = 0;
    for (unsigned link = 0; get != nullptr && link < kMostNvlinks; ++link) {
        unsigned state = 0;
        if (get(board, link, &state) == kOk && state == 1) ++active;
    }
    return active;
}

GpuBoard board_of(const FindFunction& find, Handle handle) {
    GpuBoard board;
    board.name = text_of(find, "nvmlDeviceGetName", handle);
    board.uuid = text_of(find, "nvmlDeviceGetUUID", handle);
    board.pcie_generation = static_cast<int>(number_of(find, "nvmlDeviceGetCurrPcieLinkGeneration", handle));
    board.pcie_width = static_cast<int>(number_of(find, "nvmlDeviceGetCurrPcieLinkWidth", handle));
    board.most_pcie_generation = static_cast<int>(number_of(find, "nvmlDeviceGetMaxPcieLinkGeneration", handle));
    board.most_pcie_width = static_cast<int>(number_of(find, "nvmlDeviceGetMaxPcieLinkWidth", handle));
    board.sm_mhz = clock_of(find, "nvmlDeviceGetClockInfo", handle, kSmClock);
    board.memory_mhz = clock_of(find, "nvmlDeviceGetClockInfo", handle, kMemoryClock);
    board.most_sm_mhz = clock_of(find, "nvmlDeviceGetMaxClockInfo", handle, kSmClock);
    board.power_limit_w = number_of(find, "nvmlDeviceGetEnforcedPowerLimit", handle) * 1e-3;
    board.nvlinks = nvlinks_of(find, handle);
    return board;
}

tl::unexpected<model::Error> no_library(const std::string& why) {
    return model::fail(model::ErrorCode::unavailable, why, "NVML", "it comes with NVIDIA's driver: check that the driver is loaded");
}

}  // namespace

Expected<GpuFacts> probe_gpus(const FindFunction& find) {
    const auto init = function<Init>(find, "nvmlInit_v2");
    const auto shutdown = function<Init>(find, "nvmlShutdown");
    const auto driver = function<Text>(find, "nvmlSystemGetDriverVersion");
    const auto count = function<Count>(find, "nvmlDeviceGetCount_v2");
    const auto by_index = function<ByIndex>(find, "nvmlDeviceGetHandleByIndex_v2");
    if (init == nullptr || count == nullptr || by_index == nullptr) return no_library("the library lacks functions that are needed");
    if (const int code = init(); code != kOk) return no_library(fmt::format("the library does not start (code {})", code));
    GpuFacts facts;
    std::array<char, kTextLength> text{};
    if (driver != nullptr && driver(text.data(), kTextLength - 1) == kOk) facts.driver = text.data();
    unsigned boards = 0;
    if (count(&boards) != kOk) boards = 0;
    std::vector<Handle> handles;
    for (unsigned i = 0; i < std::min<unsigned>(boards, kMostBoards); ++i) {
        Handle handle = nullptr;
        if (by_index(i, &handle) != kOk) continue;
        handles.push_back(handle);
        facts.boards.push_back(board_of(find, handle));
    }
    const auto ancestor = function<Between>(find, "nvmlDeviceGetTopologyCommonAncestor");
    for (std::size_t a = 0; a < handles.size(); ++a) {
        auto& row = facts.levels.emplace_back();
        for (std::size_t b = 0; b < handles.size(); ++b) {
            unsigned level = 0;
            if (a != b && ancestor != nullptr && ancestor(handles[a], handles[b], &level) != kOk) level = 0;
            row.push_back(static_cast<int>(level));
        }
    }
    if (shutdown != nullptr) shutdown();
    return facts;
}

Expected<GpuFacts> probe_gpus() {
    const std::unique_ptr<void, int (*)(void*)> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), dlclose);
    if (library == nullptr) return no_library("libnvidia-ml.so.1 is not there");
    return probe_gpus([&](const char* name) { return dlsym(library.get(), name); });
}

Json to_json(const GpuFacts& facts) {
    Json json = {{"driver", facts.driver}, {"boards", Json::array()}, {"levels", facts.levels}};
    for (const GpuBoard& board : facts.boards) {
        json["boards"].push_back({{"name", board.name},
                                  {"uuid", board.uuid},
                                  {"pcie_generation", board.pcie_generation},
                                  {"pcie_width", board.pcie_width},
                                  {"most_pcie_generation", board.most_pcie_generation},
                                  {"most_pcie_width", board.most_pcie_width},
                                  {"sm_mhz", board.sm_mhz},
                                  {"memory_mhz", board.memory_mhz},
                                  {"most_sm_mhz", board.most_sm_mhz},
                                  {"power_limit_w", board.power_limit_w},
                                  {"nvlinks", board.nvlinks}});
    }
    return json;
}

GpuFacts gpu_facts_from_json(const JsonReader& reader) {
    GpuFacts facts;
    if (!reader.expect_object()) return facts;
    facts.driver = reader.string_or("driver", "");
    const JsonReader boards = reader.at("boards");
    for (std::size_t i = 0; i < std::min(boards.size(), kMostBoards); ++i) {
        const JsonReader entry = boards.at(i);
        if (!entry.expect_object()) return facts;
        const auto count = [&](const char* key) { return static_cast<int>(entry.integer_or(key, 0, 0, 1 << 20)); };
        GpuBoard board;
        board.name = entry.string_or("name", "");
        board.uuid = entry.string_or("uuid", "");
        board.pcie_generation = count("pcie_generation");
        board.pcie_width = count("pcie_width");
        board.most_pcie_generation = count("most_pcie_generation");
        board.most_pcie_width = count("most_pcie_width");
        board.nvlinks = count("nvlinks");
        board.sm_mhz = entry.number_or("sm_mhz", 0, 0, 1e6);
        board.memory_mhz = entry.number_or("memory_mhz", 0, 0, 1e6);
        board.most_sm_mhz = entry.number_or("most_sm_mhz", 0, 0, 1e6);
        board.power_limit_w = entry.number_or("power_limit_w", 0, 0, 1e6);
        facts.boards.push_back(std::move(board));
    }
    if (!reader.has("levels")) return facts;
    const JsonReader levels = reader.at("levels");
    for (std::size_t a = 0; a < std::min(levels.size(), kMostBoards); ++a) {
        auto& row = facts.levels.emplace_back();
        const JsonReader line = levels.at(a);
        for (std::size_t b = 0; b < std::min(line.size(), kMostBoards); ++b) {
            const Json& level = line.value()[b];
            row.push_back(level.is_number_integer() ? static_cast<int>(std::clamp<std::int64_t>(level.get<std::int64_t>(), 0, 1000)) : 0);
        }
    }
    return facts;
}

std::vector<std::string> differences(const GpuFacts& then, const GpuFacts& now) {
    std::vector<std::string> out;
    const auto compare = [&](const std::string& what, const auto& before, const auto& after) {
        if (before != after) out.push_back(fmt::format("{} was {}, is {}", what, before, after));
    };
    compare("the driver", then.driver, now.driver);
    compare("the number of GPUs", then.boards.size(), now.boards.size());
    for (std::size_t i = 0; i < std::min(then.boards.size(), now.boards.size()); ++i) {
        const GpuBoard& before = then.boards[i];
        const GpuBoard& after = now.boards[i];
        compare(fmt::format("GPU {}", i), before.name, after.name);
        compare(fmt::format("the link width of GPU {}", i), before.pcie_width, after.pcie_width);
        compare(fmt::format("the link generation that GPU {} can do", i), before.most_pcie_generation, after.most_pcie_generation);
        compare(fmt::format("the number of NVLinks of GPU {}", i), before.nvlinks, after.nvlinks);
        if (std::abs(before.power_limit_w - after.power_limit_w) > 1) {
            out.push_back(fmt::format("the power limit of GPU {} was {:.0f} W, is {:.0f} W", i, before.power_limit_w, after.power_limit_w));
        }
    }
    if (then.levels != now.levels) out.push_back("the way between GPUs is another");
    return out;
}

}  // namespace draftboard::calibration
