// SPDX-License-Identifier: Apache-2.0
#include "planning/sweep.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "model/hash.h"
#include "planning/sweep_row.h"
#include "sim/version.h"

namespace draftboard::planning {

namespace {

using Clock = std::chrono::steady_clock;
using Run = std::pair<std::uint64_t, std::uint64_t>;  // first and last row

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Lines that threads have finished and nobody has taken yet.
class Queue {
 public:
    void push(std::string lines) {
        {
            const std::lock_guard lock(mutex_);
            lines_ += lines;
        }
        filled_.notify_one();
    }
    void leave() {
        {
            const std::lock_guard lock(mutex_);
            --threads_;
        }
        filled_.notify_one();
    }
    void enter(int threads) { threads_ = threads; }
    /// All lines there are; waits a while if there are none. `ended`: no more will come.
    std::string take(std::chrono::milliseconds patience, bool& ended) {
        std::unique_lock lock(mutex_);
        filled_.wait_for(lock, patience, [this] { return !lines_.empty() || threads_ == 0; });
        ended = threads_ == 0;
        return std::exchange(lines_, {});
    }

 private:
    std::mutex mutex_;
    std::condition_variable filled_;
    std::string lines_;
    int threads_ = 0;
};

/// The missing rows cut into blocks; a process takes every size-th of them.
class Blocks {
 public:
    Blocks(const std::vector<Run>& missing, int rank, int size)
        : next_(static_cast<std::uint64_t>(rank)), step_(static_cast<std::uint64_t>(size)) {
        for (const auto& [first, last] : missing) {
            for (std::uint64_t row = first; row <= last; row += kBlockRows) {
                blocks_.emplace_back(row, std::min(last, row + kBlockRows - 1));
            }
        }
    }
    [[nodiscard]] bool take(Run& block) {
        const std::uint64_t index = next_.fetch_add(step_);
        if (index >= blocks_.size()) return false;
        block = blocks_[index];
        return true;
    }

