// SPDX-License-Identifier: Apache-2.0
// The choice of a method, refused options, late ranks, NCCL. That results are right: collective_results_test.cpp.
#include "backend/cuda/communicator.h"

#include <chrono>
#include <thread>

#include "backend/cuda/collective_failure.h"
#include "backend/cuda/collective_kernels.h"
#include "backend/cuda/nccl_ranks.h"
#include "collective_box.h"

namespace draftboard::backend::cuda {
namespace {

TEST(CudaCommunicator, A_message_goes_by_the_first_method_whose_cut_off_reaches_it) {
    const CollectiveCutoffs cutoffs{.host_staged = 0, .one_shot = 1000, .two_shot = 5000};
    EXPECT_EQ(choose(cutoffs, 1), CollectiveMethod::one_shot);
    EXPECT_EQ(choose(cutoffs, 1000), CollectiveMethod::one_shot);
    EXPECT_EQ(choose(cutoffs, 1001), CollectiveMethod::two_shot);
    EXPECT_EQ(choose(cutoffs, 5001), CollectiveMethod::nccl);
    EXPECT_EQ(choose({.host_staged = 10, .one_shot = 20, .two_shot = 5}, 5), CollectiveMethod::host_staged);
    EXPECT_EQ(choose({.host_staged = 10, .one_shot = 20, .two_shot = 5}, 20), CollectiveMethod::one_shot);
    EXPECT_EQ(choose({}, 1), CollectiveMethod::nccl);
}

TEST(CudaCommunicator, Every_method_is_found_by_its_name_and_no_other) {
    for (const auto method :
         {CollectiveMethod::nccl, CollectiveMethod::one_shot, CollectiveMethod::two_shot, CollectiveMethod::host_staged}) {
        EXPECT_EQ(collective_method_from_name(to_name(method)), method);
    }
    EXPECT_FALSE(collective_method_from_name("ring").has_value());
}

TEST(CudaCommunicator, Options_that_cannot_work_are_refused_by_name_before_a_GPU_is_asked) {
    const auto refused = [](const std::function<void(CommunicatorOptions&)>& spoil, const std::string& place) {
        CommunicatorOptions options;
        options.devices = {0, 1};
        options.max_count = 1000;
        options.cutoffs.one_shot = 4000;
        EXPECT_TRUE(validate(options).empty());
        spoil(options);
        const auto problems = validate(options);
        ASSERT_EQ(problems.size(), 1u) << place;
        EXPECT_EQ(problems[0].place, place);
        const auto made = Communicator::create(options);
        ASSERT_FALSE(made.has_value());
        EXPECT_EQ(made.error().code, model::ErrorCode::invalid_input);
    };
    refused([](auto& o) { o.devices.clear(); }, "devices");
    refused([](auto& o) { o.devices = {0, 1, 2, 3, 4, 5, 6, 7, 8}; }, "devices");
    refused([](auto& o) { o.devices = {0, -1}; }, "devices");
    refused([](auto& o) { o.max_count = 0; }, "max_count");
    refused([](auto& o) { o.timeout_s = 0; }, "timeout_s");
    refused([](auto& o) { o.nccl_channels = -1; }, "nccl_channels");
    refused([](auto& o) { o.cutoffs.host_staged = -1; }, "cutoffs");
    refused([](auto& o) { o.peer_access = false; }, "cutoffs");
    refused([](auto& o) { o.devices = {0, 0}, o.cutoffs.one_shot = 3999; }, "cutoffs");
}

TEST(CudaCommunicator, The_record_of_the_earliest_call_names_the_late_rank) {
    CollectiveFailure failure{};
    EXPECT_FALSE(first_late(failure, 4).has_value());
    failure.records[3] = {1, 1u << 0, 18};  // a consequence: rank 0 had given up
    failure.records[0] = {1, 1u << 1, 17};
    const auto late = first_late(failure, 4);
    ASSERT_TRUE(late.has_value());
    EXPECT_EQ(describe(*late, {4, 5, 6, 7}, 10), "rank 1 (GPU 5) did not arrive at collective 17 within 10 s; rank 0 waited");
    EXPECT_FALSE(first_late(failure, 0).has_value());
}

TEST(CudaCommunicator, A_rank_that_itself_waited_at_the_call_is_not_named_while_another_is_missing) {
    CollectiveFailure failure{};
    failure.records[0] = {1, 1u << 1 | 1u << 2 | 1u << 3, 5};
    failure.records[2] = {1, 1u << 1 | 1u << 3, 5};
    const auto late = first_late(failure, 4);
    ASSERT_TRUE(late.has_value());
    EXPECT_EQ(describe(*late, {0, 1, 2, 3}, 0.5),
              "ranks 1 (GPU 1) and 3 (GPU 3) did not arrive at collective 5 within 0.5 s; rank 0 waited");
    failure.records[0].late = 1u << 2;  // all that is missing waited too: it is named all the same
    EXPECT_EQ(first_late(failure, 4)->late, 1u << 2);
}

TEST(CudaCommunicator, The_hosts_counts_name_who_asked_for_less_else_who_waits_less) {
    EXPECT_EQ(ranks_behind({{17, 3}, {16, 3}, {17, 2}}, 0), 1u << 1);
    EXPECT_EQ(ranks_behind({{17, 3}, {17, 3}, {17, 2}}, 0), 1u << 2);
    EXPECT_EQ(ranks_behind({{17, 3}, {17, 3}, {18, 4}}, 0), 0u);
}

TEST(CudaCommunicator, A_launch_has_at_most_32_blocks_and_a_norm_whole_clusters) {
    for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 500}) {
        for (const std::int64_t units : {1, 511, 512, 513, 1024, 3584, 100000}) {
            for (const bool norm : {false, true}) {
                const LaunchShape shape = launch_shape(rows, units, norm);
                EXPECT_GE(shape.blocks, 1);
                EXPECT_LE(shape.blocks, kMaxBlocks);
                EXPECT_EQ(shape.blocks % shape.segments, 0);
                if (norm) {
                    EXPECT_EQ(8 % shape.segments, 0) << shape.segments;
                }
            }
        }
    }
    EXPECT_EQ(launch_shape(1, 512, false).blocks, 1);
    EXPECT_EQ(launch_shape(1, 3584, true).segments, 8);
    EXPECT_EQ(launch_shape(16, 3584, true).segments, 2);
    EXPECT_EQ(launch_shape(33, 3584, true).segments, 1);
}

