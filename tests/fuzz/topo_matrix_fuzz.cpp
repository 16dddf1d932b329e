// SPDX-License-Identifier: Apache-2.0
// Any bytes as the output of `nvidia-smi topo -m`: a sound machine or an error, never a crash.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/import/device_tree.h"
#include "model/import/topo_matrix.h"
#include "model/import/topo_tree.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard::model;
    const std::string text(reinterpret_cast<const char*>(data), size);
    (void)looks_like_topo_matrix(text);
    const auto matrix = read_topo_matrix(text, "fuzz");
    if (!matrix) {
        return 0;
    }
    const auto tree = to_device_tree(*matrix, "fuzz");
    // What the reader accepts, the tree accepts.
    if (!tree) {
        std::abort();
    }
    const auto machine = to_machine(*tree, "fuzz");
    if (machine && !machine->validate().empty()) {
        std::abort();
    }
    return 0;
}
