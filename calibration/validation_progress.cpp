// SPDX-License-Identifier: Apache-2.0
#include "calibration/validation_progress.h"

#include <algorithm>

#include "calibration/engine_measurements.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::JsonReader;

namespace {

constexpr const char* kFormat = "draftboard.validation_progress";
constexpr std::size_t kMaxEntries = 100'000;
constexpr double kMaxValue = 1e15;

bool is_amount(const Json& value) { return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= kMaxValue; }

std::vector<TextAcceptance> read_texts(const JsonReader& list) {
    std::vector<TextAcceptance> out;
    const std::size_t count = list.size();
    if (count > kMaxEntries) list.problem("", "has too many texts");
    for (std::size_t i = 0; i < std::min(count, kMaxEntries); ++i) {
        const Json& entry = list.value()[i];
        const bool sound = entry.is_array() && entry.size() == 3 && is_amount(entry[0]) && is_amount(entry[1]) &&
                           entry[2].is_array() && std::all_of(entry[2].begin(), entry[2].end(), is_amount);
        if (!sound) {
            list.problem(std::to_string(i), "must be [cycles, hits, [reached, ...]]");
            return out;
        }
        out.push_back({entry[0].get<double>(), entry[1].get<double>(), entry[2].get<std::vector<double>>()});
    }
    return out;
}

std::vector<RoundSample> read_rounds(const JsonReader& list) {
    std::vector<RoundSample> out;
    const std::size_t count = list.size();
    if (count > kMaxEntries) list.problem("", "has too many rounds");
    for (std::size_t i = 0; i < std::min(count, kMaxEntries); ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) return out;
        RoundSample round;
        round.cycle_us = entry.number("cycle_us", 0, kMaxValue);
        round.cycles = entry.number("cycles", 0, kMaxValue);
        round.disturbed = entry.number_or("disturbed", 0, 0, 1);
        round.texts = read_texts(entry.at("texts"));
        out.push_back(std::move(round));
    }
    return out;
}

ProfiledPasses read_profile(const JsonReader& list) {
    ProfiledPasses out;
    const std::size_t count = list.size();
    for (std::size_t i = 0; i < std::min(count, kMaxEntries); ++i) {
        const JsonReader entry = list.at(i);
        if (!entry.expect_object()) return out;
        const auto pass = pass_from_name(entry.string("pass"));
        if (!pass) entry.problem("pass", "is no pass");
        ProfiledPass one;
        one.us = entry.numbers_or("us", {}, -kMaxValue, kMaxValue);
        one.wait_us = entry.numbers_or("wait_us", {}, -kMaxValue, kMaxValue);
        if (one.us.size() != one.wait_us.size()) entry.problem("wait_us", "must have as many values as us");
        out[{entry.string("engine"), pass.value_or(model::Pass::decode), static_cast<int>(entry.integer("sequences", 1, 1 << 20)),
             static_cast<int>(entry.integer("tokens", 1, 1 << 20))}] = std::move(one);
    }
    return out;
}

Json texts_json(const std::vector<TextAcceptance>& texts) {
    Json out = Json::array();
    for (const TextAcceptance& text : texts) out.push_back(Json::array({text.cycles, text.hits, text.reached}));
    return out;
}

Json rounds_json(const std::vector<RoundSample>& rounds) {
    Json out = Json::array();
    for (const RoundSample& round : rounds) {
        out.push_back({{"cycle_us", round.cycle_us},
                       {"cycles", round.cycles},
                       {"disturbed", round.disturbed},
                       {"texts", texts_json(round.texts)}});
    }
    return out;
}

Json profile_json(const ProfiledPasses& profile) {
    Json out = Json::array();
    for (const auto& [key, pass] : profile) {
        out.push_back({{"engine", std::get<0>(key)},
                       {"pass", std::string(to_name(std::get<1>(key)))},
                       {"sequences", std::get<2>(key)},
                       {"tokens", std::get<3>(key)},
                       {"us", pass.us},
                       {"wait_us", pass.wait_us}});
    }
    return out;
}

