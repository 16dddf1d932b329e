// SPDX-License-Identifier: Apache-2.0
// Starts GoogleTest with a Qt application; off-screen unless QT_QPA_PLATFORM says otherwise.
#include <gtest/gtest.h>

#include <QApplication>
#include <QFont>
#include <QLocale>
#include <QStandardPaths>

#include "gui/views/theme.h"

int main(int argc, char** argv) {
    if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM") && qEnvironmentVariableIsEmpty("DISPLAY"))
        qputenv("QT_QPA_PLATFORM", "offscreen");
    ::testing::InitGoogleTest(&argc, argv);
    QApplication application(argc, argv);
    QStandardPaths::setTestModeEnabled(true);
    QLocale::setDefault(QLocale::c());
    QFont font = QApplication::font();
    font.setPointSizeF(9.5);
    QApplication::setFont(font);
    draftboard::gui::apply_theme(application, draftboard::gui::ThemeChoice::light);
    return RUN_ALL_TESTS();
}
