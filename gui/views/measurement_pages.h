// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measurements behind predictions: the calibration's kernels with how well each is fitted, worst first, and validations of whole
// runs as a parity plot. Both can be made for this machine's CPU from here, with progress, and cancelled.

#include <optional>

#include "calibration/calibration.h"
#include "gui/core/validation_file.h"
#include "gui/models/table_model.h"
#include "gui/views/page.h"

class QComboBox;
class QCustomPlot;
class QLabel;
class QProgressBar;
class QPushButton;

namespace draftboard::gui {

/// A button that starts something long, a bar that shows how far it is, and one that cancels it.
class TaskBar : public QWidget {
    Q_OBJECT
 public:
    TaskBar(BackgroundTask& task, const QString& name, const QString& start, const QString& tip, QWidget* parent);

 signals:
    void started();

 private:
    QPushButton* start_ = nullptr;
    QPushButton* cancel_ = nullptr;
    QProgressBar* progress_ = nullptr;
    QLabel* what_ = nullptr;
};

class CalibrationPage : public Page {
    Q_OBJECT
 public:
    explicit CalibrationPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QWidget* picture() override;
    [[nodiscard]] std::vector<Table> tables() const override { return {model_.table()}; }
    /// A calibration file, or a shipped one. Empty: shown, else why not.
    QString open(const QString& name);

 protected:
    void refresh() override;

 private:
    void show_entry(int row);
    void measure();
    void draw(const calibration::TableFit* fit, const sim::KernelConstants* constants);
    void draw_summary(const calibration::TableFit& fit);

    BackgroundTask task_;
    std::optional<calibration::Calibration> calibration_;
    QString opened_;  ///< by hand, instead of the scenario's
    QString shown_;
    TableModel model_;
    QTableView* view_ = nullptr;
    QCustomPlot* plot_ = nullptr;
    QLabel* title_ = nullptr;
    QLabel* text_ = nullptr;
};

class ValidationPage : public Page {
    Q_OBJECT
 public:
    explicit ValidationPage(Session& session, QWidget* parent = nullptr);
    [[nodiscard]] QWidget* picture() override;
    [[nodiscard]] std::vector<Table> tables() const override {
        return file_ ? std::vector<Table>{configurations_.table(), operations_.table()} : std::vector<Table>();
    }
    /// What `validate --json` wrote. Empty: shown, else why not.
    QString open(const QString& path);
    [[nodiscard]] const std::optional<ValidationFile>& shown() const { return file_; }

 protected:
    void refresh() override;

 private:
    QString show_text(const std::string& text, const QString& source);
    void draw();
    void measure();

    BackgroundTask task_;
    std::optional<ValidationFile> file_;
    TableModel configurations_;
    TableModel operations_;
    QCustomPlot* plot_ = nullptr;
    QLabel* text_ = nullptr;
    QComboBox* suite_ = nullptr;
    QString calibration_;
};

}  // namespace draftboard::gui
