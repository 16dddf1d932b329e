// SPDX-License-Identifier: Apache-2.0
#include "gui/views/main_window.h"

#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QCloseEvent>
#include <QDir>
#include <QDockWidget>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QLabel>
#include <QMenuBar>
#include <QMessageBox>
#include <QMimeData>
#include <QSettings>
#include <QStatusBar>
#include <QTabWidget>
#include <QUndoView>
#include <QVBoxLayout>

#include <csignal>

#include "gui/models/text.h"
#include "gui/views/answer_panel.h"
#include "gui/views/box_page.h"
#include "gui/views/command_palette.h"
#include "gui/views/curves_page.h"
#include "gui/views/explanation_panel.h"
#include "gui/views/export.h"
#include "gui/views/knob_panel.h"
#include "gui/views/measurement_pages.h"
#include "gui/views/result_pages.h"
#include "gui/views/roofline_page.h"
#include "gui/views/timeline_page.h"
#include "gui/views/waterfall_page.h"
#include "model/import/import_machine.h"

namespace draftboard::gui {

namespace {
constexpr int kRecentFiles = 10;
constexpr int kLayoutVersion = 1;
}  // namespace

MainWindow::MainWindow(const std::string& data_directory, bool keep_settings, QWidget* parent)
    : QMainWindow(parent), session_(data_directory), keep_settings_(keep_settings) {
    setObjectName("window");
    setAcceptDrops(true);
    resize(1280, 800);
    auto* middle = new QWidget(this);
    auto* column = new QVBoxLayout(middle);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    answer_ = new AnswerPanel(session_, middle);
    tabs_ = new QTabWidget(middle);
    tabs_->setObjectName("views");
    tabs_->setDocumentMode(true);
    column->addWidget(answer_);
    column->addWidget(tabs_, 1);
    setCentralWidget(middle);
    add_page(waterfall_ = new WaterfallPage(session_));
    add_page(timeline_ = new TimelinePage(session_));
    add_page(box_ = new BoxPage(session_));
    add_page(curves_ = new CurvesPage(session_));
    add_page(levers_ = new LeversPage(session_));
    add_page(new VariantsPage(session_));
    add_page(new DetailsPage(session_));
    add_page(new RooflinePage(session_));
    add_page(calibration_ = new CalibrationPage(session_));
    add_page(validation_ = new ValidationPage(session_));
    build_docks();
    build_menus();
    speed_ = new QLabel(this);
    statusBar()->addPermanentWidget(speed_);
    connect(tabs_, &QTabWidget::currentChanged, this,
            [this] { below_->setVisible(current_page() != nullptr && current_page()->explains()); });
    connect(waterfall_, &WaterfallPage::chosen, explanation_, &ExplanationPanel::show_term);
    connect(timeline_, &TimelinePage::chosen_operation, explanation_, &ExplanationPanel::show_operation);
    connect(timeline_, &TimelinePage::time_changed, box_, &BoxPage::set_time);
    connect(knobs_, &KnobPanel::sweep_wanted, this, [this](const QString& path) {
        show_view("curves");
        curves_->choose(path, {});
    });
    connect(&session_, &Session::project_changed, this, [this] { update_title(); });
    connect(&session_.history(), &QUndoStack::cleanChanged, this, [this] { update_title(); });
    connect(&session_, &Session::answered, this, [this] {
        if (session_.latencies().empty()) return;
        speed_->setText("answered in " + fixed(session_.latencies().back(), 1) + " ms");
    });
    if (keep_settings_) {
        QSettings settings;
        restoreGeometry(settings.value("geometry").toByteArray());
        restoreState(settings.value("state").toByteArray(), kLayoutVersion);
    }
    fill_recent();
    update_title();
}

MainWindow::~MainWindow() = default;

void MainWindow::add_page(Page* page) {
    pages_.push_back(page);
    tabs_->addTab(page, page->title());
}

void MainWindow::build_docks() {
    auto* left = new QDockWidget("Knobs", this);
    left->setObjectName("dock.knobs");
    knobs_ = new KnobPanel(session_, left);
    left->setWidget(knobs_);
    addDockWidget(Qt::LeftDockWidgetArea, left);
    auto* past = new QDockWidget("History", this);
    past->setObjectName("dock.history");
    auto* list = new QUndoView(&session_.history(), past);
    list->setObjectName("history");
    list->setEmptyLabel("As opened");
    past->setWidget(list);
    addDockWidget(Qt::LeftDockWidgetArea, past);
    tabifyDockWidget(left, past);
    left->raise();
    below_ = new QDockWidget("Explanation", this);
    below_->setObjectName("dock.explanation");
    explanation_ = new ExplanationPanel(session_, below_);
    below_->setWidget(explanation_);
    addDockWidget(Qt::BottomDockWidgetArea, below_);
    setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
    resizeDocks({left}, {340}, Qt::Horizontal);
    resizeDocks({below_}, {190}, Qt::Vertical);
}

void MainWindow::build_menus() {
    QMenu* file = menuBar()->addMenu("&File");
    file->addAction("&Open...", QKeySequence::Open, this, [this] { open_dialog(); });
    recent_ = file->addMenu("Open &recent");
    file->addAction("&Save", QKeySequence::Save, this, [this] { save(); });
    file->addAction("Save &as...", QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_S), this, [this] { save_as(); });
    file->addSeparator();
    file->addAction("Export this &view...", QKeySequence(Qt::CTRL | Qt::Key_E), this, [this] { export_view(); });
    file->addAction("Export this view's &tables...", QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_E), this,
                    [this] { export_table(); });
    file->addAction("Export a &Perfetto trace...", this, [this] { export_trace(); });
    file->addAction("Export a &report...", this, [this] { export_report(); });
    file->addAction("Export the p&lan...", this, [this] { export_plan(); });
    file->addSeparator();
    file->addAction("&Quit", QKeySequence::Quit, this, [this] { close(); });

    QMenu* edit = menuBar()->addMenu("&Edit");
    QAction* undo = session_.history().createUndoAction(this, "&Undo");
    undo->setShortcut(QKeySequence::Undo);
    QAction* redo = session_.history().createRedoAction(this, "&Redo");
    redo->setShortcut(QKeySequence::Redo);
    edit->addAction(undo);
    edit->addAction(redo);
    edit->addSeparator();
    edit->addAction("&Find a knob", QKeySequence::Find, this, [this] { knobs_->focus_search(); });
    edit->addAction("&Copy as command line", QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_C), this, [this] {
        QApplication::clipboard()->setText(qs(command_line(session_.project().shown())));
        tell("Copied: " + qs(command_line(session_.project().shown())));
    });
    edit->addAction("Paste a &topology...", QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_V), this, [this] {
        show_view("box");
        box_->paste();
    });

    QMenu* scenario = menuBar()->addMenu("&Scenario");
    scenario->addAction("&Duplicate", QKeySequence(Qt::CTRL | Qt::Key_D), this, [this] { session_.duplicate_variant(); });
    scenario->addAction("&Pin as baseline", QKeySequence(Qt::CTRL | Qt::Key_B), this,
                        [this] { session_.pin_variant(session_.project().current); });
    scenario->addAction("&Unpin", QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_B), this, [this] { session_.pin_variant(-1); });
    scenario->addAction("&Next", QKeySequence(Qt::CTRL | Qt::Key_PageDown), this,
                        [this] { session_.show_variant(session_.project().current + 1); });
    scenario->addAction("Pre&vious", QKeySequence(Qt::CTRL | Qt::Key_PageUp), this,
                        [this] { session_.show_variant(session_.project().current - 1); });

    QMenu* view = menuBar()->addMenu("&View");
    for (std::size_t i = 0; i < pages_.size(); ++i) {
        Page* page = pages_[i];
        const int digit = static_cast<int>((i + 1) % 10);  // the tenth is 0
        view->addAction(page->title(), QKeySequence(Qt::CTRL | (Qt::Key_0 + digit)), this,
                        [this, page] { show_view(page->id()); });
    }
    view->addSeparator();
    for (QDockWidget* dock : findChildren<QDockWidget*>()) view->addAction(dock->toggleViewAction());
    view->addAction("Reset layout", this, [this] {
        for (QDockWidget* dock : findChildren<QDockWidget*>()) dock->show();
    });
    view->addSeparator();
    auto* themes = new QActionGroup(this);
    const std::pair<const char*, ThemeChoice> choices[] = {{"Light", ThemeChoice::light}, {"Dark", ThemeChoice::dark}};
    for (const auto& [name, choice] : choices) {
        QAction* action = view->addAction(name, this, [this, choice = choice] { set_theme(choice); });
        action->setCheckable(true);
        themes->addAction(action);
    }
    QMenu* help = menuBar()->addMenu("&Help");
    help->addAction("&Commands...", QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_P), this, [this] { show_palette(); });
    help->addAction("&Keys", QKeySequence(Qt::Key_F1), this, [this] { show_keys(); });
    help->addAction("&About", this, [this] {
        QMessageBox::about(
            this, "Draftboard",
            "Draftboard, a drafting board for speculative decoding.\n\nThe desktop is GPL-3, because QCustomPlot is; "
            "the libraries below it are Apache-2.0.");
    });
}

