// SPDX-License-Identifier: Apache-2.0
#include "sim/trace.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace draftboard::sim {

namespace {

constexpr int kSideRow = 1'000'000;  // a rank's side stream has the row of its main stream plus this
constexpr int kPlainProcess = 1;
constexpr int kCycleProcess = 2;

/// Picoseconds as microseconds with six exact digits.
std::string us_text(Time time) { return fmt::format("{}.{:06}", time / 1'000'000, time % 1'000'000); }

std::string json_text(std::string_view text) { return model::Json(std::string(text)).dump(); }

class TraceWriter {
   public:
    explicit TraceWriter(const model::Scenario& scenario, const Predictor& predictor)
        : scenario_(scenario),
          collectives_(scenario.machine, scenario.collective, predictor.constants().collectives) {}

    void name_process(int process, const std::string& name) {
        add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process,
                        json_text(name)));
    }

    void name_rank(int process, int rank) {
        add(fmt::format(
            R"({{"ph":"M","pid":{0},"tid":{1},"name":"thread_name","args":{{"name":"rank {1} stream"}}}})",
            process, rank));
    }

    void name_side_stream(int process, int rank) {
        add(fmt::format(
            R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"rank {} side stream"}}}})",
            process, kSideRow + rank, rank));
    }

    /// One pass starting at `origin`.
    void write_pass(const SimulatedPass& pass, int process, Time origin) {
        for (int rank = 0; rank < pass.times.ranks; ++rank) {
            for (std::size_t i = 0; i < pass.priced.operations.size(); ++i) {
                write_operation(pass, process, origin, rank, i);
            }
        }
    }

    [[nodiscard]] std::string finish() const {
        return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + events_ + "\n]}\n";
    }

   private:
    void write_operation(const SimulatedPass& pass, int process, Time origin, int rank,
                         std::size_t index) {
        const OperationTimes& at = pass.times.at(rank, index);
        const PricedOperation& priced = pass.priced.operations[index];
        const model::Operation& operation = pass.priced.plan.operations[index];
        const std::string key = operation.key(pass.priced.plan.pass);
        if (at.contention > 0) {
            slice(process, rank, origin + at.start - at.idle - at.contention, at.contention,
                  key + " waits for memory", "contention");
        }
        if (!priced.collective) {
            slice(process, priced.stream == 0 ? rank : kSideRow + rank, origin + at.start, at.end - at.start, key,
                  to_name(pass.priced.info[index].term));
            return;
        }
        if (at.wait > 0) slice(process, rank, origin + at.start, at.wait, key + " wait", "wait");
        const Time begin = at.start + at.wait;
        slice(process, rank, origin + begin, at.end - begin, key, "collective");
        if (rank == 0) count_links(process, origin + begin, operation);
    }

    void slice(int process, int rank, Time start, Time duration, const std::string& name,
               std::string_view category) {
        add(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":"{}"}})",
                        process, rank, us_text(start), us_text(duration), json_text(name), category));
    }

    /// Link load in GB/s while the collective runs.
    void count_links(int process, Time start, const model::Operation& operation) {
        const auto cached = samples_.try_emplace({operation.kind, operation.message_bytes});
        if (cached.second) {
            CollectiveRequest request;
            request.operation = operation.kind;
            request.gpus.resize(static_cast<std::size_t>(operation.group));
            std::iota(request.gpus.begin(), request.gpus.end(), 0);
            request.bytes = operation.message_bytes;
            if (auto samples = collectives_.link_samples(request)) {
                cached.first->second = std::move(*samples);
            }
        }
        for (const LinkSample& sample : cached.first->second) {
            const model::MachineLink& link =
                scenario_.machine.links[static_cast<std::size_t>(sample.link)];
            const auto& nodes = scenario_.machine.nodes;
            const std::string& from = nodes[static_cast<std::size_t>(sample.forward ? link.a : link.b)].id;
            const std::string& to = nodes[static_cast<std::size_t>(sample.forward ? link.b : link.a)].id;
            add(fmt::format(
                R"({{"ph":"C","pid":{},"ts":{},"name":{},"args":{{"GB/s":{:.3f}}}}})", process,
                us_text(start + sample.at), json_text("link " + from + " to " + to),
                sample.bytes_per_s * 1e-9));
        }
    }

    void add(const std::string& event) {
        if (!events_.empty()) events_ += ",\n";
        events_ += event;
    }

    const model::Scenario& scenario_;
    CollectiveModel collectives_;
    std::map<std::pair<model::OperationKind, std::int64_t>, std::vector<LinkSample>> samples_;
    std::string events_;
};

bool has_side_stream(const SimulatedPass& pass) {
    return std::any_of(pass.priced.operations.begin(), pass.priced.operations.end(),
                       [](const PricedOperation& operation) { return operation.stream != 0; });
}

}  // namespace

std::string chrome_trace(const model::Scenario& scenario, const Predictor& predictor) {
    TraceWriter writer(scenario, predictor);
    writer.name_process(kPlainProcess, "plain decoding step");
    writer.name_process(kCycleProcess, "speculative cycle");
    Time cycle = 0;
    for (const SimulatedPass& pass : predictor.passes()) {
        const bool plain = pass.name == "plain";
        for (int rank = 0; rank < pass.times.ranks; ++rank) {
            writer.name_rank(plain ? kPlainProcess : kCycleProcess, rank);
            if (has_side_stream(pass)) writer.name_side_stream(plain ? kPlainProcess : kCycleProcess, rank);
        }
        for (int i = 0; i < pass.repeat; ++i) {
            writer.write_pass(pass, plain ? kPlainProcess : kCycleProcess, plain ? 0 : cycle);
            if (!plain) cycle += pass.times.total;
        }
    }
    return writer.finish();
}

}  // namespace draftboard::sim
