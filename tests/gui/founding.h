// SPDX-License-Identifier: Apache-2.0
#pragma once
// The founding case, asked: what most tests of the desktop start from.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gui/core/answer.h"

namespace draftboard::gui {

inline const std::string kData = std::string(DRAFTBOARD_SOURCE_DIR) + "/data";
inline constexpr const char* kFounding = "kimi-k2.5-eagle3-founding";

inline Variant founding(std::vector<Edit> edits = {}) { return {"founding", kFounding, std::move(edits), ""}; }

inline AnswerPointer answered(const Variant& variant) {
    Answerer answerer(kData);
    auto answer = answerer.answer(variant);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().to_text());
    return answer ? *answer : nullptr;
}

}  // namespace draftboard::gui
