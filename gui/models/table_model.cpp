// SPDX-License-Identifier: Apache-2.0
#include "gui/models/table_model.h"

namespace draftboard::gui {

void TableModel::set(Table table) {
    const bool same_shape = table.rows.size() == table_.rows.size() && table.columns.size() == table_.columns.size();
    if (same_shape && !table.rows.empty() && !table.columns.empty()) {
        table_ = std::move(table);
        emit dataChanged(index(0, 0), index(rowCount() - 1, columnCount() - 1));
        emit headerDataChanged(Qt::Horizontal, 0, columnCount() - 1);
        return;
    }
    beginResetModel();
    table_ = std::move(table);
    endResetModel();
}

int TableModel::rowCount(const QModelIndex& parent) const { return parent.isValid() ? 0 : static_cast<int>(table_.rows.size()); }

int TableModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(table_.columns.size());
}

QVariant TableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || index.row() >= rowCount() || index.column() >= columnCount()) return {};
    const auto& row = table_.rows[static_cast<std::size_t>(index.row())];
    if (index.column() >= static_cast<int>(row.size())) return {};
    const Cell& cell = row[static_cast<std::size_t>(index.column())];
    switch (role) {
        case Qt::DisplayRole: return cell.text;
        case Qt::ToolTipRole: return cell.tip.isEmpty() ? cell.text : cell.tip;
        case Qt::TextAlignmentRole:
            return static_cast<int>(
                (table_.columns[static_cast<std::size_t>(index.column())].right ? Qt::AlignRight : Qt::AlignLeft) |
                Qt::AlignVCenter);
        case kSortRole: return cell.sort.isValid() ? cell.sort : QVariant(cell.text);
        case kBarRole: return cell.bar;
        case kMutedRole: return cell.muted;
        default: return {};
    }
}

QVariant TableModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || section < 0 || section >= columnCount()) return {};
    const Column& column = table_.columns[static_cast<std::size_t>(section)];
    if (role == Qt::DisplayRole) return column.title;
    if (role == Qt::ToolTipRole) return column.tip.isEmpty() ? column.title : column.tip;
    if (role == Qt::TextAlignmentRole)
        return static_cast<int>((column.right ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
    return {};
}

namespace {

template <class Quote>
QString joined(const Table& table, const char* separator, Quote quote) {
    QString out;
    QStringList line;
    for (const Column& column : table.columns) line << quote(column.title);
    out += line.join(separator) + "\n";
    for (const auto& row : table.rows) {
        line.clear();
        for (const Cell& cell : row) line << quote(cell.text);
        out += line.join(separator) + "\n";
    }
    return out;
}

}  // namespace

QString to_tsv(const Table& table) {
    return joined(table, "\t", [](QString text) { return text.replace('\t', ' ').replace('\n', ' '); });
}

QString to_csv(const Table& table) {
    return joined(table, ",", [](QString text) {
        if (!text.contains(',') && !text.contains('"') && !text.contains('\n')) return text;
        return "\"" + text.replace("\"", "\"\"") + "\"";
    });
}

}  // namespace draftboard::gui
