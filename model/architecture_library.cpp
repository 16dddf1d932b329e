// SPDX-License-Identifier: Apache-2.0
#include "model/architecture_library.h"

#include "model/data_library.h"
#include "model/import/hf_config.h"

namespace draftboard::model {

Expected<Architecture> find_architecture(const std::string& name_or_path,
                                         const std::string& data_directory,
                                         const std::string& relative_to) {
    const auto path = find_data_file(name_or_path, "architectures", data_directory, relative_to);
    if (!path) return tl::unexpected(path.error());
    return read_hf_config(*path);
}

}  // namespace draftboard::model
