// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "../cpu/sample_matrices.h"
#include "backend/cpu/attention.h"
#include "backend/cuda/delta_net.h"
#include "device_array.h"

namespace draftboard::backend::cuda {
namespace {

struct Shape {
    bool mla = false;
    int heads = 1;
    int kv_heads = 1;
    int key = 8;    ///< MLA: latent + rope
    int value = 8;  ///< GQA: the same
    CacheFormat format = CacheFormat::fp32;
    [[nodiscard]] std::int64_t slot() const { return std::int64_t{kv_heads} * key; }
    [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(key)); }
};

Shape gqa(int heads, int kv_heads, int dim, CacheFormat format) {
    return {false, heads, kv_heads, dim, dim, format};
}
Shape mla(int heads, int latent, int rope, CacheFormat format) {
    return {true, heads, 1, latent + rope, latent, format};
}

/// A sequence's cache, and a query for each of its uncommitted rows.
struct Sequence {
    int committed = 0;
    std::vector<std::int32_t> parents;
    std::vector<float> keys, values, queries;
};

Sequence make_sequence(const Shape& shape, int committed, std::vector<std::int32_t> parents,
                       std::uint64_t seed) {
    Sequence result{committed, std::move(parents), {}, {}, {}};
    const auto numbers = (static_cast<std::size_t>(committed) + result.parents.size()) *
                         static_cast<std::size_t>(shape.slot());
    result.keys = cpu::random_floats(numbers, seed);
    if (!shape.mla) result.values = cpu::random_floats(numbers, seed + 1);
    if (shape.format == CacheFormat::bf16) {
        for (float& value : result.keys) value = rounded_to_bf16(value);
        for (float& value : result.values) value = rounded_to_bf16(value);
    }
    result.queries = cpu::random_floats(
        result.parents.size() * static_cast<std::size_t>(shape.heads * shape.key), seed + 2);
    return result;
}

/// Rows [first, first + rows) of a sequence.
struct Part {
    const Sequence* sequence = nullptr;
    int first = 0;
};

/// Caches in slots count, count - 1, ...; what no row wrote is NaN.
struct DeviceCache {
    DeviceCache(const Shape& shape, const std::vector<Part>& parts) {
        std::int64_t most = 0;
        for (const Part& part : parts)
            most = std::max(
                most, std::int64_t{part.sequence->committed} + std::ssize(part.sequence->parents));
        stride = (most + 3) * shape.slot();
        std::vector<float> all_keys((parts.size() + 1) * static_cast<std::size_t>(stride), kPoison);
        std::vector<float> all_values(shape.mla ? 0 : all_keys.size(), kPoison);
        for (std::size_t s = 0; s < parts.size(); ++s) {
            const auto at = static_cast<std::ptrdiff_t>(parts.size() - s) * stride;
            std::ranges::copy(parts[s].sequence->keys, all_keys.begin() + at);
            if (!shape.mla) std::ranges::copy(parts[s].sequence->values, all_values.begin() + at);
        }
        if (shape.format == CacheFormat::bf16) {
            half_keys = DeviceArray(as_bf16(all_keys));
            half_values = DeviceArray(as_bf16(all_values));
            view = {half_keys.get(), shape.mla ? nullptr : half_values.get(), shape.format,
                    shape.slot(), stride};
        } else {
            keys = DeviceArray(all_keys);
            values = DeviceArray(all_values);
            view = {keys.get(), shape.mla ? nullptr : values.get(), shape.format, shape.slot(),
                    stride};
        }
    }
    std::int64_t stride = 0;
    DeviceArray<float> keys, values;
    DeviceArray<std::uint16_t> half_keys, half_values;
    KeyValueCache view;
};

/// The outputs, sequence after sequence.
std::vector<std::vector<float>> attend(const Shape& shape, const std::vector<Part>& parts, int rows,
                                       std::int64_t max_visible = 0) {
    std::vector<PassSequence> sequences;
    std::vector<float> queries;
    std::int64_t most = 0;
    for (std::size_t s = 0; s < parts.size(); ++s) {
        const Sequence& sequence = *parts[s].sequence;
        sequences.push_back({static_cast<int>(parts.size() - s), sequence.committed, parts[s].first,
                             sequence.parents});
        const auto width = static_cast<std::ptrdiff_t>(shape.heads) * shape.key;
        queries.insert(queries.end(), sequence.queries.begin() + parts[s].first * width,
                       sequence.queries.begin() + (parts[s].first + rows) * width);
        most = std::max(most, std::int64_t{sequence.committed} + std::ssize(sequence.parents));
    }
    if (max_visible == 0) max_visible = most;
    const DevicePass pass(sequences, rows, true);
    const DeviceCache cache(shape, parts);
    const DeviceArray<float> query(queries);
    const auto total = parts.size() * static_cast<std::size_t>(rows * shape.heads * shape.value);
    const DeviceArray<float> output(total, kPoison);
    const auto bytes =
        attention_workspace_bytes(pass.view().rows(), shape.heads, shape.value, max_visible);
    const DeviceArray<float> workspace(static_cast<std::size_t>(bytes) / sizeof(float) + 4,
                                       kPoison);
    if (shape.mla) {
        attend_mla(pass.view(), query.get(), shape.heads, shape.value, shape.key - shape.value,
                   shape.scale(), cache.view, max_visible, output.get(), workspace.get(), nullptr);
    } else {
        attend_gqa(pass.view(), query.get(), shape.heads, shape.kv_heads, shape.key, shape.scale(),
                   cache.view, max_visible, output.get(), workspace.get(), nullptr);
    }
    const auto all = output.host();
    std::vector<std::vector<float>> results;
    const auto each = static_cast<std::ptrdiff_t>(total / parts.size());
    for (std::size_t s = 0; s < parts.size(); ++s) {
        results.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(s) * each,
                             all.begin() + static_cast<std::ptrdiff_t>(s + 1) * each);
    }
    return results;
}

