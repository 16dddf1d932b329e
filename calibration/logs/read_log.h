// SPDX-License-Identifier: Apache-2.0
#pragma once
// One entry for the logs of links and collectives that people already have: nccl-tests (text and JSON), nvbandwidth (text and
// JSON), p2pBandwidthLatencyTest and NCCL's own tuning tables. The content tells the tool, never the file's name. A log of
// nccl-tests that was run with NCCL_DEBUG_SUBSYS=TUNING gives both. What is in a LinkLog: link_log.h.
//
// A reader takes what is whole, says what is missing (warnings) or contradicts itself (findings), and refuses a log that
// measured nothing, with the tool's own words for why. Errors name file and line (JSON: pointer), what, and what to do.

#include <string>
#include <string_view>

#include "calibration/logs/link_log.h"
#include "model/error.h"

namespace draftboard::calibration {

/// "nccl-tests", "nvbandwidth", "p2pBandwidthLatencyTest", "NCCL tuning".
[[nodiscard]] const char* to_name(LogTool tool);

/// `name` leads the context of errors.
[[nodiscard]] model::Expected<LinkLog> read_log(const std::string& text, const std::string& name);

// The readers, for a log whose tool is known. Each accepts any text.
[[nodiscard]] model::Expected<LinkLog> read_nccl_tests_log(const std::string& text, const std::string& name);
[[nodiscard]] model::Expected<LinkLog> read_nccl_tests_json(const std::string& text, const std::string& name);
[[nodiscard]] model::Expected<LinkLog> read_nvbandwidth_log(const std::string& text, const std::string& name);
[[nodiscard]] model::Expected<LinkLog> read_nvbandwidth_json(const std::string& text, const std::string& name);
[[nodiscard]] model::Expected<LinkLog> read_p2p_bandwidth_log(const std::string& text, const std::string& name);
[[nodiscard]] model::Expected<LinkLog> read_nccl_tuning_log(const std::string& text, const std::string& name);

/// True if a line looks like a row of nccl-tests: size, count, type of element.
[[nodiscard]] bool is_nccl_tests_row(std::string_view line);

}  // namespace draftboard::calibration
