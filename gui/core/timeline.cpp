// SPDX-License-Identifier: Apache-2.0
#include "gui/core/timeline.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "gui/core/answer.h"

namespace draftboard::gui {

using sim::OperationTimes;
using sim::SimulatedPass;
using sim::Time;

namespace {

/// Marks, for one pass, which (rank, operation) lie on the critical path.
std::vector<std::vector<bool>> critical_operations(const SimulatedPass& pass) {
    const auto& operations = pass.priced.operations;
    const auto& times = pass.times;
    std::vector<std::vector<bool>> critical(static_cast<std::size_t>(times.ranks), std::vector<bool>(operations.size(), false));
    if (times.ranks == 0 || operations.empty()) return critical;
    int rank = 0;
    for (int r = 1; r < times.ranks; ++r) {
        if (times.rank_end[static_cast<std::size_t>(r)] > times.rank_end[static_cast<std::size_t>(rank)]) rank = r;
    }
    for (std::size_t i = operations.size(); i-- > 0;) {
        if (operations[i].collective) {
            for (int r = 0; r < times.ranks; ++r) {
                if (times.at(r, i).wait < times.at(rank, i).wait) rank = r;  // the last to arrive waits least
            }
        }
        if (!times.at(rank, i).hidden) critical[static_cast<std::size_t>(rank)][i] = true;
    }
    return critical;
}

class Builder {
 public:
    Builder(const Answer& answer, Timeline& out)
        : answer_(answer),
          out_(out),
          collectives_(answer.scenario.machine, answer.scenario.collective, answer.collective_constants) {}

    void add_rows(int ranks, bool sides) {
        for (int rank = 0; rank < ranks; ++rank) {
            main_.push_back(static_cast<int>(out_.rows.size()));
            out_.rows.push_back({"rank " + std::to_string(rank), rank, false, {}});
            side_.push_back(static_cast<int>(out_.rows.size()));
            if (sides) out_.rows.push_back({"rank " + std::to_string(rank) + " side", rank, true, {}});
        }
    }

    void add_pass(const SimulatedPass& pass, int source, Time origin) {
        const auto critical = critical_operations(pass);
        const int index = static_cast<int>(out_.passes.size()) - 1;
        for (int rank = 0; rank < pass.times.ranks; ++rank) {
            for (std::size_t i = 0; i < pass.priced.operations.size(); ++i) {
                const OperationTimes& at = pass.times.at(rank, i);
                const sim::PricedOperation& priced = pass.priced.operations[i];
                const auto row = static_cast<std::size_t>(priced.stream == 0 ? main_[static_cast<std::size_t>(rank)]
                                                                             : side_[static_cast<std::size_t>(rank)]);
                Slice slice;
                slice.pass = index;
                slice.operation = static_cast<int>(i);
                slice.term = pass.priced.info[i].term;
                slice.critical = critical[static_cast<std::size_t>(rank)][i];
                const auto put = [&](Time start, Time end, SliceKind kind) {
                    if (end <= start) return;
                    slice.start = origin + start;
                    slice.end = origin + end;
                    slice.kind = kind;
                    out_.rows[row].slices.push_back(slice);
                };
                if (at.contention > 0) {
                    put(at.start - at.idle - at.contention, at.start - at.idle, SliceKind::contention);
                }
                if (!priced.collective) {
                    put(at.start, at.end, SliceKind::kernel);
                    continue;
                }
                put(at.start, at.start + at.wait, SliceKind::wait);
                put(at.start + at.wait, at.end, SliceKind::transport);
                if (rank == 0) add_links(pass, i, source, origin + at.start + at.wait, at.end - at.start - at.wait);
            }
        }
    }

    void finish() {
        for (auto& [key, track] : tracks_) {
            std::stable_sort(track.uses.begin(), track.uses.end(),
                             [](const LinkUse& a, const LinkUse& b) { return a.at < b.at; });
            out_.links.push_back(std::move(track));
        }
        for (TimelineRow& row : out_.rows) {
            std::stable_sort(row.slices.begin(), row.slices.end(),
                             [](const Slice& a, const Slice& b) { return a.start < b.start; });
        }
    }

