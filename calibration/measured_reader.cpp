// SPDX-License-Identifier: Apache-2.0
#include "calibration/measured_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "model/json_reader.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::fail;
using model::Json;
using model::JsonReader;

const std::vector<MeasuredField>& measured_fields() {
    static const std::vector<MeasuredField> kFields = {
        {"tokens_per_second", 1e-6, 1e9},
        {"plain_tokens_per_second", 1e-6, 1e9},
        {"acceptance_length", 1, 1e3},
        {"verify_ms", 1e-6, 1e9},
        {"draft_ms", 0, 1e9},
        {"host_ms", 0, 1e9},
        {"cycle_ms", 1e-6, 1e9},
        {"plain_step_ms", 1e-6, 1e9},
        {"all_reduce_us", 1e-6, 1e9},
    };
    return kFields;
}

namespace {

constexpr double kMaxTermMs = 1e9;
constexpr double kMinNoise = 1e-4;
constexpr double kMaxNoise = 1;

// ---- documents

void read_document(const JsonReader& reader, Measured& measured) {
    reader.expect_format("draftboard.measured", 1);
    for (const MeasuredField& field : measured_fields()) {
        if (reader.has(field.name)) measured.values[std::string(field.name)] = reader.number(field.name, field.low, field.high);
    }
    measured.noise = reader.number_or("noise", kMeasurementNoise, kMinNoise, kMaxNoise);
    if (reader.has("terms")) {
        const JsonReader terms = reader.at("terms");
        if (terms.expect_object()) {
            if (terms.value().size() > kMaxMeasuredTerms) {
                reader.problem("terms", fmt::format("more than {} terms", kMaxMeasuredTerms));
                return;
            }
            for (const auto& [name, value] : terms.value().items()) {
                measured.values["terms." + name] = terms.number(name, 0, kMaxTermMs);
            }
        }
    }
    for (const auto& item : reader.value().items()) {
        const std::string& key = item.key();
        const bool known = key == "format" || key == "version" || key == "noise" || key == "terms" || key == "source" ||
                           std::ranges::any_of(measured_fields(), [&](const MeasuredField& f) { return f.name == key; });
        if (!known) measured.notes.push_back(fmt::format("the field /{} is not known and was ignored", key));
    }
}

/// One pass of a profile, summed.
struct ProfiledPass {
    double count = 0;
    double total_us = 0;
    double collectives_us = 0;
    double experts_us = 0;
    double attention_us = 0;
};

ProfiledPass read_pass(const JsonReader& reader) {
    ProfiledPass pass;
    pass.count = reader.number_or("count", 1, 0, 1e15);
    pass.total_us = reader.number("total_us", 0, 1e12);
    const JsonReader operations = reader.at("operations");
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const JsonReader operation = operations.at(i);
        if (!operation.expect_object()) continue;
        const double us = operation.number("median_us", 0, 1e12) + operation.number_or("wait_us", 0, 0, 1e12);
        const std::string kind = operation.string_or("kind", "");
        if (operation.number_or("message_bytes", 0, 0, 1e18) > 0) {
            pass.collectives_us += us;
        } else if (kind == "experts") {
            pass.experts_us += us;
        } else if (kind == "attention" || kind == "indexer") {
            pass.attention_us += us;
        }
    }
    return pass;
}

/// Of each pass its commonest shape; the drafter's passes are summed and shared out over the verify passes.
void read_profile(const JsonReader& reader, Measured& measured) {
    reader.expect_format("draftboard.profile", 1);
    std::map<std::string, ProfiledPass> target;
    double drafter_us = 0;
    double verify_count = 0;
    const JsonReader passes = reader.at("passes");
    for (std::size_t i = 0; i < passes.size(); ++i) {
        const JsonReader entry = passes.at(i);
        if (!entry.expect_object()) continue;
        const std::string name = entry.string("pass");
        if (name == "prefill") continue;
        const ProfiledPass pass = read_pass(entry);
        if (entry.string_or("model", "target") == "drafter") {
            drafter_us += pass.total_us * pass.count;
            continue;
        }
        if (name == "verify") verify_count += pass.count;
        ProfiledPass& kept = target[name];
        if (pass.count > kept.count) {
            if (kept.count > 0) measured.notes.push_back(fmt::format("of several shapes of {} the commonest is used", name));
            kept = pass;
        }
    }
    const auto put = [&measured](const std::string& name, double us) {
        if (us > 0 && std::isfinite(us)) measured.values[name] = us * 1e-3;
    };
    for (const auto& [name, pass] : target) {
        if (name == "verify") {
            put("verify_ms", pass.total_us);
            put("terms.verify.collectives", pass.collectives_us);
            put("terms.verify.experts", pass.experts_us);
            put("terms.verify.attention", pass.attention_us);
        } else if (name == "decode") {
            put("plain_step_ms", pass.total_us);
            measured.notes.push_back("the plain step is the profile's pass: the host's work between steps is not in it");
        }
    }
    if (drafter_us > 0 && verify_count > 0) put("draft_ms", drafter_us / verify_count);
}

