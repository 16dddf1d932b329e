// SPDX-License-Identifier: Apache-2.0
#include "planning/document.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "calibration/parity_plot.h"

namespace draftboard::planning {

namespace {

using calibration::html_escaped;

/// Columns on a terminal; bytes that continue a UTF-8 character take none.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
    const std::size_t have = width_of(text);
    const std::string space(width > have ? width - have : 0, ' ');
    return left ? text + space : space + text;
}

struct ToText {
    std::string out;

    void operator()(const Heading& heading) { out += "\n" + heading.text + "\n"; }
    void operator()(const Paragraph& paragraph) { out += paragraph.text + "\n"; }
    void operator()(const Bullets& bullets) {
        for (const std::string& item : bullets.items) out += "  - " + item + "\n";
    }
    void operator()(const Table& table) {
        std::vector<std::size_t> widths;
        for (const std::string& cell : table.head) widths.push_back(width_of(cell));
        for (const auto& row : table.rows) {
            for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
        }
        const auto line = [&](const std::vector<std::string>& cells) {
            std::string text = " ";
            for (std::size_t i = 0; i < cells.size() && i < widths.size(); ++i) {
                text += " " + padded(cells[i], widths[i], i < table.text_columns) + (i + 1 < cells.size() ? " " : "");
            }
            while (text.ends_with(' ')) text.pop_back();
            out += text + "\n";
        };
        line(table.head);
        for (const auto& row : table.rows) line(row);
    }
    void operator()(const Code& code) {
        std::size_t begin = 0;
        while (begin < code.text.size()) {
            const auto end = std::min(code.text.find('\n', begin), code.text.size());
            out += "    " + code.text.substr(begin, end - begin) + "\n";
            begin = end + 1;
        }
    }
    void operator()(const Bars&) {}
};

/// A table's cell ends at a bar.
std::string cell(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '|') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

struct ToMarkdown {
    std::string out;

    void operator()(const Heading& heading) {
        out += "\n" + std::string(static_cast<std::size_t>(heading.level), '#') + " " + heading.text + "\n\n";
    }
    void operator()(const Paragraph& paragraph) { out += paragraph.text + "\n\n"; }
    void operator()(const Bullets& bullets) {
        for (const std::string& item : bullets.items) out += "- " + item + "\n";
        out += "\n";
    }
    void operator()(const Table& table) {
        const auto line = [this](const std::vector<std::string>& cells) {
            out += "|";
            for (const std::string& text : cells) out += " " + cell(text) + " |";
            out += "\n";
        };
        line(table.head);
        out += "|";
        for (std::size_t i = 0; i < table.head.size(); ++i) out += i < table.text_columns ? "---|" : "---:|";
        out += "\n";
        for (const auto& row : table.rows) line(row);
        out += "\n";
    }
    void operator()(const Code& code) { out += "```\n" + code.text + (code.text.ends_with('\n') ? "" : "\n") + "```\n\n"; }
    void operator()(const Bars&) {}
};

// Okabe and Ito's colours: told apart by colour-blind readers too.
constexpr std::array<const char*, 8> kColours{"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                              "#56b4e9", "#d55e00", "#f0e442", "#999999"};

std::string svg(const Bars& bars) {
    double most = 0;
    for (const Bars::Row& row : bars.rows) {
        double sum = 0;
        for (const double value : row.values) sum += std::max(0.0, value);
        most = std::max(most, sum);
    }
    if (!(most > 0)) return {};
    constexpr double kLabel = 260;
    constexpr double kWidth = 620;
    constexpr double kRow = 26;
    const double height = static_cast<double>(bars.rows.size()) * kRow + 8;
    std::string out = fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" width="100%" role="img">)", kLabel + kWidth + 90, height);
    double y = 4;
    for (const Bars::Row& row : bars.rows) {
        out += fmt::format(R"(<text x="{:.0f}" y="{:.1f}" text-anchor="end">{}</text>)", kLabel - 8, y + 15,
                           html_escaped(row.label));
        double x = kLabel;
        double sum = 0;
        for (std::size_t i = 0; i < row.values.size(); ++i) {
            const double value = std::max(0.0, row.values[i]);
            const double width = value / most * kWidth;
            sum += value;
            if (width <= 0) continue;
            out += fmt::format(
                R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="20" fill="{}"><title>{}: {:.2f} {}</title></rect>)", x, y,
                width, kColours[i % kColours.size()], html_escaped(i < bars.parts.size() ? bars.parts[i] : ""), value,
                html_escaped(bars.unit));
            x += width;
        }
        out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}">{:.1f} {}</text>)", x + 6, y + 15, sum, html_escaped(bars.unit));
        y += kRow;
    }
    out += "</svg>\n<p class=\"legend\">";
    for (std::size_t i = 0; i < bars.parts.size(); ++i) {
        out += fmt::format("<span><i style=\"background:{}\"></i>{}</span> ", kColours[i % kColours.size()],
                           html_escaped(bars.parts[i]));
    }
    return out + "</p>\n";
}

constexpr const char* kStyle =
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 "
    "1rem;color:#1b1b1b;background:#fff}"
    "h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2rem}h3{font-size:1.05rem}table{border-collapse:collapse;margin:1rem 0}"
    "td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}"
    "td.t,th.t{text-align:left}pre{background:#f4f4f4;padding:.6rem;overflow:auto}"
    ".wide{overflow-x:auto}.legend span{margin-right:1rem}.legend "
    "i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}"
    "svg text{font:12px system-ui,sans-serif;fill:currentColor}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#e6e6e6}td,th{border-color:#444}pre{background:#242424}}</"
    "style>";

struct ToHtml {
    std::string out;

    void operator()(const Heading& heading) {
        out += fmt::format("<h{0}>{1}</h{0}>\n", heading.level, html_escaped(heading.text));
    }
    void operator()(const Paragraph& paragraph) { out += "<p>" + html_escaped(paragraph.text) + "</p>\n"; }
    void operator()(const Bullets& bullets) {
        out += "<ul>\n";
        for (const std::string& item : bullets.items) out += "<li>" + html_escaped(item) + "</li>\n";
        out += "</ul>\n";
    }
    void operator()(const Table& table) {
        out += "<div class=\"wide\"><table>\n";
        const auto line = [&](const std::vector<std::string>& cells, const char* tag) {
            out += "<tr>";
            for (std::size_t i = 0; i < cells.size(); ++i) {
                out +=
                    fmt::format("<{0}{1}>{2}</{0}>", tag, i < table.text_columns ? " class=\"t\"" : "", html_escaped(cells[i]));
            }
            out += "</tr>\n";
        };
        line(table.head, "th");
        for (const auto& row : table.rows) line(row, "td");
        out += "</table></div>\n";
    }
    void operator()(const Code& code) { out += "<pre>" + html_escaped(code.text) + "</pre>\n"; }
    void operator()(const Bars& bars) { out += svg(bars); }
};

template <class Renderer>
std::string rendered(const Document& document, Renderer renderer) {
    for (const Block& block : document.blocks) std::visit(renderer, block);
    return std::move(renderer.out);
}

}  // namespace

std::string to_text(const Document& document) { return document.title + "\n" + rendered(document, ToText{}); }

std::string to_markdown(const Document& document) {
    std::string text = "# " + document.title + "\n\n" + rendered(document, ToMarkdown{});
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
}

std::string to_html(const Document& document) {
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
        "<title>{0}</title>{1}</head><body>\n<h1>{0}</h1>\n{2}</body></html>\n",
        html_escaped(document.title), kStyle, rendered(document, ToHtml{}));
}

}  // namespace draftboard::planning
