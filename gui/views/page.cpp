// SPDX-License-Identifier: Apache-2.0
#include "gui/views/page.h"

#include <QAction>
#include <QApplication>
#include <QClipboard>
#include <QEvent>
#include <QHeaderView>
#include <QPainter>
#include <QSortFilterProxyModel>
#include <QStyledItemDelegate>
#include <QTableView>
#include <algorithm>

#include "gui/views/theme.h"

namespace draftboard::gui {

Page::Page(Session& session, const QString& id, const QString& title, QWidget* parent)
    : QWidget(parent), session_(session), id_(id), title_(title) {
    setObjectName("page." + id);
    setAccessibleName(title);
    connect(&session_, &Session::asked, this, [this] { mark_stale(true); });
    connect(&session_, &Session::answered, this, [this] {
        mark_stale(session_.stale());
        request_refresh();
    });
    connect(&session_, &Session::detailed, this, [this] { request_refresh(); });
    connect(&session_, &Session::comparison_changed, this, [this] { request_refresh(); });
    connect(&session_, &Session::project_changed, this, [this] { request_refresh(); });
}

void Page::mark_stale(bool) {}

void Page::request_refresh() {
    if (!isVisible()) {
        dirty_ = true;
        return;
    }
    dirty_ = false;
    refresh();
}

void Page::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    if (!dirty_) return;
    dirty_ = false;
    refresh();
}

void Page::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::PaletteChange) request_refresh();
}

namespace {

/// Cells with a bar draw it from the middle (gains and losses) or from the left (shares).
class BarDelegate : public QStyledItemDelegate {
 public:
    using QStyledItemDelegate::QStyledItemDelegate;

    void initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const override {
        QStyledItemDelegate::initStyleOption(option, index);
        if (index.data(TableModel::kMutedRole).toBool()) option->palette.setColor(QPalette::Text, theme().muted);
    }

    void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
        QStyledItemDelegate::paint(painter, option, index);
        const double bar = index.data(TableModel::kBarRole).toDouble();
        if (bar == 0 || !index.data(Qt::DisplayRole).toString().isEmpty()) return;
        const QRectF area = QRectF(option.rect).adjusted(6, 5, -6, -5);
        const double middle = area.center().x();
        const double reach = area.width() / 2 * std::clamp(bar, -1.0, 1.0);
        painter->setPen(QPen(theme().border));
        painter->drawLine(QPointF(middle, area.top() - 3), QPointF(middle, area.bottom() + 3));
        painter->fillRect(QRectF(QPointF(std::min(middle, middle + reach), area.top()),
                                 QPointF(std::max(middle, middle + reach), area.bottom())),
                          bar > 0 ? theme().good : theme().bad);
    }
};

}  // namespace

QTableView* make_table_view(TableModel& model, const QString& name, QWidget* parent) {
    auto* view = new QTableView(parent);
    view->setObjectName(name);
    view->setAccessibleName(name);
    auto* proxy = new QSortFilterProxyModel(view);
    proxy->setSourceModel(&model);
    proxy->setSortRole(TableModel::kSortRole);
    proxy->setFilterCaseSensitivity(Qt::CaseInsensitive);
    proxy->setFilterKeyColumn(-1);
    view->setModel(proxy);
    view->setItemDelegate(new BarDelegate(view));
    view->setSortingEnabled(true);
    proxy->sort(-1);  // as given, until a title is clicked
    view->horizontalHeader()->setSortIndicator(-1, Qt::AscendingOrder);
    view->setSelectionBehavior(QAbstractItemView::SelectRows);
    view->setSelectionMode(QAbstractItemView::ExtendedSelection);
    view->setAlternatingRowColors(true);
    view->setShowGrid(false);
    view->setWordWrap(false);
    view->setEditTriggers(QAbstractItemView::NoEditTriggers);
    view->setTabKeyNavigation(false);
    view->verticalHeader()->hide();
    view->verticalHeader()->setDefaultSectionSize(view->fontMetrics().height() + 8);
    view->horizontalHeader()->setStretchLastSection(true);
    view->horizontalHeader()->setHighlightSections(false);
    const auto fit = [view] {
        view->resizeColumnsToContents();
        for (int i = 0; i < view->model()->columnCount(); ++i) {
            view->setColumnWidth(i, std::min(view->columnWidth(i) + 8, 420));
        }
    };
    QObject::connect(proxy, &QAbstractItemModel::modelReset, view, fit);
    auto* copy = new QAction("Copy", view);
    copy->setShortcut(QKeySequence::Copy);
    copy->setShortcutContext(Qt::WidgetShortcut);
    QObject::connect(copy, &QAction::triggered, view, [view, &model] {
        Table chosen{model.table().name, model.table().columns, {}};
        const auto* sorted = qobject_cast<QSortFilterProxyModel*>(view->model());
        const bool some = view->selectionModel()->hasSelection();
        for (int i = 0; i < sorted->rowCount(); ++i) {
            if (some && !view->selectionModel()->isRowSelected(i, {})) continue;
            chosen.rows.push_back(model.table().rows[static_cast<std::size_t>(sorted->mapToSource(sorted->index(i, 0)).row())]);
        }
        QApplication::clipboard()->setText(to_tsv(chosen));
    });
    view->addAction(copy);
    view->setContextMenuPolicy(Qt::ActionsContextMenu);
    return view;
}

}  // namespace draftboard::gui
