// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finding files by path or by the name of a shipped one. Shipped files live in the data directory
// (data/ in the source tree, share/draftboard when installed), one sub-directory a kind.

#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::model {

/// The path of `name_or_path`: an existing file (as given, or relative to `relative_to`), else
/// `data_directory/kind/name.json`. kind: "architectures", "machines", "calibrations", "scenarios".
/// Not found: an error that lists the nearest shipped names.
[[nodiscard]] Expected<std::string> find_data_file(const std::string& name_or_path,
                                                   std::string_view kind,
                                                   const std::string& data_directory,
                                                   const std::string& relative_to = {});

/// $DRAFTBOARD_DATA, else beside the program: ../../data (build tree), ../share/draftboard (installed), else "data".
[[nodiscard]] std::string find_data_directory();

/// Names of the shipped files of a kind, sorted.
[[nodiscard]] std::vector<std::string> shipped_names(std::string_view kind,
                                                     const std::string& data_directory);

/// Up to three of `known` closest to `name` by edit distance, nearest first; for hints.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view name,
                                                     const std::vector<std::string>& known);

}  // namespace draftboard::model
