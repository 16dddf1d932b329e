// SPDX-License-Identifier: Apache-2.0
#pragma once
// What leaves the window: a page's picture as PNG, SVG or PDF, its tables as CSV or TSV, and the whole answer as one HTML page
// that fetches nothing. Files are replaced in one step, so a failed write leaves what was there.

#include <QString>

class QWidget;

namespace draftboard::gui {

class Page;
class Session;
struct Table;

/// By the ending of `path`: .png, .svg or .pdf. Empty: written, else why not.
[[nodiscard]] QString export_picture(QWidget& widget, const QString& path);
/// .csv or .tsv. Several tables of a page stand below each other, a blank line between.
[[nodiscard]] QString export_tables(const Page& page, const QString& path);
[[nodiscard]] QString write_text(const QString& path, const QString& text);

/// The shown variant and what it is compared with: verdict, figures, terms, memory, differences, provenance; pictures inline.
[[nodiscard]] QString html_report(const Session& session, QWidget& waterfall);

}  // namespace draftboard::gui
