// SPDX-License-Identifier: Apache-2.0
#include "gui/views/explanation_panel.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QSortFilterProxyModel>
#include <QSplitter>
#include <QTableView>
#include <QTextBrowser>
#include <QVBoxLayout>

#include "gui/models/tables.h"
#include "gui/models/text.h"
#include "gui/views/page.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

ExplanationPanel::ExplanationPanel(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setObjectName("explanation");
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(6, 4, 6, 6);
    title_ = new QLabel(this);
    all->addWidget(title_);
    auto* split = new QSplitter(Qt::Horizontal, this);
    view_ = make_table_view(model_, "explanation.table", split);
    view_->setSelectionMode(QAbstractItemView::SingleSelection);
    text_ = new QTextBrowser(split);
    text_->setObjectName("explanation.text");
    text_->setAccessibleName("Formula, inputs and source");
    text_->setFrameShape(QFrame::NoFrame);
    split->addWidget(view_);
    split->addWidget(text_);
    split->setStretchFactor(0, 3);
    split->setStretchFactor(1, 2);
    all->addWidget(split, 1);
    connect(view_->selectionModel(), &QItemSelectionModel::currentRowChanged, this, [this](const QModelIndex& index) {
        const auto* proxy = qobject_cast<QSortFilterProxyModel*>(view_->model());
        describe(proxy->mapToSource(index).row());
    });
    connect(&session_, &Session::detailed, this, [this] { refresh(); });
    refresh();
}

QString ExplanationPanel::text() const { return text_->toPlainText(); }

void ExplanationPanel::show_term(const QString& pass, const QString& term) {
    pass_ = pass == "host" ? std::string() : pass.toStdString();
    term_ = term.toStdString();
    key_.clear();
    refresh();
}

void ExplanationPanel::show_operation(const QString& key) {
    key_ = key.toStdString();
    pass_ = key_.substr(0, key_.find('/'));
    if (pass_ == "decode") pass_ = "plain";
    term_.clear();
    refresh();
}

void ExplanationPanel::refresh() {
    const auto details = session_.details();
    if (!details) return;
    model_.set(operations_table(*details, pass_, term_));
    title_->setText(term_.empty() && pass_.empty() ? "All operations"
                                                   : "Operations of " + qs(pass_) + (term_.empty() ? "" : "." + qs(term_)));
    int wanted = model_.rowCount() > 0 ? 0 : -1;
    if (!key_.empty()) {
        // Equal operations of different layers are one row: the role and pass find it.
        const std::string role = key_.substr(key_.rfind('/') + 1);
        const auto chosen = chosen_operations(*details, pass_, term_);
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            if (chosen[i]->role == role) {
                wanted = static_cast<int>(i);
                break;
            }
        }
    }
    if (wanted < 0) {
        text_->clear();
        return;
    }
    const auto* proxy = qobject_cast<QSortFilterProxyModel*>(view_->model());
    const QModelIndex at = proxy->mapFromSource(model_.index(wanted, 0));
    view_->setCurrentIndex(at);
    view_->scrollTo(at);
    describe(wanted);
}

void ExplanationPanel::describe(int row) {
    const auto details = session_.details();
    if (!details || row < 0) return;
    const auto chosen = chosen_operations(*details, pass_, term_);
    if (row >= static_cast<int>(chosen.size())) return;
    const sim::ExplainedOperation& operation = *chosen[static_cast<std::size_t>(row)];
    const auto line = [](const QString& name, const QString& value) {
        return "<tr><td style='color:" + theme().muted.name() + "; padding-right:10px'>" + name + "</td><td>" +
               value.toHtmlEscaped() + "</td></tr>";
    };
    QString html = "<b>" + qs(operation.key).toHtmlEscaped() + "</b><table cellspacing='0' cellpadding='1'>";
    html += line("formula", qs(operation.formula));
    html += line("inputs", qs(operation.shape) + "; " + QString::number(operation.bytes, 'g', 5) + " bytes, " +
                               QString::number(operation.flops, 'g', 5) + " flops");
    html += line("time", fixed(operation.us, 3) + " us, " + QString::number(operation.count) +
                             " of them in the pass: " + fixed(operation.total_ms, 4) + " ms");
    html += line("doubt", fixed(100 * operation.relative_uncertainty, 0) + " % (one standard deviation)");
    html += line("coverage", qs(to_name(operation.coverage)));
    html += line("source", qs(operation.source));
    text_->setHtml(html + "</table>");
}

}  // namespace draftboard::gui
