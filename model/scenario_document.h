// SPDX-License-Identifier: Apache-2.0
#pragma once
// A scenario as a JSON document: the defaults of every field, and edits by dotted path. The document is
// what `--set`, sweeps and the desktop change; scenario.cpp reads it into a Scenario.

#include <string>
#include <vector>

#include "model/json_reader.h"

namespace draftboard::model {

/// All fields with their defaults. Objects without a fixed set of keys are empty here.
[[nodiscard]] const Json& default_scenario_document();

/// `changes` laid over `base`: objects merge, everything else replaces. Keys that `base` lacks are kept.
[[nodiscard]] Json merged(Json base, const Json& changes);

/// Dotted paths of all leaves ("layout.tensor", ...), for hints.
[[nodiscard]] std::vector<std::string> leaf_paths(const Json& document);

/// Top-level-down paths of `document` that no field is known for; a reader ignores them, a report says so.
[[nodiscard]] std::vector<std::string> unknown_paths(const Json& document);

/// One `path=value` edit. The value is JSON where it parses, a list where the field is a list and the
/// value has commas, else a string. Unknown paths are errors that name the nearest known ones.
[[nodiscard]] Expected<void> apply_edit(Json& document, const std::string& edit);

}  // namespace draftboard::model