QString MainWindow::open_file(const QString& path) {
    const std::string name = path.toStdString();
    // What describes a machine becomes a change of the shown variant; everything else replaces the project.
    if (QFileInfo(path).isFile()) {
        const auto text = model::read_file(name);
        if (!text) return qs(text.error().to_text());
        if (model::detect_machine_format(*text) != model::MachineFormat::unknown) {
            show_view("box");
            return box_->import_text(qs(*text), QFileInfo(path).fileName());
        }
    }
    // So do calibrations and validations: they are looked at beside it.
    if (QFileInfo(path).isFile() && path.endsWith(".json")) {
        const auto json = model::load_json(name);
        if (json && json->is_object() && json->contains("configurations")) {
            show_view("validation");
            return validation_->open(path);
        }
        if (json && json->is_object() && json->value("format", model::Json()) == model::Json("draftboard.calibration")) {
            show_view("calibration");
            return calibration_->open(path);
        }
    }
    auto project = load_project(name, session_.data_directory());
    if (!project) return qs(project.error().to_text());
    const bool own =
        QFileInfo(path).isFile() && path.endsWith(".json") && project->unknown.is_object() &&
        !(project->variants.size() == 1 && project->variants[0].base == QFileInfo(path).absoluteFilePath().toStdString());
    const QString view = qs(project->view);
    session_.open(std::move(*project), own ? path : QString());
    show_view(view);
    if (own) remember_file(path);
    return {};
}

