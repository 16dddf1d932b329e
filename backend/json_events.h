// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reading large JSON as a stream of events: a header of 100 MB with a million tensors goes through in seconds and
// without a document in memory (model/json_reader.h keeps keys in file order, which is quadratic in one object's
// keys). A reader derives from JsonEvents, overrides what it knows, and calls stop() with a reason for the rest.

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model/error.h"

namespace draftboard::backend {

/// Text from a file, safe to print: control characters as '?', at most 120 bytes, never half a UTF-8 sequence.
[[nodiscard]] std::string printable(std::string_view text);

class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
   public:
    /// Runs over all of `text`; `name` stands in errors, whose code is invalid_input unless stop() said otherwise.
    [[nodiscard]] model::Expected<void> read(std::string_view text, const std::string& name);

   protected:
    /// False, for `return stop(...)` in an event.
    bool stop(std::string message, std::string hint = {}, model::ErrorCode code = model::ErrorCode::invalid_input);
    /// An event that does not belong where it came: "found a number".
    virtual bool unexpected(std::string_view found) = 0;

    bool null() override { return unexpected("null"); }
    bool boolean(bool /*value*/) override { return unexpected("a boolean"); }
    bool number_integer(number_integer_t /*value*/) override { return unexpected("a negative number"); }
    bool number_unsigned(number_unsigned_t /*value*/) override { return unexpected("a number"); }
    bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
        return unexpected("a number with a fraction, or too large");
    }
    bool string(string_t& /*value*/) override { return unexpected("a string"); }
    bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }
    bool start_object(std::size_t /*size*/) override { return unexpected("an object"); }
    bool start_array(std::size_t /*size*/) override { return unexpected("an array"); }
    bool end_array() override { return true; }
    bool parse_error(std::size_t position, const std::string& token,
                     const nlohmann::detail::exception& error) override;

   private:
    model::Error error_;
};

}  // namespace draftboard::backend
