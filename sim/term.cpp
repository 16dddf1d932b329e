// SPDX-License-Identifier: Apache-2.0
#include "sim/term.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace draftboard::sim {

void append_terms(std::vector<Term>& terms, const std::string& prefix, const PassCost& cost,
                  double repeat) {
    for (int k = 0; k < kTermKinds; ++k) {
        const PassTerm& part = cost.terms[k];
        if (part.ms <= 0 || repeat <= 0) continue;
        const std::string name = prefix + "." + std::string(to_name(static_cast<TermKind>(k)));
        auto found = std::find_if(terms.begin(), terms.end(),
                                  [&name](const Term& term) { return term.name == name; });
        if (found == terms.end()) {
            terms.push_back({name, 0, 0, 0, part.coverage});
            found = terms.end() - 1;
        }
        found->coverage = worse(found->coverage, part.coverage);
        found->ms += part.ms * repeat;
        found->sigma_ms += part.sigma_ms * repeat;
    }
}

double set_shares(std::vector<Term>& terms) {
    double total = 0;
    for (const Term& term : terms) total += term.ms;
    for (Term& term : terms) term.share = total > 0 ? term.ms / total : 0;
    return total;
}

Coverage overall_coverage(const std::vector<Term>& terms) {
    double total = 0;
    double by_coverage[5] = {};
    for (const Term& term : terms) {
        total += term.ms;
        by_coverage[static_cast<int>(term.coverage)] += term.ms;
    }
    double this_bad_or_worse = 0;
    for (int c = 4; c > 0; --c) {
        this_bad_or_worse += by_coverage[c];
        if (this_bad_or_worse >= 0.1 * total) return static_cast<Coverage>(c);
    }
    return Coverage::measured;
}

namespace {

/// "verify.collectives.wait" -> "collectives.wait"; "host" stays.
std::string kind_of(const std::string& name) {
    const auto dot = name.find('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
}

struct Kind {
    double cycle_ms = 0;
    double plain_ms = 0;
    double relative = 0;
};

}  // namespace

TimeUncertainty combine(const std::vector<Term>& cycle, const std::vector<Term>& plain) {
    std::map<std::string, Kind> kinds;
    double cycle_ms = 0;
    double plain_ms = 0;
    for (const Term& term : cycle) {
        Kind& kind = kinds[kind_of(term.name)];
        kind.cycle_ms += term.ms;
        cycle_ms += term.ms;
        if (term.ms > 0) kind.relative = std::max(kind.relative, term.sigma_ms / term.ms);
    }
    for (const Term& term : plain) {
        Kind& kind = kinds[kind_of(term.name)];
        kind.plain_ms += term.ms;
        plain_ms += term.ms;
        if (term.ms > 0) kind.relative = std::max(kind.relative, term.sigma_ms / term.ms);
    }
    TimeUncertainty variance;
    for (const auto& [name, kind] : kinds) {
        const double in_cycle = cycle_ms > 0 ? kind.cycle_ms / cycle_ms : 0;
        const double in_plain = plain_ms > 0 ? kind.plain_ms / plain_ms : 0;
        variance.cycle += std::pow(in_cycle * kind.relative, 2);
        variance.plain += std::pow(in_plain * kind.relative, 2);
        variance.ratio += std::pow((in_cycle - in_plain) * kind.relative, 2);
    }
    return {std::sqrt(variance.cycle), std::sqrt(variance.plain), std::sqrt(variance.ratio)};
}

model::Interval interval_around(double value, double log_sigma) {
    const double factor = std::exp(kNormal90 * log_sigma);
    return {value, value / factor, value * factor};
}

double log_sigma_of(const model::Interval& interval) {
    if (interval.low <= 0 || interval.high <= interval.low) return 0;
    return std::log(interval.high / interval.low) / (2 * kNormal90);
}

}  // namespace draftboard::sim
