// SPDX-License-Identifier: Apache-2.0
#include "model/import/xml_source.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

#include "model/import/device_tree.h"

namespace draftboard::model {

Expected<XmlSource> XmlSource::parse(const std::string& text, const std::string& name) {
    const auto tags = static_cast<std::size_t>(std::count(text.begin(), text.end(), '<'));
    const auto attributes = static_cast<std::size_t>(std::count(text.begin(), text.end(), '='));
    if (tags > kMaxXmlTags || attributes > 8 * kMaxXmlTags) {
        return fail(ErrorCode::too_large,
                    fmt::format("the XML has {} tags and {} attributes", tags, attributes), name,
                    fmt::format("at most {} tags are read", kMaxXmlTags));
    }
    XmlSource source;
    source.name_ = name;
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
        source.line_ends_.push_back(static_cast<std::ptrdiff_t>(at));
    }
    const pugi::xml_parse_result result = source.document_->load_buffer(
        text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!result) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("the XML is malformed or cut off: {}", result.description()),
                    source.place_of_offset(result.offset, true),
                    "take the file anew from the tool that wrote it, whole");
    }
    return source;
}

std::string XmlSource::place_of_offset(std::ptrdiff_t offset, bool with_column) const {
    const auto before = std::lower_bound(line_ends_.begin(), line_ends_.end(), offset);
    const auto line = before - line_ends_.begin() + 1;
    if (!with_column) {
        return fmt::format("{}:{}", name_, line);
    }
    const std::ptrdiff_t begin = before == line_ends_.begin() ? 0 : *(before - 1) + 1;
    return fmt::format("{}:{}:{}", name_, line, offset - begin + 1);
}

std::string XmlSource::place(pugi::xml_node node) const {
    return place_of_offset(std::max<std::ptrdiff_t>(node.offset_debug(), 0), false);
}

std::int64_t integer_attribute(pugi::xml_node node, const char* attribute, std::int64_t fallback,
                               std::int64_t low, std::int64_t high) {
    const char* text = node.attribute(attribute).value();
    char* end = nullptr;
    errno = 0;
    const bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const long long value = std::strtoll(text, &end, hexadecimal ? 16 : 10);
    if (end == text || errno != 0) {
        return fallback;
    }
    while (std::isspace(static_cast<unsigned char>(*end)) != 0) {
        ++end;
    }
    return *end == '\0' && value >= low && value <= high ? value : fallback;
}

std::string text_attribute(pugi::xml_node node, const char* attribute, std::size_t limit) {
    return quoted(node.attribute(attribute).value(), limit);
}

std::string lower_case(std::string text) {
    for (char& c : text) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return text;
}

}  // namespace draftboard::model
