// SPDX-License-Identifier: Apache-2.0
#pragma once
// "Explain this number": the operations behind a bar or slice with time, rate and coverage, and for the chosen one its formula,
// inputs and source, as `draftboard explain` gives them.

#include <QWidget>

#include "gui/models/session.h"
#include "gui/models/table_model.h"

class QLabel;
class QTableView;
class QTextBrowser;

namespace draftboard::gui {

class ExplanationPanel : public QWidget {
    Q_OBJECT
 public:
    explicit ExplanationPanel(Session& session, QWidget* parent = nullptr);
    void show_term(const QString& pass, const QString& term);
    /// The operation of this key, among all of its pass.
    void show_operation(const QString& key);
    [[nodiscard]] const Table& table() const { return model_.table(); }
    [[nodiscard]] QString text() const;

 private:
    void refresh();
    void describe(int row);

    Session& session_;
    TableModel model_;
    QLabel* title_ = nullptr;
    QTableView* view_ = nullptr;
    QTextBrowser* text_ = nullptr;
    std::string pass_;
    std::string term_;
    std::string key_;
};

}  // namespace draftboard::gui
