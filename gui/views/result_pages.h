// SPDX-License-Identifier: Apache-2.0
#pragma once
// Three pages that are tables first: what one change would bring (levers, as a tornado), the project's variants side by
// side with their time as stacked bars, and the memory of the fullest GPU with operations and constants below.

#include <QTimer>
#include <optional>

#include "gui/core/levers.h"
#include "gui/models/table_model.h"
#include "gui/views/page.h"

class QLabel;
class QPlainTextEdit;
class QProgressBar;
class QPushButton;

namespace draftboard::gui {

class LeversPage : public Page {
    Q_OBJECT
 public:
    explicit LeversPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] std::vector<Table> tables() const override { return {model_.table()}; }
    [[nodiscard]] bool busy() const override { return task_.running() || soon_.isActive() || !base_; }
    /// The ranking as Markdown; empty before the first result.
    [[nodiscard]] QString markdown() const;
    [[nodiscard]] const std::vector<LeverResult>& results() const { return results_; }

 protected:
    void refresh() override;

 private:
    void start();
    void adopt();

    QTimer soon_;  ///< begins when the knobs rest
    BackgroundTask task_;
    TableModel model_;
    std::vector<LeverResult> results_;
    AnswerPointer base_;  ///< what the results are about
    QTableView* view_ = nullptr;
    QLabel* text_ = nullptr;
    QProgressBar* progress_ = nullptr;
    QPushButton* adopt_ = nullptr;
};

/// Bars of each variant's cycle, a colour a term, all on one scale.
class StackedBars : public QWidget {
    Q_OBJECT
 public:
    explicit StackedBars(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QSize minimumSizeHint() const override;
    [[nodiscard]] QSize sizeHint() const override { return minimumSizeHint(); }

 protected:
    void paintEvent(QPaintEvent* event) override;

 private:
    Session& session_;
};

class VariantsPage : public Page {
    Q_OBJECT
 public:
    explicit VariantsPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] std::vector<Table> tables() const override { return {model_.table(), differences_.table()}; }

 protected:
    void refresh() override;

 private:
    [[nodiscard]] int chosen() const;
    void rename();
    void remove();

    TableModel model_;
    TableModel differences_;
    QTableView* view_ = nullptr;
    StackedBars* bars_ = nullptr;
    QPlainTextEdit* notes_ = nullptr;
};

/// The memory of the fullest GPU as one bar, part after part, against what the engine may fill.
class MemoryBar : public QWidget {
    Q_OBJECT
 public:
    explicit MemoryBar(QWidget* parent = nullptr);
    void show_memory(const model::MemoryFit& memory);
    [[nodiscard]] QSize minimumSizeHint() const override { return {300, fontMetrics().height() * 4}; }
    [[nodiscard]] QSize sizeHint() const override { return minimumSizeHint(); }

 protected:
    void paintEvent(QPaintEvent* event) override;

 private:
    model::MemoryFit memory_;
};

class DetailsPage : public Page {
    Q_OBJECT
 public:
    explicit DetailsPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] std::vector<Table> tables() const override {
        return {memory_.table(), operations_.table(), constants_.table()};
    }
    [[nodiscard]] bool busy() const override { return session_.details() == nullptr; }

 protected:
    void refresh() override;

 private:
    MemoryBar* bar_ = nullptr;
    TableModel memory_;
    TableModel operations_;
    TableModel constants_;
    QLabel* verdict_ = nullptr;
};

}  // namespace draftboard::gui
