// SPDX-License-Identifier: Apache-2.0
#include "gui/views/screenshot.h"

#include <QApplication>
#include <QElapsedTimer>
#include <QImage>
#include <QPixmap>

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

QString take_screenshot(MainWindow& window, const QString& path) {
    if (!settle(window)) return "the view was not ready within a minute";
    if (!path.endsWith(".png", Qt::CaseInsensitive)) return export_picture(*window.current_page()->picture(), path);
    // No transparency, and as small as PNG gets: these lie in documentation.
    if (!window.grab().toImage().convertToFormat(QImage::Format_RGB888).save(path, "PNG", 0)) return path + " can't be written";
    return {};
}

}  // namespace draftboard::gui