std::vector<float> attend_one(const Shape& shape, const Sequence& sequence, int first, int rows,
                              std::int64_t max_visible = 0) {
    return attend(shape, {{&sequence, first}}, rows, max_visible).front();
}

/// The CPU engine's result.
std::vector<float> expected_output(const Shape& shape, const Sequence& sequence, int first,
                                   int rows) {
    cpu::Scratch scratch;
    std::vector<float> output(static_cast<std::size_t>(rows * shape.heads * shape.value));
    cpu::AttentionRows pass;
    pass.rows = rows;
    pass.first_row = first;
    pass.context = sequence.committed;
    pass.parents = sequence.parents.data();
    pass.query_stride = std::int64_t{shape.heads} * shape.key;
    pass.queries = sequence.queries.data() + first * pass.query_stride;
    pass.output = output.data();
    pass.output_stride = std::int64_t{shape.heads} * shape.value;
    pass.heads = shape.heads;
    pass.scale = shape.scale();
    if (shape.mla) {
        cpu::attend_mla(pass, shape.value, shape.key - shape.value, sequence.keys.data(), scratch);
    } else {
        cpu::attend_gqa(pass, shape.kv_heads, shape.key, sequence.keys.data(),
                        sequence.values.data(), shape.slot(), scratch);
    }
    return output;
}

