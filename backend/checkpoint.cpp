// SPDX-License-Identifier: Apache-2.0
#include "backend/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/json_events.h"
#include "backend/weight_map.h"
#include "model/data_library.h"
#include "model/import/hf_config.h"
#include "model/json_reader.h"

namespace draftboard::backend {

namespace fs = std::filesystem;
using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

model::Error no_weights(const std::string& path) {
    std::error_code ec;
    bool pickled = false;
    for (const auto& entry : fs::directory_iterator(path, ec)) {
        const std::string ending = entry.path().extension().string();
        pickled = pickled || ending == ".bin" || ending == ".pt" || ending == ".pth";
    }
    return {ErrorCode::not_found, fmt::format("the folder holds neither {} nor {}", kOneFile, kIndex), path,
            pickled ? "its weights are pickled; convert them to safetensors" : "name the folder of a Hugging Face checkpoint"};
}

}  // namespace

std::string Checkpoint::config_path() const { return (fs::path(path_) / "config.json").string(); }

Expected<void> Checkpoint::add_file(const std::string& file) {
    auto opened = SafetensorsFile::open((fs::path(path_) / file).string());
    if (!opened) return tl::unexpected(std::move(opened.error()));
    for (const auto& [name, view] : opened->tensors()) {
        if (!tensors_.emplace(name, &view).second) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" is in this file and in another", printable(name)),
                        (fs::path(path_) / file).string(), "fetch the checkpoint again, into an empty folder");
        }
    }
    files_.push_back(std::move(*opened));  // the views stay where they are
    return {};
}

Expected<Checkpoint> Checkpoint::open(const std::string& path) {
    std::error_code ec;
    if (!fs::exists(path, ec)) {
        return fail(ErrorCode::not_found, "the folder does not exist", path, "name the folder of a Hugging Face checkpoint");
    }
    if (!fs::is_directory(path, ec)) {
        return fail(ErrorCode::invalid_input, "this is not a folder", path,
                    "name the folder that holds config.json and the .safetensors files");
    }
    Checkpoint out;
    out.path_ = path;
    auto config = model::read_file(out.config_path());
    if (!config) return tl::unexpected(std::move(config.error()));
    out.config_ = std::move(*config);
    out.byte_tokenizer_ = fs::is_regular_file(fs::path(path) / "byte_tokenizer.json", ec);

    if (fs::exists(fs::path(path) / kOneFile, ec)) {
        if (auto done = out.add_file(kOneFile); !done) return tl::unexpected(std::move(done.error()));
        return out;
    }
    const std::string index = (fs::path(path) / kIndex).string();
    if (!fs::exists(index, ec)) return tl::unexpected(no_weights(path));
    const auto text = model::read_file(index);
    if (!text) return tl::unexpected(text.error());
    const auto map = read_weight_map(*text, index);
    if (!map) return tl::unexpected(map.error());
    std::set<std::string> files;
    for (const auto& [tensor, file] : *map) files.insert(file);
    std::map<std::string, std::size_t> number;
    for (const std::string& file : files) {
        number[file] = out.files_.size();
        if (auto done = out.add_file(file); !done) {
            if (done.error().code == ErrorCode::not_found) done.error().hint = "the index names this file; fetch it";
            return tl::unexpected(std::move(done.error()));
        }
    }
    for (const auto& [tensor, file] : *map) {
        if (!out.files_[number[file]].tensors().contains(tensor)) {
            return fail(ErrorCode::invalid_input,
                        fmt::format("tensor \"{}\" is not in {}, where the index says it is", printable(tensor), printable(file)),
                        index, "fetch the index and that file again");
        }
    }
    return out;
}

const TensorView* Checkpoint::find(std::string_view name) const {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : it->second;
}

Expected<const TensorView*> Checkpoint::require(std::string_view name) const {
    if (const TensorView* found = find(name)) return found;
    // Edit distances to a quarter million names would take a while; those of a similar length are enough.
    constexpr std::size_t kMostCandidates = 20'000;
    std::vector<std::string> candidates;
    for (const auto& [known, view] : tensors_) {
        const bool near = known.size() <= 200 && known.size() + 8 >= name.size() && known.size() <= name.size() + 8;
        if (near && candidates.size() < kMostCandidates) candidates.push_back(known);
    }
    std::string hint;
    for (const std::string& known : model::nearest_names(name, candidates)) {
        hint += (hint.empty() ? "nearest: " : ", ") + printable(known);
    }
    return fail(ErrorCode::not_found, fmt::format("tensor \"{}\" is missing", printable(name)), path_,
                hint.empty() ? "the checkpoint does not belong to its config.json" : hint);
}

std::vector<std::string> Checkpoint::names() const {
    std::vector<std::string> out;
    out.reserve(tensors_.size());
    for (const auto& [name, view] : tensors_) out.push_back(name);
    return out;
}

std::uint64_t Checkpoint::bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [name, view] : tensors_) sum += view->bytes.size();
    return sum;
}

Expected<model::Architecture> Checkpoint::architecture() const {
    if (is_eagle3_head()) {
        return fail(ErrorCode::invalid_input, "this folder holds an EAGLE-3 head and no model", path_,
                    "name the target's folder, and this one as its drafter");
    }
    return model::read_hf_config(config_path());
}

Expected<Numerics> Checkpoint::numerics() const {
    const auto shapes = architecture();
    if (!shapes) return tl::unexpected(shapes.error());
    return read_numerics(config_, config_path(), *shapes);
}

bool Checkpoint::is_eagle3_head() const { return is_eagle3_config(config_); }

Expected<Checkpoint::Eagle3> Checkpoint::eagle3(const model::Architecture& target) const {
    auto out = read_eagle3_config(config_, config_path(), target);
    if (!out) return out;
    const auto fusion = require("fc.weight");
    if (!fusion) return tl::unexpected(fusion.error());
    switch ((*fusion)->type) {
        case TensorType::bf16: out->head.format = model::WeightFormat::plain(model::NumberFormat::bf16); break;
        case TensorType::f16: out->head.format = model::WeightFormat::plain(model::NumberFormat::fp16); break;
        case TensorType::f32: out->head.format = model::WeightFormat::plain(model::NumberFormat::fp32); break;
        default:
            return fail(ErrorCode::unsupported,
                        fmt::format("tensor \"fc.weight\" is {}; a head is read in BF16, F16 or F32", to_name((*fusion)->type)),
                        path_);
    }
    out->head.own_embedding = find("embed_tokens.weight") != nullptr;
    if (out->head.hidden != target.hidden && !out->head.own_embedding) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("a head of hidden size {} can't share the embedding of a target of {}", out->head.hidden,
                                target.hidden),
                    config_path() + ": /hidden_size", "this head belongs to another target");
    }
    return out;
}

}  // namespace draftboard::backend
