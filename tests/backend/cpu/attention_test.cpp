// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sample_matrices.h"

namespace draftboard::backend::cpu {
namespace {

/// A cache, and queries for its uncommitted rows.
struct Case {
    std::int64_t context = 0;
    std::vector<std::int32_t> parents;  ///< of all uncommitted rows
    int heads = 1;
    int kv_heads = 1;
    int key_width = 1;
    int value_width = 1;
    bool mla = false;
    std::int64_t stride = 1;
    std::vector<float> keys;
    std::vector<float> values;
    std::vector<float> queries;  ///< one row for each uncommitted row
};

Case make_case(std::int64_t context, std::vector<std::int32_t> parents, int heads, int kv_heads, int dim, std::uint64_t seed) {
    Case result;
    result.context = context;
    result.parents = std::move(parents);
    result.heads = heads;
    result.kv_heads = kv_heads;
    result.key_width = result.value_width = dim;
    result.stride = std::int64_t{kv_heads} * dim + 3;
    const auto slots = static_cast<std::size_t>(context) + result.parents.size();
    result.keys = random_floats(slots * static_cast<std::size_t>(result.stride), seed);
    result.values = random_floats(slots * static_cast<std::size_t>(result.stride), seed + 1);
    result.queries = random_floats(result.parents.size() * static_cast<std::size_t>(heads * dim), seed + 2);
    return result;
}

Case make_mla_case(std::int64_t context, std::vector<std::int32_t> parents, int heads, int latent, int rope, std::uint64_t seed) {
    Case result = make_case(context, std::move(parents), heads, 1, latent + rope, seed);
    result.mla = true;
    result.value_width = latent;
    result.stride = latent + rope;
    return result;
}

float scale_of(const Case& c) { return 1.0F / std::sqrt(static_cast<float>(c.key_width)); }

/// Rows [first, first + rows) of the uncommitted ones.
std::vector<float> attend(const Case& c, int first, int rows, Scratch& scratch) {
    std::vector<float> output(static_cast<std::size_t>(rows * c.heads * c.value_width), std::numeric_limits<float>::quiet_NaN());
    AttentionRows pass;
    pass.rows = rows;
    pass.first_row = first;
    pass.context = c.context;
    pass.parents = c.parents.data();
    pass.query_stride = std::int64_t{c.heads} * c.key_width;
    pass.queries = c.queries.data() + first * pass.query_stride;
    pass.output = output.data();
    pass.output_stride = std::int64_t{c.heads} * c.value_width;
    pass.heads = c.heads;
    pass.scale = scale_of(c);
    if (c.mla) {
        attend_mla(pass, c.value_width, c.key_width - c.value_width, c.keys.data(), scratch);
    } else {
        attend_gqa(pass, c.kv_heads, c.key_width, c.keys.data(), c.values.data(), c.stride, scratch);
    }
    return output;
}

std::vector<std::int64_t> visible_slots(const Case& c, int row) {
    std::vector<std::int64_t> slots;
    for (std::int32_t u = row; u >= 0; u = c.parents[static_cast<std::size_t>(u)]) slots.push_back(c.context + u);
    for (std::int64_t s = c.context - 1; s >= 0; --s) slots.push_back(s);
    std::reverse(slots.begin(), slots.end());
    return slots;
}

/// sum_s p_s v_s of one row and head in double precision.
std::vector<double> exact(const Case& c, int row, int head) {
    const std::int64_t at = std::int64_t{head / (c.heads / c.kv_heads)} * c.key_width;
    const float* query = c.queries.data() + (std::int64_t{row} * c.heads + head) * c.key_width;
    const float* values = c.mla ? c.keys.data() : c.values.data();
    double total = 0;
    std::vector<double> output(static_cast<std::size_t>(c.value_width));
    for (const std::int64_t slot : visible_slots(c, row)) {
        double score = 0;
        for (int i = 0; i < c.key_width; ++i) {
            score += static_cast<double>(query[i]) * static_cast<double>(c.keys[static_cast<std::size_t>(slot * c.stride + at + i)]);
        }
        const double p = std::exp(score * static_cast<double>(scale_of(c)));
        total += p;
        for (std::size_t i = 0; i < output.size(); ++i) {
            output[i] += p * static_cast<double>(values[slot * c.stride + at + static_cast<std::int64_t>(i)]);
        }
    }
    for (double& value : output) value /= total;
    return output;
}

std::vector<std::int32_t> chain(int rows) {
    std::vector<std::int32_t> parents(static_cast<std::size_t>(rows));
    for (int u = 0; u < rows; ++u) parents[static_cast<std::size_t>(u)] = u - 1;
    return parents;
}

class Attention : public testing::TestWithParam<InstructionSet> {
   protected:
    Attention() { scratch_.instruction_set = GetParam(); }