void expect_near(const Shape& shape, const std::vector<float>& output,
                 const std::vector<float>& expected) {
    // Averages of numbers below 5. Floats: scores near 5 with relative errors of 1e-6. bf16 caches:
    // queries and weights keep 16 bits, an error of 2^-17 each.
    const double tolerance = shape.format == CacheFormat::fp32 ? 1e-5 : 6e-5;
    ASSERT_EQ(output.size(), expected.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
        ASSERT_NEAR(output[i], expected[i], tolerance)
            << "heads " << shape.heads << " key " << shape.key << " value " << shape.value
            << " number " << i;
    }
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A tree row's path as a committed sequence with that one row left.
Sequence decoded(const Shape& shape, const Sequence& tree, int row) {
    std::vector<std::int64_t> slots;
    for (std::int32_t u = row; u >= 0; u = tree.parents[static_cast<std::size_t>(u)])
        slots.push_back(tree.committed + u);
    std::ranges::reverse(slots);
    Sequence result = tree;
    result.committed = tree.committed + static_cast<int>(slots.size()) - 1;
    result.parents = {-1};
    const auto move = [&](const std::vector<float>& from, std::vector<float>& to) {
        if (from.empty()) return;
        to.assign(from.begin(), from.begin() + tree.committed * shape.slot());
        for (const std::int64_t slot : slots)
            to.insert(to.end(), from.begin() + slot * shape.slot(),
                      from.begin() + (slot + 1) * shape.slot());
    };
    move(tree.keys, result.keys);
    move(tree.values, result.values);
    const auto width = static_cast<std::ptrdiff_t>(shape.heads) * shape.key;
    result.queries.assign(tree.queries.begin() + row * width,
                          tree.queries.begin() + (row + 1) * width);
    return result;
}

std::vector<std::int32_t> random_tree(int rows, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<std::int32_t> parents;
    for (int u = 0; u < rows; ++u)
        parents.push_back(
            static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(u + 1)) - 1);
    return parents;
}

class CudaAttention : public testing::TestWithParam<CacheFormat> {
   protected:
    void SetUp() override {
        if (!gpu_present()) GTEST_SKIP() << "no GPU";
    }
};
INSTANTIATE_TEST_SUITE_P(All, CudaAttention, testing::Values(CacheFormat::fp32, CacheFormat::bf16),
                         [](const auto& test) {
                             return test.param == CacheFormat::fp32 ? "fp32" : "bf16";
                         });

TEST_P(CudaAttention, Agrees_with_the_cpu_engine_over_chains_of_any_length) {
    for (const int context : {0, 1, 31, 32, 33, 96, 127, 128, 129, 256, 700}) {
        for (const int rows : {1, 2, 5, 70}) {
            for (const Shape& shape : {gqa(4, 2, 32, GetParam()), mla(3, 64, 16, GetParam())}) {
                const Sequence sequence =
                    make_sequence(shape, context, chain(rows), static_cast<std::uint64_t>(context));
                expect_near(shape, attend_one(shape, sequence, 0, rows),
                            expected_output(shape, sequence, 0, rows));
            }
        }
    }
}

TEST_P(CudaAttention, Agrees_with_the_cpu_engine_for_any_heads_and_widths) {
    for (const int dim : {8, 24, 32, 64, 80, 128, 200, 256}) {
        for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {6, 2}, {3, 3}, {40, 1}, {32, 2}}) {
            const Shape shape = gqa(heads, kv_heads, dim, GetParam());
            const Sequence sequence =
                make_sequence(shape, 277, chain(4), static_cast<std::uint64_t>(dim));
            expect_near(shape, attend_one(shape, sequence, 1, 3),
                        expected_output(shape, sequence, 1, 3));
        }
    }
    for (const auto& [latent, rope] :
         {std::pair{16, 8}, {64, 16}, {32, 0}, {136, 24}, {256, 64}, {512, 64}}) {
        for (const int heads : {1, 5, 8, 16, 64}) {
            const Shape shape = mla(heads, latent, rope, GetParam());
            const Sequence sequence = make_sequence(shape, 290, chain(3), 3);
            expect_near(shape, attend_one(shape, sequence, 0, 3),
                        expected_output(shape, sequence, 0, 3));
        }
    }
}

TEST_P(CudaAttention, Agrees_with_the_cpu_engine_over_a_long_context) {
    for (const Shape& shape : {gqa(8, 1, 128, GetParam()), mla(8, 512, 64, GetParam())}) {
        const Sequence sequence = make_sequence(shape, 20001, chain(4), 5);
        expect_near(shape, attend_one(shape, sequence, 0, 4),
                    expected_output(shape, sequence, 0, 4));
    }
}

