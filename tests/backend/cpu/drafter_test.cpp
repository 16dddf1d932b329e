// SPDX-License-Identifier: Apache-2.0
// The drafters that read a target, against the reference: an EAGLE-3 head and an MTP module.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/backend/cpu/reference_fixture.h"

namespace draftboard::backend::cpu {
namespace {

/// What both have in common: rows over the prompt, then two further steps on the drafter's own hidden state.
void expect_reference_drafts(Engine& drafter, const Fixture& fixture, const std::string& name, const std::vector<float>& features) {
    const std::vector<int> inputs = fixture.integers(name + "_input_ids");
    const std::vector<float> expected = fixture.floats(name + "_logits");
    const auto width = static_cast<std::size_t>(drafter.vocabulary());
    const auto hidden = static_cast<std::size_t>(drafter.hidden());

    // Every row's logits: a call for each row, on what the rows before have left in the cache.
    std::vector<float> rows;
    const auto feature_width = features.size() / inputs.size();
    ForwardOutput output;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto from = features.begin() + static_cast<std::ptrdiff_t>(i * feature_width);
        const std::vector<float> row = forward(drafter, Pass::draft_extend, {inputs[i]}, {},
                                               {from, from + static_cast<std::ptrdiff_t>(feature_width)}, &output);
        rows.insert(rows.end(), row.begin(), row.end());
    }
    const double rows_share = share_of_tolerance(rows, expected);
    drafter.discard(0);

    // The same in one call, which gives the last row's logits and all hidden states.
    const std::vector<float> last = forward(drafter, Pass::draft_extend, inputs, {}, features, &output);
    EXPECT_LE(share_of_tolerance(last, {expected.end() - static_cast<std::ptrdiff_t>(width), expected.end()}), 1.0);

    std::vector<float> steps;
    for (const int token : fixture.integers(name + "_step_tokens")) {
        const std::vector<float> feature(output.hidden.end() - static_cast<std::ptrdiff_t>(hidden), output.hidden.end());
        const std::vector<float> row = forward(drafter, Pass::draft, {token}, {}, feature, &output);
        steps.insert(steps.end(), row.begin(), row.end());
    }
    const double steps_share = share_of_tolerance(steps, fixture.floats(name + "_step_logits"));
    std::printf("%-8s ranks %d  error as a share of the tolerance: rows %.4f further steps %.4f\n", name.c_str(),
                drafter.team().ranks(), rows_share, steps_share);
    EXPECT_LE(rows_share, 1.0);
    EXPECT_LE(steps_share, 1.0);
}

TEST(Eagle3, Drafts_as_the_reference_from_the_targets_auxiliary_states) {
    const Fixture fixture = load("deepseek_v3");
    const auto head = Checkpoint::open(kFixtures + "deepseek_v3/eagle3");
    ASSERT_TRUE(head.has_value()) << head.error().to_text();
    for (const int ranks : {1, 2}) {
        Team team(ranks, false);
        const auto architecture = fixture.checkpoint.architecture();
        ASSERT_TRUE(architecture.has_value());
        const auto description = head->eagle3(*architecture);
        ASSERT_TRUE(description.has_value()) << description.error().to_text();
        EngineOptions options;
        options.feature_layers = description->aux_layers;
        auto target = engine_of(fixture.checkpoint, team, options);
        ASSERT_NE(target, nullptr);
        model::Speculation speculation;
        speculation.method = model::SpeculationMethod::eagle3;
        speculation.steps = 3;
        speculation.acceptance = *model::acceptance_from_conditional({0.5, 0.5, 0.5});
        speculation.head = description->head;
        options.max_length = 256;
        auto drafter = load_eagle3_drafter(*head, speculation, *target, options);
        ASSERT_TRUE(drafter.has_value()) << drafter.error().to_text();

        ForwardOutput output;
        (void)forward(*target, Pass::verify, fixture.integers("prompt_ids"), {}, {}, &output);
        // Aux layer id K, counted from 0, is the residual stream after layer K.
        const std::vector<float> after_first = fixture.floats("hidden_after_layer_0");
        const auto hidden = static_cast<std::size_t>(target->hidden());
        for (std::size_t i = 0; i < 24; ++i) {
            for (std::size_t c = 0; c < hidden; ++c) {
                EXPECT_NEAR(output.features[i * 3 * hidden + c], after_first[i * hidden + c], 1e-4);
            }
        }
        expect_reference_drafts(**drafter, fixture, "eagle3", output.features);
    }
}

TEST(Mtp, Drafts_as_the_reference_from_the_targets_final_hidden_state) {
    for (const std::string family : {"qwen3_5_moe", "qwen3_5_moe_published"}) {
        const Fixture fixture = load(family);
        for (const int ranks : {1, 2}) {
            Team team(ranks, false);
            auto target = engine_of(fixture.checkpoint, team);
            ASSERT_NE(target, nullptr);
            model::Speculation speculation;
            speculation.method = model::SpeculationMethod::mtp;
            speculation.steps = 3;
            speculation.acceptance = *model::acceptance_from_conditional({0.5, 0.5, 0.5});
            EngineOptions options;
            options.max_length = 256;
            auto drafter = load_mtp_drafter(fixture.checkpoint, speculation, *target, options);
            ASSERT_TRUE(drafter.has_value()) << drafter.error().to_text();
            ForwardOutput output;
            (void)forward(*target, Pass::verify, fixture.integers("prompt_ids"), {}, {}, &output);
            expect_reference_drafts(**drafter, fixture, "mtp", output.hidden);
        }
    }
}

}  // namespace
}  // namespace draftboard::backend::cpu