QStringList MainWindow::view_ids() const {
    QStringList ids;
    for (const Page* page : pages_) ids << page->id();
    return ids;
}

bool MainWindow::show_view(const QString& id) {
    for (Page* page : pages_) {
        if (page->id() != id) continue;
        tabs_->setCurrentWidget(page);
        page->setFocus();
        return true;
    }
    return false;
}

bool MainWindow::show_sweep(const QString& paths) {
    const QStringList axes = paths.split(',', Qt::SkipEmptyParts);
    return axes.size() >= 1 && axes.size() <= 2 && show_view("curves") &&
           curves_->choose(axes[0], axes.size() == 2 ? axes[1] : QString());
}

void MainWindow::show_range(double from_ms, double to_ms) {
    show_view("timeline");
    QApplication::processEvents();  // the page takes its size and its slices
    timeline_->widget().view().show(sim::from_us(1000 * from_ms), sim::from_us(1000 * to_ms));
    timeline_->widget().update();
}

Page* MainWindow::current_page() const { return qobject_cast<Page*>(tabs_->currentWidget()); }

bool MainWindow::busy() const {
    const bool predicting = session_.stale() || (!session_.error() && !session_.details());
    return predicting || (current_page() != nullptr && !session_.error() && current_page()->busy());
}

void MainWindow::set_theme(ThemeChoice choice) {
    apply_theme(*qobject_cast<QApplication*>(QApplication::instance()), choice);
    if (keep_settings_) QSettings().setValue("dark", choice == ThemeChoice::dark);
}

void MainWindow::tell(const QString& message) { statusBar()->showMessage(message, 8000); }

void MainWindow::update_title() {
    const QString name = session_.path().isEmpty() ? qs(session_.project().name) : QFileInfo(session_.path()).fileName();
    setWindowTitle(name + "[*] - " + qs(session_.project().shown().name) + " - Draftboard");
    setWindowModified(!session_.history().isClean());
}

bool MainWindow::save() {
    return session_.path().isEmpty() ? save_as() : [this] {
        const QString failed = session_.save(session_.path());
        tell(failed.isEmpty() ? "Saved " + session_.path() : failed);
        return failed.isEmpty();
    }();
}