 private:
    std::vector<Run> blocks_;
    std::atomic<std::uint64_t> next_;
    std::uint64_t step_;
};

std::string to_text(const std::vector<Run>& runs) {
    std::string text;
    for (const auto& [first, last] : runs) text += fmt::format("{} {}\n", first, last);
    return text;
}

std::vector<Run> runs_of(const std::string& text) {
    std::vector<Run> runs;
    const char* at = text.c_str();
    char* end = nullptr;
    while (*at != '\0') {
        const std::uint64_t first = std::strtoull(at, &end, 10);
        const std::uint64_t last = std::strtoull(end, &end, 10);
        runs.emplace_back(first, last);
        at = end + 1;
    }
    return runs;
}

/// The question, and row 0's answer, which changes with every file and constant that the question refers to.
model::Expected<SweepIdentity> identify(const SweepQuestion& question, Variants& variants) {
    const Grid& grid = question.grid;
    SweepIdentity identity;
    identity.axes = grid.axes().size();
    identity.rows = grid.rows();
    identity.columns = column_names(grid.axes());
    const std::string first = sweep_line(variants, grid, 0);
    model::Json axes = model::Json::object();
    for (const Axis& axis : grid.axes()) {
        if (axis.continuous()) {
            axes[axis.path] = {{"from", axis.low}, {"to", axis.high}};
        } else if (axis.values.size() <= 100) {
            axes[axis.path] = axis.values;
        } else {
            std::string all;
            for (const std::string& value : axis.values) all += value + "\n";
            axes[axis.path] = {{"count", axis.values.size()},
                               {"first", axis.values.front()},
                               {"last", axis.values.back()},
                               {"digest", fmt::format("{:016x}", model::fnv1a(all))}};
        }
    }
    model::Json sample = nullptr;
    if (grid.sampling() != Sampling::grid) sample = {{"kind", to_name(grid.sampling())}, {"seed", grid.seed()}};
    const model::Json json{{"format", "draftboard.sweep"},
                           {"version", 1},
                           {"draftboard", sim::kVersion},
                           {"revision", sim::kRevision},
                           {"scenario", question.scenario},
                           {"set", question.edits},
                           {"scenario_digest", fmt::format("{:016x}", model::fnv1a(variants.base().document.dump()))},
                           {"vary", axes},
                           {"sample", sample},
                           {"rows", grid.rows()},
                           {"first_row_digest", fmt::format("{:016x}", model::fnv1a(first))}};
    identity.provenance = json.dump(-1, ' ', false, model::Json::error_handler_t::replace);
    return identity;
}

/// Opens references that axes reach into, and finds out that each path is a field.
model::Expected<void> prepare(BaseDocument& base, const Grid& grid, const std::string& data_directory) {
    model::Json probe = base.document;
    const auto values = grid.values(0);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string edit = grid.axes()[i].path + "=" + values[i];
        if (auto edited = model::edit_scenario_document(probe, edit, data_directory, base.directory); !edited) return edited;
    }
    for (const char* field : {"architecture", "machine"}) {
        const auto reaches = [&](const Axis& axis) { return axis.path.starts_with(std::string(field) + "."); };
        if (std::none_of(grid.axes().begin(), grid.axes().end(), reaches) || !base.document[field].is_string()) continue;
        // The probe holds the document inline, with row 0's values in it, which every row replaces.
        base.document[field] = probe[field];
    }
    return {};
}

/// Depths vary and the acceptance does not.
bool varies_depth_alone(const Grid& grid) {
    bool depth = false;
    for (const Axis& axis : grid.axes()) {
        if (axis.path.starts_with("speculation.acceptance") || axis.path == "speculation") return false;
        depth = depth || axis.path == "speculation.steps" || axis.path == "speculation.draft_tokens" ||
                axis.path == "speculation.top_k";
    }
    return depth;
}

int thread_count(const SweepOptions& options, const Gang& gang) {
    if (options.threads > 0) return options.threads;
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    return std::max(1, cores / gang.size_here());
}

/// Threads of this process, until its blocks are done or it is told to stop.
class Workers {
 public:
    Workers(int threads, const Grid& grid, const BaseDocument& base, std::shared_ptr<SharedConstants> shared, Blocks& blocks,
            Queue& queue, const std::atomic<bool>* stop) {
        queue.enter(threads);
        for (int i = 0; i < threads; ++i) {
            threads_.emplace_back([&grid, &base, shared, &blocks, &queue, stop] {
                Variants variants(shared, base);
                Run block;
                while (!(stop != nullptr && *stop) && blocks.take(block)) {
                    std::string lines;
                    for (std::uint64_t row = block.first; row <= block.second; ++row) {
                        if (stop != nullptr && *stop) break;
                        lines += sweep_line(variants, grid, row);
                    }
                    queue.push(std::move(lines));
                }
                queue.leave();
            });
        }
    }
    ~Workers() {
        for (std::thread& thread : threads_) thread.join();
    }
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

 private:
    std::vector<std::thread> threads_;
};

}  // namespace

model::Edits row_edits(const Grid& grid, const std::vector<std::string>& values) {
    model::Edits edits;
    edits.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) edits.push_back(grid.axes()[i].path + "=" + values[i]);
    return edits;
}

std::string sweep_line(Variants& variants, const Grid& grid, std::uint64_t row) {
    const std::vector<std::string> values = grid.values(row);
    const auto prediction = variants.predict(row_edits(grid, values));
    return prediction ? row_line(row, values, *prediction) : refused_line(row, values, prediction.error());
}

