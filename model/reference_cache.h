// SPDX-License-Identifier: Apache-2.0
#pragma once
// Architectures and machines that many scenarios refer to, read once: a sweep asks ten thousand questions about one model on
// one box. scenario_from_document() takes one; without it every scenario reads its files. A file that changes meanwhile is not
// read again. Not thread-safe: one a thread.

#include <map>
#include <string>

#include "model/architecture.h"
#include "model/machine.h"

namespace draftboard::model {

class ReferenceCache {
 public:
    /// What `read` gives for the reference, once; errors are not kept.
    template <class Read>
    [[nodiscard]] Expected<Architecture> architecture(const std::string& reference, Read read) {
        return remembered(architectures_, reference, read);
    }
    template <class Read>
    [[nodiscard]] Expected<Machine> machine(const std::string& reference, Read read) {
        return remembered(machines_, reference, read);
    }

    /// Scenarios get no digest and no list of unknown fields, which take a third of the reading: for whoever reports neither.
    bool bare = false;

 private:
    static constexpr std::size_t kMost = 64;  // inline documents that a sweep varies are each their own

    template <class Value, class Read>
    static Expected<Value> remembered(std::map<std::string, Value>& known, const std::string& reference, Read read) {
        const auto at = known.find(reference);
        if (at != known.end()) return at->second;
        Expected<Value> value = read();
        if (!value) return value;
        if (known.size() >= kMost) known.clear();
        known.emplace(reference, *value);
        return value;
    }

    std::map<std::string, Architecture> architectures_;
    std::map<std::string, Machine> machines_;
};

}  // namespace draftboard::model
