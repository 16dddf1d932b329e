// SPDX-License-Identifier: Apache-2.0
#include "model/scenario_document.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/data_library.h"

namespace draftboard::model {

namespace {

/// Objects whose keys are the user's own, or whose fields their own readers check. `--set` may add to them.
constexpr std::array<std::string_view, 6> kOpenObjects{
    "constants",     "constant_reasons", "engine.implementations", "speculation.acceptance",
    "speculation.head", "routing"};
constexpr std::array<std::string_view, 2> kReferences{"architecture", "machine"};

bool is_open(std::string_view path) {
    for (const std::string_view open : kOpenObjects) {
        if (path == open) return true;
        if (path.size() > open.size() && path.substr(0, open.size()) == open &&
            path[open.size()] == '.') {
            return true;
        }
    }
    for (const std::string_view reference : kReferences) {  // inline documents
        if (path.size() > reference.size() && path.substr(0, reference.size()) == reference &&
            path[reference.size()] == '.') {
            return true;
        }
    }
    return false;
}

void collect_leaves(const Json& value, const std::string& path, std::vector<std::string>& out) {
    if (!value.is_object() || value.empty()) {
        if (!path.empty()) out.push_back(path);
        return;
    }
    for (const auto& [key, child] : value.items()) {
        collect_leaves(child, path.empty() ? key : path + "." + key, out);
    }
}

void collect_unknown(const Json& value, const Json& known, const std::string& path,
                     std::vector<std::string>& out) {
    if (!value.is_object() || is_open(path + ".")) return;
    for (const auto& [key, child] : value.items()) {
        const std::string here = path.empty() ? key : path + "." + key;
        if (is_open(here) || key.starts_with("_")) continue;
        if (!known.is_object() || !known.contains(key)) {
            out.push_back(here);
        } else {
            collect_unknown(child, known.at(key), here, out);
        }
    }
}

/// False: no JSON begins like this, so it is a name; spares the parser's complaint.
bool may_be_json(std::string_view text) {
    if (text.empty()) return false;
    const auto first = static_cast<unsigned char>(text.front());
    const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
    return !letter || first == 't' || first == 'f' || first == 'n';
}

Json parse_value(const std::string& text, const Json* current) {
    if (!may_be_json(text) && (current == nullptr || !current->is_array())) return text;
    if (auto parsed = parse_json(text, "value")) {
        const bool wants_text = current != nullptr && current->is_string();
        if (!(wants_text && !parsed->is_object() && !parsed->is_array())) return *parsed;
        if (parsed->is_string()) return *parsed;
        return text;
    }
    if (current != nullptr && current->is_array() && text.find(',') != std::string::npos) {
        if (auto list = parse_json("[" + text + "]", "value")) return *list;
    }
    return text;
}

Error unknown_path(const std::string& path, const Json& document) {
    const auto near = nearest_names(path, leaf_paths(document));
    return Error{ErrorCode::not_found, "no such field in a scenario", path,
                 near.empty() ? "the fields are those of a scenario file; see docs/scenario.md"
                              : fmt::format("did you mean {}?", fmt::join(near, ", "))};
}

}  // namespace

const Json& default_scenario_document() {
    static const Json document = Json::parse(R"({
        "format": "draftboard.scenario",
        "version": 1,
        "name": "",
        "description": "",
        "sources": [],
        "architecture": "",
        "machine": "",
        "calibration": "",
        "collective_calibration": "",
        "layout": {"tensor": 1, "expert": 1, "all_to_all": false, "pipeline": 1,
                   "attention_data": 1, "decode_context": 1, "replicas": 1,
                   "parallel_blocks": false},
        "engine": {"name": "", "launch": {"decode": "graph", "verify": "graph", "draft": "graph"},
                   "graph_token_limit": 0, "full_graph_token_limit": 0, "overlap_scheduling": false,
                   "fused_all_reduce_norm": false, "overlap_shared_experts": false,
                   "overlap_token_limit": 0, "host_sync_after": [], "implementations": {}},
        "collective": {"implementation": "nccl", "algorithm": "auto", "protocol": "auto",
                       "ll128": false, "channels": 0, "peer_to_peer": true, "peer_level": "PXB",
                       "graph_file": false, "pull": false, "custom_limit_bytes": 0},
        "speculation": {"method": "none", "steps": 0, "top_k": 1, "draft_tokens": 0,
                        "sibling_decay": 1.0, "acceptance": {}, "head": null,
                        "draft_model": "", "draft_tensor": 0, "pad_misses": true},
        "routing": {"kind": "uniform"},
        "workload": {"concurrency": 1, "context_tokens": 1024, "shared_context": false},
        "memory": {"usable_fraction": 0.92, "kv_format": null},
        "constants": {},
        "constant_reasons": {},
        "seed": 1
    })");
    return document;
}

Json merged(Json base, const Json& changes) {
    if (!base.is_object() || !changes.is_object()) return changes;
    for (const auto& [key, value] : changes.items()) {
        if (base.contains(key)) {
            base[key] = merged(base[key], value);
        } else {
            base[key] = value;
        }
    }
    return base;
}

std::vector<std::string> leaf_paths(const Json& document) {
    std::vector<std::string> out;
    collect_leaves(document, "", out);
    return out;
}

std::vector<std::string> unknown_paths(const Json& document) {
    std::vector<std::string> out;
    collect_unknown(document, default_scenario_document(), "", out);
    return out;
}

Expected<void> apply_edit(Json& document, const std::string& edit) {
    const auto equals = edit.find('=');
    if (equals == std::string::npos || equals == 0) {
        return fail(ErrorCode::invalid_input, "an edit must be path=value", "--set " + edit,
                    "for example --set speculation.steps=4");
    }
    const std::string path = edit.substr(0, equals);
    const std::string text = edit.substr(equals + 1);
    // Walk down to the parent; keys of `constants` contain dots themselves.
    Json* parent = &document;
    std::string rest = path;
    if (path.starts_with("constants.") || path.starts_with("constant_reasons.")) {
        const auto dot = path.find('.');
        parent = &document[path.substr(0, dot)];
        rest = path.substr(dot + 1);
    } else {
        std::size_t start = 0;
        for (auto dot = path.find('.'); dot != std::string::npos; dot = path.find('.', start)) {
            const std::string key = path.substr(start, dot - start);
            if (parent->is_array()) {
                std::size_t index = 0;
                const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), index);
                if (ec != std::errc{} || end != key.data() + key.size() || index >= parent->size()) {
                    return tl::unexpected(unknown_path(path, document));
                }
                parent = &(*parent)[index];
            } else {
                if (!parent->is_object() ||
                    (!parent->contains(key) && !is_open(path.substr(0, dot)))) {
                    return tl::unexpected(unknown_path(path, document));
                }
                parent = &(*parent)[key];
                if (parent->is_null()) *parent = Json::object();
            }
            start = dot + 1;
        }
        rest = path.substr(start);
    }
    if (parent->is_array()) {
        std::size_t index = 0;
        const auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
        if (ec != std::errc{} || end != rest.data() + rest.size() || index >= parent->size()) {
            return tl::unexpected(unknown_path(path, document));
        }
        (*parent)[index] = parse_value(text, &(*parent)[index]);
        return {};
    }
    if (!parent->is_object() || rest.empty() || (!parent->contains(rest) && !is_open(path))) {
        return tl::unexpected(unknown_path(path, document));
    }
    const Json* current = parent->contains(rest) ? &parent->at(rest) : nullptr;
    Json value = parse_value(text, current);
    (*parent)[rest] = std::move(value);
    return {};
}

}  // namespace draftboard::model
