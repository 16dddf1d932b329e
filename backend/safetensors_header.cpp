// SPDX-License-Identifier: Apache-2.0
#include "backend/safetensors_header.h"

#include <array>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "backend/json_events.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;

namespace {

struct TypeRow {
    TensorType type;
    std::string_view name;
    std::size_t bytes;
};
constexpr std::array<TypeRow, 12> kTypes{{
    {TensorType::f64, "F64", 8},
    {TensorType::f32, "F32", 4},
    {TensorType::f16, "F16", 2},
    {TensorType::bf16, "BF16", 2},
    {TensorType::f8_e4m3, "F8_E4M3", 1},
    {TensorType::f8_e5m2, "F8_E5M2", 1},
    {TensorType::i64, "I64", 8},
    {TensorType::i32, "I32", 4},
    {TensorType::i16, "I16", 2},
    {TensorType::i8, "I8", 1},
    {TensorType::u8, "U8", 1},
    {TensorType::boolean, "BOOL", 1},
}};

std::optional<TensorType> type_from_name(std::string_view name) {
    for (const TypeRow& row : kTypes) {
        if (row.name == name) return row.type;
    }
    return std::nullopt;
}

/// Product of shape x element, or nothing where it does not fit 63 bits. A 0 makes it 0 wherever it stands.
std::optional<std::uint64_t> stored_size(const std::vector<std::int64_t>& shape, TensorType type) {
    for (const std::int64_t extent : shape) {
        if (extent == 0) return 0;
    }
    auto size = static_cast<std::int64_t>(bytes_of(type));
    for (const std::int64_t extent : shape) {
        if (__builtin_mul_overflow(size, extent, &size)) return std::nullopt;
    }
    return static_cast<std::uint64_t>(size);
}

constexpr std::string_view kWriteAgain = "the file is damaged or made to mislead; fetch or write it again";

class HeaderEvents final : public JsonEvents {
   public:
    SafetensorsHeader header;

   private:
    enum class Place { outside, root, metadata, tensor, shape, offsets };
    enum class Field { none, dtype, shape, offsets };

    std::string who() const { return fmt::format("tensor \"{}\"", printable(entry_.name)); }
    bool damaged(std::string message) { return stop(std::move(message), std::string(kWriteAgain)); }

    bool unexpected(std::string_view found) override {
        switch (place_) {
            case Place::outside: return damaged(fmt::format("the header is {} and not an object", found));
            case Place::root: return damaged(fmt::format("the entry \"{}\" is {} and not an object", printable(key_), found));
            case Place::metadata:
                return damaged(fmt::format("__metadata__ holds text only; \"{}\" is {}", printable(key_), found));
            case Place::tensor: return damaged(fmt::format("{}: {} of the wrong kind: {}", who(), field_name(), found));
            case Place::shape:
            case Place::offsets:
                return damaged(fmt::format("{}: {} holds whole numbers from 0; found {}", who(), field_name(), found));
        }
        return false;
    }
    std::string_view field_name() const {
        switch (field_) {
            case Field::dtype: return "dtype";
            case Field::shape: return "shape";
            case Field::offsets: return "data_offsets";
            case Field::none: break;
        }
        return "a field";
    }

