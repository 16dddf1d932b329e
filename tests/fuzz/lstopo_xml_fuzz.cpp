// SPDX-License-Identifier: Apache-2.0
// Any bytes as hwloc's XML: a sound machine or an error, never a crash.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/import/device_tree.h"
#include "model/import/lstopo_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard::model;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto tree = read_lstopo_xml(text, "fuzz");
    if (!tree) {
        return 0;
    }
    const auto machine = to_machine(*tree, "fuzz");
    if (machine && !machine->validate().empty()) {
        std::abort();
    }
    return 0;
}
