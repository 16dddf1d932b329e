// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

#include "model/machine_builder.h"
#include "model/machine_json.h"
#include "sim/collective_network.h"
#include "sim/collective_steps.h"

namespace draftboard::sim {
namespace {

using model::MachineBuilder;
using model::OperationKind;

model::Machine direct_box(int gpus, const std::string& vendor = "AuthenticAMD") {
    MachineBuilder builder("box");
    builder.machine().gpu.compute_capability = "12.0";
    builder.machine().host.vendor = vendor;
    builder.machine().host.family = 26;
    const int numa0 = builder.add_numa(0, 0);
    const int numa1 = gpus > 4 ? builder.add_numa(1, 1) : -1;
    for (int g = 0; g < gpus; ++g)
        builder.add_gpu(builder.add_root_port(g < 4 ? numa0 : numa1), 5, 16);
    builder.connect_all_numa(5);
    return builder.machine();
}

/// Two switches of four GPUs on two root ports of one socket.
model::Machine switched_box() {
    MachineBuilder builder("switches");
    builder.machine().gpu.compute_capability = "12.0";
    builder.machine().host.vendor = "AuthenticAMD";
    const int numa = builder.add_numa(0, 0);
    for (int s = 0; s < 2; ++s) {
        const int hub = builder.add_switch(builder.add_root_port(numa), 5, 16);
        for (int g = 0; g < 4; ++g) builder.add_gpu(hub, 5, 16);
    }
    return builder.machine();
}

model::Machine nvlink_box(int gpus) {
    MachineBuilder builder("hopper");
    builder.machine().gpu.compute_capability = "9.0";
    const int numa = builder.add_numa(0, 0);
    const int fabric = builder.add_nvswitch();
    for (int g = 0; g < gpus; ++g) {
        builder.connect_nvlink(builder.add_gpu(builder.add_root_port(numa), 5, 16), fabric, 18);
    }
    return builder.machine();
}

CollectiveRequest request(int gpus, std::int64_t bytes,
                          OperationKind operation = OperationKind::all_reduce) {
    CollectiveRequest result;
    result.operation = operation;
    result.gpus.resize(static_cast<std::size_t>(gpus));
    std::iota(result.gpus.begin(), result.gpus.end(), 0);
    result.bytes = bytes;
    return result;
}

/// Constants under which everything but the term under test is zero or not limiting.
CollectiveConstants plain_constants() {
    CollectiveConstants c;
    for (TransportConstants* t : {&c.peer, &c.staged, &c.nvlink}) {
        *t = {0, 0, 1, 0, 0, 0, 0, 0, 1, 1e6};
    }
    c.kernel_us = 0;
    c.simple_drain = 0;
    return c;
}

RingSchedule even_schedule(int ranks, int steps, double bytes, double rate, double latency_us,
                           int slices) {
    RingSchedule schedule;
    schedule.steps = steps;
    schedule.slices = slices;
    schedule.bytes = bytes;
    for (int r = 0; r < ranks; ++r) schedule.hops.push_back({{{r, 1.0}}, rate, latency_us, 0, true});
    return schedule;
}

TEST(RingSteps, Equal_hops_take_steps_times_bytes_over_rate_and_latency) {
    const RingSchedule schedule = even_schedule(4, 6, 100e3, 25e9, 1, 1);
    // 6 * (100 kB / 25 GB/s + 1 us) = 30 us
    EXPECT_NEAR(pipeline_us(schedule, std::vector<double>(4, 25e9)), 30, 1e-9);
}

TEST(RingSteps, A_second_slice_hides_the_latency_of_the_first) {
    const RingSchedule schedule = even_schedule(4, 6, 100e3, 25e9, 1, 2);
    // Slices of 2 us: sends follow each other without a gap, 6 * 4 us, and the last arrives 1 us
    // later.
    EXPECT_NEAR(pipeline_us(schedule, std::vector<double>(4, 25e9)), 25, 1e-9);
}

TEST(RingSteps, A_hop_that_does_not_stream_shows_its_latency_at_every_step) {
    // Two slices, but a step arrives as a whole: 6 * (4 us + 1 us), as with one slice; the event simulation agrees.
    RingSchedule schedule = even_schedule(4, 6, 100e3, 25e9, 1, 2);
    for (RingHop& hop : schedule.hops) hop.streams = false;
    EXPECT_NEAR(pipeline_us(schedule, std::vector<double>(4, 25e9)), 30, 1e-9);
    EXPECT_NEAR(simulate_ring_us(schedule, std::vector<double>(4, 25e9)), 30, 1e-4);
    // One such hop of four: data go round once and a half, and meet it twice at most.
    for (std::size_t r = 1; r < 4; ++r) schedule.hops[r].streams = true;
    const double one = pipeline_us(schedule, std::vector<double>(4, 25e9));
    EXPECT_GT(one, 25.0);
    EXPECT_LE(one, 25.0 + 2 * (2 + 1) + 1e-9);
}

TEST(RingSteps, The_recurrence_is_exact_on_even_rings) {
    for (const int slices : {1, 2, 3}) {
        const RingSchedule schedule = even_schedule(8, 14, 1e6, 24e9, 1.7, slices);
        const double exact = simulate_ring_us(schedule, std::vector<double>(8, 24e9));
        // Times are whole picoseconds: 14 * 3 roundings.
        EXPECT_NEAR(pipeline_us(schedule, std::vector<double>(8, 24e9)), exact, 1e-4);
    }
}

// Uneven hops, and links that two hops share: the recurrence holds every hop at the share that it
// has when all are active. It is then never much below the full simulation, and pessimistic by no
// more than the shared part.
RC_GTEST_PROP(RingSteps, On_uneven_machines_the_recurrence_stays_near_the_event_simulation, ()) {
    const int ranks = *rc::gen::inRange(2, 9);
    RingSchedule schedule;
    schedule.steps = 2 * (ranks - 1);
    schedule.slices = *rc::gen::inRange(1, 3);
    schedule.bytes = *rc::gen::inRange(1, 200) * 1e4;
    std::vector<double> capacities;
    std::vector<std::vector<ResourceUse>> uses;
    std::vector<double> caps;
    const int shared = ranks;  // one more link, that some hops cross
    for (int r = 0; r < ranks; ++r) {
        capacities.push_back(*rc::gen::inRange(20, 60) * 1e9);
        RingHop hop;
        hop.uses = {{r, 1.0}};
        if (*rc::gen::inRange(0, 3) == 0) hop.uses.push_back({shared, 1.0});
        hop.rate_cap = 55e9;
        hop.latency_us = *rc::gen::inRange(5, 30) * 0.1;
        uses.push_back(hop.uses);
        caps.push_back(hop.rate_cap);
        schedule.hops.push_back(hop);
    }
    capacities.push_back(60e9);
    const double quick = pipeline_us(schedule, max_min_rates(capacities, uses, caps));
    const double full = simulate_ring_us(schedule, capacities);
    RC_ASSERT(quick >= full * 0.98);
    RC_ASSERT(quick <= full * 1.6);
}

TEST(Collective, A_large_ring_all_reduce_moves_its_bytes_at_the_fair_share) {
    CollectiveSettings settings;
    settings.peer_level = model::PathType::sys;
    settings.protocol = model::Protocol::simple;
    settings.channels = 4;
    CollectiveModel model(direct_box(4), settings, plain_constants());
    const auto time = model.time(request(4, 400'000'000));
    ASSERT_TRUE(time.has_value()) << time.error().to_text();
    // Each hop has its own links of 55.5 GB/s: 6 steps of 100 MB. Slices hide the latency but the
    // last.
    const double expected_us = 6 * 100e6 / 55.5e3;
    EXPECT_NEAR(to_us(time->total), expected_us, 0.01 * expected_us);
    EXPECT_EQ(time->total, time->latency + time->transport);
}

TEST(Collective, LL_moves_every_byte_twice) {
    CollectiveSettings settings;
    settings.peer_level = model::PathType::sys;
    settings.channels = 4;
    settings.protocol = model::Protocol::ll;
    CollectiveModel ll(direct_box(4), settings, plain_constants());
    settings.protocol = model::Protocol::simple;
    CollectiveModel simple(direct_box(4), settings, plain_constants());
    const auto twice = ll.time(request(4, 400'000'000));
    const auto once = simple.time(request(4, 400'000'000));
    // LL's chunks of 32 KiB a channel pay the hop (0.7 us) 763 * 6 times besides; the wire time is
    // twice Simple's.
    const double hops_us = std::ceil(400e6 / 16 / 32768) * 6 * 0.7;
    EXPECT_NEAR(to_us(twice->total) - hops_us, 2 * to_us(once->total), 0.03 * to_us(twice->total));
}

TEST(Collective, Eight_ranks_by_hand) {
    // docs/collectives.md: 64 KiB, LL, two channels, peers of one switch and across: here all hops
    // alike, two GPUs.
    CollectiveConstants c = plain_constants();
    c.kernel_us = 5;
    c.peer.ll_hop_us = 0.3;
    CollectiveSettings settings;
    CollectiveModel model(direct_box(2), settings, c);
    const auto time = model.time(request(2, 16384));
    ASSERT_TRUE(time.has_value());
    // n = 2: 2 steps; 16 KiB take 2 channels (2 * 512 * 16); a step is 8 KiB, 16 KiB on the wire at
    // 55.5 GB/s: 5 + 2 * (0.7 + 0.3 + 0.2952) = 7.590 us
    EXPECT_EQ(time->choice.channels, 2);
    EXPECT_NEAR(to_us(time->total), 5 + 2 * (1.0 + 16384 / 55.5e3), 1e-3);
}

TEST(Collective, One_shot_is_a_hop_and_the_bytes_to_each_peer) {
    CollectiveConstants c = plain_constants();
    c.custom_us = 3;
    c.custom_peer_us = 0.5;
    c.custom_efficiency = 1;
    CollectiveSettings settings;
    settings.implementation = Implementation::one_shot;
    CollectiveModel model(direct_box(4), settings, c);
    const auto time = model.time(request(4, 37'000));
    ASSERT_TRUE(time.has_value());
    // 3 + 2 further peers * 0.5 + 0.7 + 3 * 37 kB / 55.5 GB/s = 6.7 us
    EXPECT_NEAR(to_us(time->total), 6.7, 1e-3);
    EXPECT_EQ(time->choice.implementation, Implementation::one_shot);
}

TEST(Collective, Two_shot_sends_n_minus_1_nths_twice) {
    CollectiveConstants c = plain_constants();
    c.custom_us = 3;
    c.custom_peer_us = 0;
    c.custom_phase_us = 2;
    c.custom_efficiency = 1;
    CollectiveSettings settings;
    settings.implementation = Implementation::two_shot;
    CollectiveModel model(direct_box(4), settings, c);
    const auto time = model.time(request(4, 370'000));
    // 3 + 2 + 2 * (0.7 + 3 * 92.5 kB / 55.5 GB/s) = 16.4 us
    EXPECT_NEAR(to_us(time->total), 16.4, 1e-3);
}

TEST(Collective, Hierarchical_crosses_the_sockets_with_a_share_of_the_bytes) {
    // Two islands of two: within an island S/2 to one peer, across S/2 to one counterpart.
    model::MachineBuilder builder("two islands");
    builder.machine().gpu.compute_capability = "9.0";
    const int numa[] = {builder.add_numa(0, 0), builder.add_numa(1, 1)};
    for (int gpu = 0; gpu < 4; ++gpu) builder.add_gpu(builder.add_root_port(numa[gpu / 2]), 5, 16);
    builder.connect_all_numa(5);
    CollectiveConstants c = plain_constants();
    c.custom_us = 3;
    c.custom_peer_us = 0.5;
    c.custom_phase_us = 2;
    c.custom_efficiency = 1;
    CollectiveSettings settings;
    settings.implementation = Implementation::hierarchical;
    const model::Machine machine = builder.machine();
    const model::Router router(machine);
    const auto near = router.gpu_to_gpu(0, 1, model::TransferKind::write);
    const auto far = router.gpu_to_gpu(0, 2, model::TransferKind::write);
    ASSERT_TRUE(near && far);
    const double bytes = 740'000;
    const auto time = CollectiveModel(machine, settings, c).time(request(4, 740'000));
    ASSERT_TRUE(time) << time.error().to_text();
    EXPECT_EQ(time->choice.implementation, Implementation::hierarchical);
    // kernel + 1 further peer + 2 barriers + 2 (near hop + S/2) + far hop + S/2, each link with one flow
    // a direction but the socket link, which two flows share (each at most what one flow gets there)
    const auto& socket = machine.links[static_cast<std::size_t>(std::find_if(machine.links.begin(), machine.links.end(),
        [](const model::MachineLink& link) { return link.kind == model::LinkKind::inter_socket; }) - machine.links.begin())];
    const double across = std::min({far->bottleneck_gb_s, socket.forward.write_gb_s / 2});
    const double expected = 3 + 0.5 + 2 * 2 +
                            2 * (near->latency_ns * 1e-3 + bytes / 2 / (near->bottleneck_gb_s * 1e3)) +
                            far->latency_ns * 1e-3 + bytes / 2 / (across * 1e3);
    EXPECT_NEAR(to_us(time->total), expected, 1e-3);
}

TEST(Collective, Hierarchical_within_one_socket_is_NCCL_and_says_why) {
    CollectiveSettings settings;
    settings.implementation = Implementation::hierarchical;
    const auto time = CollectiveModel(direct_box(4), settings).time(request(4, 8192));
    ASSERT_TRUE(time);
    EXPECT_EQ(time->choice.implementation, Implementation::nccl);
    EXPECT_NE(time->remarks.front().find("one NUMA node"), std::string::npos);
}

TEST(Collective, Pulling_pays_a_round_trip) {
    CollectiveConstants c = plain_constants();
    c.custom_us = 3;
    c.custom_peer_us = 0;
    c.custom_efficiency = 1;
    CollectiveSettings settings;
    settings.implementation = Implementation::one_shot;
    const auto push = CollectiveModel(direct_box(4), settings, c).time(request(4, 37'000));
    settings.pull = true;
    const auto pull = CollectiveModel(direct_box(4), settings, c).time(request(4, 37'000));
    ASSERT_TRUE(push && pull);
    // reads and writes of this box are alike: 0.7 us more for the request's way
    EXPECT_NEAR(to_us(pull->total - push->total), 0.7, 1e-3);
}

TEST(Collective, Above_its_limit_a_custom_all_reduce_leaves_to_NCCL) {
    CollectiveSettings settings;
    settings.implementation = Implementation::one_shot;
    settings.custom_limit_bytes = 65536;
    CollectiveModel model(direct_box(4), settings);
    EXPECT_EQ(model.time(request(4, 65536))->choice.implementation, Implementation::one_shot);
    const auto above = model.time(request(4, 65537));
    EXPECT_EQ(above->choice.implementation, Implementation::nccl);
    EXPECT_FALSE(above->remarks.empty());
}

TEST(Collective, Without_peer_access_a_custom_all_reduce_is_NCCL_through_the_host) {
    model::Machine machine = direct_box(4);
    machine.peer.enabled = false;
    CollectiveSettings settings;
    settings.implementation = Implementation::one_shot;
    CollectiveModel model(machine, settings);
    const auto time = model.time(request(4, 8192));
    ASSERT_TRUE(time.has_value()) << time.error().to_text();
    EXPECT_EQ(time->choice.implementation, Implementation::nccl);
    EXPECT_TRUE(time->choice.through_host);
    settings.implementation = Implementation::host_staged;
    CollectiveModel staged(machine, settings);
    EXPECT_EQ(staged.time(request(4, 8192))->choice.implementation, Implementation::host_staged);
}

TEST(Collective, Collapsing_writes_hurt_one_shot_and_neither_the_ring_nor_reads) {
    model::Machine machine = switched_box();
    CollectiveSettings ring;
    ring.peer_level = model::PathType::sys;
    CollectiveSettings shot = ring;
    shot.implementation = Implementation::one_shot;
    const auto before_ring = CollectiveModel(machine, ring).time(request(8, 1 << 20))->total;
    const auto before_shot = CollectiveModel(machine, shot).time(request(8, 1 << 20))->total;
    CollectiveSettings reads = shot;
    reads.pull = true;
    const auto before_reads = CollectiveModel(machine, reads).time(request(8, 1 << 20))->total;
    model::WriteCollapseRule rule;
    for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
        if (machine.nodes[i].kind == model::NodeKind::pcie_switch) {
            rule.switches.push_back(static_cast<int>(i));
        }
    }
    rule.min_sources = 2;
    rule.aggregate_gb_s = 2.7;
    machine.write_collapse.push_back(rule);
    // A ring crosses from each switch once: one source. One-shot: four sources of each switch write
    // 4 MiB each across.
    EXPECT_EQ(CollectiveModel(machine, ring).time(request(8, 1 << 20))->total, before_ring);
    EXPECT_EQ(CollectiveModel(machine, reads).time(request(8, 1 << 20))->total, before_reads);
    const auto shot_after = CollectiveModel(machine, shot).time(request(8, 1 << 20))->total;
    EXPECT_GT(shot_after, 4 * before_shot);
    // 16 MiB at 2.7 GB/s, at least
    EXPECT_GT(to_us(shot_after), 16 * 1048576 / 2.7e3);
}

TEST(Collective, Writes_between_the_virtual_switches_of_one_chip_do_not_collapse) {
    // Published: one-shot over the four GPUs of one chip takes 6.4 us for 8 KiB and 95.6 us for 1 MiB; collapsed, the
    // 4 MiB that each virtual switch's two GPUs write to the other's would take 1553 us at 2.7 GB/s.
    const auto machine =
        model::find_machine("8x-rtx-pro-6000-switches", std::string(DRAFTBOARD_SOURCE_DIR) + "/data");
    ASSERT_TRUE(machine);
    CollectiveSettings shot;
    shot.implementation = Implementation::one_shot;
    CollectiveModel model(*machine, shot);
    EXPECT_NEAR(to_us(model.time(request(4, 8192))->total), 6.4, 1.5);
    EXPECT_NEAR(to_us(model.time(request(4, 1 << 20))->total), 95.6, 25);
    // From one chip to the other they climb: 2 x 4 x 1 MiB of each virtual switch at 2.7 GB/s
    EXPECT_GT(to_us(model.time(request(8, 1 << 20))->total), 8 * 1048576 / 2.7e3);
}

TEST(Collective, A_failed_search_is_slow_at_small_sizes_because_of_Simple) {
    CollectiveSettings settings;
    CollectiveModel failed(direct_box(8), settings);
    settings.graph_file = true;
    CollectiveModel sound(direct_box(8), settings);
    const auto slow = failed.time(request(8, 32768));
    const auto fast = sound.time(request(8, 32768));
    EXPECT_TRUE(slow->choice.search_failed);
    EXPECT_EQ(slow->choice.protocol, Protocol::simple);
    EXPECT_EQ(fast->choice.protocol, Protocol::ll);
    // Published for such a host: 48.2 us without and 26.2 us with a graph file; NCCL itself
    // believes in 600 us.
    EXPECT_GT(slow->total, fast->total * 3 / 2);
    EXPECT_LT(to_us(slow->total), 100);
    EXPECT_GT(slow->choice.predicted_us, 300);
}

TEST(Collective, The_search_s_late_switch_makes_512_KiB_slower_than_1_MiB) {
    CollectiveConstants c;
    c.inter_cpu_gb_s = 22;  // LL is kept up to 772 kB, and costs twice the wire
    CollectiveModel model(direct_box(8), {}, c);
    const auto half = model.time(request(8, 524288));
    const auto whole = model.time(request(8, 1048576));
    EXPECT_EQ(half->choice.protocol, Protocol::ll);
    EXPECT_EQ(whole->choice.protocol, Protocol::simple);
    EXPECT_GT(half->total, whole->total);
}

TEST(Collective, A_send_costs_one_step) {
    CollectiveConstants c = plain_constants();
    c.kernel_us = 4;
    CollectiveSettings settings;
    settings.protocol = model::Protocol::simple;
    settings.channels = 1;
    CollectiveModel model(direct_box(2), settings, c);
    const auto time = model.time(request(2, 1'000'000, OperationKind::send_receive));
    ASSERT_TRUE(time.has_value()) << time.error().to_text();
    // 4 + 0.7 + 1 MB / 55.5 GB/s = 22.72 us
    EXPECT_NEAR(to_us(time->total), 4.7 + 1e6 / 55.5e3, 0.01);
}

TEST(Collective, One_GPU_or_no_bytes_cost_nothing) {
    CollectiveModel model(direct_box(4), {});
    EXPECT_EQ(model.time(request(1, 1 << 20))->total, 0);
    EXPECT_EQ(model.time(request(4, 0))->total, 0);
}

TEST(Collective, Nonsense_is_refused_with_a_place) {
    CollectiveModel model(direct_box(4), {});
    EXPECT_FALSE(model.time(request(5, 1024)).has_value());
    EXPECT_FALSE(model.time(request(0, 1024)).has_value());
    EXPECT_FALSE(model.time(request(4, -1)).has_value());
    EXPECT_FALSE(model.time(request(4, (std::int64_t{1} << 50) + 1)).has_value());
    EXPECT_FALSE(model.time(request(4, 1024, OperationKind::gemm)).has_value());
    CollectiveRequest twice = request(2, 1024);
    twice.gpus = {1, 1};
    EXPECT_FALSE(model.time(twice).has_value());
    EXPECT_EQ(model.time(request(5, 1024)).error().context, "box");
}

TEST(Collective, Every_operation_and_size_has_a_finite_time_that_says_how_it_came_about) {
    for (const model::Machine& machine : {direct_box(8), switched_box(), nvlink_box(8)}) {
        for (const auto algorithm : {model::Algorithm::automatic, model::Algorithm::tree}) {
            CollectiveSettings settings;
            settings.algorithm = algorithm;
            CollectiveModel model(machine, settings);
            for (std::int64_t bytes = 1; bytes <= std::int64_t{1} << 40; bytes *= 32) {
                const auto time = model.time(request(8, bytes));
                ASSERT_TRUE(time.has_value()) << time.error().to_text();
                EXPECT_GT(time->total, 0);
                EXPECT_GE(time->transport, 0);
                EXPECT_FALSE(time->formula.empty());
            }
        }
    }
}

TEST(Collective, Without_a_calibration_the_number_says_so) {
    CollectiveModel model(direct_box(4), {});
    EXPECT_EQ(model.time(request(4, 1024))->coverage, Coverage::datasheet);
    EXPECT_DOUBLE_EQ(model.time(request(4, 1024))->relative_uncertainty, 0.3);
}

TEST(Collective, A_calibration_covers_what_it_measured) {
    CollectiveConstants c;
    c.entries.push_back({OperationKind::all_reduce, "nccl", 4, 0.04, 512, 1 << 25, 17});
    CollectiveModel model(direct_box(4), {}, c);
    EXPECT_EQ(model.time(request(4, 1024))->coverage, Coverage::measured);
    EXPECT_DOUBLE_EQ(model.time(request(4, 1024))->relative_uncertainty, 0.04);
    EXPECT_EQ(model.time(request(4, 1 << 26))->coverage, Coverage::extrapolated);
    EXPECT_GE(model.time(request(4, 1 << 26))->relative_uncertainty, 0.15);
    EXPECT_EQ(model.time(request(2, 1024))->coverage, Coverage::extrapolated);
}

TEST(Collective, Link_samples_carry_the_ring_s_bytes) {
    CollectiveSettings settings;
    settings.peer_level = model::PathType::sys;
    settings.protocol = model::Protocol::simple;
    CollectiveModel model(direct_box(4), settings, plain_constants());
    const auto samples = model.link_samples(request(4, 4'000'000));
    ASSERT_TRUE(samples.has_value());
    ASSERT_FALSE(samples->empty());
    // 4 MB over 4 ranks: each GPU's link carries 6 steps of 1 MB out. Integrate the samples of the
    // first.
    const int link = samples->front().link;
    const bool forward = samples->front().forward;
    double bytes = 0;
    Time at = 0;
    double rate = 0;
    for (const LinkSample& sample : *samples) {
        if (sample.link != link || sample.forward != forward) continue;
        bytes += rate * static_cast<double>(sample.at - at) * 1e-12;
        at = sample.at;
        rate = sample.bytes_per_s;
    }
    EXPECT_EQ(rate, 0);
    EXPECT_NEAR(bytes, 6e6, 1e3);
}

// More bytes never take less time within one protocol.
RC_GTEST_PROP(Collective, Time_grows_with_the_bytes_of_one_protocol, ()) {
    CollectiveSettings settings;
    settings.protocol = model::Protocol::simple;
    CollectiveModel model(direct_box(8), settings);
    const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(1 << 20, std::int64_t{1} << 34);
    const std::int64_t more = bytes + *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 30);
    RC_ASSERT(model.time(request(8, bytes))->total <= model.time(request(8, more))->total);
}

RC_GTEST_PROP(Collective, The_same_question_has_the_same_answer, ()) {
    const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(1, 1 << 26);
    CollectiveModel one(direct_box(8), {});
    CollectiveModel other(direct_box(8), {});
    const auto first = one.time(request(8, bytes));
    RC_ASSERT(first->total == one.time(request(8, bytes))->total);
    RC_ASSERT(first->total == other.time(request(8, bytes))->total);
    RC_ASSERT(first->formula == other.time(request(8, bytes))->formula);
}

struct Published {
    std::int64_t bytes;
    double us;
};

/// Mean and worst |predicted / published - 1|, constants from literature alone.
void expect_published(const std::string& machine_name, int gpus, const CollectiveSettings& settings,
                      const std::vector<Published>& rows, double mean_limit, double worst_limit) {
    const auto machine =
        model::find_machine(machine_name, std::string(DRAFTBOARD_SOURCE_DIR) + "/data");
    ASSERT_TRUE(machine.has_value()) << machine.error().to_text();
    CollectiveModel model(*machine, settings);
    double mean = 0;
    for (const Published& row : rows) {
        const auto time = model.time(request(gpus, row.bytes));
        ASSERT_TRUE(time.has_value()) << time.error().to_text();
        const double off = to_us(time->total) / row.us - 1;
        EXPECT_LT(std::abs(off), worst_limit)
            << row.bytes << " B: " << to_us(time->total) << " for " << row.us;
        mean += std::abs(off) / static_cast<double>(rows.size());
    }
    EXPECT_LT(mean, mean_limit);
}

// Hosts other than those that calibrations come from; local-inference-lab/rtx6kpro@e2c2b95.
TEST(CollectiveAgainstPublished, NCCL_over_four_GPUs_of_one_socket) {
    expect_published("4x-rtx-pro-6000", 4, {},
                     {{8192, 13.9},
                      {16384, 14.7},
                      {32768, 15.6},
                      {131072, 24.7},
                      {262144, 40.9},
                      {524288, 71.7},
                      {1048576, 85.2}},
                     0.05, 0.15);
}

TEST(CollectiveAgainstPublished, NCCL_over_two_Turin_sockets_whose_search_fails) {
    CollectiveSettings settings;
    settings.peer_level = model::PathType::sys;
    // 33554432 B: 22.2 GB/s of bus bandwidth
    expect_published("8x-rtx-pro-6000-direct", 8, settings,
                     {{32768, 48.16},
                      {65536, 48.69},
                      {131072, 51.56},
                      {262144, 56.48},
                      {33554432, 33554432 * 1.75 / 22.2e3}},
                     0.10, 0.20);
}

TEST(CollectiveAgainstPublished, The_same_box_with_a_graph_file) {
    CollectiveSettings settings;
    settings.peer_level = model::PathType::sys;
    settings.graph_file = true;
    expect_published("8x-rtx-pro-6000-direct", 8, settings,
                     {{16384, 20.88},
                      {32768, 26.2},
                      {65536, 25.6},
                      {131072, 32.09},
                      {262144, 37.26},
                      {33554432, 33554432 * 1.75 / 37.6e3}},
                     0.10, 0.20);
}

TEST(CollectiveAgainstPublished, NCCL_over_switches_hides_hops_behind_further_trips) {
    // Constants are those of hosts without switches; hop by hop, 168 KiB over 16 GPUs would come to 63 us.
    CollectiveSettings settings;
    settings.peer_level = model::PathType::sys;
    settings.graph_file = true;
    expect_published("8x-rtx-pro-6000-flat", 8, settings,
                     {{4096, 17.34}, {16384, 17.31}, {65536, 25.21}, {262144, 24.96}, {1048576, 81.08}, {4194304, 182.44}},
                     0.16, 0.35);
    expect_published("16x-rtx-pro-6000-flat", 16, settings, {{14336, 36.07}, {114688, 39.65}, {172032, 39.34}}, 0.21, 0.27);
}

TEST(CollectiveAgainstPublished, One_shot_over_four_GPUs) {
    CollectiveSettings settings;
    settings.implementation = Implementation::one_shot;
    settings.pull = true;
    expect_published("4x-rtx-pro-6000", 4, settings,
                     {{8192, 6.45},
                      {16384, 7.7},
                      {32768, 9.2},
                      {65536, 11.8},
                      {131072, 17.6},
                      {262144, 28.7},
                      {524288, 51.0},
                      {1048576, 95.6}},
                     0.10, 0.20);
}

TEST(CollectiveConstants, A_file_gives_back_what_was_written) {
    CollectiveConstants c;
    c.name = "collectives-test";
    c.system = "test";
    c.machines = {"a", "b"};
    c.staged.ll_trip_us = 1.234;
    c.inter_cpu_gb_s = 22;
    c.entries.push_back({OperationKind::all_gather, "nccl", 8, 0.05, 512, 4096, 7});
    const auto again = parse_collective_constants(to_json(c), "test");
    ASSERT_TRUE(again.has_value()) << again.error().to_text();
    for (const NamedConstant& constant : named_constants()) {
        EXPECT_EQ(constant.get(*again), constant.get(c)) << constant.name;
    }
    EXPECT_EQ(again->machines, c.machines);
    EXPECT_EQ(again->entries, c.entries);
}

TEST(CollectiveConstants, Broken_files_name_the_place) {
    model::Json json = to_json(CollectiveConstants{});
    json["constants"]["kernel_us"] = -1;
    json["constants"]["staged.channel_gb_s"] = "fast";
    json["entries"] = model::Json::array({{{"operation", "broadcast"}}});
    const auto constants = parse_collective_constants(json, "broken.json");
    ASSERT_FALSE(constants.has_value());
    EXPECT_NE(constants.error().to_text().find("kernel_us"), std::string::npos);
    EXPECT_NE(constants.error().to_text().find("/entries/0"), std::string::npos);
    EXPECT_FALSE(parse_collective_constants(model::Json::array(), "x").has_value());
    json["format"] = "other";
    EXPECT_FALSE(parse_collective_constants(json, "x").has_value());
}

}  // namespace
}  // namespace draftboard::sim
