// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of a sweep: every combination of the axes' values, or a sample of them. Any row can be asked for by its number, so
// that threads and processes may share them out as they like; the same question gives the same rows on every machine.
//
//   grid     the last axis changes fastest; rows = product of the axes' counts
//   random   N points drawn evenly; row i's from a stream of its own, forked from the seed
//   sobol    the first N points of a Sobol sequence (Boost.Random's, new Joe and Kuo directions): they fill the space evenly

#include <cstdint>
#include <string>
#include <vector>

#include "planning/axis.h"

namespace draftboard::planning {

inline constexpr std::uint64_t kMaxRows = 200'000'000;
inline constexpr std::size_t kMaxAxes = 32;

enum class Sampling { grid, random, sobol };
[[nodiscard]] std::string_view to_name(Sampling sampling);

class Grid {
 public:
    /// Errors: no axis, one named twice, a grid over a continuous range, too many rows.
    [[nodiscard]] static model::Expected<Grid> of(std::vector<Axis> axes);
    [[nodiscard]] static model::Expected<Grid> sample(std::vector<Axis> axes, Sampling sampling, std::uint64_t rows,
                                                      std::uint64_t seed);

    [[nodiscard]] std::uint64_t rows() const { return rows_; }
    [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
    [[nodiscard]] Sampling sampling() const { return sampling_; }
    [[nodiscard]] std::uint64_t seed() const { return seed_; }
    /// One value an axis. Precondition: row < rows().
    [[nodiscard]] std::vector<std::string> values(std::uint64_t row) const;

 private:
    Grid() = default;
    std::vector<Axis> axes_;
    Sampling sampling_ = Sampling::grid;
    std::uint64_t rows_ = 0;
    std::uint64_t seed_ = 0;
};

/// "sobol:N" or "random:N".
struct SampleRequest {
    Sampling sampling = Sampling::sobol;
    std::uint64_t rows = 0;
};
[[nodiscard]] model::Expected<SampleRequest> parse_sample(const std::string& text);

}  // namespace draftboard::planning