 private:
    /// The links' load while this collective runs; sampled once for each size.
    void add_links(const SimulatedPass& pass, std::size_t i, int source, Time start, Time duration) {
        (void)source;
        const model::Operation& operation = pass.priced.plan.operations[i];
        const auto cached = samples_.try_emplace({operation.kind, operation.message_bytes, operation.group});
        if (cached.second) {
            sim::CollectiveRequest request;
            request.operation = operation.kind;
            request.gpus.resize(static_cast<std::size_t>(operation.group));
            std::iota(request.gpus.begin(), request.gpus.end(), 0);
            request.bytes = operation.message_bytes;
            if (operation.group <= sim::kMaxSampledRanks) {
                if (auto samples = collectives_.link_samples(request)) cached.first->second = std::move(*samples);
            }
        }
        std::map<std::pair<int, bool>, bool> open;
        for (const sim::LinkSample& sample : cached.first->second) {
            if (sample.at > duration) continue;
            LinkTrack& track = track_of(sample.link, sample.forward);
            track.uses.push_back({start + sample.at, sample.bytes_per_s});
            open[{sample.link, sample.forward}] = sample.bytes_per_s > 0;
        }
        for (const auto& [key, busy] : open) {
            if (busy) track_of(key.first, key.second).uses.push_back({start + duration, 0});
        }
    }

    LinkTrack& track_of(int link, bool forward) {
        LinkTrack& track = tracks_[{link, forward}];
        track.link = link;
        track.forward = forward;
        return track;
    }

    const Answer& answer_;
    Timeline& out_;
    sim::CollectiveModel collectives_;
    std::map<std::tuple<model::OperationKind, std::int64_t, int>, std::vector<sim::LinkSample>> samples_;
    std::map<std::pair<int, bool>, LinkTrack> tracks_;
    std::vector<int> main_;
    std::vector<int> side_;
};

bool uses_side_stream(const SimulatedPass& pass) {
    return std::any_of(pass.priced.operations.begin(), pass.priced.operations.end(),
                       [](const sim::PricedOperation& operation) { return operation.stream != 0; });
}

}  // namespace

double LinkTrack::at(Time time) const {
    const auto after = std::upper_bound(uses.begin(), uses.end(), time, [](Time t, const LinkUse& use) { return t < use.at; });
    return after == uses.begin() ? 0 : std::prev(after)->bytes_per_s;
}

Timeline build_timeline(const Answer& answer) {
    Timeline out;
    const bool speculates = answer.scenario.speculation.method != model::SpeculationMethod::none;
    int ranks = 0;
    bool sides = false;
    for (const SimulatedPass& pass : answer.passes) {
        std::vector<std::string> keys;
        for (const model::Operation& operation : pass.priced.plan.operations)
            keys.push_back(operation.key(pass.priced.plan.pass));
        out.keys.push_back(std::move(keys));
        if (speculates == (pass.name == "plain")) continue;
        ranks = std::max(ranks, pass.times.ranks);
        sides = sides || uses_side_stream(pass);
    }
    Builder builder(answer, out);
    builder.add_rows(ranks, sides);
    for (std::size_t source = 0; source < answer.passes.size(); ++source) {
        const SimulatedPass& pass = answer.passes[source];
        if (speculates == (pass.name == "plain")) continue;
        for (int i = 0; i < pass.repeat; ++i) {
            const std::string name = pass.repeat > 1 ? pass.name + " " + std::to_string(i + 1) : pass.name;
            out.passes.push_back({name, static_cast<int>(source), out.total, out.total + pass.times.total});
            builder.add_pass(pass, static_cast<int>(source), out.total);
            out.total += pass.times.total;
        }
    }
    builder.finish();
    return out;
}

StretchSum sum_stretch(const Timeline& timeline, Time from, Time to) {
    StretchSum sum;
    int ranks = 0;
    for (const TimelineRow& row : timeline.rows) {
        if (row.side) continue;
        ++ranks;
        Time busy = 0;
        for (const Slice& slice : row.slices) {
            const Time overlap = std::min(slice.end, to) - std::max(slice.start, from);
            if (overlap <= 0) continue;
            busy += overlap;
            const double ms = sim::to_ms(overlap);
            if (slice.kind == SliceKind::transport)
                sum.transport_ms += ms;
            else if (slice.kind == SliceKind::wait || slice.kind == SliceKind::contention)
                sum.wait_ms += ms;
            else
                sum.kernel_ms += ms;
        }
        sum.idle_ms += sim::to_ms(to - from - busy);
    }
    if (ranks > 0) {
        for (double* part : {&sum.kernel_ms, &sum.transport_ms, &sum.wait_ms, &sum.idle_ms}) *part /= ranks;
    }
    return sum;
}

}  // namespace draftboard::gui
