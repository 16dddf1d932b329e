// SPDX-License-Identifier: Apache-2.0
#include "model/error.h"

namespace draftboard::model {

std::string Error::to_text() const {
    std::string text = context.empty() ? message : context + ": " + message;
    if (!hint.empty()) text += " (" + hint + ")";
    return text;
}

Error to_error(const std::vector<Problem>& problems, const std::string& file) {
    constexpr std::size_t kMaxListed = 20;
    Error error;
    error.code = ErrorCode::invalid_input;
    error.context = file + ": " + (problems.front().place.empty() ? "/" : problems.front().place);
    error.message = problems.front().message;
    for (std::size_t i = 1; i < problems.size() && i < kMaxListed; ++i) {
        error.message += "\n  " + problems[i].place + ": " + problems[i].message;
    }
    if (problems.size() > kMaxListed) {
        error.message += "\n  and " + std::to_string(problems.size() - kMaxListed) + " more";
    }
    return error;
}

}  // namespace draftboard::model
