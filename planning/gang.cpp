// SPDX-License-Identifier: Apache-2.0
#include "planning/gang.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace draftboard::planning {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLibrary = "libdraftboard_mpi.so";
constexpr const char* kSymbol = "draftboard_join_gang";

class Alone final : public Gang {
 public:
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return 1; }
    void broadcast(std::string&) override {}
    [[nodiscard]] bool all_agree(bool mine) override { return mine; }
    void send(const std::string&) override {}
    [[nodiscard]] std::optional<std::string> receive() override { return std::nullopt; }
    [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }
    [[nodiscard]] int size_here() const override { return 1; }
};

/// What OpenMPI's and other PMIx launchers put into the environment of each process.
bool started_by_mpirun() {
    const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
    return size != nullptr && *size != '\0';
}

}  // namespace

model::Expected<std::unique_ptr<Gang>> join_gang() {
    if (!started_by_mpirun()) return std::make_unique<Alone>();
    std::error_code ec;
    const fs::path program = fs::read_symlink("/proc/self/exe", ec).parent_path();
    std::string why = "it is not there";
    for (const fs::path& folder : {program, program / "../planning", program / "../lib"}) {
        const fs::path path = folder / kLibrary;
        if (!fs::exists(path, ec)) continue;
        // MPI looks its own plugins up among global symbols.
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library == nullptr) {
            why = dlerror();
            break;
        }
        if (const auto join = reinterpret_cast<Gang* (*)()>(dlsym(library, kSymbol)); join != nullptr) {
            return std::unique_ptr<Gang>(join());
        }
        why = "it is of another build";
    }
    return model::fail(model::ErrorCode::unavailable, "started by mpirun, but the MPI module can't be used: " + why, kLibrary,
                       "install libopenmpi-dev and build again, or start without mpirun");
}

}  // namespace draftboard::planning
