// SPDX-License-Identifier: Apache-2.0
// Session and tables without a window: what is undone, what is stale, what is answered, and that every model keeps Qt's rules.
#include <gtest/gtest.h>

#include <QAbstractItemModelTester>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QTest>

#include "gui/models/session.h"
#include "gui/models/tables.h"
#include "gui/models/text.h"

namespace draftboard::gui {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";

class SessionTest : public ::testing::Test {
 protected:
    SessionTest() : session(kData) { session.open(load_project("founding-case", kData).value(), {}); }
    void settle() {
        ASSERT_TRUE(QTest::qWaitFor([this] { return !session.stale() && session.details() != nullptr; }, 10000));
    }
    const Knob& knob(const char* path) { return *find_knob(session.knobs(), path); }
    Session session;
};

TEST_F(SessionTest, AChangeIsStaleAtOnceAndAnsweredSoon) {
    settle();
    const double before = session.answer()->prediction.tokens_per_second.value;
    session.set_knob(knob("engine.launch.verify"), "graph");
    EXPECT_TRUE(session.stale());
    EXPECT_EQ(session.answer()->prediction.tokens_per_second.value, before);  // the old answer stays meanwhile
    settle();
    EXPECT_GT(session.answer()->prediction.tokens_per_second.value, before);
}

TEST_F(SessionTest, UndoAndRedoWalkThroughAllChanges) {
    settle();
    const Project start = session.project();
    session.set_knob(knob("speculation.steps"), 5);
    settle();
    session.set_knob(knob("workload.concurrency"), 4);
    session.duplicate_variant();
    const Project end = session.project();
    EXPECT_EQ(session.history().count(), 3);
    for (int i = 0; i < 3; ++i) session.history().undo();
    EXPECT_EQ(session.project(), start);
    EXPECT_TRUE(session.history().isClean());
    for (int i = 0; i < 3; ++i) session.history().redo();
    EXPECT_EQ(session.project(), end);
}

TEST_F(SessionTest, OneDragIsOneStepOfTheHistory) {
    settle();
    for (int context = 2000; context < 9000; context += 1000)
        session.set_knob(knob("workload.context_tokens"), context, "drag 1");
    EXPECT_EQ(session.history().count(), 1);
    session.set_knob(knob("workload.context_tokens"), 4096, "drag 2");
    EXPECT_EQ(session.history().count(), 2);
    session.history().undo();
    EXPECT_EQ(value_at(variant_document(session.project().shown(), kData)->document, "workload.context_tokens"), 8000);
}

TEST_F(SessionTest, AKnobTurnedBackIsNoDifferenceAnyMore) {
    settle();
    session.set_knob(knob("speculation.steps"), 5);
    settle();
    EXPECT_EQ(session.project().shown().edits.size(), 1u);
    session.set_knob(knob("speculation.steps"), 3);
    EXPECT_TRUE(session.project().shown().edits.empty());
}

TEST_F(SessionTest, WhatCanNotBeAnsweredIsAnErrorAndTheOldAnswerStays) {
    settle();
    session.set_knob(knob("layout.tensor"), 16);
    ASSERT_TRUE(QTest::qWaitFor([this] { return !session.stale(); }, 10000));
    ASSERT_TRUE(session.error());
    EXPECT_FALSE(session.error()->message.empty());
    EXPECT_NE(session.answer(), nullptr);
    session.history().undo();
    settle();
    EXPECT_FALSE(session.error());
}

TEST_F(SessionTest, AllVariantsAreAnsweredAndTheBaselineToo) {
    ASSERT_TRUE(QTest::qWaitFor(
        [this] {
            for (const Variant& variant : session.project().variants) {
                if (!session.compared(variant).answer) return false;
            }
            return true;
        },
        20000));
    ASSERT_TRUE(session.baseline());
    session.show_variant(1);
    settle();
    EXPECT_GT(session.answer()->prediction.tokens_per_second.value, session.baseline()->prediction.tokens_per_second.value);
}

TEST_F(SessionTest, SavedAndOpenedAgainIsTheSameProject) {
    settle();
    session.set_knob(knob("speculation.steps"), 4);
    QTemporaryDir folder;
    const QString path = folder.filePath("project.json");
    EXPECT_TRUE(session.save(path).isEmpty());
    EXPECT_TRUE(session.history().isClean());
    Session other(kData);
    other.open(load_project(path.toStdString(), kData).value(), path);
    EXPECT_EQ(other.project(), session.project());
    EXPECT_FALSE(session.save("/no/such/folder/project.json").isEmpty());
}

TEST_F(SessionTest, UnsavedWorkIsKeptBesideAndGoneOnceSaved) {
    settle();
    QTemporaryDir folder;
    const QString file = folder.filePath("recovery.json");
    session.set_recovery_file(file);
    session.set_knob(knob("speculation.steps"), 6);
    ASSERT_TRUE(QTest::qWaitFor([&] { return QFile::exists(file); }, 5000));
    const auto kept = load_project(file.toStdString(), kData);
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->shown(), session.project().shown());
    EXPECT_TRUE(session.save(folder.filePath("saved.json")).isEmpty());
    EXPECT_FALSE(QFile::exists(file));
}