TEST_P(CudaAttention, Agrees_with_the_cpu_engine_over_256_rows_of_a_prompt) {
    const Shape shape = gqa(4, 2, 64, GetParam());
    const Sequence sequence = make_sequence(shape, 130, chain(256), 6);
    expect_near(shape, attend_one(shape, sequence, 0, 256),
                expected_output(shape, sequence, 0, 256));
}

TEST_P(CudaAttention, A_row_of_a_tree_sees_its_ancestors_and_no_other_branch) {
    // 0 - 1 - 3    two branches below 0, and a second root 4 with a child
    //   \ 2        4 - 5
    const std::vector<std::int32_t> parents{-1, 0, 0, 1, -1, 4, 2};
    for (const int context : {0, 5, 28, 31, 32, 124, 128, 252}) {
        for (const Shape& shape : {gqa(4, 2, 32, GetParam()), mla(3, 64, 8, GetParam())}) {
            const Sequence sequence = make_sequence(shape, context, parents, 4);
            expect_near(shape, attend_one(shape, sequence, 0, 7),
                        expected_output(shape, sequence, 0, 7));
            expect_near(shape, attend_one(shape, sequence, 2, 5),
                        expected_output(shape, sequence, 2, 5));
        }
    }
}

TEST_P(CudaAttention, A_row_of_a_tree_has_the_bits_of_the_same_path_decoded_in_order) {
    std::mt19937_64 generator(8);
    for (int trial = 0; trial < 12; ++trial) {
        const int rows = 2 + static_cast<int>(generator() % 60);
        const int context = static_cast<int>(generator() % 600);
        for (const Shape& shape :
             {gqa(4, 1, 64, GetParam()), gqa(3, 3, 32, GetParam()), mla(8, 512, 64, GetParam())}) {
            const Sequence tree =
                make_sequence(shape, context, random_tree(rows, generator()), generator());
            const auto outputs = attend_one(shape, tree, 0, rows);
            const auto width =
                static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(shape.value);
            for (int row = trial % 5; row < rows; row += 7) {
                const auto alone = attend_one(shape, decoded(shape, tree, row), 0, 1);
                ASSERT_TRUE(same_bits(alone, std::span(outputs).subspan(
                                                 static_cast<std::size_t>(row) * width, width)))
                    << "row " << row;
            }
        }
    }
}

TEST_P(CudaAttention, A_row_has_the_same_bits_in_any_pass_with_any_neighbours_and_in_any_bucket) {
    for (const Shape& shape : {gqa(6, 2, 48, GetParam()), mla(8, 128, 64, GetParam())}) {
        const Sequence sequence = make_sequence(shape, 245, chain(40), 9);
        const Sequence other = make_sequence(shape, 700, random_tree(40, 3), 10);
        const Sequence third = make_sequence(shape, 3, chain(40), 11);
        const auto all = attend_one(shape, sequence, 0, 40);
        const auto width =
            static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(shape.value);
        for (int first = 0; first < 40; first += 6) {
            for (const int rows : {1, 2, 4, 7}) {
                const int count = std::min(rows, 40 - first);
                const auto bits = std::span(all).subspan(static_cast<std::size_t>(first) * width,
                                                         static_cast<std::size_t>(count) * width);
                EXPECT_TRUE(same_bits(attend_one(shape, sequence, first, count), bits));
                EXPECT_TRUE(same_bits(attend_one(shape, sequence, first, count, 20000), bits));
                const auto beside =
                    attend(shape, {{&other, 1}, {&sequence, first}, {&third, 2}}, count);
                EXPECT_TRUE(same_bits(beside[1], bits));
            }
        }
    }
}

TEST_P(CudaAttention, One_split_and_room_for_more_give_the_same_bits) {
    const Shape shape = gqa(2, 1, 32, GetParam());
    const Sequence sequence = make_sequence(shape, 100, chain(3), 12);
    const auto direct = attend_one(shape, sequence, 0, 3, kSplit);
    EXPECT_TRUE(same_bits(direct, attend_one(shape, sequence, 0, 3, kSplit + 1)));
    EXPECT_TRUE(same_bits(direct, attend_one(shape, sequence, 0, 3, 131072)));
}

