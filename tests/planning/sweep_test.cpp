// SPDX-License-Identifier: Apache-2.0
// A sweep's file: the same bytes however it was computed, and the same numbers as single predictions.
#include "planning/sweep.h"

#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "calibration/cost_constants.h"
#include "planning/sweep_row.h"
#include "sim/prediction_report.h"

namespace draftboard::planning {
namespace {

namespace fs = std::filesystem;

const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
constexpr const char* kScenario = "kimi-k2.5-eagle3-founding";

std::string read(const fs::path& path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
}

class Sweep : public testing::Test {
 protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("draftboard_sweep_" + std::to_string(getpid()));
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    [[nodiscard]] std::string file(const std::string& name) const { return (folder_ / name).string(); }

    static SweepQuestion question(const std::vector<std::string>& vary = {"speculation.steps=1..4", "workload.concurrency=1,4,16",
                                                                          "engine.launch.verify=eager,graph",
                                                                          "layout.tensor=8,3"}) {
        std::vector<Axis> axes;
        for (const std::string& text : vary) axes.push_back(parse_axis(text).value());
        return {kScenario, {}, Grid::of(std::move(axes)).value()};
    }

    SweepResult run(const std::string& name, int threads = 1, const SweepQuestion& asked = question()) {
        SweepOptions options;
        options.output = file(name);
        options.threads = threads;
        const auto gang = join_gang();
        auto result = run_sweep(asked, options, kData, **gang);
        EXPECT_TRUE(result) << (result ? "" : result.error().to_text());
        return result.value_or(SweepResult{});
    }

    fs::path folder_;
};

TEST_F(Sweep, Its_file_does_not_depend_on_the_number_of_threads) {
    const SweepResult one = run("1.csv", 1);
    EXPECT_TRUE(one.complete);
    EXPECT_EQ(one.summary.ok, 24U);
    EXPECT_EQ(one.summary.refused, 24U);  // 3 ranks divide no head
    run("2.csv", 2);
    run("7.csv", 7);
    EXPECT_EQ(read(file("1.csv")), read(file("2.csv")));
    EXPECT_EQ(read(file("1.csv")), read(file("7.csv")));
    EXPECT_FALSE(fs::exists(file("1.csv.part")));
}

TEST_F(Sweep, Each_row_has_the_numbers_of_a_prediction_of_its_own) {
    const SweepQuestion asked = question({"speculation.acceptance.acceptance_length=1.5,2.5", "workload.context_tokens=100,60000",
                                          "collective.implementation=nccl,one_shot", "layout.decode_context=1,8"});
    run("a.csv", 2, asked);
    std::ifstream in(file("a.csv"));
    std::string line;
    std::getline(in, line);
    std::getline(in, line);
    for (std::uint64_t row = 0; row < asked.grid.rows(); ++row) {
        ASSERT_TRUE(std::getline(in, line));
        const auto values = asked.grid.values(row);
        const auto scenario = model::load_scenario(kScenario, kData, row_edits(asked.grid, values));
        ASSERT_TRUE(scenario);
        sim::Predictor predictor(calibration::load_cost_constants(*scenario, kData).value());
        EXPECT_EQ(line + "\n", row_line(row, values, predictor.predict(*scenario).value()));
    }
}

TEST_F(Sweep, Rows_of_an_earlier_run_are_not_computed_again) {
    run("whole.csv");
    const std::string whole = read(file("whole.csv"));
    // The log of a run that was killed while it wrote its 10th row: the question, nine rows in any order, a torn one.
    std::vector<std::string> lines;
    std::istringstream in(whole);
    for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
    std::ofstream part(file("a.csv.part"), std::ios::binary);
    part << lines[0];
    for (int i = 9; i > 0; --i) part << lines[static_cast<std::size_t>(i) * 4];
    part << lines[3].substr(0, 50);
    part.close();
    const SweepResult rest = run("a.csv", 2);
    EXPECT_EQ(rest.found, 9U);
    EXPECT_EQ(rest.computed, 48U - 9U);
    EXPECT_EQ(read(file("a.csv")), whole);
}

TEST_F(Sweep, A_log_cut_off_at_any_byte_leads_to_the_same_file) {
    const SweepQuestion asked = question({"speculation.steps=1..3"});
    run("whole.csv", 1, asked);
    const std::string whole = read(file("whole.csv"));
    std::string log = whole;
    const auto first = log.find('\n') + 1;
    log.erase(first, log.find('\n', first) + 1 - first);  // the log has no header
    for (std::size_t length = 0; length <= log.size(); length += 7) {
        std::ofstream(file("a.csv.part"), std::ios::binary | std::ios::trunc) << log.substr(0, length);
        run("a.csv", 1, asked);
        ASSERT_EQ(read(file("a.csv")), whole) << length;
        fs::remove(file("a.csv"));
    }
}

TEST_F(Sweep, The_rows_of_another_question_are_left_alone) {
    run("a.csv");
    SweepOptions options;
    options.output = file("a.csv");
    const auto gang = join_gang();
    const auto other = run_sweep(question({"speculation.steps=1..3"}), options, kData, **gang);
    ASSERT_FALSE(other);
    EXPECT_NE(other.error().hint.find("--restart"), std::string::npos);
    EXPECT_TRUE(run("a.csv").was_there);
    options.restart = true;
    EXPECT_TRUE(run_sweep(question({"speculation.steps=1..3"}), options, kData, **gang));
}

TEST_F(Sweep, A_database_has_the_same_rows_and_the_same_bytes_each_time) {
    run("a.csv");
    run("a.sqlite", 2);
    run("b.sqlite", 1);
    EXPECT_EQ(read(file("a.sqlite")), read(file("b.sqlite")));
    EXPECT_TRUE(run("a.sqlite").was_there);
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file("a.sqlite").c_str(), &database), SQLITE_OK);
    sqlite3_stmt* statement = nullptr;
    const char* sql = R"(SELECT count(*), sum(status = 'ok'), max(tokens_per_second), typeof("speculation.steps") FROM sweep)";
    ASSERT_EQ(sqlite3_prepare_v2(database, sql, -1, &statement, nullptr), SQLITE_OK);
    ASSERT_EQ(sqlite3_step(statement), SQLITE_ROW);
    EXPECT_EQ(sqlite3_column_int(statement, 0), 48);
    EXPECT_EQ(sqlite3_column_int(statement, 1), 24);
    EXPECT_STREQ(reinterpret_cast<const char*>(sqlite3_column_text(statement, 3)), "integer");
    // the best row of the CSV, to the last bit
    const SweepResult again = [this] {
        fs::remove(file("a.csv"));
        return run("a.csv");
    }();
    EXPECT_EQ(sqlite3_column_double(statement, 2), again.summary.best_rate);
    sqlite3_finalize(statement);
    sqlite3_close(database);
}

