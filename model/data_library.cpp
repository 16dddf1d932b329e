// SPDX-License-Identifier: Apache-2.0
#include "model/data_library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftboard::model {

namespace fs = std::filesystem;

namespace {

/// Levenshtein distance, on at most 64 characters of each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    a = a.substr(0, 64);
    b = b.substr(0, 64);
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
        }
    }
    return row.back();
}

bool is_file(const fs::path& path) {
    std::error_code ec;
    return fs::exists(path, ec) && !ec;
}

std::string singular(std::string_view kind) { return std::string(kind.substr(0, kind.size() - 1)); }

}  // namespace

std::vector<std::string> nearest_names(std::string_view name,
                                       const std::vector<std::string>& known) {
    std::vector<std::pair<std::size_t, std::string>> ranked;
    for (const std::string& candidate : known) {
        const bool contains = candidate.find(name) != std::string::npos ||
                              name.find(candidate) != std::string_view::npos;
        ranked.emplace_back(contains ? 0 : edit_distance(name, candidate), candidate);
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<std::string> out;
    for (const auto& [distance, candidate] : ranked) {
        if (out.size() == 3 || distance > std::max<std::size_t>(3, name.size() / 2)) break;
        out.push_back(candidate);
    }
    return out;
}

std::vector<std::string> shipped_names(std::string_view kind, const std::string& data_directory) {
    std::vector<std::string> names;
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(fs::path(data_directory) / kind, ec)) {
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

Expected<std::string> find_data_file(const std::string& name_or_path, std::string_view kind,
                                     const std::string& data_directory,
                                     const std::string& relative_to) {
    const std::string noun = singular(kind);
    if (name_or_path.empty()) {
        return fail(ErrorCode::invalid_input, "the name of the " + noun + " is empty", noun,
                    "give a path or the name of a shipped " + noun);
    }
    if (name_or_path.size() > 4096 || name_or_path.find('\0') != std::string::npos) {
        return fail(ErrorCode::invalid_input, "this can't be a file name", noun,
                    "give a path or the name of a shipped " + noun);
    }
    const fs::path given(name_or_path);
    if (!relative_to.empty() && given.is_relative() && is_file(fs::path(relative_to) / given)) {
        return (fs::path(relative_to) / given).string();
    }
    if (name_or_path.find('/') == std::string::npos) {
        const fs::path shipped = fs::path(data_directory) / kind / (name_or_path + ".json");
        if (is_file(shipped)) return shipped.string();
    }
    if (is_file(given)) return name_or_path;
    const auto names = shipped_names(kind, data_directory);
    const auto near = nearest_names(given.stem().string(), names);
    std::string hint =
        near.empty() ? fmt::format("shipped: {}", fmt::join(names, ", "))
                     : fmt::format("did you mean {}?", fmt::join(near, ", "));
    if (names.empty()) {
        hint = "no shipped data was found; set DRAFTBOARD_DATA to the data directory";
    }
    return fail(ErrorCode::not_found,
                fmt::format("no such {}: neither a file nor a shipped name", noun), name_or_path,
                std::move(hint));
}

std::string find_data_directory() {
    if (const char* given = std::getenv("DRAFTBOARD_DATA"); given != nullptr && *given != '\0') {
        return given;
    }
    std::error_code ec;
    const fs::path program = fs::read_symlink("/proc/self/exe", ec).parent_path();
    for (const fs::path& candidate :
         {program / "../../data", program / "../share/draftboard", fs::path("data")}) {
        if (fs::is_directory(candidate / "scenarios", ec)) {
            return fs::weakly_canonical(candidate, ec).string();
        }
    }
    return "data";
}

}  // namespace draftboard::model
