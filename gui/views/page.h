// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the views have in common: a name for menus, the command line and project files, the session they show, and that they
// only redraw while they are seen. A page that holds tables or a picture says so, and export.h writes them.

#include <QWidget>
#include <vector>

#include "gui/models/session.h"
#include "gui/models/table_model.h"

class QTableView;

namespace draftboard::gui {

class Page : public QWidget {
    Q_OBJECT
 public:
    Page(Session& session, const QString& id, const QString& title, QWidget* parent = nullptr);

    [[nodiscard]] const QString& id() const { return id_; }
    [[nodiscard]] const QString& title() const { return title_; }
    /// What PNG, SVG and PDF show; the page itself unless it has something better.
    [[nodiscard]] virtual QWidget* picture() { return this; }
    [[nodiscard]] virtual std::vector<Table> tables() const { return {}; }
    /// Whether what is chosen here is explained in the panel below.
    [[nodiscard]] virtual bool explains() const { return false; }
    /// True while the page still computes what it shows; screenshots wait.
    [[nodiscard]] virtual bool busy() const { return false; }

 protected:
    /// Shows the session as it is. Called when it has changed and the page is visible.
    virtual void refresh() = 0;
    /// The answer is stale, or not any more.
    virtual void mark_stale(bool stale);
    void showEvent(QShowEvent* event) override;
    void changeEvent(QEvent* event) override;
    void request_refresh();

    Session& session_;

 private:
    QString id_;
    QString title_;
    bool dirty_ = true;
};

/// A sortable table over a model, with copying of the selection as TSV (Ctrl+C).
[[nodiscard]] QTableView* make_table_view(TableModel& model, const QString& name, QWidget* parent);

}  // namespace draftboard::gui