TEST_F(Sweep, An_acceptance_length_belongs_to_the_depth_it_was_measured_at) {
    // 1.85 over 3 tokens: one draft token then gives 1 + 0.491, and not 1.85
    const SweepResult result = run("a.csv", 1, question({"speculation.steps=1,3"}));
    EXPECT_TRUE(result.acceptance_pinned);
    std::istringstream in(read(file("a.csv")));
    std::string line;
    std::getline(in, line);
    std::getline(in, line);
    const auto length = [&] {
        std::getline(in, line);
        return std::stod(split_line(line)->at(rate_column(1) + 8));
    };
    EXPECT_NEAR(length(), 1.491, 0.001);
    EXPECT_NEAR(length(), 1.85, 0.001);
}

TEST_F(Sweep, A_sweep_that_is_told_to_stop_says_so_and_goes_on_later) {
    std::atomic<bool> stop{true};
    SweepOptions options;
    options.output = file("a.csv");
    options.stop = &stop;
    const auto gang = join_gang();
    const auto result = run_sweep(question(), options, kData, **gang);
    ASSERT_TRUE(result);
    EXPECT_EQ(fs::exists(file("a.csv.part")), !result->complete);
    EXPECT_TRUE(run("a.csv").complete);
    run("b.csv");
    EXPECT_EQ(read(file("a.csv")), read(file("b.csv")));
}

TEST(PassStore, Predictions_from_a_store_are_the_same_to_the_last_bit) {
    const std::vector<model::Edits> questions = {
        {},
        {"engine.launch.verify=graph"},
        {"engine.launch.verify=piecewise", "workload.concurrency=3"},
        {"speculation.top_k=4", "speculation.draft_tokens=8", "speculation.acceptance={\"per_position\":[0.6,0.4,0.2]}"},
        {"engine.host_sync_after=[\"moe.top_k\",\"no.such\"]"},
        {"engine.fused_all_reduce_norm=true", "engine.overlap_shared_experts=true"},
        {"constants.host.rank_spread=0.01"},
        {"constants.host.cycle_us=100", "constants.host.sequence_us=3"},
        {"machine=8x-rtx-pro-6000-switches"},
        {"layout.expert=8", "workload.concurrency=16"},
        {"speculation.steps=1", "speculation.acceptance={\"per_position\":[0.5]}"},
        {"speculation.method=ngram", "speculation.pad_misses=false"},
        {"speculation.method=none"},
        {"architecture=deepseek-v3", "speculation.method=mtp"},
        {"memory.usable_fraction=0.5"},
        {"engine.graph_token_limit=2", "engine.launch.verify=graph"},
        {"engine.graph_token_limit=8", "engine.launch.verify=graph"},
        {"seed=9"},
        {"routing.kind=power_law", "routing.alpha=1.1"},
        {"layout.parallel_blocks=true"},
    };
    auto shared = std::make_shared<SharedConstants>(kData);
    Variants variants(shared, load_base(kScenario, kData, {}).value());
    for (int round = 0; round < 2; ++round) {
        for (const model::Edits& edits : questions) {
            const auto scenario = model::load_scenario(kScenario, kData, edits);
            ASSERT_TRUE(scenario) << scenario.error().to_text();
            const auto constants = calibration::load_cost_constants(*scenario, kData).value();
            const auto alone = sim::Predictor(constants).predict(*scenario);
            const auto stored = variants.predict(edits);
            ASSERT_TRUE(alone && stored) << edits.front();
            EXPECT_EQ(sim::prediction_json(*scenario, *alone, constants).dump(),
                      sim::prediction_json(*scenario, *stored, constants).dump())
                << (edits.empty() ? "" : edits.front());
        }
    }
}

}  // namespace
}  // namespace draftboard::planning