    void expect_exact(const Case& c, int first, int rows) {
        const auto output = attend(c, first, rows, scratch_);
        for (int i = 0; i < rows; ++i) {
            for (int h = 0; h < c.heads; ++h) {
                const auto expected = exact(c, first + i, h);
                for (int j = 0; j < c.value_width; ++j) {
                    // An average of numbers below 5: 1e-5 leaves room for scores near 10 with relative errors of 1e-6.
                    ASSERT_NEAR(output[static_cast<std::size_t>((i * c.heads + h) * c.value_width + j)], expected[static_cast<std::size_t>(j)], 1e-5)
                        << "context " << c.context << " row " << first + i << " head " << h << " column " << j;
                }
            }
        }
    }
    Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(All, Attention, testing::ValuesIn(supported_instruction_sets()), set_name);

TEST_P(Attention, Agrees_with_double_precision_over_chains_of_any_length) {
    for (const std::int64_t context : {0, 1, 63, 64, 65, 200}) {
        for (const int rows : {1, 2, 5, 70}) {
            expect_exact(make_case(context, chain(rows), 4, 2, 16, static_cast<std::uint64_t>(context)), 0, rows);
        }
    }
}

TEST_P(Attention, Agrees_with_double_precision_for_any_heads_and_widths) {
    for (const int dim : {1, 8, 20, 64, 128}) {
        for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {6, 1}, {6, 2}, {3, 3}, {40, 1}}) {
            expect_exact(make_case(77, chain(3), heads, kv_heads, dim, static_cast<std::uint64_t>(dim)), 1, 2);
        }
    }
    for (const auto& [latent, rope] : {std::pair{16, 8}, {32, 0}, {48, 20}, {512, 64}}) {
        expect_exact(make_mla_case(90, chain(2), 5, latent, rope, 3), 0, 2);
    }
}

TEST_P(Attention, A_row_of_a_tree_sees_its_ancestors_and_no_other_branch) {
    // 0 - 1 - 3    two branches below 0, and a second root 4 with a child
    //   \ 2        4 - 5
    const std::vector<std::int32_t> parents{-1, 0, 0, 1, -1, 4, 2};
    for (const std::int64_t context : {0, 5, 60, 61, 64, 130}) {
        expect_exact(make_case(context, parents, 4, 2, 32, 4), 0, 7);
        expect_exact(make_mla_case(context, parents, 3, 24, 8, 5), 2, 5);
    }
}

TEST_P(Attention, A_row_has_the_same_bits_in_any_pass) {
    const Case c = make_case(100, chain(40), 6, 2, 48, 6);
    const auto all = attend(c, 0, 40, scratch_);
    const std::size_t width = 6 * 48;
    for (int first = 0; first < 40; first += 3) {
        for (const int rows : {1, 2, 4, 7}) {
            const int count = std::min(rows, 40 - first);
            const auto some = attend(c, first, count, scratch_);
            ASSERT_EQ(std::memcmp(some.data(), all.data() + static_cast<std::size_t>(first) * width, some.size() * sizeof(float)), 0);
        }
    }
}

TEST_P(Attention, A_row_has_the_same_bits_before_and_after_its_ancestors_are_committed) {
    const Case c = make_case(50, chain(30), 4, 4, 64, 7);
    const auto all = attend(c, 0, 30, scratch_);
    for (const int committed : {1, 5, 14, 29}) {
        Case later = c;
        later.context += committed;
        later.parents = chain(30 - committed);
        later.queries.erase(later.queries.begin(), later.queries.begin() + std::ptrdiff_t{committed} * 4 * 64);
        const auto rest = attend(later, 0, 30 - committed, scratch_);
        ASSERT_EQ(std::memcmp(rest.data(), all.data() + static_cast<std::size_t>(committed * 4 * 64), rest.size() * sizeof(float)), 0);
    }
}

TEST_P(Attention, A_row_of_a_tree_has_the_bits_of_the_same_path_decoded_in_order) {
    const bool holds = rc::check("tree row == chain row", [this] {
        const int rows = *rc::gen::inRange(2, 24);
        std::vector<std::int32_t> parents(static_cast<std::size_t>(rows));
        for (int u = 0; u < rows; ++u) parents[static_cast<std::size_t>(u)] = *rc::gen::inRange(-1, u);
        const auto context = *rc::gen::inRange<std::int64_t>(0, 140);
        const bool mla = *rc::gen::arbitrary<bool>();
        const Case tree = mla ? make_mla_case(context, parents, 3, 32, 16, 8) : make_case(context, parents, 4, 2, 32, 8);
        const auto outputs = attend(tree, 0, rows, scratch_);
        const int row = *rc::gen::inRange(0, rows);

        // The path of that row, its slots moved to the end of the context and all but the last committed.
        const auto slots = visible_slots(tree, row);
        Case decoded = tree;
        decoded.context = static_cast<std::int64_t>(slots.size()) - 1;
        decoded.parents = {-1};
        for (std::size_t p = 0; p < slots.size(); ++p) {
            std::copy_n(tree.keys.begin() + slots[p] * tree.stride, tree.stride, decoded.keys.begin() + static_cast<std::ptrdiff_t>(p) * tree.stride);
            std::copy_n(tree.values.begin() + slots[p] * tree.stride, tree.stride, decoded.values.begin() + static_cast<std::ptrdiff_t>(p) * tree.stride);
        }
        decoded.queries.erase(decoded.queries.begin(), decoded.queries.begin() + std::ptrdiff_t{row} * tree.heads * tree.key_width);
        const auto alone = attend(decoded, 0, 1, scratch_);
        RC_ASSERT(std::memcmp(alone.data(), outputs.data() + static_cast<std::size_t>(row) * alone.size(), alone.size() * sizeof(float)) == 0);
    });
    EXPECT_TRUE(holds);
}

TEST_P(Attention, Large_scores_neither_overflow_nor_lose_the_largest) {
    // q k scale = 200 for slot 5, 0 elsewhere: all weight falls on slot 5.
    Case c = make_case(80, chain(1), 1, 1, 16, 9);
    std::fill(c.keys.begin(), c.keys.end(), 0.0F);
    std::fill(c.queries.begin(), c.queries.end(), 0.0F);
    c.queries[0] = 80;
    c.keys[static_cast<std::size_t>(5 * c.stride)] = 10;
    const auto output = attend(c, 0, 1, scratch_);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(output[i], c.values[static_cast<std::size_t>(5 * c.stride) + i]);
}

TEST_P(Attention, Numbers_of_later_rows_do_not_reach_a_row) {
    Case c = make_case(10, chain(3), 4, 2, 32, 10);
    const auto before = attend(c, 0, 3, scratch_);
    for (std::int64_t i = 12 * c.stride; i < 13 * c.stride; ++i) c.values[static_cast<std::size_t>(i)] = std::numeric_limits<float>::infinity();
    const auto after = attend(c, 0, 3, scratch_);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 2 * 4 * 32, after.begin()));
    EXPECT_FALSE(std::isfinite(after.back()));
}

TEST_P(Attention, Without_parents_the_rows_are_a_chain) {
    const Case c = make_case(20, chain(4), 2, 1, 16, 11);
    const auto expected = attend(c, 1, 3, scratch_);
    std::vector<float> output(expected.size());
    AttentionRows pass;
    pass.rows = 3;
    pass.first_row = 1;
    pass.context = 20;
    pass.queries = c.queries.data() + 32;
    pass.query_stride = pass.output_stride = 32;
    pass.output = output.data();
    pass.heads = 2;
    pass.scale = scale_of(c);
    attend_gqa(pass, 1, 16, c.keys.data(), c.values.data(), c.stride, scratch_);
    EXPECT_EQ(output, expected);
}

}  // namespace
}  // namespace draftboard::backend::cpu
