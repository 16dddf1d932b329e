// SPDX-License-Identifier: Apache-2.0
#include "backend/decode_loop.h"

#include <cmath>

#include <gtest/gtest.h>

#include "backend/scripted_drafter.h"
#include "tests/backend/loop/toy_setup.h"

namespace draftboard::backend {
namespace {

/// Requests of different lengths, so that sequences join and leave at different times. Repeating prompts let lookups hit.
std::vector<Request> mixed_requests(int count, const Sampling& sampling = {}) {
    std::vector<Request> out;
    for (int i = 0; i < count; ++i) {
        Request request;
        for (int t = 0; t < 3 + 5 * i; ++t) request.prompt.push_back((t % 4 + i) % 12);
        request.sampling = sampling;
        request.max_tokens = 60 - 7 * i;
        out.push_back(std::move(request));
    }
    return out;
}

struct Outcome {
    std::vector<std::vector<int>> tokens;
    std::vector<Finish> finishes;
    AcceptanceCounter acceptance;
    LoopTotals totals;
};

Outcome run(ToyPair& pair, const std::vector<Request>& requests, LoopOptions options = {}) {
    DecodeLoop loop(*pair.target, pair.drafter.get(), options);
    for (const Request& request : requests) EXPECT_TRUE(loop.submit(request));
    const auto done = loop.run();
    EXPECT_TRUE(done) << (done ? "" : done.error().to_text());
    Outcome out;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        out.tokens.push_back(loop.result(static_cast<int>(i)).tokens);
        out.finishes.push_back(loop.result(static_cast<int>(i)).finish);
    }
    out.acceptance = loop.acceptance();
    out.totals = loop.totals();
    EXPECT_TRUE(pair.target->empty()) << "the target still holds rows";
    if (pair.drafter_model) {
        EXPECT_TRUE(pair.drafter_model->empty()) << "the drafter still holds rows";
    }
    return out;
}

TEST(DecodeLoop, Plain_greedy_decoding_is_the_argmax_again_and_again) {
    const ToySetup setup;
    ToyPair pair = make_pair_of(ToyMethod::none, setup);
    const auto requests = mixed_requests(5);
    const Outcome outcome = run(pair, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        std::vector<int> text = requests[i].prompt;
        while (static_cast<int>(text.size() - requests[i].prompt.size()) < requests[i].max_tokens) {
            text.push_back(greedy_choice(setup.language.logits(text[text.size() - 2], text.back(),
                                                               static_cast<std::int64_t>(text.size()) - 1))
                               .token);
        }
        EXPECT_EQ(outcome.tokens[i],
                  std::vector<int>(text.begin() + static_cast<std::ptrdiff_t>(requests[i].prompt.size()), text.end()));
    }
    EXPECT_EQ(pair.target->passes(model::Pass::verify), 0);
}

TEST(DecodeLoop, Greedy_output_with_any_drafter_equals_plain_decoding_token_for_token) {
    const auto requests = mixed_requests(6);
    ToySetup setup;
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    const Outcome expected = run(plain, requests);
    for (const double noise : {0.0, 0.4, 1.0}) {  // a perfect, a fair, and an unrelated drafter
        for (const ToyMethod method : drafting_methods()) {
            for (int capacity = 1; capacity <= 4; ++capacity) {
                SCOPED_TRACE(to_text(method) + ", noise " + std::to_string(noise) + ", batch " + std::to_string(capacity));
                setup.drafter_noise = noise;
                setup.capacity = capacity;
                ToyPair pair = make_pair_of(method, setup);
                const Outcome outcome = run(pair, requests);
                EXPECT_EQ(outcome.tokens, expected.tokens);
                const bool model = pair.drafter_model != nullptr;
                // A perfect drafter is always right: L = 1 + steps. For trees the greedy path is the likeliest one at each node, if it was kept.
                if (model && noise == 0 && method != ToyMethod::eagle3_tree && method != ToyMethod::mtp_tree &&
                    method != ToyMethod::draft_tree) {
                    EXPECT_DOUBLE_EQ(outcome.acceptance.acceptance_length().value, 1.0 + setup.steps);
                }
                if (noise < 1) {
                    EXPECT_GT(outcome.acceptance.accepted(), 0);
                }
                if (noise > 0) {
                    EXPECT_LT(outcome.acceptance.reached(3), outcome.acceptance.hits());
                }
            }
        }
    }
}

TEST(DecodeLoop, Greedy_output_is_the_same_at_every_depth_and_width) {
    const auto requests = mixed_requests(3);
    ToySetup setup;
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    const Outcome expected = run(plain, requests);
    for (const int steps : {1, 2, 5}) {
        for (const int top_k : {1, 2, 4}) {
            for (const int draft_tokens : {2, 6, 40}) {
                SCOPED_TRACE(testing::Message()
                             << steps << " steps, " << top_k << " branches, " << draft_tokens << " tokens");
                setup.steps = steps;
                setup.top_k = top_k;
                setup.draft_tokens = draft_tokens;
                for (const ToyMethod method : {ToyMethod::eagle3_tree, ToyMethod::draft_tree}) {
                    ToyPair pair = make_pair_of(method, setup);
                    EXPECT_EQ(run(pair, requests).tokens, expected.tokens);
                }
            }
        }
    }
}

TEST(DecodeLoop, A_wider_tree_accepts_at_least_as_much_as_the_chain_of_its_depth) {
    const auto requests = mixed_requests(6);
    ToySetup setup;
    setup.drafter_noise = 0.5;
    ToyPair chain = make_pair_of(ToyMethod::eagle3_chain, setup);
    setup.draft_tokens = 3 + 2 * 9 + 1;  // every node of the beam
    ToyPair tree = make_pair_of(ToyMethod::eagle3_tree, setup);
    EXPECT_GT(run(tree, requests).acceptance.acceptance_length().value,
              run(chain, requests).acceptance.acceptance_length().value);
}

TEST(DecodeLoop, A_head_with_a_small_vocabulary_of_its_own_still_gives_the_targets_text) {
    const auto requests = mixed_requests(4);
    ToySetup setup;
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    const Outcome expected = run(plain, requests);
    setup.draft_vocabulary = {11, 2, 5, 7, 3};
    for (const ToyMethod method : {ToyMethod::eagle3_chain, ToyMethod::eagle3_tree}) {
        ToyPair pair = make_pair_of(method, setup);
        const Outcome outcome = run(pair, requests);
        EXPECT_EQ(outcome.tokens, expected.tokens);
        EXPECT_GT(outcome.acceptance.accepted(), 0);
    }
}

TEST(DecodeLoop, Long_prompts_run_in_chunks_and_drafters_follow) {
    ToySetup setup;
    Request request;
    for (int t = 0; t < 700; ++t) request.prompt.push_back(t * 7 % 12);
    request.max_tokens = 20;
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    const Outcome expected = run(plain, {request});
    EXPECT_EQ(plain.target->passes(model::Pass::prefill), 3);  // 256 + 256 + 188
    EXPECT_EQ(plain.target->widest_prefill(), 256);
    for (const ToyMethod method : drafting_methods()) {
        for (const int rows : {1, 100, 256, 700}) {
            ToyPair pair = make_pair_of(method, setup);
            EXPECT_EQ(run(pair, {request}, {.prefill_rows = rows}).tokens, expected.tokens)
                << to_text(method) << " " << rows;
            EXPECT_LE(pair.target->widest_prefill(), rows);
            if (pair.drafter_model) {
                EXPECT_LE(pair.drafter_model->widest_prefill(), rows);
            }
        }
    }
}

TEST(DecodeLoop, A_prompt_of_one_token_is_enough) {
    for (const ToyMethod method : drafting_methods()) {
        ToyPair plain = make_pair_of(ToyMethod::none, {});
        ToyPair pair = make_pair_of(method, {});
        EXPECT_EQ(run(pair, {Request{{4}, {}, 30, {}}}).tokens, run(plain, {Request{{4}, {}, 30, {}}}).tokens)
            << to_text(method);
    }
}

TEST(DecodeLoop, A_full_context_ends_the_text_at_the_same_token_with_every_drafter) {
    ToySetup setup;
    setup.max_length = 40;
    setup.drafter_max_length = 33;  // less room than the target: the last tokens come from plain steps
    const std::vector<Request> requests{Request{{1, 2, 3, 1, 2}, {}, 1000, {}},
                                        Request{std::vector<int>(35, 4), {}, 1000, {}},
                                        Request{std::vector<int>(40, 5), {}, 1000, {}}};
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    const Outcome expected = run(plain, requests);
    // A cache of 40 rows holds a text of 41 tokens, the last one not run: 36, 6 and 1 generated
    EXPECT_EQ(expected.tokens[0].size(), 36U);
    EXPECT_EQ(expected.tokens[1].size(), 6U);
    EXPECT_EQ(expected.tokens[2].size(), 1U);
    for (const ToyMethod method : drafting_methods()) {
        ToyPair pair = make_pair_of(method, setup);
        const Outcome outcome = run(pair, requests);
        EXPECT_EQ(outcome.tokens, expected.tokens) << to_text(method);
        for (const Finish finish : outcome.finishes) EXPECT_EQ(finish, Finish::max_length);
    }
}

TEST(DecodeLoop, An_end_token_is_the_last_one_even_in_the_middle_of_accepted_drafts) {
    ToySetup setup;
    setup.drafter_noise = 0;
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    const auto free = run(plain, {Request{{1, 2}, {}, 60, {}}}).tokens[0];
    for (std::size_t at = 0; at < 12; ++at) {
        const int end = free[at];
        const auto first = static_cast<std::size_t>(std::find(free.begin(), free.end(), end) - free.begin());
        ToyPair pair = make_pair_of(ToyMethod::eagle3_chain, setup);
        const Outcome outcome = run(pair, {Request{{1, 2}, {}, 60, {end}}});
        EXPECT_EQ(outcome.tokens[0], std::vector<int>(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(first) + 1));
        EXPECT_EQ(outcome.finishes[0], Finish::end_token);
    }
}

TEST(DecodeLoop, Sampled_output_does_not_depend_on_batch_mates) {
    const auto requests = mixed_requests(6, {.temperature = 0.9, .top_p = 0.95});
    for (const ToyMethod method : drafting_methods()) {
        ToySetup setup;
        setup.capacity = 1;
        ToyPair alone = make_pair_of(method, setup);
        setup.capacity = 4;
        ToyPair together = make_pair_of(method, setup);
        EXPECT_EQ(run(alone, requests).tokens, run(together, requests).tokens) << to_text(method);
    }
}

TEST(DecodeLoop, The_seed_decides_and_every_request_draws_its_own) {
    const std::vector<Request> twice(2, Request{{1, 2, 3}, {.temperature = 1.5}, 40, {}});
    ToyPair pair = make_pair_of(ToyMethod::mtp_chain, {});
    const Outcome first = run(pair, twice, {.seed = 1});
    EXPECT_EQ(run(pair, twice, {.seed = 1}).tokens, first.tokens);
    EXPECT_NE(run(pair, twice, {.seed = 2}).tokens, first.tokens);
    EXPECT_NE(first.tokens[0], first.tokens[1]);
}

TEST(DecodeLoop, Greedy_and_sampled_requests_share_a_batch) {
    std::vector<Request> requests = mixed_requests(4);
    requests[1].sampling = requests[3].sampling = {.temperature = 1};
    ToyPair plain = make_pair_of(ToyMethod::none, {});
    const Outcome expected = run(plain, requests);
    for (const ToyMethod method : drafting_methods()) {
        ToyPair pair = make_pair_of(method, {});
        const Outcome outcome = run(pair, requests);
        EXPECT_EQ(outcome.tokens[0], expected.tokens[0]) << to_text(method);
        EXPECT_EQ(outcome.tokens[2], expected.tokens[2]) << to_text(method);
    }
}

TEST(DecodeLoop, Drafters_run_the_passes_that_the_plan_prices) {
    // One draft_extend and steps - 1 drafts for each verify pass.
    ToySetup setup;
    setup.steps = 4;
    for (const ToyMethod method :
         {ToyMethod::eagle3_chain, ToyMethod::eagle3_tree, ToyMethod::mtp_chain, ToyMethod::draft_chain}) {
        ToyPair pair = make_pair_of(method, setup);
        const Outcome outcome = run(pair, mixed_requests(3));
        const int verify = pair.target->passes(model::Pass::verify);
        EXPECT_EQ(outcome.totals.cycles, verify);
        EXPECT_EQ(pair.drafter_model->passes(model::Pass::draft_extend), verify);
        EXPECT_EQ(pair.drafter_model->passes(model::Pass::draft), 3 * verify);
        EXPECT_EQ(pair.target->passes(model::Pass::decode), 0);
    }
}

TEST(DecodeLoop, Missed_lookups_step_plainly_or_verify_padding_as_told) {
    // All tokens differ: no suffix stands earlier until the text repeats itself.
    ToySetup setup;
    setup.capacity = 1;
    const std::vector<Request> requests{Request{{0, 1, 2, 3, 4, 5}, {}, 40, {}}};
    ToyPair padded = make_pair_of(ToyMethod::ngram, setup);
    ToyPair plain = make_pair_of(ToyMethod::ngram_plain_misses, setup);
    const Outcome a = run(padded, requests);
    const Outcome b = run(plain, requests);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(padded.target->passes(model::Pass::decode), 0);
    EXPECT_EQ(plain.target->passes(model::Pass::decode), b.acceptance.cycles() - b.acceptance.hits());
    EXPECT_EQ(a.acceptance.hits(), b.acceptance.hits());
    EXPECT_EQ(a.acceptance.cycles(), b.acceptance.cycles());
}

TEST(DecodeLoop, Tokens_stream_in_order_and_cycles_add_up) {
    const auto requests = mixed_requests(5);
    ToyPair pair = make_pair_of(ToyMethod::eagle3_tree, {});
    std::vector<std::vector<int>> streamed(requests.size());
    LoopOptions options;
    options.on_tokens = [&](int request, std::span<const int> tokens) {
        EXPECT_FALSE(tokens.empty());
        auto& out = streamed[static_cast<std::size_t>(request)];
        out.insert(out.end(), tokens.begin(), tokens.end());
    };
    DecodeLoop loop(*pair.target, pair.drafter.get(), options);
    for (const Request& request : requests) ASSERT_TRUE(loop.submit(request));
    int emitted = 0;
    for (bool more = true; more;) {
        const auto stepped = loop.step();
        ASSERT_TRUE(stepped);
        more = *stepped;
        const CycleReport& cycle = loop.last_cycle();
        emitted += cycle.emitted;
        EXPECT_LE(cycle.emitted, cycle.accepted + cycle.sequences);
        EXPECT_GE(cycle.draft_ms, 0);
        EXPECT_GT(cycle.verify_ms, 0);
        EXPECT_GE(cycle.host_ms, 0);
    }
    // The first token of each request comes from its prompt.
    int tokens = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(streamed[i], loop.result(static_cast<int>(i)).tokens);
        tokens += static_cast<int>(streamed[i].size());
    }
    EXPECT_EQ(tokens, emitted + static_cast<int>(requests.size()));
    EXPECT_EQ(loop.totals().throughput.tokens(), emitted);
    AcceptanceCounter sum(0);
    for (std::size_t i = 0; i < requests.size(); ++i) sum.add(loop.result(static_cast<int>(i)).acceptance);
    EXPECT_EQ(sum.histogram(), loop.acceptance().histogram());
}

