// SPDX-License-Identifier: Apache-2.0
#pragma once
// A diagnosis for people and for programs. diagnosis.h is where it comes from.

#include <string>

#include "calibration/diagnosis.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

[[nodiscard]] model::Json diagnosis_json(const Diagnosis& diagnosis);
[[nodiscard]] std::string diagnosis_text(const Diagnosis& diagnosis);

}  // namespace draftboard::calibration
