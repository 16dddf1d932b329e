// SPDX-License-Identifier: Apache-2.0
#include "calibration/csv_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftboard::calibration {
namespace {

using testing::HasSubstr;

TEST(CsvTable, Columns_are_found_by_name_in_any_order) {
    const auto table = CsvTable::parse("b,a\n# remark\n\n2,\"x,\"\"y\"\"\"\r\n", "t.csv");
    ASSERT_TRUE(table);
    ASSERT_EQ(table->rows(), 1u);
    EXPECT_EQ(*table->text(0, "a"), "x,\"y\"");
    EXPECT_EQ(*table->integer(0, "b", 0, 10), 2);
    EXPECT_EQ(table->line(0), 4);
}

TEST(CsvTable, Errors_name_the_line_and_the_column) {
    const auto table = CsvTable::parse("a\n1\nx\n1e999\n", "t.csv");
    ASSERT_TRUE(table);
    EXPECT_THAT(table->number(1, "a", 0, 9).error().to_text(), HasSubstr("t.csv:3"));
    EXPECT_THAT(table->number(1, "a", 0, 9).error().to_text(), HasSubstr("a is \"x\""));
    EXPECT_FALSE(table->number(2, "a", 0, 9));
    EXPECT_THAT(table->number(0, "a", 2, 9).error().to_text(), HasSubstr("outside 2 to 9"));
    EXPECT_THAT(table->text(0, "nope").error().to_text(), HasSubstr("no column \"nope\""));
    EXPECT_THAT(table->require({"a", "z"}).error().to_text(), HasSubstr("\"z\""));
}

TEST(CsvTable, Malformed_files_are_refused) {
    EXPECT_FALSE(CsvTable::parse("", "t.csv"));
    EXPECT_FALSE(CsvTable::parse("a,a\n1,2\n", "t.csv"));
    EXPECT_FALSE(CsvTable::parse("a,b\n1\n", "t.csv"));
    EXPECT_FALSE(CsvTable::parse("a,b\n1,\"2\n", "t.csv"));
    EXPECT_FALSE(CsvTable::parse(std::string(1000, ',') + "\n", "t.csv"));
    EXPECT_FALSE(CsvTable::load("no such file.csv"));
}

}  // namespace
}  // namespace draftboard::calibration
