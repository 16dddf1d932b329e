// SPDX-License-Identifier: Apache-2.0
#pragma once
// A set of module names as quantization configs write it: exact names, shell wildcards, and Python
// regular expressions led by "re:". Says whether a module is in the set. What being in it means is
// quantization_config.h's affair.
//
// Checkpoints of multimodal models name the same text module in three ways
// ("model.layers.3.mlp.gate", "model.language_model.layers.3...",
// "language_model.model.layers.3..."); all three are tried.
//
// Regular expressions go to RE2 with Python's re.match semantics (anchored at the start, not at the
// end), so matching is linear in time; look-ahead and back-references, which RE2 has not, are
// refused.

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/error.h"

namespace re2 {
class RE2;
}

namespace draftboard::model {

/// How a name without wildcards or "re:" is compared.
enum class NameRule {
    exact,      ///< the whole module name (compressed-tensors)
    component,  ///< any run of whole dotted components: "gate" is in "mlp.gate", not in
                ///< "mlp.gate_proj"
};

inline constexpr std::size_t kMaxPatternLength = 512;
inline constexpr std::size_t kMaxExactNames = 200'000;
inline constexpr std::size_t kMaxWildcards = 8192;
inline constexpr std::size_t kMaxRegexes = 256;
inline constexpr std::size_t kRegexCost = 4;   ///< of one lookup, in wildcards
inline constexpr int kMaxRegexProgram = 1000;  ///< RE2 instructions; bounds the time of one match

/// fnmatch of Python: * any characters, ? one, [abc] and [!a-z] sets. Time O(|pattern| * |text|).
[[nodiscard]] bool wildcard_match(std::string_view pattern, std::string_view text);

class ModulePatterns {
 public:
    explicit ModulePatterns(NameRule rule = NameRule::exact) : rule_(rule) {}

    /// Adds one entry; a message says why it can't be, empty on success.
    [[nodiscard]] std::string add(std::string_view entry);
    /// Adds a regular expression without its "re:".
    [[nodiscard]] std::string add_regex(std::string_view pattern);

    [[nodiscard]] bool matches(const std::string& module) const;
    [[nodiscard]] bool empty() const {
        return names_.empty() && wildcards_.empty() && regexes_.empty();
    }
    /// Work of one lookup, in wildcards (a regular expression weighs kRegexCost); names are hashed.
    [[nodiscard]] std::size_t cost() const;
    [[nodiscard]] bool contains_name(const std::string& name) const {
        return names_.count(name) > 0;
    }

 private:
    [[nodiscard]] bool matches_one(const std::string& module) const;
    NameRule rule_;
    std::unordered_set<std::string> names_;
    std::vector<std::string> wildcards_;
    std::vector<std::shared_ptr<const re2::RE2>> regexes_;
};

}  // namespace draftboard::model
