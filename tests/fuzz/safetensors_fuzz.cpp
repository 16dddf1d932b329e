// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an error, or tensors whose bytes are inside the input, do not overlap, and add up to it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "backend/cpu/stored_matrix.h"
#include "backend/safetensors.h"

using draftboard::backend::SafetensorsFile;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto file = SafetensorsFile::parse(bytes, "input");
    if (!file) {
        if (file.error().message.empty() || file.error().context.empty()) std::abort();
        return 0;
    }
    std::size_t sum = 0;
    for (const auto& [name, view] : file->tensors()) {
        const auto expected = static_cast<std::size_t>(view.elements()) * draftboard::backend::bytes_of(view.type);
        if (view.bytes.size() != expected || view.name != name) std::abort();
        sum += expected;
        if (expected == 0) continue;
        if (view.bytes.data() < bytes.data() || view.bytes.data() + expected > bytes.data() + size) std::abort();
        const auto values = draftboard::backend::cpu::to_floats(view);  // reads every byte of a float tensor
        if (values && values->size() != static_cast<std::size_t>(view.elements())) std::abort();
    }
    if (sum > size) std::abort();
    return 0;
}
