// SPDX-License-Identifier: Apache-2.0
// The JSON layer under every file format: any bytes give a document or an error, and every read of
// a document gives a value within the range asked for or a Problem.

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "model/json_reader.h"

using namespace draftboard::model;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

/// Reads every member of every object through each accessor; depth is bounded by parse_json.
void read_all(const JsonReader& reader) {
    const Json& value = reader.value();
    if (value.is_array()) {
        for (std::size_t i = 0; i < reader.size(); ++i) read_all(reader.at(i));
        return;
    }
    if (!value.is_object()) return;
    for (const auto& item : value.items()) {
        const std::string& key = item.key();
        const std::int64_t count = reader.integer(key, 1, 1024);
        require(count >= 1 && count <= 1024);
        const double number = reader.number_or(key, 0.5, 0, 1);
        require(number >= 0 && number <= 1);
        for (const double entry : reader.numbers_or(key, {}, -1e300, 1e300))
            require(std::isfinite(entry));
        (void)reader.strings_or(key);
        (void)reader.string_or(key, "");
        (void)reader.boolean_or(key, false);
        if (reader.has(key)) read_all(reader.at(key));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto document = parse_json(text, "input");
    if (!document) {
        require(!document.error().message.empty());
        return 0;
    }
    std::vector<Problem> problems;
    const JsonReader reader(*document, problems);
    reader.expect_format("draftboard.scenario", 1);
    read_all(reader);
    if (!problems.empty()) require(!to_error(problems, "input").to_text().empty());
    return 0;
}