TEST_F(SessionTest, EveryTableKeepsTheRulesOfItemModels) {
    settle();
    ASSERT_TRUE(QTest::qWaitFor([this] { return session.baseline() != nullptr; }, 10000));
    TableModel model;
    const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::Fatal);
    const Answer& answer = *session.answer();
    const auto axis = sweep_axis(knob("speculation.steps"), 4, answer);
    const auto sweep = run_sweep(answer, {axis}, kData, 1, {});
    const auto levers = run_levers(answer, levers_of(answer, session.knobs()), kData, {});
    const std::vector<Table> tables{terms_table(answer, session.baseline().get()),
                                    terms_table(answer, nullptr),
                                    operations_table(*session.details(), "", ""),
                                    operations_table(*session.details(), "verify", "experts"),
                                    constants_table(session.details()->explanation),
                                    memory_table(answer),
                                    variants_table(session),
                                    sweep_table(*sweep),
                                    levers_table(levers),
                                    differences_table(session),
                                    Table{}};
    for (const Table& table : tables) {
        model.set(table);
        EXPECT_EQ(model.rowCount(), static_cast<int>(table.rows.size())) << table.name.toStdString();
        for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.name.toStdString();
        model.set(table);  // the same shape again: cells change, rows stay
    }
}

TEST_F(SessionTest, TheOperationsOfATermAddUpToIt) {
    settle();
    const Answer& answer = *session.answer();
    for (const char* term : {"experts", "dense", "attention", "lm_head", "other_kernels"}) {
        double sum = 0;
        for (const sim::ExplainedOperation* operation : chosen_operations(*session.details(), "verify", term))
            sum += operation->total_ms;
        for (const sim::Term& of : answer.prediction.terms) {
            if (of.name != std::string("verify.") + term) continue;
            EXPECT_NEAR(sum, of.ms, 0.02 * of.ms + 1e-3) << term;  // ranks jitter around the mean
        }
    }
}

TEST(Tables, CsvQuotesWhatNeedsItAndTsvKeepsCellsApart) {
    const auto cell = [](const char* text) { return Cell{text, {}, {}, false, 0}; };
    const Table table{
        "t", {{"a", "", false}, {"b", "", false}}, {{cell("x,y"), cell("say \"hi\"")}, {cell("tab\there"), cell("line\nbreak")}}};
    EXPECT_EQ(to_csv(table), "a,b\n\"x,y\",\"say \"\"hi\"\"\"\ntab\there,\"line\nbreak\"\n");
    EXPECT_EQ(to_tsv(table), "a\tb\nx,y\tsay \"hi\"\ntab here\tline break\n");
}

TEST(BackgroundTask, CancelledWorkDeliversNothing) {
    BackgroundTask task;
    bool delivered = false;
    QSignalSpy finished(&task, &BackgroundTask::finished);
    task.start([&](const std::stop_token& stop, const BackgroundTask::Progress&) {
        while (!stop.stop_requested()) QThread::msleep(1);
        return std::function<void()>([&] { delivered = true; });
    });
    EXPECT_TRUE(task.running());
    task.cancel();
    EXPECT_FALSE(task.running());
    QTest::qWait(50);
    EXPECT_FALSE(delivered);
    ASSERT_EQ(finished.count(), 1);
    EXPECT_FALSE(finished.at(0).at(0).toBool());
}

TEST(BackgroundTask, OnlyTheLastOfTwoDelivers) {
    BackgroundTask task;
    std::string delivered;
    for (const char* name : {"first", "second"}) {
        task.start([&delivered, name](const std::stop_token&, const BackgroundTask::Progress&) {
            return std::function<void()>([&delivered, name] { delivered += name; });
        });
    }
    ASSERT_TRUE(QTest::qWaitFor([&] { return !task.running(); }, 5000));
    EXPECT_EQ(delivered, "second");
}

}  // namespace
}  // namespace draftboard::gui
