// SPDX-License-Identifier: Apache-2.0
#pragma once
// What somebody measured, read from what they have: a "draftboard.measured" document, a "draftboard.profile" document
// (`draftboard run --profile`), or a sentence such as "verify 30 ms, 41 tok/s". It reads; it does not judge: diagnosis.h does.
//
// {"format": "draftboard.measured", "version": 1, "verify_ms": 30, "tokens_per_second": 60, "terms": {"collectives": 25},
//  "noise": 0.03}
// Values are kept under the field's name, terms under "terms.NAME". NAME is a term of a prediction ("verify.experts"), a
// group of terms ("verify.collectives": latency, transport and wait), or either without its pass ("collectives": of the cycle).

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::calibration {

/// Relative standard deviation of a measurement that states none; assumed: a few seconds of steady decoding on one box.
inline constexpr double kMeasurementNoise = 0.03;
inline constexpr std::size_t kMaxMeasuredTerms = 64;

struct Measured {
    std::map<std::string, double> values;  ///< never empty
    double noise = kMeasurementNoise;      ///< one sigma, relative
    std::string source;                    ///< the file, or "text"
    std::vector<std::string> notes;        ///< what was assumed or ignored
};

/// A quantity of the format; the order of reports.
struct MeasuredField {
    std::string_view name;
    double low;
    double high;
};
[[nodiscard]] const std::vector<MeasuredField>& measured_fields();

/// `name` stands in errors. JSON begins with a brace; anything else is a sentence.
[[nodiscard]] model::Expected<Measured> parse_measured(std::string_view text, const std::string& name);

/// A file if there is one of this name, else the sentence itself.
[[nodiscard]] model::Expected<Measured> read_measured(const std::string& file_or_text);

}  // namespace draftboard::calibration
