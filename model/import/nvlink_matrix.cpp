// SPDX-License-Identifier: Apache-2.0
#include "model/import/nvlink_matrix.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "model/import/xml_source.h"

namespace draftboard::model {
namespace {

constexpr std::size_t kMaxObjects = 2048;
constexpr std::int64_t kMaxMegabytes = 100'000'000;

// All blank-separated words of the children with this name.
std::vector<std::string> words(pugi::xml_node element, const char* child, std::size_t limit) {
    std::vector<std::string> result;
    for (const pugi::xml_node item : element.children(child)) {
        const std::string_view text = item.child_value();
        std::size_t at = 0;
        while (result.size() < limit) {
            at = text.find_first_not_of(" \t\r\n", at);
            if (at == std::string_view::npos) {
                break;
            }
            const std::size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
            result.emplace_back(text.substr(at, end - at));
            at = end;
        }
    }
    return result;
}

bool is_nvlink(pugi::xml_node element) {
    const std::string_view name = element.name();
    return (name == "distances2" || name == "distances2hetero") &&
           std::string_view(element.attribute("name").value()) == "NVLinkBandwidth";
}

std::int64_t megabytes(const std::string& word) {
    const long long value = std::strtoll(word.c_str(), nullptr, 10);
    return value > 0 && value <= kMaxMegabytes ? value : 0;
}

}  // namespace

NvlinkMatrix read_nvlink_matrix(pugi::xml_node topology,
                                const std::unordered_map<std::string, int>& gpus,
                                const std::set<std::string>& nvswitches) {
    NvlinkMatrix result;
    for (const pugi::xml_node element : topology.children()) {
        if (!is_nvlink(element)) {
            continue;
        }
        std::vector<std::string> indexes = words(element, "indexes", kMaxObjects + 1);
        const std::size_t count = indexes.size();
        if (count == 0 || count > kMaxObjects) {
            result.broken = true;
            return result;
        }
        const std::vector<std::string> values = words(element, "u64values", count * count + 1);
        if (values.size() != count * count) {
            result.broken = true;
            return result;
        }
        std::vector<int> gpu_at(count, -1);
        std::vector<bool> switch_at(count, false);
        for (std::size_t i = 0; i < count; ++i) {
            const std::string index = indexes[i].substr(indexes[i].find(':') + 1);  // "OSDev:802"
            const auto found = gpus.find(index);
            gpu_at[i] = found == gpus.end() ? -1 : found->second;
            switch_at[i] = nvswitches.count(index) > 0;
        }
        std::map<std::pair<int, int>, std::int64_t> direct;
        std::map<int, std::int64_t> switched;
        std::int64_t rate = 50000;
        for (std::size_t a = 0; a < count; ++a) {
            for (std::size_t b = 0; b < count; ++b) {
                const std::int64_t value = megabytes(values[a * count + b]);
                if (value == 0 || gpu_at[a] < 0 || (gpu_at[b] < 0 && !switch_at[b]) ||
                    gpu_at[a] == gpu_at[b]) {
                    continue;
                }
                while (rate > 20000 && value % rate != 0) {
                    rate = rate == 50000 ? 25000 : 20000;
                }
                if (switch_at[b]) {
                    switched[gpu_at[a]] += value;
                } else {
                    std::int64_t& known = direct[std::minmax(gpu_at[a], gpu_at[b])];
                    known = known == 0 ? value : std::min(known, value);
                }
            }
        }
        const auto links = [&](std::int64_t value) {
            return static_cast<int>(std::clamp<std::int64_t>((value + rate / 2) / rate, 1, 64));
        };
        for (const auto& [ends, value] : direct) {
            result.direct.push_back({ends.first, ends.second, links(value)});
        }
        for (const auto& [gpu, value] : switched) {
            result.switched[gpu] = links(value);
        }
        result.gb_s_per_link = static_cast<double>(rate) / 1000;
        return result;
    }
    return result;
}

}  // namespace draftboard::model
