// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/vllm_log.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/acceptance.h"

namespace draftboard::calibration {

namespace {

constexpr std::string_view kThroughput = "Avg prompt throughput: ";
constexpr std::string_view kGeneration = "Avg generation throughput: ";
constexpr std::string_view kSpeculation = "SpecDecoding metrics: ";
constexpr std::string_view kCumulative = "Speculative metrics: ";
constexpr std::size_t kPrefixBytes = 40;  ///< in front: "Engine 000: "

/// "686,320": thousands are set apart by commas.
double grouped_number(std::string_view text, std::size_t at) {
    double value = 0;
    int digits = 0;
    for (; at < text.size() && digits < 15; ++at) {
        if (text[at] == ',') continue;
        if (text[at] < '0' || text[at] > '9') break;
        value = 10 * value + (text[at] - '0');
        ++digits;
    }
    return value;
}

/// Rates of depth 1..k: within 0..1 and, but for rounding, falling.
bool sound_rates(const std::vector<double>& rates) {
    if (rates.size() > kMaxLoggedPositions) return false;
    double before = 1;
    for (const double rate : rates) {
        if (!(rate >= 0 && rate <= before + 0.0011)) return false;
        before = rate;
    }
    return true;
}

}  // namespace

void VllmLog::malformed(std::int64_t number) {
    ++found_.malformed_lines;
    if (found_.first_malformed == 0) found_.first_malformed = number;
}

bool VllmLog::start(std::string_view line) {
    ServerSettings settings;
    const LogField depth = log_field(line, "num_spec_tokens=", 1, model::kMaxDraftTokens);
    settings.draft_steps = depth.usable() ? static_cast<int>(depth.value) : 0;
    settings.eager = behind(line, "enforce_eager=True") != std::string_view::npos;
    const bool first = found_.starts == 0;
    // Every data-parallel engine prints the line: a start is one that follows samples.
    const bool used = static_cast<std::int64_t>(found_.samples.size()) > samples_at_start_;
    if (!first && used && !(settings == settings_)) return false;
    if (first || used) {
        ++found_.starts;
        windows_.restart();
        drafted_before_ = emitted_before_ = 0;
        pending_ = kNone;
    }
    settings_ = settings;
    samples_at_start_ = static_cast<std::int64_t>(found_.samples.size());
    if (found_.version.empty()) found_.version = word_behind(line, "LLM engine (v");
    return true;
}

void VllmLog::throughput(std::string_view text, std::string_view before, std::int64_t number) {
    pending_ = kNone;
    if (before.size() > kPrefixBytes) before.remove_prefix(before.size() - kPrefixBytes);
    const LogField engine = log_field(before, "Engine ", 0, kMaxServingRank);
    if (behind(before, "Aggregated: ") != std::string_view::npos) aggregated_ = true;
    const LogField prompt = log_field(text, kThroughput, 0, kMaxTokensPerSecond);
    const LogField rate = log_field(text, kGeneration, 0, kMaxTokensPerSecond);
    const LogField running = log_field(text, "Running: ", 0, kMaxRunning);
    const LogField usage = log_field(text, "KV cache usage: ", 0, 100.0001);
    if (!prompt.usable() || !rate.usable() || !running.usable() || !engine.sound || !usage.sound) return malformed(number);
    ServingSample sample;
    sample.line = number;
    sample.rank = engine.usable() ? static_cast<int>(engine.value) : 0;
    sample.running = static_cast<int>(running.value);
    sample.tokens_per_second = rate.value;
    sample.prefill = prompt.value > 0;
    if (sample.prefill) ++found_.prefill_lines;
    sample.context_tokens = usage.usable() ? usage.value / 100 * cache_tokens_ : 0;
    if (settings_.eager) sample.graph = false;
    windows_.close(sample);
    if (sample.running == 0 || !(sample.tokens_per_second > 0)) {
        ++found_.idle_lines;
        return;
    }
    pending_ = found_.samples.size();
    found_.samples.push_back(std::move(sample));
}

void VllmLog::speculation(std::string_view text, std::int64_t number) {
    const LogField accepted = log_field(text, "Accepted: ", 0, kMaxLoggedTokens);
    const LogField drafted = log_field(text, "Drafted: ", 0, kMaxLoggedTokens);
    const LogField mean = log_field(text, "Mean acceptance length: ", 0, model::kMaxDraftTokens + 1);
    const std::vector<double> rates = numbers_behind(text, "Per-position acceptance rate: ");
    if (!accepted.usable() || !drafted.usable() || accepted.value > drafted.value) return malformed(number);
    if (!(drafted.value > 0)) return;  // "nan%": nothing was drafted
    if (!mean.sound || !sound_rates(rates)) return malformed(number);
    double sum = 0;
    for (const double rate : rates) sum += rate;
    const double share = accepted.value / drafted.value;
    double length = 0;
    if (mean.usable() && !rates.empty()) {
        const double slack = 0.0061 + 0.00051 * static_cast<double>(rates.size());
        const bool counts_bonus = std::abs(mean.value - 1 - sum) <= slack;
        if (!counts_bonus && std::abs(mean.value - sum) > slack) return malformed(number);
        if (!counts_bonus) ++without_bonus_;
        length = 1 + sum;
    } else if (!rates.empty()) {
        length = 1 + sum;
    } else if (mean.usable()) {
        const double expected = settings_.draft_steps > 0 ? 1 + settings_.draft_steps * share : 0;
        const bool leaves_out =
            mean.value < 1 || (expected > 0 && std::abs(mean.value + 1 - expected) < std::abs(mean.value - expected));
        if (leaves_out) ++without_bonus_;
        if (!leaves_out && expected <= 0) ++undecided_;
        length = leaves_out ? mean.value + 1 : mean.value;
    } else if (settings_.draft_steps > 0) {
        length = 1 + settings_.draft_steps * share;
    } else {
        ++unknown_depth_;
        return;
    }
    if (pending_ == kNone) return;
    ServingSample& sample = found_.samples[pending_];
    pending_ = kNone;
    sample.acceptance_length = length;
    sample.accepted = static_cast<std::int64_t>(accepted.value);
    sample.drafted = static_cast<std::int64_t>(drafted.value);
    double before = 1;
    for (const double rate : rates) {
        before = std::min(before, rate);
        sample.per_position.push_back(static_cast<float>(before));
    }
    const std::size_t depth = rates.empty() ? static_cast<std::size_t>(settings_.draft_steps) : rates.size();
    if (accepted.value > 0 && length > 1) {
        sample.cycles = accepted.value / (length - 1);
    } else if (depth > 0) {
        sample.cycles = drafted.value / static_cast<double>(depth);
    }
    found_.draft_steps = std::max(found_.draft_steps, static_cast<int>(rates.size()));
}

void VllmLog::cumulative_speculation(std::string_view text, std::int64_t number) {
    const LogField depth = log_field(text, "Number of speculative tokens: ", 1, model::kMaxDraftTokens);
    const LogField drafted = log_field(text, "Number of draft tokens: ", 0, kMaxLoggedTokens);
    const LogField emitted = log_field(text, "Number of emitted tokens: ", 0, kMaxLoggedTokens);
    if (!depth.usable() || !drafted.usable() || !emitted.usable()) return malformed(number);
    if (drafted.value < drafted_before_ || emitted.value < emitted_before_) drafted_before_ = emitted_before_ = 0;
    const double cycles = (drafted.value - drafted_before_) / depth.value;
    const double tokens = emitted.value - emitted_before_;
    drafted_before_ = drafted.value;
    emitted_before_ = emitted.value;
    found_.draft_steps = std::max(found_.draft_steps, static_cast<int>(depth.value));
    if (!(cycles > 0) || pending_ == kNone) return;
    const double length = tokens / cycles;
    if (!(length >= 1 && length <= depth.value + 1)) return malformed(number);
    ServingSample& sample = found_.samples[pending_];
    pending_ = kNone;
    ++cumulative_;
    sample.acceptance_length = length;
    sample.cycles = cycles;
    sample.drafted = static_cast<std::int64_t>(cycles * depth.value);
    sample.accepted = static_cast<std::int64_t>(tokens - cycles);
}

bool VllmLog::read(std::string_view line, std::int64_t number) {
    // Two processes may have written into one line: each marker begins a piece, which ends at the next one.
    std::vector<std::size_t> begins;
    for (std::size_t at = behind(line, kThroughput); at != std::string_view::npos;) {
        begins.push_back(at - kThroughput.size());
        const std::size_t next = behind(line.substr(at), kThroughput);
        at = next == std::string_view::npos ? next : at + next;
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
        const std::size_t to = i + 1 < begins.size() ? begins[i + 1] : line.size();
        throughput(line.substr(begins[i], to - begins[i]), line.substr(0, begins[i]), number);
    }
    constexpr std::size_t kAbsent = std::string_view::npos;
    if (const std::size_t at = behind(line, kSpeculation); at != kAbsent) speculation(line.substr(at), number);
    if (const std::size_t at = behind(line, kCumulative); at != kAbsent) cumulative_speculation(line.substr(at), number);
    if (const std::size_t at = behind(line, "GPU KV cache size: "); at != kAbsent) cache_tokens_ = grouped_number(line, at);
    if (behind(line, "LLM engine (v") != std::string_view::npos && behind(line, "Initializing a") != std::string_view::npos) {
        return start(line);
    }
    if (found_.version.empty()) found_.version = word_behind(line, "vLLM API server version ");
    return true;
}

void VllmLog::finish(ServingLog& log) {
    found_.engine = ServingEngine::vllm;
    found_.ranks = windows_.ranks();
    if (settings_.draft_steps > 0) found_.draft_steps = settings_.draft_steps;
    auto& said = found_.assumptions;
    const bool by_position = std::any_of(found_.samples.begin(), found_.samples.end(),
                                         [](const ServingSample& sample) { return !sample.per_position.empty(); });
    if (by_position) {
        said.push_back("rates by position are shares of all drafts (unconditional); the acceptance length is their sum and one");
        said.push_back("the number of drafts is accepted tokens / (acceptance length - 1)");
    }
    const auto say = [&said](std::int64_t lines, std::string_view what) {
        if (lines > 0) said.push_back(fmt::format("{} lines {}", lines, what));
    };
    say(without_bonus_, "leave the bonus token out of their mean length: added");
    say(undecided_, "don't show whether their mean length counts the bonus token: assumed so");
    say(unknown_depth_, "have a rate but no depth, and the log has no num_spec_tokens: left out");
    if (cumulative_ > 0)
        said.push_back(
            "counts since the start of the server (vLLM V0): differences of successive lines; the length is emitted tokens a "
            "draft");
    if (aggregated_) said.push_back("lines are sums over the engines: batches and tok/s are those of all together");
    const bool cached = std::any_of(found_.samples.begin(), found_.samples.end(),
                                    [](const ServingSample& sample) { return sample.context_tokens > 0; });
    if (cached) said.push_back(fmt::format("cached tokens: KV cache usage x {:.0f} tokens of cache", cache_tokens_));
    log = std::move(found_);
}

}  // namespace draftboard::calibration
