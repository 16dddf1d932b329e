// SPDX-License-Identifier: Apache-2.0
// That collectives give the right bits, whatever the method, the size and the order in which ranks arrive. Failures and NCCL:
// communicator_test.cpp.
#include <cmath>

#include "backend/cuda/collective_kernels.h"
#include "collective_box.h"

namespace draftboard::backend::cuda {
namespace {

TEST_F(CudaCommunicatorRanks, All_reduce_is_the_sum_in_rank_order_to_the_bit_whatever_the_count) {
    const std::vector<std::int64_t> counts{1, 2, 3, 4, 5, 7, 31, 33, 1000, 1023, 4097, 14336, 57344, 100001};
    for (const int ranks : {2, 3, 4}) {
        for (const auto method : kOwnMethods) {
            for (const auto format : kFormats) {
                Box box(options_of(ranks, method, format, counts.back()));
                box.run([&](Rank& rank) {
                    float* input = rank.buffer(counts.back() + 1);
                    float* output = rank.buffer(counts.back() + 1);
                    box.meeting.arrive();
                    box.communicator->all_reduce(rank.index, nullptr, nullptr, 0, rank.stream);
                    int step = 0;
                    for (const std::int64_t count : counts) {
                        EXPECT_EQ(box.communicator->method(count), method);
                        for (const bool in_place : {false, true}) {
                            float* from = input + step % 2;  // every other time not aligned
                            float* to = in_place ? from : output;
                            fill(rank.state, rank.index, 0, from, count, in_place ? nullptr : output, count + 1, rank.stream);
                            box.communicator->all_reduce(rank.index, from, to, count, rank.stream);
                            check_sum(rank.state, ranks, format == MessageFormat::bf16, to, count, rank.stream);
                            advance(rank.state, rank.stream);
                            ++step;
                        }
                    }
                    box.wait(rank);
                });
                box.expect_no_mismatch(2 * static_cast<std::int64_t>(counts.size()), text(method, format));
            }
        }
    }
}

TEST_F(CudaCommunicatorRanks, Repeat_a_hundred_thousand_times_with_ranks_out_of_step_and_stay_right) {
    const std::vector<std::int64_t> counts{1, 7168, 33, 3, 4096, 2048, 1000, 14337, 5, 512, 7, 8192};
    for (const int ranks : {2, 4}) {
        for (const auto method : kOwnMethods) {
            for (const auto format : kFormats) {
                const std::int64_t rounds = repetitions(format == MessageFormat::fp32 ? 100'000 : 20'000);
                const std::int64_t replays = (rounds + 11) / 12;
                Box box(options_of(ranks, method, format, 14337));
                box.run([&](Rank& rank) {
                    float* input = rank.buffer(14337);
                    float* output = rank.buffer(14337);
                    box.meeting.arrive();
                    rank.capture([&] {
                        for (const std::int64_t count : counts) {
                            fill(rank.state, rank.index, 8000, input, count, output, count, rank.stream);
                            box.communicator->all_reduce(rank.index, input, output, count, rank.stream);
                            check_sum(rank.state, ranks, format == MessageFormat::bf16, output, count, rank.stream);
                            advance(rank.state, rank.stream);
                        }
                    });
                    box.meeting.arrive();
                    for (std::int64_t i = 0; i < replays; ++i) {
                        rank.replay();
                        if (i % 64 == 63) box.wait(rank);
                    }
                    box.wait(rank);
                });
                box.expect_no_mismatch(replays * 12, text(method, format));
            }
        }
    }
}

TEST_F(CudaCommunicatorRanks, A_graph_of_all_methods_and_collectives_is_replayed_a_thousand_times) {
    // 4 KB by the host, to 32 KB in one shot, beyond in two; gathers between them. Buffers of all methods take turns at their own
    // pace.
    const int ranks = 4;
    CommunicatorOptions options;
    options.devices = devices_of(ranks);
    options.max_count = 20000;
    options.cutoffs = {.host_staged = 4096, .one_shot = 32768, .two_shot = 80000};
    const std::int64_t replays = repetitions(1000);
    Box box(options);
    EXPECT_EQ(box.communicator->method(1024), CollectiveMethod::host_staged);
    EXPECT_EQ(box.communicator->method(8192), CollectiveMethod::one_shot);
    EXPECT_EQ(box.communicator->method(20000), CollectiveMethod::two_shot);
    EXPECT_EQ(box.communicator->gather_method(20000), CollectiveMethod::two_shot);
    const std::vector<std::int64_t> counts{20000, 1, 8192, 1024, 9999, 1023, 17};
    box.run([&](Rank& rank) {
        float* input = rank.buffer(20000);
        float* output = rank.buffer(20000 * ranks);
        box.meeting.arrive();
        rank.capture([&] {
            for (const std::int64_t count : counts) {
                fill(rank.state, rank.index, 4000, input, count, nullptr, 0, rank.stream);
                box.communicator->all_reduce(rank.index, input, input, count, rank.stream);
                check_sum(rank.state, ranks, false, input, count, rank.stream);
                fill(rank.state, rank.index, 4000, input, count, output, count * ranks, rank.stream);
                const int rows = count % 3 == 0 ? 3 : 1;
                box.communicator->all_gather(rank.index, input, rows, count / rows, output, rank.stream);
                check_gather(rank.state, ranks, output, rows, count / rows, rank.stream);
                advance(rank.state, rank.stream);
            }
        });
        box.meeting.arrive();
        for (std::int64_t i = 0; i < replays; ++i) {
            rank.replay();
            if (i % 64 == 63) box.wait(rank);
        }
        box.wait(rank);
    });
    box.expect_no_mismatch(replays * static_cast<std::int64_t>(counts.size()), "all methods");
}

TEST_F(CudaCommunicatorRanks, All_gather_puts_the_ranks_columns_side_by_side) {
    for (const int ranks : {2, 3, 4}) {
        for (const auto method : kOwnMethods) {
            Box box(options_of(ranks, method, MessageFormat::bf16, 40 * 1000));  // gathers are float whatever the format
            int rounds = 0;
            for (const int rows : {1, 2, 5, 16, 40}) {
                for (const std::int64_t width : {1, 2, 3, 64, 999, 1000}) {
                    ++rounds;
                    std::vector<float*> inputs, outputs;
                    for (auto& rank : box.ranks) {
                        inputs.push_back(rank->buffer(rows * width));
                        outputs.push_back(rank->buffer(rows * width * ranks + 1));
                    }
                    box.run([&](Rank& rank) {
                        float* input = inputs[static_cast<std::size_t>(rank.index)];
                        float* output = outputs[static_cast<std::size_t>(rank.index)] + rounds % 2;
                        fill(rank.state, rank.index, 0, input, rows * width, nullptr, 0, rank.stream);
                        box.communicator->all_gather(rank.index, input, rows, width, output, rank.stream);
                        check_gather(rank.state, ranks, output, rows, width, rank.stream);
                        advance(rank.state, rank.stream);
                        box.wait(rank);
                    });
                }
            }
            box.expect_no_mismatch(rounds, std::string(to_name(method)));
        }
    }
}

/// sum, residual and norm of rank order in double; the float result may differ by the rounding of its few operations and of its
/// sum of squares.
void expect_norm_near(const std::vector<float>& before, const std::vector<float>& normed, const std::vector<float>& weight,
                      int ranks, bool bf16, std::uint64_t round, int m, int width, std::int64_t stride, double epsilon,
                      const std::string& what) {
    for (int i = 0; i < m; ++i) {
        std::vector<double> row;
        double squares = 0;
        for (int c = 0; c < width; ++c) {
            const auto at = static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(width) + static_cast<std::uint64_t>(c);
            double x = before[static_cast<std::size_t>(at)];
            for (int r = 0; r < ranks; ++r) x += check_number(r, round, at);
            row.push_back(x);
            squares += x * x;
        }
        double error = 0;
        double size = 0;
        for (int c = 0; c < width; ++c) {
            const double expected =
                row[static_cast<std::size_t>(c)] / std::sqrt(squares / width + epsilon) * weight[static_cast<std::size_t>(c)];
            const double got = normed[static_cast<std::size_t>(i * stride + c)];
            error += (expected - got) * (expected - got);
            size += expected * expected;
        }
        EXPECT_LE(std::sqrt(error / size), bf16 ? 1e-2 : 1e-6) << what << ", row " << i << " of " << m << " x " << width;
    }
}

TEST_F(CudaCommunicatorRanks, A_fused_norm_has_the_bits_of_all_reduce_residual_and_norm_one_after_another) {
    struct Shape {
        int m, width;
    };
    const std::vector<Shape> shapes{{1, 7168},  {1, 64},    {2, 4096},  {3, 7168}, {5, 7168}, {9, 2048},
                                    {16, 2880}, {33, 1536}, {1, 12288}, {2, 4099}, {4, 77}};
    const auto floats = static_cast<std::size_t>(64 * 1024);
    for (const int ranks : {2, 3, 4}) {
        for (const auto method : kOwnMethods) {
            for (const auto format : kFormats) {
                Box box(options_of(ranks, method, format, 60000));
                const bool bf16 = format == MessageFormat::bf16;
                std::vector<float> weight(16384), start(floats);
                for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 1 + check_number(7, 0, i) / 2;
                for (std::size_t i = 0; i < start.size(); ++i) start[i] = 4 * check_number(6, 0, i);
                std::vector<std::vector<float>> results(shapes.size());
                box.run([&](Rank& rank) {
                    const auto copy = [&](float* to, const std::vector<float>& from) {
                        check(cudaMemcpy(to, from.data(), from.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
                    };
                    const auto size = static_cast<std::int64_t>(floats);
                    float *block = rank.buffer(size), *weights = rank.buffer(16384), *hidden = rank.buffer(size),
                          *apart = rank.buffer(size);
                    float *normed = rank.buffer(2 * size), *apart_normed = rank.buffer(2 * size), *sum = rank.buffer(size),
                          *kept = rank.buffer(2 * size);
                    copy(weights, weight);
                    for (std::size_t s = 0; s < shapes.size(); ++s) {
                        const auto [m, width] = shapes[s];
                        const std::int64_t count = static_cast<std::int64_t>(m) * width;
                        const std::int64_t stride = s % 2 == 0 ? width : 2 * width;  // normed beside something else, kept too
                        copy(hidden, start);
                        copy(apart, start);
                        for (float* p : {normed, apart_normed, kept}) check(cudaMemset(p, 0xFF, floats * 8), "cudaMemset");
                        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                        box.meeting.arrive();
                        fill(rank.state, rank.index, 0, block, count, nullptr, 0, rank.stream);
                        box.communicator->all_reduce_add_norm(rank.index, block, hidden, weights, m, width, 1e-6F, normed, stride,
                                                              s % 3 == 0 ? nullptr : kept, stride, rank.stream);
                        box.communicator->all_reduce(rank.index, block, sum, count, rank.stream);
                        launch_add_norm({sum, nullptr, m, width, {apart, weights, 1e-6F, apart_normed, stride, nullptr, 0}},
                                        rank.stream);
                        check_sum(rank.state, ranks, bf16, sum, count, rank.stream);
                        check_equal(rank.state, hidden, width, apart, width, m, width, rank.stream);
                        check_equal(rank.state, normed, stride, apart_normed, stride, m, width, rank.stream);
                        if (s % 3 != 0) check_equal(rank.state, kept, stride, hidden, width, m, width, rank.stream);
                        advance(rank.state, rank.stream);
                        box.wait(rank);
                        if (rank.index == ranks - 1) {
                            results[s].resize(static_cast<std::size_t>(m * stride));
                            check(cudaMemcpy(results[s].data(), normed, results[s].size() * 4, cudaMemcpyDeviceToHost),
                                  "cudaMemcpy");
                        }
                        box.meeting.arrive();
                    }
                });
                box.expect_no_mismatch(static_cast<std::int64_t>(shapes.size()), text(method, format));
                for (std::size_t s = 0; s < shapes.size(); ++s) {
                    const auto [m, width] = shapes[s];
                    expect_norm_near(start, results[s], weight, ranks, bf16, s, m, width, s % 2 == 0 ? width : 2 * width, 1e-6,
                                     text(method, format));
                }
            }
        }
    }
}

TEST_F(CudaCommunicatorRanks, A_fused_norm_in_a_graph_stays_equal_while_ranks_are_out_of_step) {
    const int ranks = 4;
    for (const auto method : kOwnMethods) {
        const std::int64_t replays = repetitions(2000);
        Box box(options_of(ranks, method, MessageFormat::fp32, 3 * 7168));
        box.run([&](Rank& rank) {
            float *block = rank.buffer(21504), *weights = rank.buffer(7168), *hidden = rank.buffer(21504),
                  *apart = rank.buffer(21504);
            float *normed = rank.buffer(21504), *apart_normed = rank.buffer(21504), *sum = rank.buffer(21504);
            fill(rank.state, 7, 0, weights, 7168, nullptr, 0, rank.stream);
            fill(rank.state, 6, 0, hidden, 21504, nullptr, 0, rank.stream);
            fill(rank.state, 6, 0, apart, 21504, nullptr, 0, rank.stream);
            check(cudaStreamSynchronize(rank.stream), "cudaStreamSynchronize");
            box.meeting.arrive();
            rank.capture([&] {
                for (const int m : {1, 3}) {
                    fill(rank.state, rank.index, 4000, block, m * 7168, normed, m * 7168, rank.stream);
                    box.communicator->all_reduce_add_norm(rank.index, block, hidden, weights, m, 7168, 1e-6F, normed, 7168,
                                                          nullptr, 0, rank.stream);
                    box.communicator->all_reduce(rank.index, block, sum, m * 7168, rank.stream);
                    launch_add_norm({sum, nullptr, m, 7168, {apart, weights, 1e-6F, apart_normed, 7168, nullptr, 0}},
                                    rank.stream);
                    check_sum(rank.state, ranks, false, sum, m * 7168, rank.stream);
                    check_equal(rank.state, hidden, 7168, apart, 7168, m, 7168, rank.stream);
                    check_equal(rank.state, normed, 7168, apart_normed, 7168, m, 7168, rank.stream);
                    advance(rank.state, rank.stream);
                }
            });
            box.meeting.arrive();
            for (std::int64_t i = 0; i < replays; ++i) {
                rank.replay();
                if (i % 64 == 63) box.wait(rank);
            }
            box.wait(rank);
        });
        box.expect_no_mismatch(2 * replays, std::string(to_name(method)));
    }
}

}  // namespace
}  // namespace draftboard::backend::cuda
