// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `draftboard model show` says of an architecture, as JSON and as a table. Counting is
// parameter_count.h's; here is only wording and order.

#include <string>

#include "model/architecture.h"
#include "model/json_reader.h"

namespace draftboard::model {

/// One object: name, model_type, source, hidden, vocabulary, max_context, total_parameters,
/// active_parameters, active_parameters_with_embedding, mtp_parameters, mtp_modules, weight_bytes,
/// mtp_bytes, all_reduces_per_forward (decoder layers, 2 each), embedding_all_reduces,
/// logits_all_gathers, parameters_by_part{}, active_parameters_by_part{}, bytes_by_part{},
/// layers{count, mixers{}, feed_forwards{}}, formats{}, cache_format, notes[].
[[nodiscard]] Json architecture_report(const Architecture& architecture);

/// The same as an aligned table for people, ending in a line break.
[[nodiscard]] std::string architecture_text(const Architecture& architecture);

}  // namespace draftboard::model
