// SPDX-License-Identifier: Apache-2.0
#include "planning/grid.h"

#include <charconv>
#include <set>

#include <fmt/format.h>
#include <boost/random/sobol.hpp>

#include "model/random.h"

namespace draftboard::planning {

using model::ErrorCode;

namespace {

model::Expected<void> check(const std::vector<Axis>& axes) {
    if (axes.empty()) {
        return model::fail(ErrorCode::invalid_input, "nothing varies", "--vary", "for example --vary speculation.steps=1..7");
    }
    if (axes.size() > kMaxAxes) {
        return model::fail(ErrorCode::too_large, fmt::format("{} axes; {} is the most", axes.size(), kMaxAxes), "--vary", "");
    }
    std::set<std::string> seen;
    for (const Axis& axis : axes) {
        if (!seen.insert(axis.path).second) {
            return model::fail(ErrorCode::invalid_input, "the field is varied twice", "--vary " + axis.path,
                               "put all its values into one --vary");
        }
    }
    return {};
}

model::Expected<void> check_rows(double rows) {
    if (rows <= static_cast<double>(kMaxRows)) return {};
    return model::fail(ErrorCode::too_large, fmt::format("a sweep of {:.0f} cells; {} is the most", rows, kMaxRows), "--vary",
                       "take fewer values, or --sample sobol:N");
}

}  // namespace

std::string_view to_name(Sampling sampling) {
    switch (sampling) {
        case Sampling::grid: return "grid";
        case Sampling::random: return "random";
        case Sampling::sobol: return "sobol";
    }
    return "?";
}

model::Expected<Grid> Grid::of(std::vector<Axis> axes) {
    if (auto sound = check(axes); !sound) return tl::unexpected(sound.error());
    double rows = 1;
    for (const Axis& axis : axes) {
        if (axis.continuous()) {
            return model::fail(ErrorCode::invalid_input, "a grid needs a step in this range", "--vary " + axis.path,
                               fmt::format("for example {}={:g}..{:g}:{:g}, or --sample sobol:N", axis.path, axis.low, axis.high,
                                           (axis.high - axis.low) / 10));
        }
        rows *= static_cast<double>(axis.values.size());
    }
    if (auto sound = check_rows(rows); !sound) return tl::unexpected(sound.error());
    Grid grid;
    grid.axes_ = std::move(axes);
    grid.rows_ = static_cast<std::uint64_t>(rows);
    return grid;
}

model::Expected<Grid> Grid::sample(std::vector<Axis> axes, Sampling sampling, std::uint64_t rows, std::uint64_t seed) {
    if (auto sound = check(axes); !sound) return tl::unexpected(sound.error());
    if (auto sound = check_rows(static_cast<double>(rows)); !sound) return tl::unexpected(sound.error());
    Grid grid;
    grid.axes_ = std::move(axes);
    grid.sampling_ = sampling;
    grid.rows_ = rows;
    grid.seed_ = seed;
    return grid;
}

std::vector<std::string> Grid::values(std::uint64_t row) const {
    std::vector<std::string> out(axes_.size());
    if (sampling_ == Sampling::grid) {
        for (std::size_t i = axes_.size(); i-- > 0;) {
            const std::vector<std::string>& values = axes_[i].values;
            out[i] = values[row % values.size()];
            row /= values.size();
        }
    } else if (sampling_ == Sampling::random) {
        model::Random random = model::Random(seed_).fork(row);
        for (std::size_t i = 0; i < axes_.size(); ++i) out[i] = axes_[i].at(random.uniform());
    } else {
        boost::random::sobol engine(axes_.size());
        engine.discard(row * axes_.size());
        for (std::size_t i = 0; i < axes_.size(); ++i) {
            out[i] = axes_[i].at(static_cast<double>(engine() >> 11) * 0x1.0p-53);
        }
    }
    return out;
}

model::Expected<SampleRequest> parse_sample(const std::string& text) {
    const auto refuse = [&] {
        return model::fail(ErrorCode::invalid_input, "a sample is sobol:N or random:N", "--sample " + text.substr(0, 80),
                           "for example --sample sobol:10000");
    };
    const auto colon = text.find(':');
    if (colon == std::string::npos) return refuse();
    SampleRequest request;
    const std::string kind = text.substr(0, colon);
    if (kind == "random") {
        request.sampling = Sampling::random;
    } else if (kind != "sobol") {
        return refuse();
    }
    const char* begin = text.data() + colon + 1;
    const char* last = text.data() + text.size();
    const auto [end, ec] = std::from_chars(begin, last, request.rows);
    if (ec != std::errc{} || end != last || request.rows == 0) return refuse();
    return request;
}

}  // namespace draftboard::planning
