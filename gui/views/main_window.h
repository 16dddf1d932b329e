// SPDX-License-Identifier: Apache-2.0
#pragma once
// The window: knobs at the left, the answer on top, views as tabs below it, the explanation at the bottom, history beside the
// knobs. It owns the menus and files; what a view shows is the view's business.

#include <QMainWindow>
#include <vector>

#include "gui/models/session.h"
#include "gui/views/theme.h"

class QDockWidget;
class QLabel;
class QTabWidget;

namespace draftboard::gui {

class AnswerPanel;
class BoxPage;
class CalibrationPage;
class CurvesPage;
class ExplanationPanel;
class KnobPanel;
class LeversPage;
class Page;
class TimelinePage;
class ValidationPage;
class WaterfallPage;

class MainWindow : public QMainWindow {
    Q_OBJECT
 public:
    /// `keep_settings` false: neither reads nor writes what the user's other windows remember (tests, screenshots).
    MainWindow(const std::string& data_directory, bool keep_settings, QWidget* parent = nullptr);
    ~MainWindow() override;

    [[nodiscard]] Session& session() { return session_; }
    [[nodiscard]] AnswerPanel& answer_panel() { return *answer_; }
    /// A project, a scenario, a calibration, a validation, or what describes a machine. Empty: opened, else why not.
    QString open_file(const QString& path);
    /// Ids of views: "waterfall", "timeline", "box", "curves", ...
    [[nodiscard]] QStringList view_ids() const;
    bool show_view(const QString& id);
    /// The curves view over "PATH" or "PATH,PATH"; false: no such knob.
    bool show_sweep(const QString& paths);
    /// The timeline between two times of the cycle, in milliseconds.
    void show_range(double from_ms, double to_ms);
    [[nodiscard]] Page* current_page() const;
    /// True while an answer or the shown view is still being computed.
    [[nodiscard]] bool busy() const;
    void set_theme(ThemeChoice choice);
    /// Whether unsaved work of a window that ended without closing lies here; offers it.
    void offer_recovery(const QString& directory);

 protected:
    void closeEvent(QCloseEvent* event) override;
    void dragEnterEvent(QDragEnterEvent* event) override;
    void dropEvent(QDropEvent* event) override;

 private:
    void build_menus();
    void build_docks();
    void add_page(Page* page);
    bool save();
    bool save_as();
    bool may_leave();
    void open_dialog();
    void export_view();
    void export_table();
    void export_trace();
    void export_report();
    void export_plan();
    void show_palette();
    void show_keys();
    void remember_file(const QString& path);
    void fill_recent();
    void update_title();
    void tell(const QString& message);

    Session session_;
    bool keep_settings_ = false;
    QTabWidget* tabs_ = nullptr;
    QDockWidget* below_ = nullptr;  ///< the explanation
    AnswerPanel* answer_ = nullptr;
    KnobPanel* knobs_ = nullptr;
    ExplanationPanel* explanation_ = nullptr;
    WaterfallPage* waterfall_ = nullptr;
    TimelinePage* timeline_ = nullptr;
    BoxPage* box_ = nullptr;
    CurvesPage* curves_ = nullptr;
    LeversPage* levers_ = nullptr;
    CalibrationPage* calibration_ = nullptr;
    ValidationPage* validation_ = nullptr;
    std::vector<Page*> pages_;
    QMenu* recent_ = nullptr;
    QLabel* speed_ = nullptr;
};

}  // namespace draftboard::gui
