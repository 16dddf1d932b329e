// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "backend/cuda/cuda_module.h"

namespace draftboard::backend::cuda {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLibrary = "libdraftboard_cuda.so";
constexpr const char* kSymbol = "draftboard_cuda_engines";
using Make = EngineFactory* (*)(const CudaSettings*);

/// Stays loaded until the program ends: CUDA does not like to be unloaded.
void* load(std::string& why) {
    std::error_code ec;
    const fs::path program = fs::read_symlink("/proc/self/exe", ec).parent_path();
    for (const fs::path& path : {program / kLibrary, program / "../backend/cuda" / kLibrary, fs::path(kLibrary)}) {
        const bool named = path.has_parent_path();
        if (named && !fs::exists(path, ec)) continue;
        if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
        why = dlerror();
        if (named) return nullptr;  // it is there and can't be loaded: that is what to tell
    }
    return nullptr;
}

}  // namespace

model::Expected<std::unique_ptr<EngineFactory>> load_cuda_engines(const CudaSettings& settings) {
    std::string why;
    void* library = load(why);
    if (library == nullptr) {
        return model::fail(model::ErrorCode::unavailable, "the CUDA engine can't be loaded", why.empty() ? kLibrary : why,
                           "build draftboard_cuda_module where nvcc is found, or run with --device cpu");
    }
    const auto make = reinterpret_cast<Make>(dlsym(library, kSymbol));
    if (make == nullptr) {
        return model::fail(model::ErrorCode::unavailable, "the CUDA engine is of another build", kLibrary, "build it anew");
    }
    return std::unique_ptr<EngineFactory>(make(&settings));
}

}  // namespace draftboard::backend::cuda
