// SPDX-License-Identifier: Apache-2.0
// Project files and validations, the desktop's own readers; what is read is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "gui/core/project.h"
#include "gui/core/validation_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard::gui;
    const std::string text(reinterpret_cast<const char*>(data), size);
    if (const auto project = parse_project(text, "fuzz")) {
        const std::string written = to_text(*project);
        const auto again = parse_project(written, "fuzz");
        if (!again || to_text(*again) != written) std::abort();
        (void)command_line(project->shown());
    }
    (void)parse_validation_file(text, "fuzz");
    return 0;
}
