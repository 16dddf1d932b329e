// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hashes of what a pass's times depend on, so that a predictor can tell that nothing has changed. FNV-1a
// over values in a fixed order; equal inputs give equal hashes on any platform of one byte order. Not for
// security, and not for files.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "model/hash.h"
#include "model/plan.h"
#include "model/scenario.h"
#include "sim/host_constants.h"

namespace draftboard::sim {

class Fingerprint {
   public:
    Fingerprint& add(std::uint64_t value) {
        hash_ = (hash_ ^ value) * model::kFnvPrime;
        hash_ ^= hash_ >> 29;
        return *this;
    }
    Fingerprint& add(double value) { return add(std::bit_cast<std::uint64_t>(value)); }
    Fingerprint& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
    Fingerprint& add(int value) { return add(static_cast<std::uint64_t>(value)); }
    Fingerprint& add(bool value) { return add(std::uint64_t{value}); }
    Fingerprint& add(std::string_view text) {
        for (std::size_t at = 0; at < text.size(); at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
            add(word);
        }
        return add(static_cast<std::uint64_t>(text.size()));
    }
    [[nodiscard]] std::uint64_t value() const { return hash_; }

   private:
    std::uint64_t hash_ = model::kFnvBasis;
};

/// Of the machine, the engine's switches and the collective settings: what prices every pass.
void add_surroundings(Fingerprint& fingerprint, const model::Scenario& scenario);
/// Of the operations with their shapes and bytes.
void add_plan(Fingerprint& fingerprint, const model::Plan& plan);
/// Of what the plans of a cycle are made from: architecture, layout, drafter's shape, batch, context, routing (without a trace's
/// choices), seed. Equal ones give equal plans, so that none need be built to tell.
void add_cycle_shape(Fingerprint& fingerprint, const model::Scenario& scenario);
/// Every field of an architecture but names, sources and notes.
void add_architecture(Fingerprint& fingerprint, const model::Architecture& architecture);
/// Of the constants that the passes depend on (not those of work between passes).
void add_launch_costs(Fingerprint& fingerprint, const HostConstants& host);

}  // namespace draftboard::sim
