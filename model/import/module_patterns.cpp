// SPDX-License-Identifier: Apache-2.0
#include "model/import/module_patterns.h"

#include <optional>

#include <fmt/format.h>
#include <re2/re2.h>

namespace draftboard::model {

namespace {

/// Matches the set that opens at pattern[at] == '[' against `c`. Nothing where the set never closes
/// (then
/// '[' stands for itself); else the index behind the set and whether `c` is in it.
struct SetMatch {
    std::size_t next = 0;
    bool in = false;
};
std::optional<SetMatch> match_set(std::string_view pattern, std::size_t at, char c) {
    std::size_t i = at + 1;
    const bool negated = i < pattern.size() && pattern[i] == '!';
    if (negated) ++i;
    const std::size_t first = i;
    bool found = false;
    for (; i < pattern.size(); ++i) {
        if (pattern[i] == ']' && i > first) return SetMatch{i + 1, found != negated};
        if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
            found = found || (pattern[i] <= c && c <= pattern[i + 2]);
            i += 2;
        } else {
            found = found || pattern[i] == c;
        }
    }
    return std::nullopt;
}

std::string printable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 80)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
    return out;
}

}  // namespace

bool wildcard_match(std::string_view pattern, std::string_view text) {
    std::size_t p = 0;
    std::size_t t = 0;
    std::size_t star =
        std::string_view::npos;  // last star seen, and the text position it has eaten up to
    std::size_t eaten = 0;
    while (t < text.size()) {
        std::size_t next = p;
        bool one = false;
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            eaten = t;
            continue;
        }
        if (p < pattern.size()) {
            std::optional<SetMatch> set;
            if (pattern[p] == '[') set = match_set(pattern, p, text[t]);
            one = set ? set->in : pattern[p] == '?' || pattern[p] == text[t];
            next = set ? set->next : p + 1;
        }
        if (one) {
            p = next;
            ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++eaten;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

std::string ModulePatterns::add_regex(std::string_view pattern) {
    if (pattern.size() > kMaxPatternLength)
        return fmt::format("the pattern is longer than {} characters", kMaxPatternLength);
    if (regexes_.size() >= kMaxRegexes)
        return fmt::format("more than {} regular expressions", kMaxRegexes);
    RE2::Options options;
    options.set_log_errors(false);
    options.set_encoding(RE2::Options::EncodingLatin1);  // module names are ASCII; smaller programs
    options.set_max_mem(1 << 20);
    auto regex =
        std::make_shared<const RE2>(re2::StringPiece(pattern.data(), pattern.size()), options);
    if (!regex->ok()) {
        return fmt::format("the regular expression \"{}\" can't be used: {}", printable(pattern),
                           printable(regex->error()));
    }
    if (regex->ProgramSize() > kMaxRegexProgram) {
        return fmt::format("the regular expression \"{}\" is too complex", printable(pattern));
    }
    regexes_.push_back(std::move(regex));
    return {};
}

std::size_t ModulePatterns::cost() const {
    return wildcards_.size() + kRegexCost * regexes_.size();
}

std::string ModulePatterns::add(std::string_view entry) {
    if (entry.substr(0, 3) == "re:") return add_regex(entry.substr(3));
    if (entry.size() > kMaxPatternLength)
        return fmt::format("the name is longer than {} characters", kMaxPatternLength);
    if (entry.find_first_of("*?[") != std::string_view::npos) {
        if (wildcards_.size() >= kMaxWildcards)
            return fmt::format("more than {} wildcards", kMaxWildcards);
        wildcards_.emplace_back(entry);
        // "model.layers.*.self_attn" means the modules below it as well.
        if (rule_ == NameRule::component && entry.back() != '*') {
            wildcards_.push_back(std::string(entry) + ".*");
        }
        return {};
    }
    while (rule_ == NameRule::component && !entry.empty() && entry.back() == '.')
        entry.remove_suffix(1);
    if (entry.empty()) return {};
    if (names_.size() >= kMaxExactNames) return fmt::format("more than {} names", kMaxExactNames);
    names_.emplace(entry);
    return {};
}

bool ModulePatterns::matches_one(const std::string& module) const {
    if (!names_.empty()) {
        if (names_.count(module) > 0) return true;
        if (rule_ == NameRule::component) {
            std::vector<std::size_t> starts{0};
            for (std::size_t i = 0; i < module.size(); ++i) {
                if (module[i] == '.') starts.push_back(i + 1);
            }
            starts.push_back(module.size() + 1);
            for (std::size_t a = 0; a + 1 < starts.size(); ++a) {
                for (std::size_t b = a + 1; b < starts.size(); ++b) {
                    if (names_.count(module.substr(starts[a], starts[b] - 1 - starts[a])) > 0)
                        return true;
                }
            }
        }
    }
    for (const std::string& wildcard : wildcards_) {
        if (wildcard_match(wildcard, module)) return true;
    }
    for (const auto& regex : regexes_) {
        if (regex->Match(module, 0, module.size(), RE2::ANCHOR_START, nullptr, 0)) return true;
    }
    return false;
}

bool ModulePatterns::matches(const std::string& module) const {
    if (empty()) return false;
    if (matches_one(module)) return true;
    constexpr std::string_view kPrefix = "model.";
    if (module.compare(0, kPrefix.size(), kPrefix) == 0 &&
        matches_one("model.language_model." + module.substr(kPrefix.size()))) {
        return true;
    }
    return matches_one("language_model." + module);
}

}  // namespace draftboard::model
