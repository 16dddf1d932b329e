// SPDX-License-Identifier: Apache-2.0
#include "planning/axis.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "planning/grid.h"
#include "planning/sweep_row.h"

namespace draftboard::planning {
namespace {

using Texts = std::vector<std::string>;

Texts values(const std::string& text) {
    const auto axis = parse_axis(text);
    EXPECT_TRUE(axis) << (axis ? "" : axis.error().to_text());
    return axis ? axis->values : Texts{};
}

TEST(Axis, A_range_of_whole_numbers_steps_by_one) { EXPECT_EQ(values("a=2..5"), (Texts{"2", "3", "4", "5"})); }

TEST(Axis, A_step_that_reaches_the_end_includes_it) {
    EXPECT_EQ(values("a=0.1..0.4:0.1"), (Texts{"0.1", "0.2", "0.3", "0.4"}));
    EXPECT_EQ(values("a=1..6:2"), (Texts{"1", "3", "5"}));
}

TEST(Axis, A_ratio_multiplies) { EXPECT_EQ(values("a=1..64:*4"), (Texts{"1", "4", "16", "64"})); }

TEST(Axis, Commas_inside_of_brackets_belong_to_the_value) {
    EXPECT_EQ(values(R"(a={"x":1,"y":[2,3]},"p,q",r)"), (Texts{R"({"x":1,"y":[2,3]})", R"("p,q")", "r"}));
}

TEST(Axis, A_file_name_with_two_dots_is_no_range) { EXPECT_EQ(values("machine=../m.json"), (Texts{"../m.json"})); }

TEST(Axis, What_is_no_axis_is_refused_with_its_text) {
    for (const char* text : {"", "a", "=1", "a=", "a=1,,2", "a=3..1", "a=1..3:0", "a=1..3:-1", "a=1..9:*1", "a=0..9:*2",
                             "a=1..1e9:1e-9", "a=nan..1", "a=1..inf", "a=1..2:nan", "a=1,2,1", "a=1\n2"}) {
        const auto axis = parse_axis(text);
        ASSERT_FALSE(axis) << text;
        EXPECT_NE(axis.error().context.find("--vary"), std::string::npos);
    }
}

RC_GTEST_PROP(Axis, Any_text_is_read_or_refused, (const std::string& path, const std::string& spec)) {
    const auto axis = parse_axis(path + "=" + spec);
    if (axis) RC_ASSERT(axis->continuous() || !axis->values.front().empty());
}

Grid grid(const Texts& texts, Sampling sampling = Sampling::grid, std::uint64_t rows = 0) {
    std::vector<Axis> axes;
    for (const std::string& text : texts) axes.push_back(parse_axis(text).value());
    return sampling == Sampling::grid ? Grid::of(axes).value() : Grid::sample(axes, sampling, rows, 7).value();
}

TEST(Grid, Each_combination_stands_once_and_the_last_axis_changes_fastest) {
    const Grid rows = grid({"a=1,2", "b=x,y,z"});
    ASSERT_EQ(rows.rows(), 6U);
    std::set<Texts> seen;
    for (std::uint64_t i = 0; i < 6; ++i) seen.insert(rows.values(i));
    EXPECT_EQ(seen.size(), 6U);
    EXPECT_EQ(rows.values(1), (Texts{"1", "y"}));
    EXPECT_EQ(rows.values(5), (Texts{"2", "z"}));
}

TEST(Grid, A_grid_over_a_continuous_range_asks_for_a_step) {
    const auto refused = Grid::of({parse_axis("a=0.1..0.9").value()});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().hint.find("a=0.1..0.9:0.08"), std::string::npos) << refused.error().hint;
}

TEST(Grid, A_field_is_varied_once) { EXPECT_FALSE(Grid::of({parse_axis("a=1,2").value(), parse_axis("a=3").value()})); }

TEST(Grid, More_rows_than_can_be_numbered_are_refused) {
    EXPECT_FALSE(Grid::of({parse_axis("a=1..100000").value(), parse_axis("b=1..100000").value()}));
}

TEST(Grid, Sobol_points_fill_halves_and_quarters_evenly) {
    // The first 2^n points of a Sobol sequence without the origin miss at most one cell of each partition.
    const Grid rows = grid({"a=0.0..1.5", "b=1,2,3,4"}, Sampling::sobol, 1024);
    int low = 0;
    std::map<std::string, int> counts;
    for (std::uint64_t i = 0; i < 1024; ++i) {
        const auto point = rows.values(i);
        if (std::stod(point[0]) < 0.75) ++low;
        ++counts[point[1]];
    }
    EXPECT_NEAR(low, 512, 1);
    for (const auto& [value, count] : counts) EXPECT_NEAR(count, 256, 1) << value;
}

TEST(Grid, A_sampled_row_is_the_same_whatever_was_asked_before) {
    for (const Sampling sampling : {Sampling::random, Sampling::sobol}) {
        const Grid rows = grid({"a=0.0..1.5", "b=1..9"}, sampling, 100);
        const auto late = rows.values(99);
        for (std::uint64_t i = 0; i < 100; ++i) (void)rows.values(i);
        EXPECT_EQ(rows.values(99), late);
        EXPECT_NE(rows.values(98), late);
    }
}

TEST(Grid, Samples_name_their_kind_and_count) {
    EXPECT_EQ(parse_sample("sobol:100")->rows, 100U);
    EXPECT_EQ(parse_sample("random:5")->sampling, Sampling::random);
    for (const char* text : {"sobol", "sobol:", "sobol:0", "sobol:-1", "halton:4", "sobol:1e3"})
        EXPECT_FALSE(parse_sample(text)) << text;
}

TEST(SweepRow, A_line_gives_its_fields_back) {
    model::Error error{model::ErrorCode::invalid_input, "no, \"this\"\ncan't be", "", ""};
    const std::string line = refused_line(12, {"a,b", R"({"x":1})"}, error);
    EXPECT_EQ(row_number(line), 12U);
    const auto fields = split_line(std::string_view(line).substr(0, line.size() - 1));
    ASSERT_TRUE(fields);
    const auto names = column_names({parse_axis("p=1").value(), parse_axis("q=1").value()});
    ASSERT_EQ(fields->size(), names.size());
    EXPECT_EQ((*fields)[1], "a,b");
    EXPECT_EQ((*fields)[2], R"({"x":1})");
    EXPECT_EQ((*fields)[status_column(2)], "refused");
    EXPECT_EQ(names[rate_column(2)], "tokens_per_second");
    EXPECT_EQ(fields->back(), "no, \"this\" can't be");
}

}  // namespace
}  // namespace draftboard::planning
