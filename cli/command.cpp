// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "model/data_library.h"

namespace draftboard::cli {

namespace fs = std::filesystem;

void CommandContext::report(const model::Error& error) {
    std::string text = "error: ";
    if (!error.context.empty()) text += error.context + ": ";
    text += error.message + "\n";
    if (!error.hint.empty()) text += "  " + error.hint + "\n";
    std::fputs(text.c_str(), stderr);
    exit_code = error.code == model::ErrorCode::unavailable ? kUnavailable : kBadInput;
}

void CommandContext::note(const std::string& text) const {
    if (!quiet) std::fputs((text + "\n").c_str(), stderr);
}

void CommandContext::print(const model::Json& document) const {
    print(document.dump(2, ' ', false, model::Json::error_handler_t::replace));
}

void CommandContext::print(const std::string& text) const {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

std::string find_data_directory() { return model::find_data_directory(); }

model::Expected<std::string> read_input(const std::string& path) {
    return model::read_file(path == "-" ? "/dev/stdin" : path);
}

model::Expected<void> write_file(const std::string& path, const std::string& text) {
    const std::string temporary = path + ".tmp";
    {
        std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
        stream << text;
        stream.flush();
        if (!stream) {
            std::error_code ignored;
            fs::remove(temporary, ignored);
            return model::fail(model::ErrorCode::invalid_input, "the file can't be written", path,
                               "check that the folder exists and is writable");
        }
    }
    std::error_code ec;
    fs::rename(temporary, path, ec);
    if (ec) {
        return model::fail(model::ErrorCode::invalid_input,
                           "the file can't be replaced: " + ec.message(), path,
                           "check the folder's permissions");
    }
    return {};
}

}  // namespace draftboard::cli
