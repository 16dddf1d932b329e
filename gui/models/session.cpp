// SPDX-License-Identifier: Apache-2.0
#include "gui/models/session.h"

#include <QFile>
#include <QSaveFile>
#include <QUndoCommand>
#include <utility>

#include "gui/models/text.h"

namespace draftboard::gui {

namespace {
constexpr std::size_t kMaxLatencies = 10000;
constexpr std::size_t kMaxKeptAnswers = 200;
constexpr int kRecoveryDelayMs = 1000;
}  // namespace

/// A project before and after; projects are small, so whole copies are simpler than differences and can't drift.
class ProjectCommand : public QUndoCommand {
 public:
    ProjectCommand(Session& session, const QString& what, Project next, QString gesture)
        : QUndoCommand(what),
          session_(session),
          before_(session.project_),
          after_(std::move(next)),
          gesture_(std::move(gesture)) {}

    void undo() override { session_.put(before_); }
    void redo() override { session_.put(after_); }
    [[nodiscard]] int id() const override { return gesture_.isEmpty() ? -1 : 1; }
    bool mergeWith(const QUndoCommand* other) override {
        const auto* later = static_cast<const ProjectCommand*>(other);
        if (later->gesture_ != gesture_) return false;
        after_ = later->after_;
        setText(later->text());
        return true;
    }

