// SPDX-License-Identifier: Apache-2.0
#pragma once
// Architectures by name: a shipped one (data/architectures/NAME.json), a config.json, or a
// directory that holds one. What the files say is read by import/hf_config.h; data_library.h finds
// other kinds of files.

#include <string>

#include "model/architecture.h"

namespace draftboard::model {

/// `name_or_path`: the name of a shipped architecture, or a path (as given, or relative to
/// `relative_to`) of a config.json or of a checkpoint directory. Not found: an error that lists the
/// nearest names.
[[nodiscard]] Expected<Architecture> find_architecture(const std::string& name_or_path,
                                                       const std::string& data_directory,
                                                       const std::string& relative_to = {});

}  // namespace draftboard::model
