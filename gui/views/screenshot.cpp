// SPDX-License-Identifier: Apache-2.0
#include "gui/views/screenshot.h"

#include <QApplication>
#include <QElapsedTimer>
#include <QHash>
#include <QImage>
#include <QPixmap>
#include <algorithm>

#include "gui/views/export.h"
#include "gui/views/main_window.h"
#include "gui/views/page.h"

namespace draftboard::gui {

bool settle(MainWindow& window, int seconds) {
    QElapsedTimer timer;
    timer.start();
    int calm = 0;
    while (calm < 3) {
        if (timer.elapsed() > 1000LL * seconds) return false;
        QApplication::processEvents(QEventLoop::AllEvents, 20);
        QApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
        calm = window.busy() ? 0 : calm + 1;
    }
    return true;
}

namespace {

/// The commonest colours as a palette; the others take the nearest of them.
QImage with_palette(const QImage& image) {
    QHash<QRgb, int> counts;
    for (int y = 0; y < image.height(); ++y) {
        for (int x = 0; x < image.width(); ++x) ++counts[image.pixel(x, y)];
    }
    QList<QRgb> colours = counts.keys();
    std::sort(colours.begin(), colours.end(),
              [&](QRgb a, QRgb b) { return counts[a] != counts[b] ? counts[a] > counts[b] : a < b; });
    colours.resize(std::min<qsizetype>(colours.size(), 256));
    return image.convertToFormat(QImage::Format_Indexed8, colours, Qt::ThresholdDither | Qt::AvoidDither);
}

}  // namespace

QString take_screenshot(MainWindow& window, const QString& path, bool small) {
    if (!settle(window)) return "the view was not ready within a minute";
    if (!path.endsWith(".png", Qt::CaseInsensitive)) return export_picture(*window.current_page()->picture(), path);
    const QImage image = window.grab().toImage().convertToFormat(QImage::Format_RGB888);
    if (!(small ? with_palette(image) : image).save(path, "PNG", 0)) return path + " can't be written";
    return {};
}

}  // namespace draftboard::gui