TEST_F(CudaCommunicatorRanks, A_rank_that_never_calls_is_named_in_the_set_time_and_nothing_hangs) {
    using Clock = std::chrono::steady_clock;
    for (const auto method : kOwnMethods) {
        CommunicatorOptions options = options_of(3, method, MessageFormat::fp32, 5000);
        options.timeout_s = 0.5;
        Box box(options);
        const auto begin = Clock::now();
        std::vector<std::string> errors(3);
        box.run([&](Rank& rank) {
            float* data = rank.buffer(5000);
            box.meeting.arrive();
            const int calls = rank.index == 1 ? 2 : 4;  // rank 1 leaves out collectives 3 and 4
            for (int i = 0; i < calls; ++i) {
                fill(rank.state, rank.index, 0, data, 5000, nullptr, 0, rank.stream);
                box.communicator->all_reduce(rank.index, data, data, 5000, rank.stream);
            }
            if (rank.index == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
            const auto done = box.communicator->wait(rank.index, rank.stream);
            if (!done) errors[static_cast<std::size_t>(rank.index)] = done.error().message;
            EXPECT_THROW(box.communicator->all_reduce(rank.index, data, data, 5000, rank.stream), std::runtime_error);
        });
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        EXPECT_GT(seconds, 0.45);
        EXPECT_LT(seconds, 3.0);
        const std::string expected =
            "rank 1 (GPU " + std::to_string(options.devices[1]) + ") did not arrive at collective 3 within 0.5 s; rank ";
        for (const std::string& error : errors) {
            EXPECT_TRUE(error == expected + "0 waited" || error == expected + "2 waited") << error;
            EXPECT_EQ(error, errors[0]);
        }
        const auto destroying = Clock::now();
        box.communicator.reset();
        EXPECT_LT(std::chrono::duration<double>(Clock::now() - destroying).count(), 1.0);
    }
}

TEST_F(CudaCommunicatorRanks, A_communicator_that_ends_while_a_rank_waits_ends_the_wait) {
    CommunicatorOptions options = options_of(2, CollectiveMethod::host_staged, MessageFormat::fp32, 1000);
    options.timeout_s = 60;
    Box box(options);
    float* data = box.ranks[0]->buffer(1000);
    fill(box.ranks[0]->state, 0, 0, data, 1000, nullptr, 0, box.ranks[0]->stream);
    box.communicator->all_reduce(0, data, data, 1000, box.ranks[0]->stream);
    const auto begin = std::chrono::steady_clock::now();
    box.communicator.reset();
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5.0);
    EXPECT_EQ(cudaStreamQuery(box.ranks[0]->stream), cudaSuccess);
}

