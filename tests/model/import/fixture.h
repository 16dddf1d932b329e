// SPDX-License-Identifier: Apache-2.0
#pragma once
// Helpers of the importers' tests: reading tests/fixtures/topologies and comparing labels.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/import/import_machine.h"
#include "model/json_reader.h"

namespace draftboard::model {

inline std::string fixture_path(const std::string& name) {
    return std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/topologies/" + name;
}

inline std::string fixture_text(const std::string& name) {
    const Expected<std::string> text = read_file(fixture_path(name));
    EXPECT_TRUE(text.has_value()) << name;
    return text.value_or(std::string());
}

inline Expected<ImportedMachine> import_fixture(const std::string& name,
                                                const ImportOptions& options = {}) {
    return import_machine(fixture_text(name), name, options);
}

/// Path types of GPU 0 to all others, "PIX PHB SYS".
inline std::string labels_of(const Machine& machine, int gpu) {
    const Router router(machine);
    std::string text;
    for (int other = 0; other < router.gpu_count(); ++other) {
        if (other != gpu) {
            text.append(text.empty() ? 0 : 1, ' ').append(to_name(router.path_type(gpu, other)));
        }
    }
    return text;
}

inline int count_nodes(const Machine& machine, NodeKind kind) {
    return static_cast<int>(
        std::count_if(machine.nodes.begin(), machine.nodes.end(),
                      [&](const MachineNode& node) { return node.kind == kind; }));
}

/// The link between a node and what it hangs below.
inline MachineLink link_at(const Machine& machine, int node) {
    for (const MachineLink& link : machine.links) {
        if (link.kind == LinkKind::pcie && (link.a == node || link.b == node)) {
            return link;
        }
    }
    return {};
}

inline void expect_complete(const Error& error) {
    EXPECT_FALSE(error.message.empty());
    EXPECT_FALSE(error.context.empty());
    EXPECT_FALSE(error.hint.empty());
}

}  // namespace draftboard::model
