// SPDX-License-Identifier: Apache-2.0
#include "gui/views/export.h"

#include <qcustomplot.h>

#include <QBuffer>
#include <QPainter>
#include <QPdfWriter>
#include <QSaveFile>
#include <QSvgGenerator>

#include "gui/models/tables.h"
#include "gui/models/text.h"
#include "gui/views/page.h"
#include "sim/version.h"

namespace draftboard::gui {

namespace {

constexpr double kPngScale = 2;

/// Vectors stay vectors: QCustomPlot draws itself, everything else is painted as it is on the screen.
void draw(QWidget& widget, QPainter& painter) {
    if (auto* plot = qobject_cast<QCustomPlot*>(&widget)) {
        QCPPainter vector;
        vector.begin(painter.device());
        vector.setTransform(painter.transform());
        plot->toPainter(&vector, widget.width(), widget.height());
        vector.end();
        return;
    }
    widget.render(&painter, {}, {}, QWidget::DrawChildren | QWidget::DrawWindowBackground);
}

QByteArray svg_of(QWidget& widget) {
    QBuffer buffer;
    QSvgGenerator generator;
    generator.setOutputDevice(&buffer);
    generator.setSize(widget.size());
    generator.setViewBox(QRect(QPoint(0, 0), widget.size()));
    generator.setTitle("Draftboard");
    if (auto* plot = qobject_cast<QCustomPlot*>(&widget)) {
        QCPPainter painter;
        painter.begin(&generator);
        plot->toPainter(&painter, widget.width(), widget.height());
        painter.end();
    } else {
        QPainter painter(&generator);
        draw(widget, painter);
    }
    return buffer.data();
}

QByteArray pdf_of(QWidget& widget) {
    QBuffer buffer;
    buffer.open(QIODevice::WriteOnly);
    QPdfWriter writer(&buffer);
    writer.setResolution(96);
    writer.setPageSize(QPageSize(QSizeF(widget.width() * 72.0 / 96, widget.height() * 72.0 / 96), QPageSize::Point));
    writer.setPageMargins({});
    if (auto* plot = qobject_cast<QCustomPlot*>(&widget)) {
        QCPPainter painter;
        painter.begin(&writer);
        painter.setMode(QCPPainter::pmVectorized);
        plot->toPainter(&painter, widget.width(), widget.height());
        painter.end();
    } else {
        QPainter painter(&writer);
        draw(widget, painter);
    }
    return buffer.data();
}

QByteArray png_of(QWidget& widget) {
    QImage image(widget.size() * kPngScale, QImage::Format_RGB32);
    image.setDevicePixelRatio(kPngScale);
    {
        QPainter painter(&image);
        if (auto* plot = qobject_cast<QCustomPlot*>(&widget))
            painter.drawPixmap(0, 0, plot->toPixmap(widget.width(), widget.height(), kPngScale));
        else
            draw(widget, painter);
    }
    QByteArray bytes;
    QBuffer buffer(&bytes);
    buffer.open(QIODevice::WriteOnly);
    image.save(&buffer, "PNG");
    return bytes;
}

QString write_bytes(const QString& path, const QByteArray& bytes) {
    QSaveFile file(path);
    if (file.open(QIODevice::WriteOnly) && file.write(bytes) == bytes.size() && file.commit()) return {};
    return path + " can't be written: " + file.errorString();
}

QString html_table(const Table& table) {
    QString html = "<table><tr>";
    for (const Column& column : table.columns)
        html += (column.right ? "<th class='r'>" : "<th>") + column.title.toHtmlEscaped() + "</th>";
    html += "</tr>\n";
    for (const auto& row : table.rows) {
        html += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i)
            html += (table.columns[i].right ? "<td class='r'>" : "<td>") + row[i].text.toHtmlEscaped() + "</td>";
        html += "</tr>\n";
    }
    return html + "</table>\n";
}

}  // namespace

QString write_text(const QString& path, const QString& text) { return write_bytes(path, text.toUtf8()); }