/// The median over profiles of the i-th value.
std::vector<double> medians(const std::vector<const std::vector<double>*>& lists) {
    std::size_t size = 0;
    for (const auto* list : lists) size = std::max(size, list->size());
    std::vector<double> out;
    for (std::size_t i = 0; i < size; ++i) {
        std::vector<double> values;
        for (const auto* list : lists) {
            if (i < list->size()) values.push_back((*list)[i]);
        }
        out.push_back(median_of(std::move(values)));
    }
    return out;
}

}  // namespace

bool ValidationProgress::has_failed(const std::string& group) const {
    return std::any_of(failed.begin(), failed.end(), [&](const std::string& one) { return one.starts_with(group + ": "); });
}

int ValidationProgress::measured_rounds() const {
    std::size_t rounds = 0;
    for (const auto& [name, one] : configurations) rounds += one.rounds.size();
    return static_cast<int>(rounds);
}

ProfiledPasses joined(const std::vector<ProfiledPasses>& profiles) {
    std::map<ProfiledPasses::key_type, std::vector<const ProfiledPass*>> passes;
    for (const ProfiledPasses& profile : profiles) {
        for (const auto& [key, pass] : profile) passes[key].push_back(&pass);
    }
    ProfiledPasses out;
    for (const auto& [key, list] : passes) {
        std::vector<const std::vector<double>*> us;
        std::vector<const std::vector<double>*> wait;
        for (const ProfiledPass* pass : list) {
            us.push_back(&pass->us);
            wait.push_back(&pass->wait_us);
        }
        out[key] = {medians(us), medians(wait)};
    }
    return out;
}

Json to_json(const ValidationProgress& progress) {
    Json json = {
        {"format", kFormat}, {"version", 1}, {"settings", progress.settings}, {"box", progress.box}, {"failed", progress.failed}};
    json["acceptance"] = Json::object();
    for (const auto& [key, texts] : progress.acceptance) json["acceptance"][key] = texts_json(texts);
    json["configurations"] = Json::object();
    for (const auto& [name, one] : progress.configurations) {
        Json profiles = Json::array();
        for (const ProfiledPasses& profile : one.profiles) profiles.push_back(profile_json(profile));
        json["configurations"][name] = {
            {"rounds", rounds_json(one.rounds)}, {"repeated", rounds_json(one.repeated)}, {"profiles", std::move(profiles)}};
    }
    return json;
}

Expected<ValidationProgress> parse_validation_progress(std::string_view text, const std::string& name) {
    const auto json = model::parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const JsonReader reader(*json, problems);
    ValidationProgress progress;
    if (reader.expect_object()) {
        reader.expect_format(kFormat, 1);
        progress.settings = reader.string("settings");
        if (reader.has("box")) progress.box = reader.at("box").value();
        progress.failed = reader.strings_or("failed");
        const JsonReader acceptance = reader.at("acceptance");
        if (acceptance.expect_object()) {
            for (const auto& item : acceptance.value().items())
                progress.acceptance[item.key()] = read_texts(acceptance.at(item.key()));
        }
        const JsonReader configurations = reader.at("configurations");
        if (configurations.expect_object()) {
            for (const auto& item : configurations.value().items()) {
                const JsonReader entry = configurations.at(item.key());
                if (!entry.expect_object()) break;
                ConfigurationProgress& one = progress.configurations[item.key()];
                one.rounds = read_rounds(entry.at("rounds"));
                one.repeated = read_rounds(entry.at("repeated"));
                const JsonReader profiles = entry.at("profiles");
                for (std::size_t i = 0; i < std::min(profiles.size(), kMaxEntries); ++i)
                    one.profiles.push_back(read_profile(profiles.at(i)));
            }
        }
    }
    if (!problems.empty()) return tl::unexpected(to_error(problems, name));
    return progress;
}

}  // namespace draftboard::calibration
