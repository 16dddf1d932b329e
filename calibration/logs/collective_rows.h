// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the rows of one run of nccl-tests say together: which operation, how many ranks, and whether each row agrees with itself.
// It reads no text: nccl_tests_log.cpp does.
//
//   algbw [GB/s] = bytes / time [us] / 1000
//   busbw = algbw x f:  all_reduce                                     f = 2 (n - 1) / n
//                       all_gather, reduce_scatter, alltoall, gather, scatter    f = (n - 1) / n
//                       broadcast, reduce, sendrecv                    f = 1
//   bytes / (count x size of an element) = n for all_gather, reduce_scatter, alltoall, gather, scatter, else 1
// so that n follows from the counts, or from busbw / algbw where its digits leave one whole number. Each check allows what
// rounding to the printed digits can do, and no more.
// Worked example: all_reduce, 167.09 and 313.29 GB/s: f = 1.87498 +- 0.00009, n = 2 / (2 - f) = 15.98 .. 16.01: 16 ranks.

#include <string>
#include <vector>

#include "calibration/logs/link_log.h"

namespace draftboard::calibration {

/// Half a unit of the last printed digit of a timing's three numbers.
struct PrintedHalves {
    double time = 0;
    double algorithm = 0;
    double bus = 0;
};

struct PrintedRow {
    CollectiveRow row;
    PrintedHalves out_of_place;
    PrintedHalves in_place;
};

/// The factor f; 0 if the operation is not known. Precondition: ranks >= 1.
[[nodiscard]] double bus_factor(const std::string& operation, int ranks);
/// "2 (n-1)/n", "(n-1)/n", "1"; empty if the operation is not known.
[[nodiscard]] std::string bus_formula(const std::string& operation);
/// Bytes of an element; 0 if the type is not known.
[[nodiscard]] int element_bytes(const std::string& dtype);

struct CollectiveRun {
    std::string operation;  ///< as the log names it, may be empty
    int listed_ranks = 0;   ///< 1 + the highest rank of the device list, 0: no list
    std::vector<PrintedRow> rows;
};

/// Gives each row its operation and ranks and appends it to the log; what is inferred or contradictory becomes a remark there.
void settle_run(CollectiveRun run, LinkLog& log);

}  // namespace draftboard::calibration