TEST_F(CudaCommunicatorRanks, One_rank_sends_nothing_copies_and_norms) {
    CommunicatorOptions options;
    options.devices = {0};
    options.max_count = 4096;
    options.format = MessageFormat::bf16;
    Box box(options);
    Rank& rank = *box.ranks[0];
    float *input = rank.buffer(4096), *output = rank.buffer(4096);
    fill(rank.state, 0, 0, input, 4096, nullptr, 0, rank.stream);
    box.communicator->all_reduce(0, input, output, 4096, rank.stream);
    check_sum(rank.state, 1, false, output, 4096, rank.stream);
    box.communicator->all_gather(0, input, 4, 1024, output, rank.stream);
    check_gather(rank.state, 1, output, 4, 1024, rank.stream);
    advance(rank.state, rank.stream);
    box.wait(rank);
    box.expect_no_mismatch(1, "one rank");
    EXPECT_THROW(box.communicator->all_reduce(0, input, output, 4097, rank.stream), std::runtime_error);
}

TEST_F(CudaCommunicatorRanks, A_GPU_that_is_not_there_is_an_error) {
    CommunicatorOptions options = options_of(1, CollectiveMethod::host_staged, MessageFormat::fp32, 10);
    options.devices = {gpus()};
    const auto made = Communicator::create(options);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, model::ErrorCode::unavailable);
}

TEST_F(CudaCommunicatorRanks, NCCL_with_one_rank_gives_its_input_back_and_can_be_captured) {
    if (!NcclRanks::built_in()) GTEST_SKIP() << "built without NCCL";
    NcclRanks::Options options;
    options.devices = {0};
    options.largest_bytes = 40000;
    auto made = NcclRanks::create(options);
    ASSERT_TRUE(made.has_value()) << made.error().to_text();
    EXPECT_FALSE(NcclRanks::version().empty());
    Rank rank(0, 0);
    float *input = rank.buffer(10000), *output = rank.buffer(10000);
    rank.capture([&] {
        fill(rank.state, 0, 0, input, 9999, output, 9999, rank.stream);
        (*made)->all_reduce(0, input, output, 9999, false, rank.stream);
        check_sum(rank.state, 1, false, output, 9999, rank.stream);
        (*made)->all_gather(0, input, 9, 1111, output, rank.stream);
        check_gather(rank.state, 1, output, 9, 1111, rank.stream);
        advance(rank.state, rank.stream);
    });
    for (int i = 0; i < 20; ++i) rank.replay();
    check(cudaStreamSynchronize(rank.stream), "cudaStreamSynchronize");
    EXPECT_EQ(rank.result().mismatches, 0u);
    EXPECT_EQ(rank.result().round, 20u);
    EXPECT_FALSE((*made)->asynchronous_error(0).has_value());
    (*made)->abort();
    EXPECT_THROW((*made)->all_reduce(0, input, output, 9999, false, rank.stream), std::runtime_error);
}

TEST_F(CudaCommunicatorRanks, NCCL_sums_over_two_GPUs_in_a_graph) {
    if (gpus() < 2 || !NcclRanks::built_in()) GTEST_SKIP() << "needs two GPUs and NCCL";
    CommunicatorOptions options;
    options.devices = {0, 1};
    options.max_count = 20000;
    Box box(options);
    box.run([&](Rank& rank) {
        float* data = rank.buffer(20000);
        box.meeting.arrive();
        rank.capture([&] {
            for (const std::int64_t count : {20000, 7, 4096}) {  // of two numbers any order gives the same sum
                fill(rank.state, rank.index, 4000, data, count, nullptr, 0, rank.stream);
                box.communicator->all_reduce(rank.index, data, data, count, rank.stream);
                check_sum(rank.state, 2, false, data, count, rank.stream);
                advance(rank.state, rank.stream);
            }
        });
        box.meeting.arrive();
        for (int i = 0; i < 100; ++i) rank.replay();
        box.wait(rank);
    });
    box.expect_no_mismatch(300, "nccl");
}

TEST_F(CudaCommunicatorRanks, A_rank_that_never_calls_NCCL_is_named_and_NCCL_is_ended) {
    if (gpus() < 2 || !NcclRanks::built_in()) GTEST_SKIP() << "needs two GPUs and NCCL";
    CommunicatorOptions options;
    options.devices = {0, 1};
    options.max_count = 5000;
    options.timeout_s = 0.5;
    Box box(options);
    box.run([&](Rank& rank) {
        float* data = rank.buffer(5000);
        box.meeting.arrive();
        if (rank.index == 0) {
            box.communicator->all_reduce(0, data, data, 5000, rank.stream);
            const auto done = box.communicator->wait(0, rank.stream);
            ASSERT_FALSE(done.has_value());
            EXPECT_EQ(done.error().message, "rank 1 (GPU 1) did not arrive at collective 1 within 0.5 s; rank 0 waited");
        }
        box.meeting.arrive();
        EXPECT_FALSE(box.communicator->wait(rank.index, rank.stream).has_value());
    });
}

}  // namespace
}  // namespace draftboard::backend::cuda
