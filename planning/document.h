// SPDX-License-Identifier: Apache-2.0
#pragma once
// A report as headings, paragraphs, tables and bars, written once and rendered three ways: plain text for a terminal, Markdown,
// and one self-contained HTML page with inline SVG. What stands in it is comparison.h's, plan_report.h's and optimum_report.h's
// affair.

#include <string>
#include <variant>
#include <vector>

namespace draftboard::planning {

struct Heading {
    int level = 2;
    std::string text;
};
struct Paragraph {
    std::string text;
};
/// Items of a list.
struct Bullets {
    std::vector<std::string> items;
};
struct Table {
    std::vector<std::string> head;
    std::vector<std::vector<std::string>> rows;
    std::size_t text_columns = 1;  ///< from the left; the others hold numbers and are set to the right
};
/// Commands and settings, as they are.
struct Code {
    std::string text;
};
/// Stacked bars, one a row; shown in HTML only: the tables hold the numbers.
struct Bars {
    std::string unit;
    std::vector<std::string> parts;  ///< names of a bar's pieces, in order
    struct Row {
        std::string label;
        std::vector<double> values;  ///< of each part
    };
    std::vector<Row> rows;
};

using Block = std::variant<Heading, Paragraph, Bullets, Table, Code, Bars>;

struct Document {
    std::string title;
    std::vector<Block> blocks;
};

[[nodiscard]] std::string to_text(const Document& document);
[[nodiscard]] std::string to_markdown(const Document& document);
[[nodiscard]] std::string to_html(const Document& document);

}  // namespace draftboard::planning