TEST(DecodeLoop, A_cancel_ends_all_requests_and_empties_the_caches) {
    for (const std::size_t after : {1U, 2U, 9U}) {
        ToySetup setup;
        setup.capacity = 2;
        ToyPair pair = make_pair_of(ToyMethod::mtp_chain, setup);
        std::atomic<bool> cancel{false};
        std::size_t calls = 0;
        LoopOptions options;
        options.cancel = &cancel;
        options.on_tokens = [&](int, std::span<const int>) { cancel = ++calls >= after; };
        const Outcome outcome = run(pair, mixed_requests(5), options);
        for (const Finish finish : outcome.finishes) EXPECT_EQ(finish, Finish::cancelled);
        EXPECT_LE(calls, after + 1);  // the cycle that was on ends for its two sequences
    }
}

TEST(DecodeLoop, Refuses_requests_that_can_not_be_served) {
    ToySetup setup;
    setup.max_length = 10;
    ToyPair pair = make_pair_of(ToyMethod::none, setup);
    DecodeLoop loop(*pair.target, nullptr, {});
    EXPECT_FALSE(loop.submit({{}, {}, 5, {}}));
    EXPECT_FALSE(loop.submit({{12}, {}, 5, {}}));
    EXPECT_FALSE(loop.submit({{-1}, {}, 5, {}}));
    EXPECT_FALSE(loop.submit({{1}, {}, 0, {}}));
    EXPECT_FALSE(loop.submit({{1}, {.temperature = -2}, 5, {}}));
    EXPECT_EQ(loop.submit({std::vector<int>(11, 1), {}, 5, {}}).error().code, model::ErrorCode::too_large);
    EXPECT_EQ(loop.submit({std::vector<int>(10, 1), {}, 5, {}}).value(), 0);  // refused ones took no number
}

