// SPDX-License-Identifier: Apache-2.0
#pragma once
// An XML text from outside, parsed under limits, with the line of each element for messages. pugixml
// expands no entities and loads nothing, so a document costs what it is long. What the elements mean
// is nccl_xml.h's and lstopo_xml.h's business.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <pugixml.hpp>

#include "model/error.h"

namespace draftboard::model {

inline constexpr int kMaxXmlDepth = 64;            ///< of elements that a reader descends into
inline constexpr std::size_t kMaxXmlTags = 1u << 20;  ///< a 192-core lstopo file has 5000

class XmlSource {
   public:
    /// Errors name line and column.
    [[nodiscard]] static Expected<XmlSource> parse(const std::string& text, const std::string& name);

    [[nodiscard]] pugi::xml_node root() const { return document_->document_element(); }
    /// "NAME:LINE" of an element.
    [[nodiscard]] std::string place(pugi::xml_node node) const;
    [[nodiscard]] const std::string& name() const { return name_; }

   private:
    XmlSource() = default;
    [[nodiscard]] std::string place_of_offset(std::ptrdiff_t offset, bool with_column) const;

    std::unique_ptr<pugi::xml_document> document_ = std::make_unique<pugi::xml_document>();
    std::vector<std::ptrdiff_t> line_ends_;
    std::string name_;
};

/// The attribute as a number, decimal or 0x-hexadecimal, blanks around it allowed; `fallback` if it is
/// missing, empty, not a number or outside [low, high].
[[nodiscard]] std::int64_t integer_attribute(pugi::xml_node node, const char* attribute,
                                             std::int64_t fallback, std::int64_t low,
                                             std::int64_t high);

/// The attribute as printable ASCII of at most `limit` bytes.
[[nodiscard]] std::string text_attribute(pugi::xml_node node, const char* attribute,
                                         std::size_t limit = 100);

/// PCI addresses compare in lower case.
[[nodiscard]] std::string lower_case(std::string text);

}  // namespace draftboard::model