    bool start_object(std::size_t /*size*/) override {
        switch (place_) {
            case Place::outside: place_ = Place::root; return true;
            case Place::root:
                if (key_ == "__metadata__") {
                    place_ = Place::metadata;
                    return true;
                }
                place_ = Place::tensor;
                entry_ = {};
                entry_.name = key_;
                field_ = Field::none;
                has_type_ = has_shape_ = false;
                offsets_ = 0;
                return true;
            case Place::metadata:
            case Place::tensor:
            case Place::shape:
            case Place::offsets: break;
        }
        return unexpected("an object");
    }
    bool end_object() override {
        switch (place_) {
            case Place::metadata: place_ = Place::root; return true;
            case Place::tensor: place_ = Place::root; return finish();
            default: place_ = Place::outside; return true;
        }
    }
    bool key(string_t& name) override {
        if (place_ == Place::tensor) {
            const Field next = name == "dtype"          ? Field::dtype
                               : name == "shape"        ? Field::shape
                               : name == "data_offsets" ? Field::offsets
                                                        : Field::none;
            if (next == Field::none) return damaged(fmt::format("{}: unknown field \"{}\"", who(), printable(name)));
            field_ = next;
            const bool again = (next == Field::dtype && has_type_) || (next == Field::shape && has_shape_) ||
                               (next == Field::offsets && offsets_ > 0);
            return !again || damaged(fmt::format("{}: {} is given twice", who(), field_name()));
        }
        if (place_ == Place::root && !names_.insert(name).second) {
            return damaged(fmt::format("tensor \"{}\" is there twice", printable(name)));
        }
        key_ = name;
        return true;
    }
    bool string(string_t& value) override {
        if (place_ == Place::metadata) {
            header.metadata[key_] = value;
            return true;
        }
        if (place_ != Place::tensor || field_ != Field::dtype) return unexpected("a string");
        const auto type = type_from_name(value);
        if (!type) {
            return stop(fmt::format("{}: dtype \"{}\" is not supported", who(), printable(value)),
                        "supported: F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U8, BOOL",
                        ErrorCode::unsupported);
        }
        entry_.type = *type;
        has_type_ = true;
        return true;
    }
    bool start_array(std::size_t /*size*/) override {
        if (place_ != Place::tensor || (field_ != Field::shape && field_ != Field::offsets)) return unexpected("an array");
        place_ = field_ == Field::shape ? Place::shape : Place::offsets;
        return true;
    }
    bool end_array() override {
        if (place_ == Place::shape) has_shape_ = true;
        if (place_ == Place::offsets && offsets_ != 2) {
            return damaged(fmt::format("{}: data_offsets has {} numbers and not 2", who(), offsets_));
        }
        place_ = Place::tensor;
        return true;
    }
    bool number_unsigned(number_unsigned_t value) override {
        if (place_ == Place::shape) {
            if (entry_.shape.size() == kMaxTensorRank) {
                return stop(fmt::format("{}: more than {} dimensions", who(), kMaxTensorRank), {}, ErrorCode::too_large);
            }
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
                return stop(fmt::format("{}: a dimension of {}", who(), value), std::string(kWriteAgain),
                            ErrorCode::too_large);
            }
            entry_.shape.push_back(static_cast<std::int64_t>(value));
            return true;
        }
        if (place_ != Place::offsets) return unexpected("a number");
        if (offsets_ < 2) (offsets_ == 0 ? entry_.begin : entry_.end) = value;
        ++offsets_;
        return true;
    }

    bool finish() {
        if (!has_type_) return damaged(who() + " has no dtype");
        if (!has_shape_) return damaged(who() + " has no shape");
        if (offsets_ == 0) return damaged(who() + " has no data_offsets");
        const auto size = stored_size(entry_.shape, entry_.type);
        if (!size) {
            return stop(who() + ": the product of its dimensions does not fit 63 bits", std::string(kWriteAgain),
                        ErrorCode::too_large);
        }
        entry_.size = *size;
        if (entry_.begin > entry_.end) {
            return damaged(fmt::format("{} ends at {} before it begins at {}", who(), entry_.end, entry_.begin));
        }
        if (entry_.end - entry_.begin != entry_.size) {
            return damaged(fmt::format("{}: dtype and shape make {} bytes, but its offsets {} .. {} hold {}", who(),
                                       entry_.size, entry_.begin, entry_.end, entry_.end - entry_.begin));
        }
        header.tensors.push_back(std::move(entry_));
        return true;
    }

    Place place_ = Place::outside;
    Field field_ = Field::none;
    std::string key_;
    TensorEntry entry_;
    bool has_type_ = false;
    bool has_shape_ = false;
    int offsets_ = 0;
    std::unordered_set<std::string> names_;
};

}  // namespace

std::string_view to_name(TensorType type) {
    for (const TypeRow& row : kTypes) {
        if (row.type == type) return row.name;
    }
    return "?";
}

std::size_t bytes_of(TensorType type) {
    for (const TypeRow& row : kTypes) {
        if (row.type == type) return row.bytes;
    }
    return 1;
}

Expected<SafetensorsHeader> read_safetensors_header(std::string_view json, const std::string& name) {
    HeaderEvents events;
    if (auto done = events.read(json, name); !done) return tl::unexpected(std::move(done.error()));
    return std::move(events.header);
}

}  // namespace draftboard::backend
