// SPDX-License-Identifier: Apache-2.0
#pragma once
// The NVLinkBandwidth matrix inside hwloc's XML: a <distances2> or <distances2hetero> element with
// object indexes and one value a pair, in MB/s. It finds bonds between GPUs and from GPUs to NVSwitches;
// the rest of the file is lstopo_xml.h's.
//
//   links = value / per-link rate, the rate being the largest of 50000, 25000, 20000 MB/s that divides
//   every value (NVLink 5; 2 to 4; 1)
// Worked example: values 50000 and 25000 -> 2 links and 1 link of 25 GB/s.

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <pugixml.hpp>

#include "model/import/device_tree.h"

namespace draftboard::model {

struct NvlinkMatrix {
    std::vector<NvlinkBond> direct;  ///< between GPUs (device indices), each pair once
    std::map<int, int> switched;     ///< GPU -> links to NVSwitches
    double gb_s_per_link = 0;        ///< line rate, 0: no matrix
    bool broken = false;             ///< fewer values than pairs
};

/// `gpus`: gp_index of a GPU or of one of its OS devices -> device; `nvswitches`: their gp_indexes.
[[nodiscard]] NvlinkMatrix read_nvlink_matrix(pugi::xml_node topology,
                                              const std::unordered_map<std::string, int>& gpus,
                                              const std::set<std::string>& nvswitches);

}  // namespace draftboard::model
