// SPDX-License-Identifier: Apache-2.0
#include "gui/views/command_palette.h"

#include <QKeyEvent>
#include <QLineEdit>
#include <QListWidget>
#include <QVBoxLayout>
#include <algorithm>

namespace draftboard::gui {

bool words_match(const QString& text, const QString& wanted) {
    const QStringList words = wanted.split(' ', Qt::SkipEmptyParts);
    return std::all_of(words.begin(), words.end(), [&](const QString& word) { return text.contains(word, Qt::CaseInsensitive); });
}

CommandPalette::CommandPalette(std::vector<PaletteEntry> entries, QWidget* parent)
    : QDialog(parent), entries_(std::move(entries)) {
    setObjectName("palette");
    setWindowTitle("Commands");
    resize(560, 420);
    auto* all = new QVBoxLayout(this);
    search_ = new QLineEdit(this);
    search_->setObjectName("palette.search");
    search_->setPlaceholderText("Type what you want to do");
    search_->setAccessibleName("Command");
    list_ = new QListWidget(this);
    list_->setObjectName("palette.list");
    list_->setAccessibleName("Commands");
    all->addWidget(search_);
    all->addWidget(list_, 1);
    search_->installEventFilter(this);
    connect(search_, &QLineEdit::textChanged, this, [this](const QString& text) { filter(text); });
    connect(search_, &QLineEdit::returnPressed, this, [this] { run(); });
    connect(list_, &QListWidget::itemActivated, this, [this] { run(); });
    filter({});
    search_->setFocus();
}

void CommandPalette::filter(const QString& text) {
    list_->clear();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const PaletteEntry& entry = entries_[i];
        if (!words_match(entry.text + " " + entry.hint, text)) continue;
        auto* item = new QListWidgetItem(entry.text + (entry.hint.isEmpty() ? "" : "    " + entry.hint), list_);
        item->setData(Qt::UserRole, static_cast<int>(i));
    }
    list_->setCurrentRow(0);
}

bool CommandPalette::eventFilter(QObject* watched, QEvent* event) {
    if (watched == search_ && event->type() == QEvent::KeyPress) {
        const int key = static_cast<QKeyEvent*>(event)->key();
        const int step = key == Qt::Key_Down ? 1 : key == Qt::Key_Up ? -1 : 0;
        if (step != 0) {
            list_->setCurrentRow(std::clamp(list_->currentRow() + step, 0, list_->count() - 1));
            return true;
        }
    }
    return QDialog::eventFilter(watched, event);
}

void CommandPalette::run() {
    const QListWidgetItem* item = list_->currentItem();
    if (item == nullptr) return;
    const auto act = entries_[static_cast<std::size_t>(item->data(Qt::UserRole).toInt())].act;
    accept();
    act();
}

}  // namespace draftboard::gui
