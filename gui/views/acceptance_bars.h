// SPDX-License-Identifier: Apache-2.0
#pragma once
// Acceptance by position as bars: the unconditional rate of each draft token. A bar is dragged, or moved with the arrow keys;
// its neighbours follow so that rates never rise along the chain.

#include <QWidget>
#include <vector>

#include "gui/models/session.h"

namespace draftboard::gui {

class AcceptanceBars : public QWidget {
    Q_OBJECT
 public:
    explicit AcceptanceBars(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] const std::vector<double>& rates() const { return rates_; }
    /// Where a rate of a bar lies, for tests.
    [[nodiscard]] QPoint point_of(std::size_t bar, double rate) const;
    [[nodiscard]] QSize sizeHint() const override;

 protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void focusInEvent(QFocusEvent* event) override;

 private:
    void refresh();
    void set_rate(std::size_t bar, double rate, const QString& gesture);
    [[nodiscard]] QRectF area() const;

    Session& session_;
    std::vector<double> rates_;
    int dragged_ = -1;
    int chosen_ = 0;
    int gesture_ = 0;
};

}  // namespace draftboard::gui
