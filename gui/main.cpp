// SPDX-License-Identifier: Apache-2.0
// `draftboard-gui`: the window, or one of its views as a picture without a screen. No logic: options are read, a window is
// opened.

#include <QApplication>
#include <QElapsedTimer>
#include <QFont>
#include <QSettings>
#include <QStandardPaths>
#include <QTimer>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "gui/models/text.h"
#include "gui/views/latency_probe.h"
#include "gui/views/main_window.h"
#include "gui/views/page.h"
#include "gui/views/screenshot.h"
#include "model/data_library.h"
#include "sim/version.h"

namespace {

struct Options {
    std::string project;
    std::string view;
    std::string screenshot;
    std::string theme = "light";
    std::string size = "1280x800";
    std::string sweep;
    std::string range;
    bool small = false;
    int latency = 0;
};

int fail(const QString& message, int status) {
    std::fputs(("error: " + message + "\n").toUtf8().constData(), stderr);
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    using namespace draftboard;
    Options options;
    CLI::App cli("Draftboard's window: turn a knob, see the answer");
    cli.set_version_flag("--version", std::string(sim::kVersion));
    cli.add_option("project,--project", options.project, "A project or scenario file, or the name of a shipped one");
    cli.add_option("--view", options.view, "The view to begin with");
    cli.add_option("--screenshot", options.screenshot, "Write the window as a PNG (or the view as SVG or PDF) and end");
    cli.add_flag("--small", options.small, "Of a PNG: the 256 commonest colours only, for documentation");
    cli.add_option("--theme", options.theme, "light or dark")->check(CLI::IsMember({"light", "dark"}));
    cli.add_option("--size", options.size, "Width x height of the window in pixels")->check([](const std::string& text) {
        int width = 0;
        int height = 0;
        const bool right = std::sscanf(text.c_str(), "%dx%d", &width, &height) == 2 && width >= 640 && height >= 480 &&
                           width <= 16384 && height <= 16384;
        return right ? std::string() : "a size is WIDTHxHEIGHT, from 640x480 to 16384x16384";
    });
    cli.add_option("--sweep", options.sweep,
                   "Show the curves view over this field, or the map over two: PATH or PATH,PATH; `pareto`");
    cli.add_option("--range", options.range, "Show the timeline from FROM to TO, in milliseconds: FROM:TO");
    cli.add_option("--measure-latency", options.latency, "Turn knobs this many times, print how long answers took, and end")
        ->check(CLI::Range(1, 10000));
    try {
        cli.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const int status = cli.exit(error);
        return status == 0 ? 0 : 2;
    }
    const bool headless = !options.screenshot.empty() || options.latency > 0;
    if (!options.screenshot.empty() && qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
    if (!headless && qEnvironmentVariableIsEmpty("DISPLAY") && qEnvironmentVariableIsEmpty("WAYLAND_DISPLAY") &&
        qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) {
        return fail("there is no display; --screenshot FILE works without one, `draftboard predict` gives the same numbers", 3);
    }
    QApplication application(argc, argv);
    QApplication::setOrganizationName("draftboard");
    QApplication::setApplicationName("draftboard-gui");
    QLocale::setDefault(QLocale::c());
    QFont font = QApplication::font();
    font.setPointSizeF(9.5);
    QApplication::setFont(font);
    const bool dark = options.theme == "dark" || (!headless && QSettings().value("dark").toBool());
    gui::apply_theme(application, dark ? gui::ThemeChoice::dark : gui::ThemeChoice::light);
    gui::MainWindow window(model::find_data_directory(), !headless);
    int width = 1280;
    int height = 800;
    if (std::sscanf(options.size.c_str(), "%dx%d", &width, &height) == 2 && (headless || cli.count("--size") > 0))
        window.resize(width, height);
    const std::string project = options.project.empty() ? "founding-case" : options.project;
    if (const QString failed = window.open_file(gui::qs(project)); !failed.isEmpty()) return fail(failed, 2);
    if (!options.view.empty() && !window.show_view(gui::qs(options.view))) {
        return fail("there is no view '" + gui::qs(options.view) + "'; there are " + window.view_ids().join(", "), 2);
    }
    if (!options.sweep.empty() && !window.show_sweep(gui::qs(options.sweep))) {
        return fail("--sweep takes one field or two of the knobs, for example workload.concurrency,speculation.steps", 2);
    }
    window.show();
    if (!options.range.empty()) {
        double from = 0;
        double to = 0;
        if (std::sscanf(options.range.c_str(), "%lf:%lf", &from, &to) != 2 || !(from >= 0) || !(to > from) || !(to < 1e6)) {
            return fail("--range is FROM:TO in milliseconds, for example 10:10.5", 2);
        }
        if (!gui::settle(window)) return fail("the timeline was not ready within a minute", 3);
        window.show_range(from, to);
    }
    if (!options.screenshot.empty()) {
        const QString failed = gui::take_screenshot(window, gui::qs(options.screenshot), options.small);
        return failed.isEmpty() ? 0 : fail(failed, 2);
    }
    if (options.latency > 0) return gui::measure_latency(window, options.latency);
    window.offer_recovery(QStandardPaths::writableLocation(QStandardPaths::AppDataLocation) + "/recovery");
    return QApplication::exec();
}
