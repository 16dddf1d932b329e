// SPDX-License-Identifier: Apache-2.0
#pragma once
// The knobs: which fields of a scenario a person turns, with name, unit, range, and what they mean. A knob writes edits and
// nothing else; most write one, at their own path. Three look at the answer first: the generation and the width of a
// box's PCIe links (which rewrite the machine) and the acceptance length (which rewrites the acceptance).
// No widget here: knob_panel.h shows them, sweep.h varies them.

#include <string>
#include <vector>

#include "gui/core/answer.h"

namespace draftboard::gui {

enum class KnobKind { choice, integer, real, toggle, pcie_generation, pcie_width, acceptance_length };

struct Knob {
    std::string path;  ///< of `--set`; names the knob even where it writes elsewhere
    std::string label;
    std::string group;
    KnobKind kind = KnobKind::real;
    std::string unit;
    double low = 0;
    double high = 1;
    bool logarithmic = false;  ///< the slider; needs low > 0
    std::vector<std::string> choices;
    std::string meaning;

    [[nodiscard]] bool numeric() const { return kind != KnobKind::choice && kind != KnobKind::toggle; }
    [[nodiscard]] bool whole() const {
        return kind == KnobKind::integer || kind == KnobKind::pcie_generation || kind == KnobKind::pcie_width;
    }
    /// Slider position 0..1 of a value, and back; whole numbers are rounded. Clamped.
    [[nodiscard]] double position_of(double value) const;
    [[nodiscard]] double value_at(double position) const;
};

/// All knobs, in the order of the panel; choices of architectures, machines and calibrations are the shipped ones.
[[nodiscard]] std::vector<Knob> knob_table(const std::string& data_directory);
[[nodiscard]] const Knob* find_knob(const std::vector<Knob>& knobs, const std::string& path);

struct KnobState {
    model::Json value;
    model::Json initial;  ///< without edits; null where it is not known
    bool edited = false;
    bool applies = true;  ///< false: it changes nothing here (tree width of an n-gram lookup)
    std::string source;   ///< where the value comes from
    bool operator==(const KnobState&) const = default;
};
[[nodiscard]] KnobState knob_state(const Knob& knob, const Answer& answer);

/// What setting the knob to `value` writes. Errors: a link generation that does not exist.
[[nodiscard]] model::Expected<std::vector<Edit>> knob_edits(const Knob& knob, const model::Json& value, const Answer& answer);
/// The paths that a reset of the knob takes back.
[[nodiscard]] std::string reset_path(const Knob& knob);

/// The edit that gives the acceptance these unconditional rates, what else is known of it kept. Rates are clamped to 0..1 and
/// made non-increasing around `changed`: those before it rise, those after it fall.
[[nodiscard]] Edit acceptance_edit(std::vector<double> rates, std::size_t changed, const Answer& answer);

}  // namespace draftboard::gui
