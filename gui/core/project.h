// SPDX-License-Identifier: Apache-2.0
#pragma once
// A project: variants side by side, which one is shown and which one is the pinned baseline. This file reads and writes it;
// the window's own state (theme, sizes) is not part of it, and neither are results, which are predicted again.
//
//   {"format": "draftboard.project", "version": 1, "name": "...", "current": 0, "baseline": 0,
//    "variants": [{"name": "...", "base": "kimi-k2.5-eagle3-founding", "notes": "", "edits": [["speculation.steps", 4]]}],
//    "view": "waterfall", "validation": "report.json"}
// Unknown keys are kept and written back. A relative base is looked for beside the project file first.

#include <string>
#include <string_view>
#include <vector>

#include "gui/core/variant.h"
#include "model/json_reader.h"

namespace draftboard::gui {

inline constexpr int kProjectVersion = 1;
inline constexpr std::size_t kMaxVariants = 1000;  ///< more are no comparison any more

struct Project {
    std::string name = "untitled";
    std::vector<Variant> variants;
    int current = 0;
    int baseline = -1;  ///< index of the pinned variant, -1: none
    std::string view = "waterfall";
    model::Json unknown = model::Json::object();
    bool operator==(const Project&) const = default;

    [[nodiscard]] const Variant& shown() const { return variants[static_cast<std::size_t>(current)]; }
    [[nodiscard]] const Variant* pinned() const { return baseline < 0 ? nullptr : &variants[static_cast<std::size_t>(baseline)]; }
    /// `stem`, or "stem 2", "stem 3", ... whichever no variant has yet.
    [[nodiscard]] std::string free_name(const std::string& stem) const;
};

[[nodiscard]] model::Expected<Project> parse_project(std::string_view text, const std::string& source);
/// Two-space indented, with a final newline; the same project gives the same bytes.
[[nodiscard]] std::string to_text(const Project& project);
/// A project file, or a scenario (file or shipped name), which becomes a project of one variant. Bases relative to the file
/// are made absolute.
[[nodiscard]] model::Expected<Project> load_project(const std::string& name_or_path, const std::string& data_directory);
/// One variant of a scenario.
[[nodiscard]] Project project_of(const std::string& scenario);

}  // namespace draftboard::gui
