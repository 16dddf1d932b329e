// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reference fixtures (tests/reference) and one-sequence passes, for the tests of the engines of every device.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "backend/checkpoint.h"
#include "backend/language_model.h"
#include "backend/safetensors.h"
#include "model/layout.h"

namespace draftboard::backend {

using model::Pass;

inline const std::string kFixtures = std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/reference/";

inline std::vector<std::string> families() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) {
        if (std::filesystem::exists(entry.path() / "expected.safetensors")) names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
}

struct Fixture {
    Checkpoint checkpoint;
    SafetensorsFile expected;

    [[nodiscard]] std::vector<int> integers(const std::string& name) const {
        const TensorView& tensor = expected.tensors().find(name)->second;
        std::vector<std::int64_t> wide(static_cast<std::size_t>(tensor.elements()));
        std::memcpy(wide.data(), tensor.bytes.data(), tensor.bytes.size());
        return {wide.begin(), wide.end()};
    }
    [[nodiscard]] std::vector<float> floats(const std::string& name) const {
        const TensorView& tensor = expected.tensors().find(name)->second;
        std::vector<float> numbers(static_cast<std::size_t>(tensor.elements()));
        std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
        return numbers;
    }
    [[nodiscard]] bool has(const std::string& name) const { return expected.tensors().contains(name); }
};

inline Fixture load(const std::string& family) {
    auto checkpoint = Checkpoint::open(kFixtures + family);
    EXPECT_TRUE(checkpoint.has_value()) << (checkpoint ? "" : checkpoint.error().to_text());
    auto expected = SafetensorsFile::open(kFixtures + family + "/expected.safetensors");
    EXPECT_TRUE(expected.has_value()) << (expected ? "" : expected.error().to_text());
    return {std::move(*checkpoint), std::move(*expected)};
}

inline std::vector<float> forward(LanguageModel& model, Pass pass, std::vector<int> tokens, std::vector<int> parents = {},
                           std::vector<float> features = {}, ForwardOutput* whole = nullptr) {
    Batch batch;
    batch.pass = pass;
    batch.sequences = {0};
    batch.tokens = static_cast<int>(tokens.size());
    batch.token_ids = std::move(tokens);
    batch.parents = std::move(parents);
    batch.features = std::move(features);
    ForwardOutput output;
    const auto done = model.forward(batch, {}, output);
    EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().to_text());
    if (whole != nullptr) *whole = output;
    return output.logits;
}

/// Whether the fixture's dimensions divide over that many ranks (some are too small for their quantization blocks).
inline bool divides(const Checkpoint& checkpoint, int ranks, bool experts = false) {
    const auto architecture = checkpoint.architecture();
    model::Layout layout;
    layout.tensor = ranks;
    layout.expert = experts ? ranks : 1;
    return architecture.has_value() && layout.validate(*architecture).empty();
}

/// `routing`: as Engine::set_routing_record() keeps it, of a pass over the fixture's prompt. The order of a row's experts is not
/// compared.
inline void expect_experts_of_transformers(std::vector<std::uint16_t> routing, const Fixture& fixture) {
    const std::vector<int> expected = fixture.integers("prefill_experts");
    ASSERT_EQ(routing.size(), expected.size());
    const auto k = static_cast<std::ptrdiff_t>(fixture.expected.tensors().find("prefill_experts")->second.shape.back());
    for (auto at = routing.begin(); at != routing.end(); at += k) std::sort(at, at + k);
    EXPECT_TRUE(std::equal(routing.begin(), routing.end(), expected.begin()));
}

/// Largest error as a share of the tolerance 2e-3 max(1, standard deviation of the expected logits).
inline double share_of_tolerance(const std::vector<float>& got, const std::vector<float>& expected) {
    EXPECT_EQ(got.size(), expected.size());
    const double count = static_cast<double>(expected.size());
    const double mean = std::accumulate(expected.begin(), expected.end(), 0.0) / count;
    double squares = 0;
    double worst = 0;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        squares += (expected[i] - mean) * (expected[i] - mean);
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
        if (!std::isfinite(got[i])) worst = INFINITY;
    }
    return worst / (2e-3 * std::max(1.0, std::sqrt(squares / count)));
}

}  // namespace draftboard::backend
