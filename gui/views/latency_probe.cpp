// SPDX-License-Identifier: Apache-2.0
#include "gui/views/latency_probe.h"

#include <QApplication>
#include <QElapsedTimer>
#include <QSlider>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "gui/views/answer_panel.h"
#include "gui/views/main_window.h"
#include "gui/views/page.h"
#include "gui/views/screenshot.h"

namespace draftboard::gui {

int measure_latency(MainWindow& window, int changes) {
    if (!settle(window)) return 3;
    const char* const paths[] = {"workload.context_tokens", "workload.concurrency", "speculation.steps",
                                 "constants.host.eager_launch_us", "speculation.acceptance.acceptance_length"};
    std::vector<double> painted;
    for (int i = 0; i < changes; ++i) {
        auto* slider = window.findChild<QSlider*>(QString("slider.") + paths[i % 5]);
        if (slider == nullptr) return 3;
        const int position = 60 + (i * 137) % 880;
        QElapsedTimer timer;
        timer.start();
        slider->setValue(slider->value() == position ? position + 7 : position);
        while (window.session().stale() && timer.elapsed() < 5000)
            QApplication::processEvents(QEventLoop::AllEvents | QEventLoop::WaitForMoreEvents, 5);
        window.answer_panel().repaint();
        painted.push_back(static_cast<double>(timer.nsecsElapsed()) * 1e-6);
        // A hand does not turn faster than this; the view follows meanwhile.
        QElapsedTimer rest;
        rest.start();
        while (rest.elapsed() < 60) QApplication::processEvents(QEventLoop::AllEvents, 10);
    }
    std::sort(painted.begin(), painted.end());
    const auto at = [&](double share) {
        return painted[std::min(painted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(painted.size())))];
    };
    std::printf("{\"changes\": %d, \"view\": \"%s\", \"median_ms\": %.2f, \"p90_ms\": %.2f, \"worst_ms\": %.2f}\n", changes,
                window.current_page()->id().toUtf8().constData(), at(0.5), at(0.9), painted.back());
    return 0;
}

}  // namespace draftboard::gui
