// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/transcript.h"

#include <charconv>

namespace draftboard::tests {

namespace {

constexpr std::string_view kExit = "# exit ";
constexpr std::string_view kErrors = "# stderr contains: ";

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return lines;
}

bool is_command(const std::string& line) { return line.starts_with("$ "); }

/// True where `line` is a sound directive or comment of `step`.
bool read_directive(const std::string& line, GoldenStep& step) {
    if (line.starts_with("## ")) {
        step.comments.push_back(line);
        return true;
    }
    if (line.starts_with(kErrors)) {
        step.errors_contain.push_back(line.substr(kErrors.size()));
        return !step.errors_contain.back().empty();
    }
    if (!line.starts_with(kExit)) return false;
    const char* end = line.data() + line.size();
    const auto [rest, code] = std::from_chars(line.data() + kExit.size(), end, step.exit_status);
    return code == std::errc() && rest == end && step.exit_status >= 0 && step.exit_status < 256;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    if (from.empty()) return;
    for (std::size_t at = text.find(from); at != std::string::npos;
         at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
}

}  // namespace

std::optional<Transcript> parse_transcript(const std::string& text, std::string& error) {
    const auto at_line = [&](std::size_t index, const std::string& what) {
        error = "line " + std::to_string(index + 1) + ": " + what;
        return std::nullopt;
    };
    const std::vector<std::string> lines = lines_of(text);
    Transcript transcript;
    std::size_t i = 0;
    for (; i < lines.size() && !is_command(lines[i]); ++i) {
        if (!lines[i].empty() && !lines[i].starts_with("#")) {
            return at_line(i, "only comments (#) may stand before the first command ($)");
        }
        transcript.preamble.push_back(lines[i]);
    }
    while (i < lines.size()) {
        GoldenStep step;
        step.command = lines[i].substr(2);
        step.line = static_cast<int>(i) + 1;
        for (++i; i < lines.size() && lines[i].starts_with("#"); ++i) {
            if (!read_directive(lines[i], step)) {
                return at_line(
                    i,
                    "not a directive: use '# exit N', '# stderr contains: TEXT' or '## comment'");
            }
        }
        std::vector<std::string> output;
        for (; i < lines.size() && !is_command(lines[i]); ++i) output.push_back(lines[i]);
        if (i < lines.size() && !output.empty() && output.back().empty()) output.pop_back();
        for (const std::string& line : output) {
            step.output += line.starts_with("\\") ? line.substr(1) : line;
            step.output += '\n';
        }
        transcript.steps.push_back(std::move(step));
    }
    if (transcript.steps.empty())
        return at_line(0, "no command; a command is a line that starts with '$ '");
    return transcript;
}

std::string write_transcript(const Transcript& transcript) {
    std::string text;
    for (const std::string& line : transcript.preamble) text += line + '\n';
    for (std::size_t i = 0; i < transcript.steps.size(); ++i) {
        const GoldenStep& step = transcript.steps[i];
        if (i > 0) text += '\n';
        text += "$ " + step.command + '\n';
        for (const std::string& line : step.comments) text += line + '\n';
        if (step.exit_status != 0)
            text += std::string(kExit) + std::to_string(step.exit_status) + '\n';
        for (const std::string& part : step.errors_contain)
            text += std::string(kErrors) + part + '\n';
        for (const std::string& line : lines_of(step.output)) {
            if (!line.empty() && (line[0] == '$' || line[0] == '#' || line[0] == '\\'))
                text += '\\';
            text += line + '\n';
        }
    }
    return text;
}

std::optional<std::vector<std::string>> split_command(const std::string& command) {
    std::vector<std::string> words;
    std::string word;
    bool in_word = false;
    char quote = 0;
    for (std::size_t i = 0; i < command.size(); ++i) {
        const char c = command[i];
        if (c == '\\' && quote != '\'') {
            if (++i == command.size()) return std::nullopt;
            word += command[i];
            in_word = true;
        } else if (quote != 0) {
            if (c == quote)
                quote = 0;
            else
                word += c;
        } else if (c == '\'' || c == '"') {
            quote = c;
            in_word = true;
        } else if (c == ' ') {
            if (in_word) words.push_back(std::move(word));
            word.clear();
            in_word = false;
        } else {
            word += c;
            in_word = true;
        }
    }
    if (quote != 0) return std::nullopt;
    if (in_word) words.push_back(std::move(word));
    return words;
}

std::string expand(std::string text, const Placeholders& placeholders) {
    for (const auto& [name, path] : placeholders) replace_all(text, name, path);
    return text;
}

std::string contract(std::string text, const Placeholders& placeholders) {
    for (const auto& [name, path] : placeholders) replace_all(text, path, name);
    return text;
}

std::string mask_revision(std::string text) {
    static const std::string kMember = "\"revision\": \"";
    for (std::size_t at = text.find(kMember); at != std::string::npos;
         at = text.find(kMember, at)) {
        at += kMember.size();
        const std::size_t end = text.find('"', at);
        if (end == std::string::npos) break;
        text.replace(at, end - at, "{revision}");
    }
    return text;
}

std::string describe_difference(const std::string& expected, const std::string& actual) {
    if (expected == actual) return {};
    const std::vector<std::string> want = lines_of(expected);
    const std::vector<std::string> have = lines_of(actual);
    std::size_t i = 0;
    while (i < want.size() && i < have.size() && want[i] == have[i]) ++i;
    const auto show = [i](const std::vector<std::string>& lines) {
        return i < lines.size() ? "|" + lines[i] + "|" : std::string("(no such line)");
    };
    std::string text = "line " + std::to_string(i + 1) + " of the output (expected " +
                       std::to_string(want.size()) + " lines, got " + std::to_string(have.size()) +
                       ")\n" + "    expected " + show(want) + "\n    got      " + show(have);
    if (want == have) text += "\n    (they differ in the newline at the end)";
    return text;
}

}  // namespace draftboard::tests
