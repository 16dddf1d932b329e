// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a user fixes about collectives: which implementation runs them, and what NCCL is told. What NCCL
// then chooses is sim/nccl_tuner.h, what it costs is sim/collective.h.

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/machine.h"

namespace draftboard::model {

enum class Implementation { nccl, one_shot, two_shot, hierarchical, host_staged };
enum class Algorithm { automatic, ring, tree };
enum class Protocol { automatic, ll, ll128, simple };

[[nodiscard]] std::string_view to_name(Implementation implementation);
[[nodiscard]] std::string_view to_name(Algorithm algorithm);
[[nodiscard]] std::string_view to_name(Protocol protocol);
[[nodiscard]] std::optional<Implementation> implementation_from_name(std::string_view name);
[[nodiscard]] std::optional<Algorithm> algorithm_from_name(std::string_view name);
[[nodiscard]] std::optional<Protocol> protocol_from_name(std::string_view name);

/// What the user fixes; the rest is NCCL's choice.
struct CollectiveSettings {
    Implementation implementation = Implementation::nccl;
    Algorithm algorithm = Algorithm::automatic;
    Protocol protocol = Protocol::automatic;
    bool ll128 = false;                      ///< NCCL_PROTO lists LL128 among others: chosen where it is not safe
    int channels = 0;                        ///< 0: automatic
    bool peer_to_peer = true;                ///< false: NCCL_P2P_DISABLE=1
    PathType peer_level = PathType::pxb;     ///< NCCL_P2P_LEVEL; NCCL's default is PXB
    bool graph_file = false;                 ///< NCCL_GRAPH_FILE given: the graph search can't fail
    bool pull = false;                       ///< one_shot/two_shot/hierarchical: takers read instead of givers writing
    std::int64_t custom_limit_bytes = 0;     ///< all but nccl: above it NCCL; 0: no limit
    bool operator==(const CollectiveSettings&) const = default;
};

}  // namespace draftboard::model
