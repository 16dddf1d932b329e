// SPDX-License-Identifier: Apache-2.0
#include "backend/weight_map.h"

#include <set>

#include <fmt/format.h>

#include "backend/json_events.h"

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

bool is_plain_file_name(std::string_view name) {
    constexpr std::string_view kEnd = ".safetensors";
    if (name.size() <= kEnd.size() || name.size() > 255 || name.substr(name.size() - kEnd.size()) != kEnd) return false;
    for (const char c : name) {
        if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20) return false;
    }
    return name.front() != '.';
}

class WeightMapEvents final : public JsonEvents {
   public:
    std::map<std::string, std::string> files;
    bool found = false;

   private:
    // Depth 1 is the document, 2 the weight map. Whatever stands elsewhere ("metadata") is passed over.
    bool inside() const { return in_map_ && depth_ == 2; }

    bool unexpected(std::string_view what) override {
        if (depth_ == 0) return stop(fmt::format("the index is {} and not an object", what));
        if (in_map_) return stop(fmt::format("weight_map: tensor \"{}\" is in {} and not in a file", printable(key_), what));
        if (depth_ == 1 && key_ == "weight_map") return stop(fmt::format("weight_map is {} and not an object", what));
        return true;
    }
    bool start_object(std::size_t /*size*/) override {
        if (in_map_) return unexpected("an object");
        if (depth_ == 1 && key_ == "weight_map") {
            if (found) return stop("weight_map is there twice");
            found = in_map_ = true;
        }
        ++depth_;
        return true;
    }
    bool end_object() override {
        if (inside()) in_map_ = false;
        --depth_;
        return true;
    }
    bool start_array(std::size_t size) override {
        if (depth_ == 0 || in_map_ || (depth_ == 1 && key_ == "weight_map")) return unexpected("an array");
        (void)size;
        ++depth_;
        return true;
    }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool key(string_t& name) override {
        if (depth_ == 1 || inside()) key_ = name;
        return true;
    }
    bool string(string_t& value) override {
        if (!inside()) return unexpected("a string");
        if (!is_plain_file_name(value)) {
            return stop(fmt::format("weight_map: tensor \"{}\" is said to be in \"{}\"", printable(key_), printable(value)),
                        "a name of a .safetensors file in the same folder is expected");
        }
        if (!files.emplace(key_, value).second) {
            return stop(fmt::format("weight_map: tensor \"{}\" is there twice", printable(key_)));
        }
        if (names_.insert(value).second && names_.size() > kMaxCheckpointFiles) {
            return stop(fmt::format("more than {} files", kMaxCheckpointFiles), {}, ErrorCode::too_large);
        }
        return true;
    }

    int depth_ = 0;
    bool in_map_ = false;
    std::string key_;
    std::set<std::string> names_;
};

}  // namespace

Expected<std::map<std::string, std::string>> read_weight_map(std::string_view json, const std::string& name) {
    WeightMapEvents events;
    if (auto done = events.read(json, name); !done) return tl::unexpected(std::move(done.error()));
    if (!events.found || events.files.empty()) {
        return fail(ErrorCode::invalid_input, "there is no weight_map, or it is empty", name,
                    "an index lists tensors under \"weight_map\"");
    }
    return std::move(events.files);
}

}  // namespace draftboard::backend
