// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything by its name: actions of the menus, views and knobs in one list that narrows while one types. Enter does it.

#include <QDialog>
#include <functional>
#include <vector>

class QLineEdit;
class QListWidget;

namespace draftboard::gui {

struct PaletteEntry {
    QString text;
    QString hint;  ///< a key or a group
    std::function<void()> act;
};

class CommandPalette : public QDialog {
    Q_OBJECT
 public:
    CommandPalette(std::vector<PaletteEntry> entries, QWidget* parent);

 protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

 private:
    void filter(const QString& text);
    void run();

    std::vector<PaletteEntry> entries_;
    QLineEdit* search_ = nullptr;
    QListWidget* list_ = nullptr;
};

/// Whether all words of `wanted` occur in `text`, in any order.
[[nodiscard]] bool words_match(const QString& text, const QString& wanted);

}  // namespace draftboard::gui