model::Expected<SweepResult> run_sweep(const SweepQuestion& question, const SweepOptions& options,
                                       const std::string& data_directory, Gang& gang) {
    SweepResult result;
    result.first = gang.rank() == 0;
    result.rows = question.grid.rows();
    const auto format = result_format(options.output);
    if (!format) return tl::unexpected(format.error());
    auto base = load_base(question.scenario, data_directory, question.edits);
    if (!base) return tl::unexpected(base.error());
    if (auto prepared = prepare(*base, question.grid, data_directory); !prepared) return tl::unexpected(prepared.error());
    result.acceptance_pinned = varies_depth_alone(question.grid) && pin_acceptance(*base, data_directory);
    auto shared = std::make_shared<SharedConstants>(data_directory);
    Variants variants(shared, *base);
    if (const auto whole = variants.scenario({}); !whole) {
        // Some fields may only make sense together with the varied ones.
        if (!variants.scenario(row_edits(question.grid, question.grid.values(0)))) return tl::unexpected(whole.error());
    }
    auto identity = identify(question, variants);
    if (!identity) return tl::unexpected(identity.error());
    result.columns = identity->columns;
    result.threads = thread_count(options, gang);

    // The first says what there is to do; the others make sure that they mean the same.
    std::optional<ResultLog> log;
    std::optional<model::Error> error;
    std::string plan = "done";
    if (result.first) {
        auto complete = options.restart ? model::Expected<bool>(false) : already_complete(options.output, *format, *identity);
        if (!complete) {
            error = complete.error();
        } else if (!*complete) {
            auto opened = ResultLog::open(options.output, *identity, options.restart);
            if (opened) {
                log.emplace(std::move(*opened));
                plan = to_text(log->missing());
            } else {
                error = opened.error();
            }
        }
        if (error) plan = "error";
    }
    std::string provenance = identity->provenance;
    gang.broadcast(provenance);
    gang.broadcast(plan);
    const bool agreed = gang.all_agree(provenance == identity->provenance);
    if (result.first && !agreed && !error) {
        error = model::Error{model::ErrorCode::invalid_input, "the processes read different data or are of different versions",
                             options.output, "install the same build and data on every machine"};
    }
    if (error) return tl::unexpected(*error);
    if (plan == "error" || !agreed) return result;  // the first reports it
    if (plan == "done") {
        result.complete = result.was_there = true;
        return result;
    }

    const auto begin = Clock::now();
    Blocks blocks(runs_of(plan), gang.rank(), gang.size());
    Queue queue;
    std::atomic<bool> failed{false};
    std::atomic<bool> stopped{false};
    Workers workers(result.threads, question.grid, *base, shared, blocks, queue, &stopped);
    bool ended = false;
    if (!result.first) {
        while (!ended) {
            if (options.stop != nullptr && *options.stop) stopped = true;
            const std::string lines = queue.take(std::chrono::milliseconds(100), ended);
            if (!lines.empty()) gang.send(lines);
        }
        gang.send({});
        return result;
    }
    result.found = log->done();
    int others = gang.size() - 1;
    auto shown = begin;
    while (!ended || others > 0) {
        if (options.stop != nullptr && *options.stop) stopped = true;
        std::string lines;
        if (!ended) lines = queue.take(std::chrono::milliseconds(others > 0 ? 2 : 100), ended);
        while (others > 0) {
            const auto message = gang.receive();
            if (!message) break;
            if (message->empty()) --others;
            lines += *message;
        }
        if (lines.empty() && ended && others > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (!lines.empty() && !failed) {
            if (auto written = log->append(lines); !written) {
                error = written.error();
                failed = stopped = true;
                if (others > 0) gang.abort(2);
            }
        }
        if (options.progress && seconds_since(shown) > 0.2) {
            shown = Clock::now();
            SweepProgress progress;
            progress.done = log->done();
            progress.rows = result.rows;
            progress.rows_per_second = static_cast<double>(log->done() - result.found) / seconds_since(begin);
            progress.seconds_left = static_cast<double>(result.rows - log->done()) / std::max(1e-9, progress.rows_per_second);
            options.progress(progress);
        }
    }
    result.computed = log->done() - result.found;
    if (error) return tl::unexpected(*error);
    if (log->done() == result.rows) {
        auto summary = log->finish(*format);
        if (!summary) return tl::unexpected(summary.error());
        result.summary = std::move(*summary);
        result.complete = true;
    }
    result.seconds = seconds_since(begin);
    return result;
}

}  // namespace draftboard::planning
