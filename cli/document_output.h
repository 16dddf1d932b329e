// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a report leaves a command: as text or JSON on stdout, and as Markdown or HTML in files.

#include <memory>
#include <string>

#include "cli/command.h"
#include "planning/document.h"

namespace draftboard::cli {

struct DocumentOutput {
    std::string markdown;  ///< "-": to stdout
    std::string html;
};

inline void add_document_output(CLI::App& command, DocumentOutput& output) {
    command.add_option("--markdown", output.markdown, "Write the report as Markdown to FILE; - for standard output");
    command.add_option("--html", output.html, "Write the report as one self-contained HTML page to FILE");
}

/// Files first: a failed write leaves nothing on stdout.
inline void print_document(const planning::Document& document, const model::Json& json, const DocumentOutput& output,
                           CommandContext& context) {
    const auto write = [&](const std::string& path, const std::string& text) {
        if (path.empty() || path == "-") return true;
        if (auto written = write_file(path, text); !written) {
            context.report(written.error());
            return false;
        }
        context.note("written to " + path);
        return true;
    };
    if (!write(output.markdown, planning::to_markdown(document)) || !write(output.html, planning::to_html(document))) return;
    if (context.json) return context.print(json);
    context.print(output.markdown == "-" ? planning::to_markdown(document) : planning::to_text(document));
}

}  // namespace draftboard::cli