bool MainWindow::save_as() {
    QString path = QFileDialog::getSaveFileName(
        this, "Save the project", session_.path().isEmpty() ? qs(session_.project().name) + ".json" : session_.path(),
        "Projects (*.json)");
    if (path.isEmpty()) return false;
    const QString failed = session_.save(path);
    tell(failed.isEmpty() ? "Saved " + path : failed);
    if (failed.isEmpty()) remember_file(path);
    return failed.isEmpty();
}

bool MainWindow::may_leave() {
    if (session_.history().isClean() || !keep_settings_) return true;
    const auto answer = QMessageBox::question(this, "Draftboard", "Save the changes to " + qs(session_.project().name) + "?",
                                              QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel);
    return answer == QMessageBox::Discard || (answer == QMessageBox::Save && save());
}

void MainWindow::open_dialog() {
    const QString path =
        QFileDialog::getOpenFileName(this, "Open", {}, "Projects, scenarios, topologies (*.json *.xml *.txt);;All files (*)");
    if (path.isEmpty() || !may_leave()) return;
    const QString failed = open_file(path);
    if (!failed.isEmpty()) tell(failed);
}

void MainWindow::export_view() {
    Page* page = current_page();
    const QString path =
        QFileDialog::getSaveFileName(this, "Export this view", page->id() + ".png", "Pictures (*.png *.svg *.pdf)");
    if (path.isEmpty()) return;
    const QString failed = export_picture(*page->picture(), path);
    tell(failed.isEmpty() ? "Written: " + path : failed);
}

void MainWindow::export_table() {
    const Page* page = current_page();
    const QString path = QFileDialog::getSaveFileName(this, "Export tables", page->id() + ".csv", "Tables (*.csv *.tsv)");
    if (path.isEmpty()) return;
    const QString failed = export_tables(*page, path);
    tell(failed.isEmpty() ? "Written: " + path : failed);
}

void MainWindow::export_trace() {
    const QString path = QFileDialog::getSaveFileName(this, "Export a trace", "trace.json", "Chrome traces (*.json)");
    if (path.isEmpty()) return;
    Answerer answerer(session_.data_directory());
    if (const auto answer = answerer.answer(session_.project().shown()); !answer) return tell(qs(answer.error().to_text()));
    const QString failed = write_text(path, qs(answerer.trace()));
    tell(failed.isEmpty() ? "Written: " + path + "; open it in ui.perfetto.dev" : failed);
}

void MainWindow::export_report() {
    const QString path = QFileDialog::getSaveFileName(this, "Export a report", "report.html", "Web pages (*.html)");
    if (path.isEmpty()) return;
    const QString failed = write_text(path, html_report(session_, *waterfall_->picture()));
    tell(failed.isEmpty() ? "Written: " + path : failed);
}

void MainWindow::export_plan() {
    show_view("levers");
    const QString path = QFileDialog::getSaveFileName(this, "Export the plan", "plan.md", "Markdown (*.md)");
    if (path.isEmpty()) return;
    while (levers_->busy()) QApplication::processEvents(QEventLoop::WaitForMoreEvents);
    const QString failed = write_text(path, levers_->markdown());
    tell(failed.isEmpty() ? "Written: " + path : failed);
}

void MainWindow::show_palette() {
    std::vector<PaletteEntry> entries;
    const std::function<void(QMenu*)> collect = [&](QMenu* menu) {
        for (QAction* action : menu->actions()) {
            if (action->isSeparator() || !action->isEnabled()) continue;
            if (action->menu() != nullptr) {
                collect(action->menu());
                continue;
            }
            QString text = action->text();
            entries.push_back({text.remove('&'), action->shortcut().toString(), [action] { action->trigger(); }});
        }
    };
    for (QAction* menu : menuBar()->actions()) collect(menu->menu());
    for (const Knob& knob : session_.knobs()) {
        const QString path = qs(knob.path);
        entries.push_back({"Turn: " + qs(knob.label), qs(knob.group), [this, path] { knobs_->reveal(path); }});
        entries.push_back({"Sweep: " + qs(knob.label), path, [this, path] {
                               show_view("curves");
                               curves_->choose(path, {});
                           }});
    }
    for (std::size_t i = 0; i < session_.project().variants.size(); ++i) {
        entries.push_back({"Show: " + qs(session_.project().variants[i].name), "scenario",
                           [this, i] { session_.show_variant(static_cast<int>(i)); }});
    }
    CommandPalette palette(std::move(entries), this);
    palette.exec();
}