TEST(DecodeLoop, Scripted_acceptance_comes_out_as_the_script_says) {
    const std::vector<double> rates{0.8, 0.6, 0.5};
    ToyPair pair = make_pair_of(ToyMethod::none, {});
    auto drafter = ScriptedDrafter::create(rates, {0});
    ASSERT_TRUE(drafter);
    pair.drafter = std::make_unique<ScriptedDrafter>(*std::move(drafter));
    // Enough tokens for 20000 cycles or so: L = 1 + 0.8 + 0.48 + 0.24 = 2.52
    std::vector<Request> requests(50, Request{{1, 2, 3}, {}, 1000, {}});
    const Outcome outcome = run(pair, requests);
    for (int i = 1; i <= 3; ++i) {
        const double a = rates[static_cast<std::size_t>(i - 1)];
        const auto trials = static_cast<double>(outcome.acceptance.reached(i - 1));
        ASSERT_GT(trials, 5000);
        EXPECT_NEAR(outcome.acceptance.conditional(i).value, a, 4 * std::sqrt(a * (1 - a) / trials));
    }
    const model::Interval length = outcome.acceptance.acceptance_length();
    EXPECT_LT(length.high - length.low, 0.06);
    EXPECT_NEAR(length.value, 2.52, 2.5 * (length.high - length.low));  // four standard deviations: 4 / 1.645 half-widths
}

TEST(DecodeLoop, Scripted_acceptance_keeps_the_targets_own_choice_at_the_end_of_each_cycle) {
    const ToySetup setup;
    ToyPair pair = make_pair_of(ToyMethod::none, setup);
    auto drafter = ScriptedDrafter::create({0.0, 0.0}, {});
    ASSERT_TRUE(drafter);
    pair.drafter = std::make_unique<ScriptedDrafter>(*std::move(drafter));
    ToyPair plain = make_pair_of(ToyMethod::none, setup);
    EXPECT_EQ(run(pair, mixed_requests(3)).tokens,
              run(plain, mixed_requests(3)).tokens);  // nothing accepted: all are its own
}

}  // namespace
}  // namespace draftboard::backend
