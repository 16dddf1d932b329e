// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shipped models (data/models) through the whole loop, for the tests of the engines of every device.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backend/decode_loop.h"
#include "backend/inference.h"
#include "model/json_reader.h"

namespace draftboard::backend {

inline const std::string kSource = DRAFTBOARD_SOURCE_DIR;

inline model::Json read_json(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const auto json = model::parse_json(text.str(), path);
    EXPECT_TRUE(json.has_value()) << (json ? "" : json.error().to_text());
    return json ? *json : model::Json::object();
}

inline InferenceSettings settings_of(const std::string& name, DraftMethod method, int steps, int ranks) {
    InferenceSettings settings;
    settings.model = kSource + "/data/models/" + name;
    settings.method = method;
    settings.steps = steps;
    settings.ranks = ranks;
    settings.text_length = 512;
    return settings;
}

/// Greedy continuation of each prompt by `count` tokens.
inline std::vector<std::vector<int>> continuations(Inference& inference, const std::vector<std::string>& prompts, int count,
                                                   AcceptanceCounter* acceptance = nullptr) {
    LoopOptions options;
    const auto fused = inference.fused_cycle();
    EXPECT_TRUE(fused.has_value()) << (fused ? "" : fused.error().to_text());
    if (fused) options.fused = *fused;
    DecodeLoop loop(inference.target(), inference.drafter(), options);
    for (const std::string& prompt : prompts) {
        Request request;
        request.prompt = inference.tokenizer()->encode(prompt);
        request.max_tokens = count;
        const auto submitted = loop.submit(std::move(request));
        EXPECT_TRUE(submitted.has_value());
    }
    const auto done = loop.run();
    EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().to_text());
    std::vector<std::vector<int>> out;
    for (std::size_t i = 0; i < prompts.size(); ++i) out.push_back(loop.result(static_cast<int>(i)).tokens);
    if (acceptance != nullptr) *acceptance = loop.acceptance();
    return out;
}

/// Greedy texts of a shipped model are those that transformers writes.
inline void expect_reference_continuations(Inference& inference, const std::string& model) {
    const model::Json reference = read_json(kSource + "/tests/fixtures/trained/" + model + ".json");
    std::vector<std::string> prompts;
    for (const auto& entry : reference.at("cases")) prompts.push_back(entry.at("prompt").get<std::string>());
    ASSERT_FALSE(prompts.empty());
    const auto texts = continuations(inference, prompts, 48);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(texts[i], reference.at("cases")[i].at("continuation").get<std::vector<int>>()) << prompts[i];
    }
}

}  // namespace draftboard::backend