void MainWindow::show_keys() {
    QString text = "<table cellpadding='3'>";
    for (QAction* action : findChildren<QAction*>()) {
        if (action->shortcut().isEmpty() || action->text().isEmpty()) continue;
        QString name = action->text();
        text += "<tr><td><b>" + action->shortcut().toString().toHtmlEscaped() + "</b></td><td>" +
                name.remove('&').toHtmlEscaped() + "</td></tr>";
    }
    const std::pair<const char*, const char*> more[] = {
        {"W, S", "timeline: closer, farther"},
        {"A, D", "timeline: earlier, later"},
        {"F, 0", "timeline: the measured stretch, the whole cycle"},
        {"arrows", "timeline: next slice or row; waterfall: next bar; box: next node or link; acceptance: choose and move"}};
    for (const auto& [key, what] : more) text += QString("<tr><td><b>") + key + "</b></td><td>" + what + "</td></tr>";
    QMessageBox box(QMessageBox::NoIcon, "Keys", text + "</table>", QMessageBox::Ok, this);
    box.exec();
}

void MainWindow::remember_file(const QString& path) {
    if (!keep_settings_) return;
    QSettings settings;
    QStringList files = settings.value("recent").toStringList();
    const QString absolute = QFileInfo(path).absoluteFilePath();
    files.removeAll(absolute);
    files.prepend(absolute);
    while (files.size() > kRecentFiles) files.removeLast();
    settings.setValue("recent", files);
    fill_recent();
}

void MainWindow::fill_recent() {
    recent_->clear();
    if (keep_settings_) {
        for (const QString& path : QSettings().value("recent").toStringList()) {
            recent_->addAction(path, this, [this, path] {
                if (!may_leave()) return;
                if (const QString failed = open_file(path); !failed.isEmpty()) tell(failed);
            });
        }
    }
    for (const char* sample : {"founding-case"}) {
        recent_->addAction(QString("Sample: ") + sample, this, [this, sample] {
            if (!may_leave()) return;
            if (const QString failed = open_file(sample); !failed.isEmpty()) tell(failed);
        });
    }
}

void MainWindow::offer_recovery(const QString& directory) {
    QDir().mkpath(directory);
    for (const QFileInfo& left : QDir(directory).entryInfoList({"*.json"}, QDir::Files, QDir::Time)) {
        const auto pid = static_cast<pid_t>(left.completeBaseName().toLongLong());
        if (pid <= 0 || pid == static_cast<pid_t>(QApplication::applicationPid())) continue;
        if (::kill(pid, 0) == 0) continue;  // its window still runs
        auto project = load_project(left.filePath().toStdString(), session_.data_directory());
        if (project) {
            QMessageBox box(QMessageBox::Question, "Draftboard",
                            "A window ended without saving " + qs(project->name) + ". Take its work back?",
                            QMessageBox::Yes | QMessageBox::No, this);
            box.setObjectName("recovery");
            if (box.exec() == QMessageBox::Yes) {
                const QString path = qs(project->unknown.value("recovered_from", std::string()));
                project->unknown.erase("recovered_from");
                const Project recovered = *project;
                session_.open(std::move(*project), path);
                session_.history().resetClean();
                show_view(qs(recovered.view));
            }
        }
        QFile::remove(left.filePath());
        if (project) break;
    }
    session_.set_recovery_file(directory + "/" + QString::number(QApplication::applicationPid()) + ".json");
}

void MainWindow::closeEvent(QCloseEvent* event) {
    if (!may_leave()) return event->ignore();
    if (keep_settings_) {
        QSettings settings;
        settings.setValue("geometry", saveGeometry());
        settings.setValue("state", saveState(kLayoutVersion));
    }
    session_.set_recovery_file({});
    event->accept();
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
    if (event->mimeData()->hasUrls()) event->acceptProposedAction();
}

void MainWindow::dropEvent(QDropEvent* event) {
    for (const QUrl& url : event->mimeData()->urls()) {
        if (!may_leave()) return;
        if (const QString failed = open_file(url.toLocalFile()); !failed.isEmpty()) tell(failed);
    }
}

}  // namespace draftboard::gui
