// SPDX-License-Identifier: Apache-2.0
// Writing; declared in safetensors.h. Tensors of wide elements come first and the header is padded with blanks to a
// multiple of 8 bytes, so that each tensor is aligned to its element.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/json_events.h"
#include "backend/safetensors.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

Expected<void> check(const TensorToWrite& tensor, const std::string& path) {
    auto size = static_cast<std::int64_t>(bytes_of(tensor.type));
    for (const std::int64_t extent : tensor.shape) {
        if (extent < 0 || __builtin_mul_overflow(size, extent, &size)) size = -1;
        if (size < 0) break;
    }
    if (size < 0 || static_cast<std::uint64_t>(size) != tensor.bytes.size()) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("tensor \"{}\": dtype and shape do not make the {} bytes that were given",
                                printable(tensor.name), tensor.bytes.size()),
                    path);
    }
    return {};
}

}  // namespace

Expected<void> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                                 const std::map<std::string, std::string>& metadata) {
    std::vector<const TensorToWrite*> order;
    std::set<std::string_view> names{"__metadata__"};
    for (const TensorToWrite& tensor : tensors) {
        if (auto sound = check(tensor, path); !sound) return sound;
        if (!names.insert(tensor.name).second) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" is given twice, or its name is reserved", printable(tensor.name)), path);
        }
        order.push_back(&tensor);
    }
    std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
        return bytes_of(a->type) > bytes_of(b->type);
    });
    nlohmann::json header = nlohmann::json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::uint64_t offset = 0;
    for (const TensorToWrite* tensor : order) {
        header[tensor->name] = {{"dtype", to_name(tensor->type)},
                                {"shape", tensor->shape},
                                {"data_offsets", {offset, offset + tensor->bytes.size()}}};
        offset += tensor->bytes.size();
    }
    std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    text.append((8 - text.size() % 8) % 8, ' ');
    if (text.size() > kMaxSafetensorsHeader) {
        return fail(ErrorCode::too_large, fmt::format("a header of {} bytes is beyond what readers accept", text.size()), path,
                    "write several files");
    }
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    const std::uint64_t length = text.size();
    stream.write(reinterpret_cast<const char*>(&length), sizeof length);
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const TensorToWrite* tensor : order) {
        stream.write(reinterpret_cast<const char*>(tensor->bytes.data()), static_cast<std::streamsize>(tensor->bytes.size()));
    }
    stream.close();
    if (!stream) {
        return fail(ErrorCode::invalid_input, "the file can't be written", path, "check the folder, its permissions and the space left");
    }
    return {};
}

}  // namespace draftboard::backend
