// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one change would bring: each lever is a set of edits, predicted alone against the variant as it is. Settings are switches
// of the engine, hardware is another box, uncertainty is a constant at either end of its doubt: how far the answer hangs on it.
// Ranked by how far tokens per second move: a tornado.

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "gui/core/answer.h"
#include "gui/core/knob.h"

namespace draftboard::gui {

enum class LeverKind { setting, load, hardware, uncertainty };
[[nodiscard]] const char* to_name(LeverKind kind);

struct Lever {
    std::string name;
    LeverKind kind = LeverKind::setting;
    std::vector<Edit> edits;
    bool operator==(const Lever&) const = default;
};

/// What could be changed here: only levers that differ from what the variant has.
[[nodiscard]] std::vector<Lever> levers_of(const Answer& answer, const std::vector<Knob>& knobs);

struct LeverResult {
    Lever lever;
    std::string error;  ///< why it is not possible here; empty: it is
    model::Interval tokens_per_second;
    double gain = 0;  ///< of tok/s, a share of the variant's own
    model::Interval speedup;
    bool fits = true;
};

/// Largest change first; what is not possible last.
[[nodiscard]] std::vector<LeverResult> run_levers(const Answer& base, const std::vector<Lever>& levers,
                                                  const std::string& data_directory, const std::stop_token& stop,
                                                  const std::function<void(std::size_t, std::size_t)>& progress = {});

/// The ranking as Markdown: gains, what turns each on, what was ruled out and why.
[[nodiscard]] std::string levers_markdown(const Answer& base, const std::vector<LeverResult>& results);

}  // namespace draftboard::gui
