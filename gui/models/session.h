// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the window is about: a project, the undo history of it, and the answers to its variants. Views read from here and listen;
// every change goes through edit() or change() and can be taken back. Predictions run on a worker; until one arrives the
// last answer stays, marked stale. No widget here, so tests drive it without a window.

#include <QElapsedTimer>
#include <QObject>
#include <QString>
#include <QTimer>
#include <QUndoStack>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gui/core/knob.h"
#include "gui/core/prediction_worker.h"
#include "gui/core/project.h"
#include "gui/models/background_task.h"

namespace draftboard::gui {

/// A variant of the project with its answer or its error.
struct Compared {
    AnswerPointer answer;  ///< null: not answered (yet)
    QString error;
};

class Session : public QObject {
    Q_OBJECT
 public:
    explicit Session(std::string data_directory, QObject* parent = nullptr);
    ~Session() override;

    [[nodiscard]] const std::string& data_directory() const { return data_directory_; }
    [[nodiscard]] const std::vector<Knob>& knobs() const { return knobs_; }
    [[nodiscard]] const Project& project() const { return project_; }
    [[nodiscard]] QUndoStack& history() { return history_; }

    /// Replaces everything and forgets the history. `path` empty: not saved anywhere yet.
    void open(Project project, const QString& path);
    [[nodiscard]] const QString& path() const { return path_; }
    /// Writes the project in one step; empty: done, else why not.
    [[nodiscard]] QString save(const QString& path);

    /// Changes the shown variant. Calls with the same non-empty `gesture` in a row are one step of the history.
    void edit(const QString& what, const std::vector<Edit>& edits, const QString& gesture = {});
    void reset(const QString& what, const std::string& path);
    /// Any other change of the project.
    void change(const QString& what, Project next, const QString& gesture = {});
    void set_knob(const Knob& knob, const model::Json& value, const QString& gesture = {});
    void show_variant(int index);
    void duplicate_variant();
    void pin_variant(int index);  ///< -1: unpins

    /// The newest answer, of the shown variant unless stale(). Null before the first.
    [[nodiscard]] AnswerPointer answer() const { return answer_; }
    [[nodiscard]] std::shared_ptr<const Details> details() const { return details_; }
    [[nodiscard]] bool stale() const { return asked_ != answered_; }
    /// Why the shown variant has no answer; nullopt: it has one, or is being asked.
    [[nodiscard]] const std::optional<model::Error>& error() const { return error_; }
    /// The pinned variant's answer; null: nothing is pinned, or not answered yet.
    [[nodiscard]] AnswerPointer baseline() const;
    [[nodiscard]] Compared compared(const Variant& variant) const;
    /// Milliseconds from a change to its answer on the window's thread, newest last; bounded.
    [[nodiscard]] const std::vector<double>& latencies() const { return latencies_; }

    /// Where unsaved work is kept against a crash; empty: nowhere. Written a second after a change, removed by a save.
    void set_recovery_file(const QString& file);
    void write_recovery() const;

 signals:
    void asked();     ///< the shown answer is stale from here on
    void answered();  ///< a new answer, or a new error
    void detailed();
    void comparison_changed();
    void project_changed();

 private:
    void put(const Project& project);  ///< what undo and redo call
    void ask();
    void compare();
    void receive(std::uint64_t number, const model::Expected<AnswerPointer>& answer);
    friend class ProjectCommand;

    std::string data_directory_;
    std::vector<Knob> knobs_;
    Project project_;
    QString path_;
    QString recovery_file_;
    QTimer recovery_timer_;
    QUndoStack history_;
    AnswerPointer answer_;
    std::shared_ptr<const Details> details_;
    std::optional<model::Error> error_;
    std::uint64_t asked_ = 0;
    std::uint64_t answered_ = 0;
    QElapsedTimer since_asked_;
    std::vector<double> latencies_;
    std::map<std::string, Compared> answers_;  ///< by the variant's command line
    BackgroundTask comparison_;
    std::unique_ptr<PredictionWorker> worker_;  // last: it is gone before what it writes to
};

}  // namespace draftboard::gui