Expected<Measured> parse_document(std::string_view text, const std::string& name) {
    const auto json = model::parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const JsonReader reader(*json, problems);
    Measured measured;
    measured.source = name;
    if (reader.expect_object()) {
        if (reader.string_or("format", "") == "draftboard.profile") {
            read_profile(reader, measured);
        } else {
            read_document(reader, measured);
        }
    }
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));
    if (measured.values.empty()) {
        return fail(ErrorCode::invalid_input, "the document holds no measurement", name + ": /",
                    "give at least one of verify_ms, tokens_per_second, plain_tokens_per_second, acceptance_length, terms, ...");
    }
    return measured;
}

// ---- sentences

constexpr std::string_view kReadable =
    "\"60 tok/s\", \"plain 82 tok/s\", \"verify 30 ms\", \"draft 0.4 ms\", \"host 0.6 ms\", \"cycle 31 ms\", "
    "\"plain step 12 ms\", \"collectives 25 ms\", \"all-reduce 26 us\", \"experts 5 ms\", \"acceptance length 2.1\", "
    "\"noise 5 %\", with commas between";

enum class Unit { none, rate, ms, us, s, percent };

std::optional<Unit> unit_of(std::string_view word) {
    constexpr std::array<std::pair<std::string_view, Unit>, 10> kUnits = {{{"tok/s", Unit::rate},
                                                                           {"tokens/s", Unit::rate},
                                                                           {"token/s", Unit::rate},
                                                                           {"t/s", Unit::rate},
                                                                           {"tps", Unit::rate},
                                                                           {"ms", Unit::ms},
                                                                           {"us", Unit::us},
                                                                           {"\xc2\xb5s", Unit::us},
                                                                           {"s", Unit::s},
                                                                           {"%", Unit::percent}}};
    for (const auto& [name, unit] : kUnits) {
        if (name == word) return unit;
    }
    return std::nullopt;
}

struct Phrase {
    std::vector<std::string> words;
    double value = 0;
    Unit unit = Unit::none;
    [[nodiscard]] bool says(std::initializer_list<std::string_view> names) const {
        return std::ranges::any_of(words, [&](const std::string& word) { return std::ranges::find(names, word) != names.end(); });
    }
};

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    for (const char c : text) {
        const bool space = c == ' ' || c == '\t' || c == '\r' || c == ':' || c == '=' || c == '~';
        if (!space) word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        if (space && !word.empty()) words.push_back(std::move(word)), word.clear();
    }
    if (!word.empty()) words.push_back(std::move(word));
    return words;
}

/// The number with a unit if there is exactly one such, else the only number; nothing where that is ambiguous.
std::optional<Phrase> phrase_of(std::string_view text) {
    const std::vector<std::string> words = words_of(text);
    std::vector<std::pair<double, Unit>> numbers;
    Phrase phrase;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        double value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (error != std::errc() || word[0] < '.' || word[0] > '9') {
            phrase.words.push_back(word);
            continue;
        }
        if (!std::isfinite(value)) return std::nullopt;
        const std::string_view rest(end, static_cast<std::size_t>(word.data() + word.size() - end));
        if (rest.empty() && i + 1 < words.size() && unit_of(words[i + 1])) {
            numbers.emplace_back(value, *unit_of(words[++i]));
        } else if (rest.empty()) {
            numbers.emplace_back(value, Unit::none);
        } else if (unit_of(rest)) {
            numbers.emplace_back(value, *unit_of(rest));
        } else {
            return std::nullopt;
        }
    }
    const auto with_unit = std::ranges::count_if(numbers, [](const auto& number) { return number.second != Unit::none; });
    if (with_unit != 1 && numbers.size() != 1) return std::nullopt;
    for (const auto& [value, unit] : numbers) {
        if (unit == Unit::none && with_unit == 1) continue;
        phrase.value = value;
        phrase.unit = unit;
    }
    return phrase;
}

