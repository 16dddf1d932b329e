// SPDX-License-Identifier: Apache-2.0
#include "calibration/collective_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "calibration/collective_measurements.h"
#include "model/machine_builder.h"
#include "model/machine_json.h"

namespace draftboard::calibration {
namespace {

using model::OperationKind;

const std::string kHeader = "system,impl,op,gpus,bytes,latency_us\n";

TEST(CollectiveCsv, Columns_are_found_by_name) {
    const auto rows = parse_collective_csv(
        "latency_us,op,extra,system,gpus,bytes,impl\r\n24.2,all_reduce,x,box,8,1024,nccl-2."
        "29\r\n\n# note\n"
        "6.35,alltoall,,box,2,512,nccl-2.29\n",
        "table");
    ASSERT_TRUE(rows.has_value()) << rows.error().to_text();
    ASSERT_EQ(rows->size(), 2u);
    EXPECT_EQ((*rows)[0].gpus, 8);
    EXPECT_DOUBLE_EQ((*rows)[0].latency_us, 24.2);
    EXPECT_EQ((*rows)[1].operation, OperationKind::all_to_all);
}

TEST(CollectiveCsv, Broken_rows_name_their_line) {
    for (const char* row :
         {"box,nccl,all_reduce,8,1024", "box,nccl,broadcast,8,1024,1",
          "box,nccl,all_reduce,0,1024,1", "box,nccl,all_reduce,8,-1,1",
          "box,nccl,all_reduce,8,1024,0", "box,nccl,all_reduce,8,1024,nan",
          "box,nccl,all_reduce,8,99999999999999999999,1", "box,nccl,all_reduce,8x,1024,1"}) {
        const auto rows = parse_collective_csv(kHeader + row + "\n", "table");
        ASSERT_FALSE(rows.has_value()) << row;
        EXPECT_EQ(rows.error().context, "table:2") << row;
    }
    EXPECT_FALSE(parse_collective_csv("", "table").has_value());
    EXPECT_FALSE(parse_collective_csv("a,b\n", "table").has_value());
}

TEST(CollectiveCsv, A_gather_s_bytes_are_the_whole_result) {
    CollectiveMeasurement row;
    row.operation = OperationKind::all_gather;
    row.gpus = 4;
    row.bytes = 4096;
    EXPECT_EQ(request_of(row).bytes, 1024);
    row.operation = OperationKind::reduce_scatter;
    EXPECT_EQ(request_of(row).bytes, 4096);
}

model::Machine intel_box() {
    model::MachineBuilder builder("box");
    builder.machine().gpu.compute_capability = "12.0";
    builder.machine().host.vendor = "AuthenticAMD";
    const int numa = builder.add_numa(0, 0);
    for (int g = 0; g < 4; ++g) builder.add_gpu(builder.add_root_port(numa), 5, 16);
    return builder.machine();
}

/// What the model itself says under known constants, as if measured.
std::vector<CollectiveMeasurement> made_up(const model::Machine& machine,
                                           const sim::CollectiveConstants& truth) {
    sim::CollectiveModel model(machine, {}, truth);
    std::vector<CollectiveMeasurement> rows;
    for (const OperationKind operation : {OperationKind::all_reduce, OperationKind::all_gather}) {
        for (const int gpus : {2, 4}) {
            for (std::int64_t bytes = 1024; bytes <= (1 << 25); bytes *= 4) {
                CollectiveMeasurement row{"box", "nccl-x", operation, gpus, bytes, 0};
                row.latency_us = sim::to_us(model.time(request_of(row))->total);
                rows.push_back(row);
            }
        }
    }
    return rows;
}

TEST(CollectiveFit, Constants_that_made_the_rows_are_found_again) {
    const model::Machine machine = intel_box();
    sim::CollectiveConstants truth;
    truth.kernel_us = 6.5;
    truth.staged.ll_trip_us = 1.6;
    truth.staged.simple_efficiency = 0.42;
    const auto fit = fit_collectives(made_up(machine, truth), machine, {});
    ASSERT_TRUE(fit.has_value()) << fit.error().to_text();
    EXPECT_LT(fit->mean_error, 0.005);
    EXPECT_NEAR(fit->constants.kernel_us, 6.5, 0.1);
    EXPECT_NEAR(fit->constants.staged.ll_trip_us, 1.6, 0.08);
    EXPECT_NEAR(fit->constants.staged.simple_efficiency, 0.42, 0.01);
}

TEST(CollectiveFit, One_disturbed_row_bends_the_rest_far_less_than_least_squares_would) {
    const model::Machine machine = intel_box();
    auto rows = made_up(machine, {});
    rows[5].latency_us *= 8;
    const auto bend = [&](double delta) {
        CollectiveFitOptions options;
        options.leave_out = false;
        options.huber_delta = delta;
        const auto fit = fit_collectives(rows, machine, options);
        EXPECT_TRUE(fit.has_value());
        double sum = 0;
        for (std::size_t i = 0; fit && i < rows.size(); ++i) {
            if (i != 5) sum += std::abs(fit->points[i].fitted_us / rows[i].latency_us - 1);
        }
        return sum / static_cast<double>(rows.size() - 1);
    };
    const double robust = bend(0.1);
    const double plain = bend(100);
    EXPECT_LT(robust, 0.03);
    EXPECT_LT(robust, 0.5 * plain);
}

TEST(CollectiveFit, Rows_of_two_systems_or_of_too_many_GPUs_are_refused) {
    std::vector<CollectiveMeasurement> rows = {
        {"a", "nccl", OperationKind::all_reduce, 2, 1024, 6.0},
        {"b", "nccl", OperationKind::all_reduce, 2, 1024, 6.0}};
    EXPECT_FALSE(fit_collectives(rows, intel_box(), {}).has_value());
    rows = {{"a", "nccl", OperationKind::all_reduce, 8, 1024, 6.0}};
    EXPECT_FALSE(fit_collectives(rows, intel_box(), {}).has_value());
    EXPECT_FALSE(fit_collectives({}, intel_box(), {}).has_value());
}

struct Errors {
    double mean = 0;
    double worst = 0;
    int rows = 0;
};

/// The shipped calibration against the published rows of one operation and world size.
Errors errors_of(const std::string& system, const std::string& machine_name,
                 OperationKind operation, int gpus) {
    const auto rows = read_collective_csv(std::string(DRAFTBOARD_SHARED_DIR) +
                                          "/measurements/collectives_us.csv");
    const std::string data = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
    const auto machine = model::find_machine(machine_name, data);
    const auto constants =
        sim::load_collective_constants(data + "/calibrations/collectives-" + system + ".json");
    EXPECT_TRUE(rows.has_value() && machine.has_value() && constants.has_value());
    Errors errors;
    if (!rows || !machine || !constants) return errors;
    sim::CollectiveModel model(*machine, {}, *constants);
    for (const CollectiveMeasurement& row : *rows) {
        if (row.system != system || row.operation != operation || row.gpus != gpus) continue;
        if (row.label.rfind("nccl", 0) != 0) continue;
        const double off =
            std::abs(sim::to_us(model.time(request_of(row))->total) / row.latency_us - 1);
        errors.mean += off;
        errors.worst = std::max(errors.worst, off);
        ++errors.rows;
    }
    errors.mean /= std::max(1, errors.rows);
    return errors;
}

bool shared_absent() {
    return !std::filesystem::exists(std::string(DRAFTBOARD_SHARED_DIR) +
                                    "/measurements/collectives_us.csv");
}

TEST(CollectiveFit, The_shipped_calibration_predicts_eight_GPU_all_reduces) {
    if (shared_absent()) GTEST_SKIP() << "shared measurements absent";
    const Errors errors =
        errors_of("rtx_pro_6000_server", "8x-rtx-pro-6000-aic", OperationKind::all_reduce, 8);
    EXPECT_GE(errors.rows, 8);
    EXPECT_LT(errors.mean, 0.05);
    EXPECT_LT(errors.worst, 0.15);
}

TEST(CollectiveFit, The_shipped_calibration_predicts_the_other_rings) {
    if (shared_absent()) GTEST_SKIP() << "shared measurements absent";
    for (const OperationKind operation :
         {OperationKind::all_reduce, OperationKind::all_gather, OperationKind::reduce_scatter}) {
        for (const int gpus : {2, 4}) {
            const Errors errors =
                errors_of("rtx_pro_6000_server", "8x-rtx-pro-6000-aic", operation, gpus);
            EXPECT_LT(errors.mean, 0.06) << gpus;
            EXPECT_LT(errors.worst, 0.20) << gpus;
        }
    }
}

TEST(CollectiveFit, Rows_of_our_own_between_powers_of_two_are_met_within_seven_percent) {
    const std::string data = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
    auto rows = read_collective_csv(data + "/measurements/collectives-h200-p2p-off.csv");
    const auto machine = model::find_machine("8x-h200-no-p2p", data);
    ASSERT_TRUE(rows.has_value() && machine.has_value());
    std::erase_if(*rows,
                  [](const CollectiveMeasurement& row) { return row.system != "h200_no_p2p"; });
    const auto fit = fit_collectives(*rows, *machine, {});
    ASSERT_TRUE(fit.has_value()) << fit.error().to_text();
    EXPECT_GE(fit->points.size(), 30u);
    EXPECT_LT(fit->held_out_mean_error, 0.03);
    EXPECT_LT(fit->held_out_worst_error, 0.10);
    // 14336 B have half the channels of 16384 B and need a second trip.
    const auto at = [&](std::int64_t bytes) {
        for (const CollectiveFitPoint& point : fit->points) {
            if (point.measurement.bytes == bytes) return point.fitted_us;
        }
        return 0.0;
    };
    EXPECT_GT(at(14336), at(16384));
}

TEST(CollectiveFit, The_shipped_calibration_has_512_KiB_slower_than_1_MiB_over_eight_GPUs) {
    const std::string data = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
    const auto machine = model::find_machine("8x-rtx-pro-6000-aic", data);
    const auto constants =
        sim::load_collective_constants(data + "/calibrations/collectives-rtx_pro_6000_server.json");
    ASSERT_TRUE(machine.has_value() && constants.has_value());
    sim::CollectiveModel model(*machine, {}, *constants);
    CollectiveMeasurement row{"", "", OperationKind::all_reduce, 8, 524288, 0};
    const auto half = model.time(request_of(row));
    row.bytes = 1048576;
    const auto whole = model.time(request_of(row));
    EXPECT_EQ(half->choice.protocol, sim::Protocol::ll);
    EXPECT_EQ(whole->choice.protocol, sim::Protocol::simple);
    EXPECT_GT(half->total, whole->total);
    EXPECT_EQ(half->coverage, sim::Coverage::measured);
}

}  // namespace
}  // namespace draftboard::calibration
