// SPDX-License-Identifier: Apache-2.0
#pragma once
// Expected failures, as values. Everything in Draftboard that can fail because of its input or its
// surroundings returns Expected<T>; exceptions are left for what ends a command. An Error speaks to
// a person: one sentence of what, the place, one sentence of what to do. How it becomes an exit code
// is decided in cli/, nowhere else.

#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace draftboard::model {

enum class ErrorCode {
    invalid_input,  ///< malformed or contradictory input (exit 2)
    not_found,      ///< a named file, preset or field does not exist (exit 2)
    unsupported,    ///< well-formed, but outside what the model covers (exit 2)
    too_large,      ///< beyond a stated limit (exit 2)
    unavailable,    ///< the environment lacks something (exit 3)
};

struct Error {
    ErrorCode code = ErrorCode::invalid_input;
    std::string message;  ///< what is wrong, one sentence, no trailing period needed
    std::string context;  ///< where: "FILE: /json/pointer", "FILE:LINE", or a name; may be empty
    std::string hint;     ///< what to do about it; may be empty

    /// "context: message (hint)" in one line, for logs and tests.
    [[nodiscard]] std::string to_text() const;
};

template <class T>
using Expected = tl::expected<T, Error>;

/// Shorthand for `return` in functions that yield Expected<T>.
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message,
                                                std::string context = {}, std::string hint = {}) {
    return tl::unexpected<Error>(
        Error{code, std::move(message), std::move(context), std::move(hint)});
}

/// One entry of what `validate()` returns: a place (JSON pointer or name) and what is wrong there.
struct Problem {
    std::string place;
    std::string message;
    bool operator==(const Problem&) const = default;
};

/// All problems as one Error; `file` leads the context. Precondition: !problems.empty().
[[nodiscard]] Error to_error(const std::vector<Problem>& problems, const std::string& file);

}  // namespace draftboard::model