/// The field that a phrase speaks of, and its value in the field's unit.
std::optional<std::pair<std::string, double>> field_of(const Phrase& phrase) {
    if (phrase.says({"prefill", "prompt", "ttft"})) return std::nullopt;
    if (phrase.unit == Unit::percent) {
        if (phrase.says({"noise"})) return std::pair<std::string, double>("noise", phrase.value * 1e-2);
        return std::nullopt;
    }
    if (phrase.unit == Unit::none) {
        if (phrase.says({"acceptance", "accepted"}) && phrase.says({"length", "len"}))
            return std::pair<std::string, double>("acceptance_length", phrase.value);
        return std::nullopt;
    }
    const bool plain = phrase.says({"plain"});
    if (phrase.unit == Unit::rate)
        return std::pair<std::string, double>(plain ? "plain_tokens_per_second" : "tokens_per_second", phrase.value);
    const double ms = phrase.unit == Unit::ms ? phrase.value : phrase.unit == Unit::s ? phrase.value * 1e3 : phrase.value * 1e-3;
    const bool verify = phrase.says({"verify", "verification"});
    const bool draft = phrase.says({"draft", "drafter", "drafting"});
    if (int{verify} + int{draft} + int{plain} > 1) return std::nullopt;
    const std::string pass = verify ? "terms.verify." : draft ? "terms.draft." : "terms.";
    if (phrase.says({"collectives", "collective", "all-reduces", "all-reduce", "allreduce", "allreduces"})) {
        if (plain) return std::nullopt;
        if (phrase.unit == Unit::us) return std::pair<std::string, double>("all_reduce_us", phrase.value);
        return std::pair<std::string, double>(pass + "collectives", ms);
    }
    for (const std::string_view kind : {"experts", "attention", "delta_net", "dense", "lm_head", "launch"}) {
        if (phrase.says({kind})) {
            if (plain) return std::nullopt;
            return std::pair<std::string, double>(pass + std::string(kind), ms);
        }
    }
    if (verify) return std::pair<std::string, double>("verify_ms", ms);
    if (draft) return std::pair<std::string, double>("draft_ms", ms);
    if (phrase.says({"host"})) return std::pair<std::string, double>("host_ms", ms);
    if (phrase.says({"cycle"})) return std::pair<std::string, double>("cycle_ms", ms);
    if (plain) return std::pair<std::string, double>("plain_step_ms", ms);
    return std::nullopt;
}

std::string shortened(std::string_view text, std::size_t limit = 60) {
    std::string shown;
    for (const char c : text.substr(0, limit)) shown += c >= ' ' && c <= '~' ? c : '?';
    return text.size() > limit ? shown + "..." : shown;
}

Expected<Measured> parse_sentence(std::string_view text, const std::string& name) {
    Measured measured;
    measured.source = name;
    bool noise_given = false;
    const auto bad = [&](std::string_view part, std::string_view why) {
        return fail(ErrorCode::invalid_input, fmt::format("\"{}\" {}", shortened(part), why), name,
                    fmt::format("what can be read: {}; or a draftboard.measured or draftboard.profile document", kReadable));
    };
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find_first_of(",;\n", begin), text.size());
        const std::string_view part = text.substr(begin, end - begin);
        begin = end + 1;
        if (words_of(part).empty()) continue;
        const auto phrase = phrase_of(part);
        const auto field = phrase ? field_of(*phrase) : std::nullopt;
        if (!field) return bad(part, "is no measurement that can be read");
        const auto& [key, value] = *field;
        if (key == "noise") {
            if (noise_given) return bad(part, "gives the noise a second time");
            if (!(value >= kMinNoise && value <= kMaxNoise)) return bad(part, "is no noise between 0.01 and 100 %");
            measured.noise = value;
            noise_given = true;
            continue;
        }
        double low = 0;
        double high = kMaxTermMs;
        for (const MeasuredField& known : measured_fields()) {
            if (known.name == key) low = known.low, high = known.high;
        }
        if (!(value >= low && value <= high)) return bad(part, fmt::format("is outside of {:g} to {:g}", low, high));
        if (!measured.values.emplace(key, value).second) return bad(part, fmt::format("gives {} a second time", key));
    }
    if (measured.values.empty()) return bad(text, "holds no measurement");
    return measured;
}

}  // namespace

Expected<Measured> parse_measured(std::string_view text, const std::string& name) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) return parse_document(text, name);
    return parse_sentence(text, name);
}

Expected<Measured> read_measured(const std::string& file_or_text) {
    constexpr std::size_t kMaxSentence = 4096;
    constexpr std::size_t kShownPath = 300;  // it may have been meant as a file's name
    std::error_code error;
    if (std::filesystem::exists(file_or_text, error)) {
        const auto text = model::read_file(file_or_text);
        if (!text) return tl::unexpected(text.error());
        return parse_measured(*text, file_or_text);
    }
    if (file_or_text.size() > kMaxSentence) {
        return fail(ErrorCode::too_large, fmt::format("the text has more than {} characters", kMaxSentence), "--measured");
    }
    return parse_sentence(file_or_text, "--measured " + shortened(file_or_text, kShownPath));
}

}  // namespace draftboard::calibration
