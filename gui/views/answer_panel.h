// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answer, always in sight: tokens per second with its interval, speed-up, break-even, cycle, memory and the verdict in words,
// each beside the pinned baseline; warnings and coverage below. While a newer answer is on its way, all of it is greyed.

#include <QFrame>
#include <map>

#include "gui/models/session.h"

class QLabel;
class QPushButton;

namespace draftboard::gui {

class AnswerPanel : public QFrame {
    Q_OBJECT
 public:
    explicit AnswerPanel(Session& session, QWidget* parent = nullptr);

    /// Text of a figure: "tokens_per_second", "speedup", ...; for tests.
    [[nodiscard]] QString figure(const QString& name) const;

 protected:
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

 private:
    void refresh();
    void elide_warnings();
    void show_stale(bool stale);
    void add_figure(const QString& name, const QString& title, const QString& tip, bool large);
    void set_figure(const QString& name, const QString& value, const QString& below, const QString& difference, int better);

    struct Figure {
        QLabel* title = nullptr;
        QLabel* value = nullptr;
        QLabel* below = nullptr;
        QLabel* difference = nullptr;
    };
    Session& session_;
    std::map<QString, Figure> figures_;
    QWidget* row_ = nullptr;
    QLabel* verdict_ = nullptr;
    QLabel* coverage_ = nullptr;
    QLabel* warnings_ = nullptr;
    QString warning_text_;
};

}  // namespace draftboard::gui
