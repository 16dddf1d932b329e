// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_read.h"

#include <memory>
#include <vector>

#include "calibration/logs/log_report.h"
#include "calibration/logs/nsight_export.h"
#include "calibration/logs/read_log.h"

namespace draftboard::cli {

namespace {

/// Each log by itself: one that can't be read does not hide the others. Exit 2 if any can't, else 1 if any contradicts itself.
void run(const std::vector<std::string>& files, CommandContext& context) {
    model::Json logs = model::Json::array();
    std::string text;
    bool found = false;
    for (const std::string& file : files) {
        if (file != "-" && calibration::is_sqlite_file(file).value_or(false)) {  // of any size: not read into memory
            const auto recorded = calibration::load_nsight_export(file);
            if (!recorded) {
                context.report(recorded.error());
            } else if (context.json) {
                logs.push_back(calibration::to_json(*recorded, file));
            } else {
                text += (text.empty() ? "" : "\n") + calibration::to_text(*recorded, file);
            }
            continue;
        }
        const auto bytes = read_input(file);
        if (!bytes) {
            context.report(bytes.error());
            continue;
        }
        const auto log = calibration::read_log(*bytes, file);
        if (!log) {
            context.report(log.error());
            continue;
        }
        found = found || !log->findings.empty();
        if (context.json) {
            logs.push_back(calibration::to_json(*log, file));
        } else {
            text += (text.empty() ? "" : "\n") + calibration::to_text(*log, file);
        }
    }
    if (context.json && !logs.empty()) context.print(model::Json{{"logs", std::move(logs)}});
    if (!text.empty()) context.print(text);
    if (context.exit_code == kOk && found) context.exit_code = kFinding;
}

}  // namespace

void add_calibrate_read(CLI::App& calibrate, CommandContext& context) {
    auto files = std::make_shared<std::vector<std::string>>();
    CLI::App* read =
        calibrate.add_subcommand("read", "What logs of nccl-tests, nvbandwidth, p2pBandwidthLatencyTest, NCCL's tuning or Nsight Systems' SQLite exports say");
    read->add_option("logs", *files, "The logs; - is standard input. See docs/importing.md")->required();
    read->callback([files, &context] { run(*files, context); });
}

}  // namespace draftboard::cli
