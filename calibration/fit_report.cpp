// SPDX-License-Identifier: Apache-2.0
#include "calibration/fit_report.h"

#include <algorithm>

#include <fmt/format.h>

namespace draftboard::calibration {

std::string to_text(const FitReport& report) {
    auto tables = report.tables;
    std::stable_sort(tables.begin(), tables.end(), [](const TableFit& a, const TableFit& b) {
        return a.all_errors.median > b.all_errors.median;
    });
    std::string text =
        "Errors are |predicted/measured - 1| of rows that the fit did not see; cold: beyond L2, which is what plans pay.\n";
    for (const auto& table : tables) {
        text += fmt::format("{}\n  {}{}: {} rows, {} cold, {} warm, {} between", table.table, table.key,
                            table.pooled ? " (pooled)" : "", table.rows, table.cold, table.warm, table.between);
        if (table.copies > 1) text += fmt::format("; the benchmark rotates {} operands", table.copies);
        text += '\n';
        const auto line = [&](const char* name, const ErrorSummary& errors) {
            if (errors.rows == 0) return;
            text += fmt::format("  {}: median {:.1f} %, p90 {:.1f} %, worst {:.0f} %, bias {:+.1f} %\n", name,
                                100 * errors.median, 100 * errors.p90, 100 * errors.worst, 100 * errors.bias);
        };
        line("all", table.all_errors);
        line("cold", table.cold_errors);
        line("warm", table.warm_errors);
        if (!table.cold_by_m.empty()) {
            text += "  cold bias by m:";
            for (const auto& bucket : table.cold_by_m) {
                text += fmt::format(" {:g}: {:+.0f} % ({})", bucket.m, 100 * bucket.errors.bias, bucket.errors.rows);
            }
            text += '\n';
        }
        if (!table.worst_row.empty()) text += fmt::format("  worst: {}\n", table.worst_row);
    }
    for (const auto& note : report.notes) text += fmt::format("note: {}\n", note);
    return text;
}

}  // namespace draftboard::calibration
