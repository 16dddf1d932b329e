// SPDX-License-Identifier: Apache-2.0
// Scenario documents and edits: the first line is an edit, the rest a document.
#include <cstdint>
#include <string>

#include "model/scenario.h"
#include "model/scenario_document.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard::model;
    const std::string input(reinterpret_cast<const char*>(data), size);
    const auto line = input.find('\n');
    const std::string edit = input.substr(0, line);
    const std::string text = line == std::string::npos ? "{}" : input.substr(line + 1);
    const auto content = parse_json(text, "fuzz");
    if (!content) return 0;
    Json document = merged(default_scenario_document(), *content);
    if (document.is_object()) (void)apply_edit(document, edit);
    const std::string data_directory = DRAFTBOARD_SOURCE_DIR "/data";
    if (const auto scenario = scenario_from_document(document, "fuzz", data_directory, data_directory)) {
        (void)scenario->validate();
    }
    return 0;
}
