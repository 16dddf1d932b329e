// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers as tables: terms, operations, constants, memory, variants, sweep points, levers. Each function takes results and
// returns cells; numbers have the digits of the command line's own reports.

#include "gui/core/levers.h"
#include "gui/core/sweep.h"
#include "gui/models/session.h"
#include "gui/models/table_model.h"

namespace draftboard::gui {

[[nodiscard]] Table terms_table(const Answer& answer, const Answer* baseline);
/// Operations of all passes, or of one ("" all), or of one term of it ("" all), costliest first.
[[nodiscard]] Table operations_table(const Details& details, const std::string& pass, const std::string& term);
/// The same choice as rows of the explanation, for what a click on the table's row means.
[[nodiscard]] std::vector<const sim::ExplainedOperation*> chosen_operations(const Details& details, const std::string& pass,
                                                                            const std::string& term);
[[nodiscard]] Table constants_table(const sim::Explanation& explanation);
[[nodiscard]] Table memory_table(const Answer& answer);
[[nodiscard]] Table variants_table(const Session& session);
[[nodiscard]] Table sweep_table(const Sweep& sweep);
[[nodiscard]] Table levers_table(const std::vector<LeverResult>& results);
/// Fields that differ between the shown variant and its base, and the pinned one.
[[nodiscard]] Table differences_table(const Session& session);

}  // namespace draftboard::gui
