// SPDX-License-Identifier: Apache-2.0
#include "backend/acceptance_counter.h"

#include <algorithm>
#include <cmath>

#include <boost/math/distributions/beta.hpp>

#include "model/acceptance_json.h"

namespace draftboard::backend {

namespace {
constexpr double kTail = 0.05;     // of a two-sided 90 % interval
constexpr double kNormal = 1.645;  // its normal quantile
}  // namespace

model::Interval share_interval(std::int64_t successes, std::int64_t trials) {
    if (trials <= 0) return {0, 0, 1};
    const auto s = static_cast<double>(successes);
    const auto t = static_cast<double>(trials);
    model::Interval out{s / t, 0, 1};
    if (successes > 0) out.low = boost::math::quantile(boost::math::beta_distribution<double>(s, t - s + 1), kTail);
    if (successes < trials)
        out.high = boost::math::quantile(boost::math::beta_distribution<double>(s + 1, t - s), 1 - kTail);
    return out;
}

AcceptanceCounter::AcceptanceCounter(int depth) : histogram_(static_cast<std::size_t>(std::max(depth, 0)) + 1, 0) {}

void AcceptanceCounter::count(int drafted, int accepted) {
    ++cycles_;
    if (drafted <= 0) return;
    ++hits_;
    drafted_ += drafted;
    ++histogram_[static_cast<std::size_t>(std::clamp(accepted, 0, depth()))];
}

void AcceptanceCounter::add(const AcceptanceCounter& other) {
    cycles_ += other.cycles_;
    hits_ += other.hits_;
    drafted_ += other.drafted_;
    if (histogram_.size() < other.histogram_.size()) histogram_.resize(other.histogram_.size(), 0);
    for (std::size_t i = 0; i < other.histogram_.size(); ++i) histogram_[i] += other.histogram_[i];
}

std::int64_t AcceptanceCounter::accepted() const {
    std::int64_t sum = 0;
    for (int i = 1; i <= depth(); ++i) sum += i * histogram_[static_cast<std::size_t>(i)];
    return sum;
}

std::int64_t AcceptanceCounter::reached(int position) const {
    std::int64_t sum = 0;
    for (int i = std::max(position, 0); i <= depth(); ++i) sum += histogram_[static_cast<std::size_t>(i)];
    return sum;
}

model::Interval AcceptanceCounter::hit_rate() const { return share_interval(hits_, cycles_); }

model::Interval AcceptanceCounter::unconditional(int position) const { return share_interval(reached(position), hits_); }

model::Interval AcceptanceCounter::conditional(int position) const {
    return share_interval(reached(position), reached(position - 1));
}

model::Interval AcceptanceCounter::acceptance_length() const {
    const double most = 1.0 + depth();
    if (cycles_ == 0) return {1, 1, most};
    const auto n = static_cast<double>(cycles_);
    const double mean = static_cast<double>(accepted()) / n;
    double squares = static_cast<double>(cycles_ - hits_) * mean * mean;
    for (int i = 0; i <= depth(); ++i)
        squares += static_cast<double>(histogram_[static_cast<std::size_t>(i)]) * (i - mean) * (i - mean);
    if (cycles_ == 1) return {1 + mean, 1, most};
    const double half = kNormal * std::sqrt(squares / (n - 1) / n);
    return {1 + mean, std::max(1.0, 1 + mean - half), std::min(most, 1 + mean + half)};
}

model::Acceptance AcceptanceCounter::acceptance(std::string source) const {
    model::Acceptance out;
    for (int i = 1; i <= depth(); ++i) out.per_position.push_back(unconditional(i).value);
    out.hit = cycles_ > 0 ? hit_rate().value : 1.0;
    out.observed_cycles = static_cast<double>(cycles_);
    out.source = std::move(source);
    return out;
}

std::vector<double> AcceptanceCounter::synthetic_acceptance_rates() const {
    std::vector<double> rates;
    for (int i = 1; i <= depth(); ++i) rates.push_back(share_interval(reached(i), cycles_).value);
    return rates;
}

model::Json AcceptanceCounter::to_json(const std::string& source) const {
    model::Json json = model::Json::object();
    json["cycles"] = cycles_;
    json["hits"] = hits_;
    json["drafted_tokens"] = drafted_;
    json["accepted_tokens"] = accepted();
    json["acceptance_length"] = interval_json(acceptance_length());
    json["hit"] = interval_json(hit_rate());
    json["unconditional"] = model::Json::array();
    json["conditional"] = model::Json::array();
    for (int i = 1; i <= depth(); ++i) {
        json["unconditional"].push_back(interval_json(unconditional(i)));
        json["conditional"].push_back(interval_json(conditional(i)));
    }
    json["histogram"] = histogram_;
    json["acceptance"] = model::acceptance_to_json(acceptance(source));
    json["vllm"] = {{"rejection_sample_method", "synthetic"}, {"synthetic_acceptance_rates", synthetic_acceptance_rates()}};
    return json;
}

AcceptanceCounter together(const std::vector<AcceptanceSet>& sets) {
    AcceptanceCounter all;
    for (const AcceptanceSet& set : sets) all.add(set.counter);
    return all;
}

model::Json acceptance_document(const std::vector<AcceptanceSet>& sets, const std::string& source) {
    const AcceptanceCounter all = together(sets);
    model::Acceptance acceptance = all.acceptance(source);
    double sum = 0;
    for (const AcceptanceSet& set : sets) sum += set.counter.acceptance_length().value;
    const double mean = sets.empty() ? 1 : sum / static_cast<double>(sets.size());
    double squares = 0;
    for (const AcceptanceSet& set : sets) squares += std::pow(set.counter.acceptance_length().value - mean, 2);
    if (sets.size() > 1) acceptance.relative_spread = std::sqrt(squares / static_cast<double>(sets.size() - 1)) / mean;

    model::Json json = model::acceptance_to_json(acceptance);
    json["format"] = "draftboard.acceptance";
    json["version"] = 1;
    json["together"] = all.to_json(source);
    json["sets"] = model::Json::array();
    for (const AcceptanceSet& set : sets) {
        model::Json entry{{"name", set.name}, {"prompts", set.prompts}};
        entry.update(set.counter.to_json(source + ", " + set.name));
        json["sets"].push_back(std::move(entry));
    }
    return json;
}

model::Json interval_json(const model::Interval& interval) {
    return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

}  // namespace draftboard::backend
