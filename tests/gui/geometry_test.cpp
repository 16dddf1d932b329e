// SPDX-License-Identifier: Apache-2.0
// The geometry under the desktop's pictures: timeline, waterfall, box, contours. Closed forms, no pixels of widgets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gui/core/answer.h"
#include "gui/core/box_layout.h"
#include "gui/core/contour.h"
#include "gui/core/timeline.h"
#include "gui/core/timeline_view.h"
#include "gui/core/waterfall.h"
#include "model/data_library.h"
#include "model/machine_json.h"

namespace draftboard::gui {
namespace {

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";

AnswerPointer answered(const std::string& base, std::vector<Edit> edits = {}) {
    Answerer answerer(kData);
    return answerer.answer({"test", base, std::move(edits), ""}).value();
}

double ms_of(const sim::Prediction& prediction, const std::string& suffix) {
    double sum = 0;
    for (const sim::Term& term : prediction.terms) {
        if (term.name.ends_with(suffix)) sum += term.ms;
    }
    return sum;
}

// Transport slices hold latency and transport of collectives, so their mean over ranks is the sum of these two terms.
TEST(Timeline, CarriesTheSameTimesAsTheTerms) {
    const AnswerPointer answer = answered("kimi-k2.5-eagle3-founding");
    const Timeline timeline = build_timeline(*answer);
    EXPECT_EQ(timeline.rows.size(), 8u);
    const StretchSum sum = sum_stretch(timeline, 0, timeline.total);
    EXPECT_NEAR(sum.transport_ms,
                ms_of(answer->prediction, "collectives.latency") + ms_of(answer->prediction, "collectives.transport"), 1e-6);
    EXPECT_NEAR(sum.kernel_ms,
                ms_of(answer->prediction, "experts") + ms_of(answer->prediction, "dense") +
                    ms_of(answer->prediction, "attention") + ms_of(answer->prediction, "lm_head") +
                    ms_of(answer->prediction, "other_kernels"),
                1e-6);
    EXPECT_NEAR(sim::to_ms(timeline.total) + answer->prediction.host_ms, answer->prediction.cycle_ms, 1e-6);
}

TEST(Timeline, SlicesOfARowFollowEachOtherWithoutOverlap) {
    for (const char* scenario : {"kimi-k2.5-eagle3-founding", "qwen3.5-397b-mtp-founding", "kimi-k2.5-ngram-founding"}) {
        const Timeline timeline = build_timeline(*answered(scenario));
        for (const TimelineRow& row : timeline.rows) {
            for (std::size_t i = 1; i < row.slices.size(); ++i)
                ASSERT_LE(row.slices[i - 1].end, row.slices[i].start) << scenario << " " << row.name;
            EXPECT_TRUE(row.slices.empty() || row.slices.back().end <= timeline.total);
        }
    }
}

// Nothing on the critical path waits, at any time but in launch gaps something critical runs, and two critical slices never
// overlap.
TEST(Timeline, TheCriticalPathIsOneSequenceThatEndsWithTheCycle) {
    const Timeline timeline = build_timeline(*answered("kimi-k2.5-eagle3-founding", {{"engine.launch.verify", "graph"}}));
    std::vector<Slice> path;
    for (const TimelineRow& row : timeline.rows) {
        for (const Slice& slice : row.slices) {
            if (slice.critical && slice.kind != SliceKind::wait) path.push_back(slice);
        }
    }
    std::sort(path.begin(), path.end(), [](const Slice& a, const Slice& b) { return a.start < b.start; });
    ASSERT_FALSE(path.empty());
    for (std::size_t i = 1; i < path.size(); ++i) ASSERT_LE(path[i - 1].end, path[i].start);
    EXPECT_EQ(path.back().end, timeline.total);
}

TEST(Timeline, LinkLoadsStayWithinTheirCapacityAndEndAtZero) {
    const AnswerPointer answer = answered("kimi-k2.5-eagle3-founding");
    const Timeline timeline = build_timeline(*answer);
    ASSERT_FALSE(timeline.links.empty());
    for (const LinkTrack& track : timeline.links) {
        const model::MachineLink& link = answer->scenario.machine.links[static_cast<std::size_t>(track.link)];
        const double capacity = (track.forward ? link.forward : link.backward).write_gb_s * 1e9;
        for (const LinkUse& use : track.uses) EXPECT_LE(use.bytes_per_s, capacity * 1.000001);
        EXPECT_EQ(track.at(timeline.total + 1), 0);
    }
}

TEST(TimelineView, ZoomingKeepsTheTimeUnderTheCursorWhereItIs) {
    TimelineView view;
    view.set_extent(30'000'000'000, 1000);
    const sim::Time under = view.time_at(300);
    for (const double factor : {1.25, 3.0, 100.0, 0.5}) {
        view.zoom(factor, 300);
        EXPECT_NEAR(view.x_of(under), 300, 0.01);
    }
    view.reset();
    EXPECT_EQ(view.from(), 0);
    EXPECT_EQ(view.to(), 30'000'000'000);
    view.pan(-500);  // there is nothing before the beginning
    EXPECT_EQ(view.from(), 0);
}

TEST(TimelineView, DrawsNoMoreThanPixelsHoweverManySlicesThereAre) {
    const Timeline timeline = build_timeline(*answered("kimi-k2.5-eagle3-founding"));
    TimelineView view;
    view.set_extent(timeline.total, 400);
    std::size_t slices = 0;
    for (const TimelineRow& row : timeline.rows) slices += row.slices.size();
    const auto marks = view.marks(timeline);
    EXPECT_GT(slices, marks.size());
    EXPECT_LE(marks.size(), timeline.rows.size() * 2 * 401);
    for (const Mark& mark : marks) {
        EXPECT_GE(mark.left, 0);
        EXPECT_LE(mark.left, 400);
    }
    // Close enough, every mark is one slice.
    view.show(timeline.total / 2, timeline.total / 2 + 200'000'000);
    for (const Mark& mark : view.marks(timeline)) {
        EXPECT_TRUE(mark.right - mark.left <= 1 || mark.slice >= 0);
    }
}

TEST(TimelineView, TicksAreRoundAndInsideTheView) {
    TimelineView view;
    view.set_extent(30'964'947'638, 900);
    for (const double zoom : {1.0, 7.0, 90.0, 1000.0}) {
        view.reset();
        view.zoom(zoom, 450);
        const auto ticks = view.ticks();
        EXPECT_GE(ticks.size(), 3u);
        EXPECT_LE(ticks.size(), 15u);
        for (const Tick& tick : ticks) {
            EXPECT_GE(tick.x, -0.01);
            EXPECT_LE(tick.x, 900.01);
        }
    }
}

TEST(TimelineView, SearchFindsEverySliceOfAnOperationAndNothingElse) {
    const Timeline timeline = build_timeline(*answered("kimi-k2.5-eagle3-founding"));
    const auto hits = find_slices(timeline, "VERIFY/L07/moe.experts");
    ASSERT_EQ(hits.size(), 8u);  // once on each of eight ranks
    for (const SliceRef& hit : hits) EXPECT_EQ(timeline.key(timeline.rows[hit.row].slices[hit.slice]), "verify/L07/moe.experts");
    EXPECT_TRUE(find_slices(timeline, "no such operation").empty());
    EXPECT_TRUE(find_slices(timeline, "").empty());
}

TEST(Waterfall, BarsFollowEachOtherFromZeroToTheCycle) {
    const AnswerPointer answer = answered("kimi-k2.5-eagle3-founding");
    const AnswerPointer baseline = answered("kimi-k2.5-eagle3-founding", {{"engine.launch.verify", "graph"}});
    const Waterfall waterfall = build_waterfall(answer->prediction, &baseline->prediction);
    double at = 0;
    for (const WaterfallBar& bar : waterfall.bars) {
        EXPECT_DOUBLE_EQ(bar.from_ms, at);
        at = bar.to_ms;
    }
    EXPECT_NEAR(at, answer->prediction.cycle_ms, 1e-9);
    EXPECT_NEAR(waterfall.baseline_ms, baseline->prediction.cycle_ms, 1e-9);
    // Speculation pays where the cycle is below acceptance length x plain step.
    EXPECT_NEAR(waterfall.budget_ms / waterfall.cycle_ms, answer->prediction.speedup.value, 1e-9);
}

TEST(Waterfall, PlainDecodingHasNoBudget) {
    const Waterfall waterfall = build_waterfall(answered("qwen3.5-397b-founding")->prediction, nullptr);
    EXPECT_FALSE(waterfall.bars.empty());
    EXPECT_EQ(waterfall.budget_ms, 0);
}

TEST(BoxLayout, NoTwoBoxesOfAnyShippedMachineOverlap) {
    for (const std::string& name : model::shipped_names("machines", kData)) {
        const auto machine = model::find_machine(name, kData);
        ASSERT_TRUE(machine);
        const BoxLayout layout = layout_box(*machine);
        ASSERT_EQ(layout.nodes.size(), machine->nodes.size());
        for (std::size_t i = 0; i < layout.nodes.size(); ++i) {
            EXPECT_GE(layout.nodes[i].column, 0) << name;
            EXPECT_LE(layout.nodes[i].column, layout.columns) << name;
            EXPECT_LT(layout.nodes[i].level, layout.levels) << name;
            for (std::size_t j = 0; j < i; ++j) {
                if (layout.nodes[i].level != layout.nodes[j].level) continue;
                EXPECT_GE(std::fabs(layout.nodes[i].column - layout.nodes[j].column), 0.99)
                    << name << ": " << machine->nodes[i].id << " and " << machine->nodes[j].id;
            }
        }
    }
}

// f = x on a grid: the level 1.25 is the vertical line x = 1.25, one piece a cell row.
TEST(Contour, OfAPlaneIsAStraightLine) {
    std::vector<double> values;
    for (int y = 0; y < 4; ++y) {
        for (int x = 0; x < 5; ++x) values.push_back(x);
    }
    const auto pieces = contour(values, 5, 1.25);
    ASSERT_EQ(pieces.size(), 3u);
    for (const ContourPiece& piece : pieces) {
        EXPECT_DOUBLE_EQ(piece.x0, 1.25);
        EXPECT_DOUBLE_EQ(piece.x1, 1.25);
    }
}

TEST(Contour, OfAHillClosesAroundItAndLeavesHolesOut) {
    std::vector<double> values(81);
    for (int y = 0; y < 9; ++y) {
        for (int x = 0; x < 9; ++x) values[static_cast<std::size_t>(y * 9 + x)] = -std::hypot(x - 4, y - 4);
    }
    double length = 0;
    for (const ContourPiece& piece : contour(values, 9, -2.5)) length += std::hypot(piece.x1 - piece.x0, piece.y1 - piece.y0);
    EXPECT_NEAR(length, 2 * M_PI * 2.5, 0.3);  // chords of a circle
    values[0] = std::nan("");
    for (const ContourPiece& piece : contour(values, 9, -5.3)) EXPECT_FALSE(piece.x0 < 1 && piece.y0 < 1);
    EXPECT_TRUE(contour({1.0, 2.0}, 1, 1.5).empty());
}

TEST(Contour, ASaddleIsCutIntoTwoLines) {
    // 1 0      The level 0.4 is below the mean 0.5, so the high corners hang together and each low corner is cut off.
    // 0 1
    const auto pieces = contour({1, 0, 0, 1}, 2, 0.4);
    ASSERT_EQ(pieces.size(), 2u);
    for (const ContourPiece& piece : pieces) {
        const double x = (piece.x0 + piece.x1) / 2;
        const double y = (piece.y0 + piece.y1) / 2;
        EXPECT_GT(std::fabs(x - y), 0.5) << "a piece around a high corner";
    }
}

}  // namespace
}  // namespace draftboard::gui
