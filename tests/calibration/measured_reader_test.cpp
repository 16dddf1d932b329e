// SPDX-License-Identifier: Apache-2.0
#include "calibration/measured_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftboard::calibration {
namespace {

using Values = std::map<std::string, double>;
using testing::AllOf;
using testing::HasSubstr;

Measured read(const std::string& text) {
    const auto measured = parse_measured(text, "file.json");
    EXPECT_TRUE(measured) << (measured ? "" : measured.error().to_text());
    return measured.value_or(Measured{});
}

std::string error_of(const std::string& text) {
    const auto measured = parse_measured(text, "file.json");
    EXPECT_FALSE(measured) << text;
    return measured ? "" : measured.error().to_text();
}

TEST(MeasuredReader, A_sentence_gives_rates_times_and_lengths) {
    EXPECT_EQ(read("verify 30 ms, 41 tok/s").values, (Values{{"verify_ms", 30}, {"tokens_per_second", 41}}));
    EXPECT_EQ(read("plain 82 tok/s; acceptance length 2.1\ndraft 0.4ms").values,
              (Values{{"plain_tokens_per_second", 82}, {"acceptance_length", 2.1}, {"draft_ms", 0.4}}));
    EXPECT_EQ(read("82 tok/s plain, 60 tokens/s with EAGLE-3").values,
              (Values{{"plain_tokens_per_second", 82}, {"tokens_per_second", 60}}));
    EXPECT_EQ(read("122 all-reduces 25 ms, all-reduce: 26 us").values,
              (Values{{"terms.collectives", 25}, {"all_reduce_us", 26}}));
    EXPECT_EQ(read("verify experts 5 ms, cycle 0.031 s, host 600 us, plain step 12 ms").values,
              (Values{{"terms.verify.experts", 5}, {"cycle_ms", 31}, {"host_ms", 0.6}, {"plain_step_ms", 12}}));
    EXPECT_EQ(read("60 tok/s, noise 5 %").noise, 0.05);
    EXPECT_EQ(read("60 tok/s").noise, kMeasurementNoise);
}

TEST(MeasuredReader, A_sentence_that_cannot_be_read_lists_what_can) {
    for (const char* text : {"", "hello", "30 ms", "verify", "verify 30", "verify -3 ms", "verify 30 ms draft 1 ms",
                             "prefill 4000 tok/s", "verify 30 parsecs", "acceptance length 0.5", "verify inf ms",
                             "verify 1e400 ms", "noise 5 %", "60 tok/s, noise 500 %", "38 %"}) {
        EXPECT_THAT(error_of(text), AllOf(HasSubstr("file.json"), HasSubstr("verify 30 ms"), HasSubstr("tok/s"))) << text;
    }
    EXPECT_THAT(error_of("verify 30 ms, verify 31 ms"), HasSubstr("second time"));
}

TEST(MeasuredReader, A_document_gives_its_fields_and_terms) {
    const Measured measured = read(R"({"format": "draftboard.measured", "version": 1, "verify_ms": 30, "draft_ms": 0,
        "terms": {"collectives": 25, "verify.experts": 5}, "noise": 0.1, "verfy": 3})");
    EXPECT_EQ(measured.values,
              (Values{{"verify_ms", 30}, {"draft_ms", 0}, {"terms.collectives", 25}, {"terms.verify.experts", 5}}));
    EXPECT_EQ(measured.noise, 0.1);
    EXPECT_THAT(measured.notes, testing::ElementsAre(HasSubstr("/verfy")));
}

TEST(MeasuredReader, A_bad_document_is_refused_with_file_and_field) {
    const std::string head = R"({"format": "draftboard.measured", "version": 1)";
    EXPECT_THAT(error_of(head + "}"), AllOf(HasSubstr("file.json"), HasSubstr("no measurement")));
    EXPECT_THAT(error_of(head + R"(, "verify_ms": "30"})"), HasSubstr("file.json: /verify_ms"));
    EXPECT_THAT(error_of(head + R"(, "verify_ms": -1})"), HasSubstr("file.json: /verify_ms"));
    EXPECT_THAT(error_of(head + R"(, "acceptance_length": 0.5})"), HasSubstr("/acceptance_length"));
    EXPECT_THAT(error_of(head + R"(, "verify_ms": 1, "noise": 0})"), HasSubstr("/noise"));
    EXPECT_THAT(error_of(head + R"(, "terms": {"collectives": []}})"), HasSubstr("/terms/collectives"));
    EXPECT_THAT(error_of(head + R"(, "terms": 3})"), HasSubstr("/terms"));
    EXPECT_THAT(error_of(R"({"format": "draftboard.scenario", "version": 1, "verify_ms": 1})"), HasSubstr("/format"));
    EXPECT_THAT(error_of(R"({"format": "draftboard.measured", "version": 2, "verify_ms": 1})"), HasSubstr("/version"));
    EXPECT_THAT(error_of("[1]"), HasSubstr("file.json"));
    EXPECT_THAT(error_of("{"), HasSubstr("file.json"));
}

TEST(MeasuredReader, A_profile_gives_its_passes_and_shares_the_drafter_out) {
    // Drafter: 10 x 300 us + 30 x 100 us over 10 verify passes: 0.6 ms a cycle.
    const Measured measured = read(R"({"format": "draftboard.profile", "version": 1, "passes": [
        {"pass": "prefill", "count": 1, "total_us": 1e6, "operations": []},
        {"pass": "decode", "count": 5, "total_us": 12000, "operations": []},
        {"pass": "verify", "tokens": 4, "count": 10, "total_us": 30000, "operations": [
            {"key": "verify/L00/moe.experts", "kind": "experts", "median_us": 400, "wait_us": 0},
            {"key": "verify/L00/moe.all_reduce", "kind": "all_reduce", "message_bytes": 57344, "median_us": 20, "wait_us": 180}]},
        {"pass": "draft_extend", "model": "drafter", "count": 10, "total_us": 300, "operations": []},
        {"pass": "draft", "model": "drafter", "count": 30, "total_us": 100, "operations": []}]})");
    EXPECT_EQ(measured.values.size(), 5u);
    EXPECT_DOUBLE_EQ(measured.values.at("verify_ms"), 30);
    EXPECT_DOUBLE_EQ(measured.values.at("plain_step_ms"), 12);
    EXPECT_DOUBLE_EQ(measured.values.at("draft_ms"), 0.6);
    EXPECT_DOUBLE_EQ(measured.values.at("terms.verify.collectives"), 0.2);
    EXPECT_DOUBLE_EQ(measured.values.at("terms.verify.experts"), 0.4);
    EXPECT_THAT(error_of(R"({"format": "draftboard.profile", "version": 1, "passes": [{"pass": "verify", "total_us": 1}]})"),
                HasSubstr("/passes/0/operations"));
    EXPECT_THAT(error_of(R"({"format": "draftboard.profile", "version": 1, "passes": []})"), HasSubstr("no measurement"));
}

TEST(MeasuredReader, An_argument_that_is_no_file_is_a_sentence) {
    const auto measured = read_measured("verify 30 ms");
    ASSERT_TRUE(measured);
    EXPECT_EQ(measured->values, (Values{{"verify_ms", 30}}));
    const auto missing = read_measured("/no/such/file.json");
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().to_text(), HasSubstr("/no/such/file.json"));
    EXPECT_FALSE(read_measured(std::string(10'000, 'x')));
}

}  // namespace
}  // namespace draftboard::calibration
