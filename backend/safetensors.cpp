// SPDX-License-Identifier: Apache-2.0
#include "backend/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "backend/json_events.h"
#include "backend/safetensors_header.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;

static_assert(std::endian::native == std::endian::little, "tensors are little-endian and are read in place");

namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr const char* kDamaged = "the file is damaged or made to mislead; fetch or write it again";
constexpr const char* kTruncated = "the file is cut off; fetch it again";

/// An open file that closes itself.
class Descriptor {
   public:
    // O_NONBLOCK: a named pipe in place of a file is refused below and must not be waited for.
    explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    [[nodiscard]] int get() const { return fd_; }

   private:
    int fd_;
};

std::string system_reason(int code) { return std::system_category().message(code); }

/// Tensors lie one behind the other from 0 to `size`, each inside and aligned. `base`: offset of the data in the file.
Expected<void> check_places(const std::vector<TensorEntry>& tensors, std::uint64_t base, std::uint64_t size,
                            const std::string& name) {
    std::vector<const TensorEntry*> order;
    order.reserve(tensors.size());
    for (const TensorEntry& entry : tensors) {
        if (entry.end > size) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" reaches to byte {} of the data, but there are {}",
                                    printable(entry.name), entry.end, size),
                        fmt::format("{}: offset {}", name, base + std::min(entry.begin, size)), kTruncated);
        }
        order.push_back(&entry);
    }
    std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
        return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    std::uint64_t reached = 0;
    const TensorEntry* before = nullptr;
    for (const TensorEntry* entry : order) {
        const std::string place = fmt::format("{}: offset {}", name, base + entry->begin);
        if (entry->begin < reached) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" overlaps tensor \"{}\" by {} bytes", printable(entry->name),
                                    printable(before->name), reached - entry->begin),
                        place, kDamaged);
        }
        if (entry->begin > reached) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("{} bytes before tensor \"{}\" belong to no tensor", entry->begin - reached,
                                    printable(entry->name)),
                        place, kDamaged);
        }
        if ((base + entry->begin) % bytes_of(entry->type) != 0) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" of {} does not start at a multiple of {} bytes",
                                    printable(entry->name), to_name(entry->type), bytes_of(entry->type)),
                        place, "write the file again with a current version of the safetensors library, which aligns");
        }
        reached = entry->end;
        before = entry;
    }
    if (reached != size) {
        return fail(ErrorCode::invalid_input,
                    before == nullptr ? fmt::format("{} bytes of data, but no tensor", size)
                                      : fmt::format("{} bytes behind the last tensor \"{}\" belong to no tensor",
                                                    size - reached, printable(before->name)),
                    fmt::format("{}: offset {}", name, base + reached), kDamaged);
    }
    return {};
}

}  // namespace

std::int64_t TensorView::elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) {
        if (extent == 0) return 0;
    }
    for (const std::int64_t extent : shape) count *= extent;  // the reader saw that it fits
    return count;
}

struct SafetensorsFile::Impl {
    Impl() = default;
    ~Impl() {
        if (mapping != nullptr) ::munmap(mapping, mapped);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void* mapping = nullptr;
    std::size_t mapped = 0;
    std::map<std::string, TensorView, std::less<>> tensors;
    std::map<std::string, std::string> metadata;

    Expected<void> read(std::span<const std::byte> bytes, const std::string& name);
};

Expected<void> SafetensorsFile::Impl::read(std::span<const std::byte> bytes, const std::string& name) {
    if (bytes.size() < kLengthBytes) {
        return fail(ErrorCode::invalid_input, fmt::format("{} bytes are no safetensors file", bytes.size()), name,
                    kTruncated);
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    const std::string header_place = name + ": offset 0";
    if (length > kMaxSafetensorsHeader) {
        return fail(ErrorCode::too_large,
                    fmt::format("a header of {} bytes is announced, beyond the limit of {}", length, kMaxSafetensorsHeader),
                    header_place, "this is no safetensors file, or its first bytes are damaged");
    }
    if (length > bytes.size() - kLengthBytes) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("a header of {} bytes is announced, but {} follow", length, bytes.size() - kLengthBytes),
                    header_place, kTruncated);
    }
    const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                                static_cast<std::size_t>(length));
    if (json.empty() || json.front() != '{') {
        return fail(ErrorCode::invalid_input, "the header does not begin with '{'", name + ": offset 8",
                    "this is no safetensors file, or it is damaged");
    }
    auto header = read_safetensors_header(json, name);
    if (!header) return tl::unexpected(std::move(header.error()));
    const std::uint64_t base = kLengthBytes + length;
    const auto data = bytes.subspan(static_cast<std::size_t>(base));
    if (auto sound = check_places(header->tensors, base, data.size(), name); !sound) {
        return tl::unexpected(std::move(sound.error()));
    }
    for (TensorEntry& entry : header->tensors) {
        TensorView view;
        view.name = entry.name;
        view.type = entry.type;
        view.shape = std::move(entry.shape);
        view.bytes = data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.size));
        tensors.emplace(std::move(entry.name), std::move(view));
    }
    metadata = std::move(header->metadata);
    return {};
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::map<std::string, TensorView, std::less<>>& SafetensorsFile::tensors() const { return impl_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->metadata; }

Expected<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& name) {
    auto impl = std::make_unique<Impl>();
    if (auto done = impl->read(bytes, name); !done) return tl::unexpected(std::move(done.error()));
    return SafetensorsFile(std::move(impl));
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
    const Descriptor file(path);
    if (file.get() < 0) {
        const int code = errno;
        return fail(code == ENOENT ? ErrorCode::not_found : ErrorCode::invalid_input,
                    "the file can't be opened: " + system_reason(code), path, "check the path and its permissions");
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return fail(ErrorCode::invalid_input, "this is not a regular file", path, "name a .safetensors file");
    }
    auto impl = std::make_unique<Impl>();
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size > 0) {
        void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
        if (mapping == MAP_FAILED) {
            return fail(ErrorCode::unavailable, "the file can't be mapped into memory: " + system_reason(errno), path,
                        "check the limit on address space (ulimit -v)");
        }
        impl->mapping = mapping;
        impl->mapped = size;
    }
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(impl->mapping), size);
    if (auto done = impl->read(bytes, path); !done) return tl::unexpected(std::move(done.error()));
    return SafetensorsFile(std::move(impl));
}

}  // namespace draftboard::backend