 private:
    Session& session_;
    Project before_;
    Project after_;
    QString gesture_;
};

Session::Session(std::string data_directory, QObject* parent)
    : QObject(parent), data_directory_(std::move(data_directory)), knobs_(knob_table(data_directory_)) {
    project_ = project_of("kimi-k2.5-eagle3-founding");
    recovery_timer_.setSingleShot(true);
    recovery_timer_.setInterval(kRecoveryDelayMs);
    connect(&recovery_timer_, &QTimer::timeout, this, [this] { write_recovery(); });
    PredictionWorker::Receiver receiver;
    receiver.answered = [this](std::uint64_t number, model::Expected<AnswerPointer> answer) {
        QMetaObject::invokeMethod(
            this, [this, number, answer = std::move(answer)] { receive(number, answer); }, Qt::QueuedConnection);
    };
    receiver.detailed = [this](std::uint64_t number, std::shared_ptr<const Details> details) {
        QMetaObject::invokeMethod(
            this,
            [this, number, details = std::move(details)] {
                if (number != asked_) return;
                details_ = details;
                emit detailed();
            },
            Qt::QueuedConnection);
    };
    worker_ = std::make_unique<PredictionWorker>(data_directory_, std::move(receiver));
}

Session::~Session() { worker_.reset(); }

void Session::open(Project project, const QString& path) {
    path_ = path;
    history_.clear();
    details_.reset();
    put(project);
    history_.setClean();
}

QString Session::save(const QString& path) {
    QSaveFile file(path);
    const std::string text = to_text(project_);
    const bool written = file.open(QIODevice::WriteOnly) &&
                         file.write(text.data(), static_cast<qint64>(text.size())) == static_cast<qint64>(text.size()) &&
                         file.commit();
    if (!written) return path + ": " + file.errorString();
    path_ = path;
    history_.setClean();
    recovery_timer_.stop();
    if (!recovery_file_.isEmpty()) QFile::remove(recovery_file_);
    emit project_changed();
    return {};
}

void Session::set_recovery_file(const QString& file) { recovery_file_ = file; }

void Session::write_recovery() const {
    if (recovery_file_.isEmpty() || history_.isClean()) return;
    Project copy = project_;
    copy.unknown["recovered_from"] = path_.toStdString();
    const std::string text = to_text(copy);
    QSaveFile file(recovery_file_);
    if (file.open(QIODevice::WriteOnly) && file.write(text.data(), static_cast<qint64>(text.size())) > 0) file.commit();
}

void Session::change(const QString& what, Project next, const QString& gesture) {
    if (next == project_) return;
    history_.push(new ProjectCommand(*this, what, std::move(next), gesture));
}

void Session::edit(const QString& what, const std::vector<Edit>& edits, const QString& gesture) {
    Project next = project_;
    Variant& variant = next.variants[static_cast<std::size_t>(next.current)];
    for (const Edit& edit : edits) {
        if (edit.path == "machine") variant.reset("machine");
        variant.set(edit.path, edit.value);
    }
    // What is back at the base's own value is no difference any more.
    if (const auto document = variant_document(Variant{variant.name, variant.base, {}, ""}, data_directory_)) {
        std::erase_if(variant.edits, [&](const Edit& edit) { return value_at(document->base, edit.path) == edit.value; });
    }
    change(what, std::move(next), gesture);
}

void Session::reset(const QString& what, const std::string& path) {
    Project next = project_;
    next.variants[static_cast<std::size_t>(next.current)].reset(path);
    change(what, std::move(next));
}

void Session::set_knob(const Knob& knob, const model::Json& value, const QString& gesture) {
    if (!answer_) return;
    const auto edits = knob_edits(knob, value, *answer_);
    if (!edits) {
        error_ = edits.error();
        emit answered();
        return;
    }
    edit(qs(knob.label) + ": " + (value.is_string() ? qs(value.get<std::string>()) : qs(value.dump())), *edits, gesture);
}

void Session::show_variant(int index) {
    if (index < 0 || index >= static_cast<int>(project_.variants.size()) || index == project_.current) return;
    Project next = project_;
    next.current = index;
    const QString what = "Show " + qs(next.shown().name);
    change(what, std::move(next));
}

void Session::duplicate_variant() {
    Project next = project_;
    Variant copy = next.shown();
    copy.name = next.free_name(copy.name);
    next.current = static_cast<int>(next.variants.size());
    next.variants.push_back(std::move(copy));
    change("Duplicate " + qs(project_.shown().name), std::move(next));
}

void Session::pin_variant(int index) {
    Project next = project_;
    next.baseline = index;
    const QString what =
        index < 0 ? QString("Unpin the baseline") : "Pin " + qs(next.variants[static_cast<std::size_t>(index)].name);
    change(what, std::move(next));
}

void Session::put(const Project& project) {
    project_ = project;
    ask();
    compare();
    if (!recovery_file_.isEmpty()) recovery_timer_.start();
    emit project_changed();
}

void Session::ask() {
    since_asked_.start();
    asked_ = worker_->ask(project_.shown());
    emit asked();
}

void Session::receive(std::uint64_t number, const model::Expected<AnswerPointer>& answer) {
    if (number != asked_) return;  // a newer question waits; what is shown stays, and stays marked
    answered_ = number;
    const std::string key = command_line(project_.shown());
    if (answer) {
        answer_ = *answer;
        error_.reset();
        answers_[key] = {answer_, {}};
    } else {
        error_ = answer.error();
        answers_[key] = {nullptr, qs(error_->to_text())};
    }
    if (latencies_.size() < kMaxLatencies) latencies_.push_back(static_cast<double>(since_asked_.nsecsElapsed()) * 1e-6);
    emit answered();
    emit comparison_changed();
}

// Answers every variant that has none yet; the shown one is the worker's.
void Session::compare() {
    if (answers_.size() > kMaxKeptAnswers) answers_.clear();
    std::vector<Variant> open;
    for (std::size_t i = 0; i < project_.variants.size(); ++i) {
        if (static_cast<int>(i) == project_.current || answers_.contains(command_line(project_.variants[i]))) continue;
        open.push_back(project_.variants[i]);
    }
    if (open.empty()) return;
    comparison_.start([this, open, data = data_directory_](const std::stop_token& stop, const BackgroundTask::Progress&) {
        Answerer answerer(data);
        std::map<std::string, Compared> fresh;
        for (const Variant& variant : open) {
            if (stop.stop_requested()) break;
            auto answer = answerer.answer(variant);
            fresh[command_line(variant)] = answer ? Compared{*answer, {}} : Compared{nullptr, qs(answer.error().to_text())};
        }
        return [this, fresh = std::move(fresh)] {
            for (const auto& item : fresh) answers_[item.first] = item.second;
            emit comparison_changed();
        };
    });
}

AnswerPointer Session::baseline() const {
    const Variant* pinned = project_.pinned();
    return pinned == nullptr ? nullptr : compared(*pinned).answer;
}

Compared Session::compared(const Variant& variant) const {
    const auto at = answers_.find(command_line(variant));
    return at == answers_.end() ? Compared{} : at->second;
}

}  // namespace draftboard::gui
