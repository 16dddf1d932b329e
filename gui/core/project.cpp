// SPDX-License-Identifier: Apache-2.0
#include "gui/core/project.h"

#include <algorithm>
#include <filesystem>

#include "model/data_library.h"

namespace draftboard::gui {

namespace fs = std::filesystem;
using model::Json;
using model::JsonReader;

namespace {

constexpr const char* kFormat = "draftboard.project";

Variant read_variant(const JsonReader& reader) {
    Variant variant;
    if (!reader.expect_object()) return variant;
    variant.name = reader.string("name");
    variant.base = reader.string("base");
    variant.notes = reader.string_or("notes", "");
    if (!reader.has("edits")) return variant;
    const JsonReader edits = reader.at("edits");
    for (std::size_t i = 0; i < edits.size(); ++i) {
        const Json& edit = edits.at(i).value();
        if (!edit.is_array() || edit.size() != 2 || !edit[0].is_string() || edit[0].get_ref<const std::string&>().empty()) {
            edits.at(i).problem("", "an edit has to be [\"path\", value]");
            continue;
        }
        variant.set(edit[0].get<std::string>(), edit[1]);
    }
    return variant;
}

void check(const Project& project, const JsonReader& reader) {
    const int count = static_cast<int>(project.variants.size());
    if (count == 0) reader.problem("variants", "a project has at least one variant");
    if (project.current >= std::max(count, 1)) reader.problem("current", "there is no such variant");
    if (project.baseline >= count) reader.problem("baseline", "there is no such variant");
    for (std::size_t i = 0; i < project.variants.size(); ++i) {
        if (project.variants[i].base.empty())
            reader.problem("variants", "variant " + std::to_string(i) + " names no base scenario");
    }
}

}  // namespace

std::string Project::free_name(const std::string& stem) const {
    const auto taken = [&](const std::string& text) {
        return std::any_of(variants.begin(), variants.end(), [&](const Variant& variant) { return variant.name == text; });
    };
    std::string candidate = stem;
    for (int i = 2; taken(candidate); ++i) candidate = stem + " " + std::to_string(i);
    return candidate;
}

model::Expected<Project> parse_project(std::string_view text, const std::string& source) {
    auto json = model::parse_json(text, source);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const JsonReader reader(*json, problems);
    Project project;
    if (!reader.expect_object()) return tl::unexpected(model::to_error(problems, source));
    reader.expect_format(kFormat, kProjectVersion);
    project.name = reader.string_or("name", "untitled");
    project.view = reader.string_or("view", "waterfall");
    project.current = static_cast<int>(reader.integer_or("current", 0, 0, kMaxVariants));
    project.baseline = static_cast<int>(reader.integer_or("baseline", -1, -1, kMaxVariants));
    const JsonReader variants = reader.at("variants");
    if (problems.empty() && variants.size() > kMaxVariants) reader.problem("variants", "more than 1000 variants");
    for (std::size_t i = 0; problems.empty() && i < variants.size(); ++i) {
        project.variants.push_back(read_variant(variants.at(i)));
    }
    if (problems.empty()) check(project, reader);
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, source));
    for (const auto& item : json->items()) {
        static const std::vector<std::string> known{"format", "version", "name", "current", "baseline", "view", "variants"};
        if (std::find(known.begin(), known.end(), item.key()) == known.end()) project.unknown[item.key()] = item.value();
    }
    return project;
}

std::string to_text(const Project& project) {
    Json json{{"format", kFormat},          {"version", kProjectVersion},   {"name", project.name},
              {"current", project.current}, {"baseline", project.baseline}, {"view", project.view}};
    Json variants = Json::array();
    for (const Variant& variant : project.variants) {
        Json edits = Json::array();
        for (const Edit& edit : variant.edits) edits.push_back(Json::array({edit.path, edit.value}));
        variants.push_back({{"name", variant.name}, {"base", variant.base}, {"notes", variant.notes}, {"edits", edits}});
    }
    json["variants"] = std::move(variants);
    for (const auto& item : project.unknown.items()) json[item.key()] = item.value();
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Project project_of(const std::string& scenario) {
    Project project;
    const bool path = scenario.find('/') != std::string::npos;
    project.name = path ? fs::path(scenario).stem().string() : scenario;
    project.variants.push_back({project.name, scenario, {}, ""});
    return project;
}

model::Expected<Project> load_project(const std::string& name_or_path, const std::string& data_directory) {
    std::error_code ec;
    std::string path = name_or_path;
    if (!fs::exists(path, ec)) {
        const std::string shipped = data_directory + "/projects/" + name_or_path + ".json";
        if (!fs::exists(shipped, ec)) {
            auto scenario = model::find_data_file(name_or_path, "scenarios", data_directory);
            if (!scenario) return tl::unexpected(scenario.error());
            return project_of(name_or_path);
        }
        path = shipped;
    }
    auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    auto json = model::parse_json(*text, path);
    if (!json) return tl::unexpected(json.error());
    if (json->is_object() && json->value("format", Json()) == Json("draftboard.scenario")) {
        return project_of(fs::absolute(path, ec).string());
    }
    auto project = parse_project(*text, path);
    if (!project) return project;
    for (Variant& variant : project->variants) {
        const fs::path beside = fs::path(path).parent_path() / variant.base;
        if (fs::is_regular_file(beside, ec)) variant.base = fs::absolute(beside, ec).lexically_normal().string();
    }
    return project;
}

}  // namespace draftboard::gui
