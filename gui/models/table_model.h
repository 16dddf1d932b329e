// SPDX-License-Identifier: Apache-2.0
#pragma once
// One item model for every table of the desktop: titled columns, rows of cells, each cell with its text, what it sorts by and a
// tooltip. tables.h fills it from answers; views sort and filter it through a proxy. Copying and exporting are here, because
// every table can be copied as TSV and written as CSV.

#include <QAbstractTableModel>
#include <QColor>
#include <QString>
#include <QVariant>
#include <vector>

namespace draftboard::gui {

struct Cell {
    QString text;
    QVariant sort;  ///< invalid: the text
    QString tip;
    bool muted = false;
    double bar = 0;  ///< -1..1: a bar drawn in the cell; 0: none
};

struct Column {
    QString title;
    QString tip;  ///< definition and unit
    bool right = false;
};

struct Table {
    QString name;
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows;
};

class TableModel : public QAbstractTableModel {
    Q_OBJECT
 public:
    static constexpr int kSortRole = Qt::UserRole;
    static constexpr int kBarRole = Qt::UserRole + 1;
    static constexpr int kMutedRole = Qt::UserRole + 2;

    using QAbstractTableModel::QAbstractTableModel;

    /// Replaces everything; a table of the same shape only changes its cells, so selections stay.
    void set(Table table);
    [[nodiscard]] const Table& table() const { return table_; }

    [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
    [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
    [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
    [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
    Table table_;
};

/// Tabs between cells, a line a row, titles first: what spreadsheets paste.
[[nodiscard]] QString to_tsv(const Table& table);
/// RFC 4180: quotes where a cell needs them.
[[nodiscard]] QString to_csv(const Table& table);

}  // namespace draftboard::gui
