// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is known to work, and what not: facts of format "draftboard.feasibility" (data/feasibility.json), each of a lever on a
// GPU architecture under an engine and a range of its versions, with its evidence. Reviewed by hand; nothing here is predicted.
//
//   {"lever": "fused_all_reduce_norm", "architectures": ["12.0"], "engine": "SGLang", "from": "", "until": "",
//    "state": "crashes", "evidence": "what was seen", "source": "where"}
//
// `architectures`: compute capabilities, or ["any"]; `engine`: a name or "any"; `from` and `until`: versions, both included,
// empty: open. A version that is not told matches every range. Of the entries that match, those that name the engine go before
// "any", and those that name the architecture before "any"; the first of the best decides, and all are shown.

#include <string>
#include <vector>

#include "model/json_reader.h"

namespace draftboard::planning {

enum class FeasibilityState { works, crashes, wrong_results, refused, unknown };
[[nodiscard]] std::string_view to_name(FeasibilityState state);
/// "does not work here": crashes, wrong results, refused.
[[nodiscard]] bool ruled_out(FeasibilityState state);

struct FeasibilityFact {
    std::string lever;
    std::vector<std::string> architectures;
    std::string engine;
    std::string from;
    std::string until;
    FeasibilityState state = FeasibilityState::unknown;
    std::string evidence;
    std::string source;
};

struct Feasibility {
    FeasibilityState state = FeasibilityState::unknown;
    std::vector<FeasibilityFact> facts;  ///< that match, the deciding one first; empty: nothing is known
};

/// Where a lever is asked for.
struct FeasibilityPlace {
    std::string architecture;  ///< compute capability, "12.0"
    std::string engine;        ///< empty: any
    std::string version;       ///< empty: not told
};

class FeasibilityTable {
 public:
    [[nodiscard]] static model::Expected<FeasibilityTable> load(const std::string& path);
    [[nodiscard]] static model::Expected<FeasibilityTable> from_json(const model::Json& json, const std::string& source);

    [[nodiscard]] Feasibility of(const std::string& lever, const FeasibilityPlace& place) const;
    [[nodiscard]] const std::vector<FeasibilityFact>& facts() const { return facts_; }

 private:
    std::vector<FeasibilityFact> facts_;
};

/// -1, 0, 1 by the numbers in both ("0.5.10" after "0.5.9"); what is no number counts as 0.
[[nodiscard]] int compare_versions(const std::string& a, const std::string& b);

}  // namespace draftboard::planning
