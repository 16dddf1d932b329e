// SPDX-License-Identifier: Apache-2.0
#pragma once
// A variant: a named question of a project, kept as a base scenario and edits to it, exactly what `draftboard predict
// BASE --set path=value` takes. So the desktop and the command line ask the same thing, and "copy as command line" is a
// spelling and not a translation. It holds no results; answer.h asks it.

#include <string>
#include <vector>

#include "model/json_reader.h"
#include "model/scenario.h"

namespace draftboard::gui {

/// One field that differs from the base, by the dotted path of `--set`.
struct Edit {
    std::string path;
    model::Json value;
    bool operator==(const Edit&) const = default;

    /// "path=value" as `--set` reads it back.
    [[nodiscard]] std::string to_text() const;
};

struct Variant {
    std::string name;
    std::string base;         ///< a scenario file, or the name of a shipped one
    std::vector<Edit> edits;  ///< a path at most once, in the order they were made
    std::string notes;
    bool operator==(const Variant&) const = default;

    [[nodiscard]] model::Edits edit_texts() const;
    [[nodiscard]] const Edit* find(const std::string& path) const;
    /// Replaces the edit of this path or appends one.
    void set(const std::string& path, model::Json value);
    /// Takes back the edit of this path and those below it ("machine" takes "machine.links.0.width" along).
    void reset(const std::string& path);
};

/// The base document and the complete one, and where relative paths in it start.
struct VariantDocument {
    model::Json base;      ///< defaults filled in, no edits
    model::Json document;  ///< with the edits
    std::string directory;
};
[[nodiscard]] model::Expected<VariantDocument> variant_document(const Variant& variant, const std::string& data_directory);

/// The value at a dotted path, or null. Keys of "constants" contain dots themselves.
[[nodiscard]] model::Json value_at(const model::Json& document, const std::string& path);

/// A word as a POSIX shell reads it back.
[[nodiscard]] std::string shell_quoted(const std::string& word);
/// "draftboard predict BASE --set 'path=value' ..."
[[nodiscard]] std::string command_line(const Variant& variant);

}  // namespace draftboard::gui
