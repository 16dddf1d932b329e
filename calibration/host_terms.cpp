// SPDX-License-Identifier: Apache-2.0
#include "calibration/host_terms.h"

#include <algorithm>

#include "sim/host_constants.h"

namespace draftboard::calibration {

std::map<std::string, double> read_host_terms(const model::JsonReader& reader, bool with_run_sigma, std::string_view beside) {
    std::map<std::string, double> values;
    if (!reader.expect_object()) return values;
    const auto& table = sim::host_constant_table();
    for (const auto& item : reader.value().items()) {
        const std::string& name = item.key();
        if (name == beside) continue;
        const auto known = std::find_if(table.begin(), table.end(), [&](const auto& info) { return info.name == name; });
        if (with_run_sigma && name == kRunSigma) {
            values[name] = reader.number(name, 0, 2);
        } else if (known == table.end()) {
            reader.problem(name.substr(0, 80), "is no host constant");
        } else {
            values[name] = reader.number(name, known->low, known->high);
        }
    }
    return values;
}

}  // namespace draftboard::calibration
