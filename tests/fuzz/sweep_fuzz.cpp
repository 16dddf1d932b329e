// SPDX-License-Identifier: Apache-2.0
// Axes as a user writes them (a line each), and the log of an interrupted sweep (all of the input).
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "planning/grid.h"
#include "planning/result_log.h"
#include "planning/sweep_row.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftboard::planning;
    const std::string input(reinterpret_cast<const char*>(data), size);
    std::vector<Axis> axes;
    for (std::size_t begin = 0; begin < input.size() && axes.size() < 8;) {
        const auto end = std::min(input.find('\n', begin), input.size());
        const std::string line = input.substr(begin, end - begin);
        begin = end + 1;
        (void)split_line(line);
        // Ranges of a million values are right and slow.
        if (line.size() > 60) continue;
        if (auto axis = parse_axis(line); axis && axis->values.size() < 1000) axes.push_back(*axis);
    }
    if (const auto grid = Grid::of(axes)) (void)grid->values(grid->rows() - 1);
    if (const auto grid = Grid::sample(axes, Sampling::sobol, 5, 1)) (void)grid->values(4);

    const std::string path =
        (std::filesystem::temp_directory_path() / ("sweep_fuzz_" + std::to_string(getpid()) + ".csv")).string();
    std::ofstream(path + ".part", std::ios::binary | std::ios::trunc) << input;
    SweepIdentity identity{"{}", {"row", "a", "status", "tokens_per_second"}, 1, 4};
    if (auto log = ResultLog::open(path, identity, false)) {
        (void)log->missing();
        (void)log->append("3,x,ok,1\n");
        if (log->done() == identity.rows) (void)log->finish(ResultFormat::csv);
    }
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    std::filesystem::remove(path + ".part", ignored);
    return 0;
}
