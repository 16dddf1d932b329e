// SPDX-License-Identifier: Apache-2.0
#pragma once
// The roofline: each operation's rate over its flops a byte, under what the datasheet allows. Far below the slope: latency,
// launch floors or a kernel that leaves bandwidth unused; on it: memory decides.

#include "gui/views/page.h"

class QCustomPlot;

namespace draftboard::gui {

class RooflinePage : public Page {
    Q_OBJECT
 public:
    explicit RooflinePage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QWidget* picture() override;
    [[nodiscard]] std::vector<Table> tables() const override;
    [[nodiscard]] bool busy() const override { return session_.details() == nullptr; }

 protected:
    void refresh() override;
    void resizeEvent(QResizeEvent* event) override;

 private:
    QCustomPlot* plot_ = nullptr;
};

}  // namespace draftboard::gui
