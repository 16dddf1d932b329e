// SPDX-License-Identifier: Apache-2.0
#pragma once
// A suite: which configurations are run for real and predicted, as data (data/suites). A group is what one would choose a drafter
// for: a model on some ranks with a batch and a context; its drafters are the choices.
//
// {"format": "draftboard.suite", "version": 1, "name", "description", "prompts": ["code", ...],
//  "rounds": 6, "prompts_per_round": 6, "tokens": 48, "repeat": 4,
//  "groups": [{"model": "tiny-kimi", "ranks": 1, "batch": 1, "context": 100,
//              "layers": 4, "tp_rank_of": 8, "launch": "eager",     of random weights ("architecture" in place of "model"), on GPUs
//              "drafters": [{"method": "none"}, {"method": "eagle3", "steps": 2, "held_out": true},
//                           {"method": "scripted", "rates": [0.8, 0.6]},
//                           {"method": "eagle3", "steps": 3, "top_k": 3, "draft_tokens": 8}, ...]}]}
// held_out: no calibration may have measured the configuration's passes; validation checks that.
// context: mean length of the texts while they are decoded. repeat: every so manieth configuration is run twice, as if it
// were two: the noise floor; 0: none.

#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"
#include "model/json_reader.h"
#include "model/speculation.h"

namespace draftboard::calibration {

struct SuiteConfiguration {
    std::string model;      ///< folder or name; with random weights the architecture's
    bool random_weights = false;
    int layers = 0;         ///< of random weights: the first ones; 0: all
    int tensor_rank_of = 0; ///< one rank's share of so many, alone; 0: no
    std::string launch = "full";         ///< GPU: full or eager
    std::vector<double> scripted_rates;  ///< drafts by script, accepted at these conditional rates; method is then ngram
    int ranks = 1;
    int batch = 1;
    int context = 100;
    model::SpeculationMethod method = model::SpeculationMethod::none;
    int steps = 0;
    int top_k = 1;
    int draft_tokens = 0;   ///< 0: steps + 1
    bool held_out = false;
    int group = 0;

    [[nodiscard]] int verify_tokens() const;  ///< rows a sequence in the target's pass
    [[nodiscard]] std::string drafter() const;  ///< "eagle3 x3", "eagle3 x3 top 3 of 8", "none"
    [[nodiscard]] bool scripted() const { return !scripted_rates.empty(); }
    [[nodiscard]] std::string model_label() const;  ///< "tiny-kimi", "kimi-k2.5 L4 1of8"
    [[nodiscard]] std::string name() const;   ///< "tiny-kimi r1 b1 c100 eagle3 x3"
    [[nodiscard]] std::string group_name() const;
};

struct Suite {
    std::string name;
    std::string description;
    std::vector<std::string> prompts;
    std::string device = "cpu";
    std::string machine;    ///< of a GPU suite: the shipped machine that it is for
    bool peer_access = true;  ///< of GPUs to each other's memory
    int rounds = 6;
    int prompts_per_round = 6;
    int tokens = 48;
    int repeat = 0;
    std::vector<SuiteConfiguration> configurations;
};

[[nodiscard]] model::Expected<Suite> parse_suite(std::string_view text, const std::string& name);
/// By path, or by the name of a shipped one in data_directory/suites.
[[nodiscard]] model::Expected<Suite> find_suite(const std::string& name_or_path, const std::string& data_directory);

}  // namespace draftboard::calibration
