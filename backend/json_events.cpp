// SPDX-License-Identifier: Apache-2.0
#include "backend/json_events.h"

#include <fmt/format.h>

namespace draftboard::backend {

using model::ErrorCode;
using model::Expected;

std::string printable(std::string_view text) {
    constexpr std::size_t kLongest = 120;
    const bool cut = text.size() > kLongest;
    std::size_t end = cut ? kLongest : text.size();
    while (cut && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
    std::string out;
    for (const char c : text.substr(0, end)) {
        const auto byte = static_cast<unsigned char>(c);
        out += byte < 0x20 || byte == 0x7f ? '?' : c;
    }
    return cut ? out + "..." : out;
}

bool JsonEvents::stop(std::string message, std::string hint, ErrorCode code) {
    error_ = {code, std::move(message), {}, std::move(hint)};
    return false;
}

bool JsonEvents::parse_error(std::size_t position, const std::string& /*token*/,
                             const nlohmann::detail::exception& /*error*/) {
    return stop(fmt::format("not valid JSON at byte {}", position),
                "the text is cut off, malformed or not UTF-8 there; fetch or write the file again");
}

Expected<void> JsonEvents::read(std::string_view text, const std::string& name) {
    nlohmann::json_sax<nlohmann::json>& events = *this;  // the parser calls what is public there
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &events)) return {};
    if (error_.message.empty()) stop("not valid JSON", "fetch or write the file again");
    error_.context = name;
    return tl::unexpected(error_);
}

}  // namespace draftboard::backend
