// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the time goes: the waterfall of core/waterfall.h, painted. A bar clicked, or chosen by the arrow keys, is explained
// below (explanation_panel.h).

#include "gui/core/waterfall.h"
#include "gui/views/page.h"

class QScrollArea;

namespace draftboard::gui {

class WaterfallWidget : public QWidget {
    Q_OBJECT
 public:
    explicit WaterfallWidget(QWidget* parent = nullptr);
    void show_waterfall(Waterfall waterfall, bool stale);
    [[nodiscard]] const Waterfall& waterfall() const { return waterfall_; }
    [[nodiscard]] QSize minimumSizeHint() const override;
    /// Centre of a bar's row, for tests.
    [[nodiscard]] QPoint centre_of(std::size_t bar) const;

 signals:
    void chosen(const QString& pass, const QString& term);

 protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    bool event(QEvent* event) override;

 private:
    [[nodiscard]] double row_height() const;
    [[nodiscard]] int bar_at(QPoint point) const;
    void choose(int bar);

    Waterfall waterfall_;
    bool stale_ = false;
    int chosen_ = -1;
};

class WaterfallPage : public Page {
    Q_OBJECT
 public:
    explicit WaterfallPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QWidget* picture() override { return widget_; }
    [[nodiscard]] std::vector<Table> tables() const override;
    [[nodiscard]] bool explains() const override { return true; }
    [[nodiscard]] WaterfallWidget& widget() { return *widget_; }

 signals:
    void chosen(const QString& pass, const QString& term);

 protected:
    void refresh() override;
    void mark_stale(bool stale) override;

 private:
    WaterfallWidget* widget_ = nullptr;
};

}  // namespace draftboard::gui