QString export_picture(QWidget& widget, const QString& path) {
    if (path.endsWith(".svg", Qt::CaseInsensitive)) return write_bytes(path, svg_of(widget));
    if (path.endsWith(".pdf", Qt::CaseInsensitive)) return write_bytes(path, pdf_of(widget));
    if (path.endsWith(".png", Qt::CaseInsensitive)) return write_bytes(path, png_of(widget));
    return path + ": the name has to end in .png, .svg or .pdf";
}

QString export_tables(const Page& page, const QString& path) {
    QString text;
    for (const Table& table : page.tables()) {
        if (!text.isEmpty()) text += "\n";
        text += path.endsWith(".tsv", Qt::CaseInsensitive) ? to_tsv(table) : to_csv(table);
    }
    if (text.isEmpty()) return "this view has no table yet";
    return write_text(path, text);
}

QString html_report(const Session& session, QWidget& waterfall) {
    const AnswerPointer answer = session.answer();
    if (!answer) return {};
    const sim::Prediction& p = answer->prediction;
    QString html =
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>" + qs(answer->variant.name).toHtmlEscaped() +
        "</title><style>\n"
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}\n"
        "table{border-collapse:collapse;margin:.5em 0 1.5em;font-size:14px}td,th{padding:3px 12px 3px "
        "0;text-align:left;border-bottom:1px solid #8884}"
        ".r{text-align:right}svg{max-width:100%;height:auto}code{font-size:13px;overflow-wrap:anywhere}.big{font-size:2em;font-"
        "weight:600}\n</style></head><body>\n";
    html += "<h1>" + qs(answer->variant.name).toHtmlEscaped() + "</h1><p>" +
            qs(answer->scenario.architecture.name).toHtmlEscaped() + " on " + qs(answer->scenario.machine.name).toHtmlEscaped() +
            ", " + qs(answer->scenario.layout.name()).toHtmlEscaped() + ", " +
            QString::number(answer->scenario.workload.concurrency) + " sequence(s), " +
            QString::number(answer->scenario.workload.context_tokens) + " tokens of context</p>\n";
    html += "<p class='big'>" + fixed(p.tokens_per_second.value, 1) + " tok/s</p><p>90 % interval " +
            range_text(p.tokens_per_second, 1) + "; speed-up " + fixed(p.speedup.value, 2) + " (" + range_text(p.speedup, 2) +
            ") over plain decoding at " + fixed(p.plain_tokens_per_second.value, 1) + "; acceptance length " +
            fixed(p.acceptance_length.value, 2) + ", break-even " + fixed(p.break_even_acceptance_length, 2) + ".</p>\n";
    html += "<p><b>" + qs(p.verdict).toHtmlEscaped() + "</b></p>\n<h2>Where the time goes</h2>\n";
    QString svg = QString::fromUtf8(svg_of(waterfall));
    html += svg.mid(svg.indexOf("<svg")) + "\n" + html_table(terms_table(*answer, session.baseline().get()));
    if (session.project().variants.size() > 1) html += "<h2>Scenarios</h2>\n" + html_table(variants_table(session));
    html += "<h2>Memory of the fullest GPU</h2><p>" + qs(p.memory.verdict).toHtmlEscaped() + "</p>\n" +
            html_table(memory_table(*answer));
    html +=
        "<h2>What differs from " + qs(answer->variant.base).toHtmlEscaped() + "</h2>\n" + html_table(differences_table(session));
    if (!p.warnings.empty()) {
        html += "<h2>Warnings</h2><ul>";
        for (const std::string& warning : p.warnings) html += "<li>" + qs(warning).toHtmlEscaped() + "</li>";
        html += "</ul>\n";
    }
    html += "<h2>Where this comes from</h2><p>Coverage: " + qs(to_name(p.coverage)) +
            ". Kernels: " + qs(answer->kernels).toHtmlEscaped() + "; collectives: " + qs(answer->collectives).toHtmlEscaped() +
            ". Draftboard " + qs(sim::kVersion) + ", revision " + qs(sim::kRevision) + "; scenario digest " +
            qs(answer->scenario.digest) + ".</p><p><code>" + qs(command_line(answer->variant)).toHtmlEscaped() +
            "</code></p></body></html>\n";
    return html;
}

}  // namespace draftboard::gui