TEST_P(CudaAttention, Large_scores_neither_overflow_nor_lose_the_largest) {
    // q k scale = 200 for slot 5, 0 elsewhere: all weight falls on slot 5.
    const Shape shape = gqa(1, 1, 16, GetParam());
    Sequence c = make_sequence(shape, 380, chain(1), 13);
    std::ranges::fill(c.keys, 0.0F);
    std::ranges::fill(c.queries, 0.0F);
    c.queries[0] = 80;
    c.keys[5 * 16] = 10;
    const auto output = attend_one(shape, c, 0, 1);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(output[i], c.values[5 * 16 + i]);
}

TEST(CudaAttentionOfFloats, Numbers_of_later_rows_do_not_reach_a_row) {
    if (!gpu_present()) GTEST_SKIP() << "no GPU";
    const Shape shape = gqa(4, 2, 32, CacheFormat::fp32);
    Sequence c = make_sequence(shape, 10, chain(3), 14);
    const auto before = attend_one(shape, c, 0, 3);
    std::fill(c.values.begin() + 12 * shape.slot(), c.values.end(),
              std::numeric_limits<float>::infinity());
    const auto after = attend_one(shape, c, 0, 3);
    EXPECT_TRUE(same_bits(std::span(before).first(2 * 4 * 32), std::span(after).first(2 * 4 * 32)));
    EXPECT_FALSE(std::isfinite(after.back()));
}

TEST_P(CudaAttention, A_committed_path_of_a_tree_gives_the_bits_of_its_rows_to_what_follows) {
    // 0 - 1 - 4 - 6 is kept; its slots move to 0, 1, 2, 3 behind the committed ones. The next row
    // sees them as the tree's row 7, a child of 6, does.
    const std::vector<std::int32_t> parents{-1, 0, 0, 1, 1, 2, 4, 6};
    for (const Shape& shape : {gqa(4, 2, 40, GetParam()), mla(4, 64, 16, GetParam())}) {
        const Sequence tree = make_sequence(shape, 27, parents, 15);
        const Sequence other = make_sequence(shape, 50, chain(8), 16);
        const auto expected = attend_one(shape, tree, 7, 1);
        const std::vector<Part> parts{{&other, 0}, {&tree, 0}};
        const DeviceCache cache(shape, parts);
        const KeyValueCache none;
        const DeviceArray<KeyValueCache> caches(std::vector{none, cache.view});
        std::vector<std::int32_t> paths(2 * kMaxUncommitted, -1);
        const std::vector<std::int32_t> path{0, 1, 4, 6, 7};
        std::ranges::copy(path, paths.begin() + kMaxUncommitted);
        const DeviceArray<std::int32_t> slots(std::vector{2, 1}), committed(std::vector{50, 27}),
            lengths(std::vector{0, 5}), device_paths(paths);
        commit_caches({2, slots.get(), committed.get(), lengths.get(), device_paths.get()},
                      caches.get(), 2, nullptr);

        // Row 7's own slot is the last committed one now; its query sees everything committed
        // before it and itself.
        const DevicePass pass({{1, 27 + 4, 0, {-1}}}, 1, false);
        const auto width = static_cast<std::ptrdiff_t>(shape.heads) * shape.key;
        const DeviceArray<float> query(
            std::vector<float>(tree.queries.begin() + 7 * width, tree.queries.begin() + 8 * width));
        const DeviceArray<float> output(expected.size(), kPoison);
        if (shape.mla) {
            attend_mla(pass.view(), query.get(), shape.heads, shape.value, shape.key - shape.value,
                       shape.scale(), cache.view, kSplit, output.get(), nullptr, nullptr);
        } else {
            attend_gqa(pass.view(), query.get(), shape.heads, shape.kv_heads, shape.key,
                       shape.scale(), cache.view, kSplit, output.get(), nullptr, nullptr);
        }
        EXPECT_TRUE(same_bits(output.host(), expected));
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
