// SPDX-License-Identifier: Apache-2.0
// Tables of published cells: any bytes give rows or an error; a row gives a sound scenario or a reason; and any
// calibration that was accepted gives engine terms or an error.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calibration/backtest_scenario.h"
#include "calibration/engine_terms.h"

using namespace draftboard;

namespace {

constexpr std::size_t kRowsTold = 4;  // of one input

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static calibration::BacktestLibrary library(std::string(DRAFTBOARD_SOURCE_DIR) + "/data");
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto rows = calibration::parse_published_grid(text, "fuzz.csv");
    if (!rows) require(!rows.error().message.empty());
    for (std::size_t i = 0; rows && i < rows->size() && i < kRowsTold; ++i) {
        const auto told = library.scenario_of((*rows)[i]);
        if (told) require(told->scenario.validate().empty());
        if (!told) require(!told.error().message.empty());
    }
    if (const auto read = calibration::parse_calibration(text, "fuzz.json")) {
        (void)calibration::engine_terms(*read);
    }
    return 0;
}
