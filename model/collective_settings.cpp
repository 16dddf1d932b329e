// SPDX-License-Identifier: Apache-2.0
#include "model/collective_settings.h"

#include <array>
#include <utility>

namespace draftboard::model {

namespace {

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<Implementation, 5> kImplementations{{{Implementation::nccl, "nccl"},
                                                     {Implementation::one_shot, "one_shot"},
                                                     {Implementation::two_shot, "two_shot"},
                                                     {Implementation::hierarchical, "hierarchical"},
                                                     {Implementation::host_staged, "host_staged"}}};
constexpr Names<Algorithm, 3> kAlgorithms{{{Algorithm::automatic, "auto"},
                                           {Algorithm::ring, "ring"},
                                           {Algorithm::tree, "tree"}}};
constexpr Names<Protocol, 4> kProtocols{{{Protocol::automatic, "auto"},
                                         {Protocol::ll, "ll"},
                                         {Protocol::ll128, "ll128"},
                                         {Protocol::simple, "simple"}}};

template <class T, std::size_t N>
std::string_view name_of(const Names<T, N>& names, T value) {
    for (const auto& entry : names) {
        if (entry.first == value) return entry.second;
    }
    return "?";
}

template <class T, std::size_t N>
std::optional<T> value_of(const Names<T, N>& names, std::string_view name) {
    for (const auto& entry : names) {
        if (entry.second == name) return entry.first;
    }
    return std::nullopt;
}

}  // namespace

std::string_view to_name(Implementation value) { return name_of(kImplementations, value); }
std::string_view to_name(Algorithm value) { return name_of(kAlgorithms, value); }
std::string_view to_name(Protocol value) { return name_of(kProtocols, value); }
std::optional<Implementation> implementation_from_name(std::string_view name) {
    return value_of(kImplementations, name);
}
std::optional<Algorithm> algorithm_from_name(std::string_view name) {
    return value_of(kAlgorithms, name);
}
std::optional<Protocol> protocol_from_name(std::string_view name) {
    return value_of(kProtocols, name);
}

}  // namespace draftboard::model
