// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/sglang_log.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/acceptance.h"

namespace draftboard::calibration {

namespace {

constexpr std::string_view kDecode = "Decode batch";
constexpr std::string_view kPrefill = "Prefill batch";
constexpr std::size_t kTagBytes = 120;  ///< in front of a marker: "[2026-03-01 10:00:02 DP0 TP0 EP0] "
constexpr double kAgreement = 0.9;      ///< share of lines that a definition has to explain
constexpr std::array<model::RateDefinition, 2> kDefinitions{model::RateDefinition::sglang_log,
                                                            model::RateDefinition::sglang_request};

struct Tag {
    int rank = 0;
    bool speaks = true;  ///< the one of its data-parallel rank whose lines count
};

/// The last number of this kind in front of the marker.
LogField last_field(std::string_view before, std::string_view key) {
    const std::size_t at = before.rfind(key);
    return at == std::string_view::npos ? LogField{} : log_field(before.substr(at), key, 0, kMaxServingRank);
}

/// " DP1 TP4" and so on, in the bracket with the time or in one of its own.
Tag read_tag(std::string_view before) {
    if (before.size() > kTagBytes) before.remove_prefix(before.size() - kTagBytes);
    const LogField data = last_field(before, " DP");
    const LogField tensor = last_field(before, " TP");
    const LogField pipeline = last_field(before, " PP");
    Tag tag;
    tag.rank = data.usable() ? static_cast<int>(data.value) : 0;
    tag.speaks = (data.usable() || tensor.value == 0) && pipeline.value == 0;
    return tag;
}

/// "cuda graph: True"; builds for other devices name theirs.
std::optional<bool> read_graph(std::string_view text) {
    const std::size_t at = behind(text, " graph: ");
    if (at == std::string_view::npos) return std::nullopt;
    if (text.substr(at).starts_with("True")) return true;
    if (text.substr(at).starts_with("False")) return false;
    return std::nullopt;
}

int setting(std::string_view line, std::string_view key) {
    const LogField field = log_field(line, key, 1, model::kMaxDraftTokens);
    return field.usable() ? static_cast<int>(field.value) : 0;
}

}  // namespace

bool SglangLog::start(std::string_view line) {
    ServerSettings settings;
    settings.draft_steps = setting(line, "speculative_num_steps=");
    settings.draft_tokens = setting(line, "speculative_num_draft_tokens=");
    settings.top_k = setting(line, "speculative_eagle_topk=");
    settings.eager = behind(line, "disable_cuda_graph=True") != std::string_view::npos;
    const bool first = found_.starts == 0;
    const bool used = static_cast<std::int64_t>(found_.samples.size()) > samples_at_start_;
    if (!first && used && !(settings == settings_)) return false;
    if (first || used) ++found_.starts;
    settings_ = settings;
    samples_at_start_ = static_cast<std::int64_t>(found_.samples.size());
    windows_.restart();
    prefilled_.clear();
    return true;
}

void SglangLog::weigh_definitions(double length, double rate) {
    ++rated_;
    for (int n = 2; n <= kMostTokens; ++n) {
        for (std::size_t d = 0; d < kDefinitions.size(); ++d) {
            // Both figures are rounded to two digits.
            const double slack = 0.0051 + 0.0051 / (d == 0 ? n : n - 1);
            if (std::abs(rate - model::to_engine_rate(length, kDefinitions[d], n - 1)) <= slack) {
                ++agreeing_[d][static_cast<std::size_t>(n)];
            }
        }
    }
}

void SglangLog::decode(std::string_view text, std::string_view before, std::int64_t number) {
    const Tag tag = read_tag(before);
    if (!tag.speaks) return;
    const LogField running = log_field(text, "#running-req: ", 0, kMaxRunning);
    const LogField rate = log_field(text, "gen throughput (token/s): ", 0, kMaxTokensPerSecond);
    const LogField length = log_field(text, "accept len: ", 0, model::kMaxDraftTokens + 1);
    const LogField accepted = log_field(text, "accept rate: ", 0, 1.0051);
    LogField tokens = log_field(text, "#token: ", 0, kMaxLoggedTokens);
    if (!tokens.present) tokens = log_field(text, "#full token: ", 0, kMaxLoggedTokens);
    if (!running.usable() || !rate.usable() || !length.sound || !accepted.sound || !tokens.sound) {
        ++found_.malformed_lines;
        if (found_.first_malformed == 0) found_.first_malformed = number;
        return;
    }
    ServingSample sample;
    sample.line = number;
    sample.rank = tag.rank;
    sample.running = static_cast<int>(running.value);
    sample.tokens_per_second = rate.value;
    sample.graph = read_graph(text);
    sample.context_tokens = tokens.value;
    // 0.00 and below 1 stand where no pass speculated in the window.
    if (length.usable() && length.value >= 1) sample.acceptance_length = length.value;
    bool& prefilled = prefilled_[tag.rank];
    sample.prefill = prefilled;
    prefilled = false;
    windows_.close(sample);
    if (sample.running == 0 || !(sample.tokens_per_second > 0)) {
        ++found_.idle_lines;
        return;
    }
    if (sample.acceptance_length > 0 && accepted.usable()) weigh_definitions(sample.acceptance_length, accepted.value);
    found_.samples.push_back(std::move(sample));
}

bool SglangLog::read(std::string_view line, std::int64_t number) {
    // Two processes may have written into one line: each marker begins a piece, which ends at the next one.
    std::size_t end = line.size();
    std::vector<std::size_t> decodes;
    for (std::size_t at = behind(line, kDecode); at != std::string_view::npos;) {
        decodes.push_back(at);
        const std::size_t next = behind(line.substr(at), kDecode);
        at = next == std::string_view::npos ? next : at + next;
    }
    for (std::size_t i = 0; i < decodes.size(); ++i) {
        const std::size_t to = i + 1 < decodes.size() ? decodes[i + 1] - kDecode.size() : end;
        const std::string_view text = line.substr(decodes[i], to - decodes[i]);
        // Prose about decode batches has no figures.
        if (behind(text, "#running-req") == std::string_view::npos) continue;
        decode(text, line.substr(0, decodes[i] - kDecode.size()), number);
    }
    if (const std::size_t at = behind(line, kPrefill); at != std::string_view::npos) {
        const Tag tag = read_tag(line.substr(0, at - kPrefill.size()));
        if (behind(line.substr(at), "#new-seq") != std::string_view::npos && tag.speaks) {
            ++found_.prefill_lines;
            prefilled_[tag.rank] = true;
        }
    }
    if (behind(line, "ServerArgs(") != std::string_view::npos) return start(line);
    if (found_.version.empty()) {
        found_.version = word_behind(line, "sglang==");
        if (found_.version.empty()) found_.version = word_behind(line, "SGLang version: ");
    }
    return true;
}

void SglangLog::finish(ServingLog& log) {
    found_.engine = ServingEngine::sglang;
    found_.ranks = windows_.ranks();
    found_.draft_steps = settings_.draft_steps;
    found_.draft_tokens = settings_.draft_tokens;
    found_.top_k = settings_.top_k;
    if (rated_ > 0) {
        std::size_t definition = 0;
        int tokens = 0;
        std::int64_t best = 0;
        const int low = settings_.draft_tokens > 0 ? settings_.draft_tokens : 2;
        const int high = settings_.draft_tokens > 0 ? std::min(settings_.draft_tokens, kMostTokens) : kMostTokens;
        for (int n = std::max(2, low); n <= high; ++n) {
            for (std::size_t d = 0; d < kDefinitions.size(); ++d) {
                if (agreeing_[d][static_cast<std::size_t>(n)] > best) {
                    best = agreeing_[d][static_cast<std::size_t>(n)];
                    definition = d;
                    tokens = n;
                }
            }
        }
        if (static_cast<double>(best) >= kAgreement * static_cast<double>(rated_)) {
            found_.assumptions.push_back(
                fmt::format("accept rate read by the definition \"{}\" with {} tokens verified: {} of {} lines agree",
                            model::to_name(kDefinitions[definition]), tokens, best, rated_));
            found_.depth_inferred = found_.draft_tokens == 0;
            if (found_.depth_inferred) found_.draft_tokens = tokens;
        } else {
            found_.assumptions.push_back("no definition of the accept rate explains the lines; only the accept length is used");
        }
    }
    if (found_.draft_steps == 0 && found_.draft_tokens > 0 && found_.top_k <= 1) found_.draft_steps = found_.draft_tokens - 1;
    const bool speculates = std::any_of(found_.samples.begin(), found_.samples.end(),
                                        [](const ServingSample& sample) { return sample.acceptance_length > 0; });
    if (speculates) found_.assumptions.push_back("accept len counts the bonus token");
    log = std::move(found_);
}

}  // namespace draftboard::calibration
