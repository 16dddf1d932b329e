// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the kernels are compiled for several instruction sets: a .cpp file that includes hwy/foreach_target.h is read once
// for each target of Highway (github.com/google/highway), each time in a namespace of the target's name. This header,
// included before it, says which targets those are, and how to choose among the results.
//
//   DRAFTBOARD_DISPATCH(set, function)(arguments)    calls the version of `function` for an InstructionSet
//
// Targets whose vectors have no length at compile time are left out (kernels keep arrays of vectors), and so are those
// between the baseline and AVX2: processors that stop there are rare, and each target costs compile time.

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#include <hwy/detect_targets.h>

#include "backend/cpu/instruction_set.h"

#if HWY_TARGETS & HWY_AVX3
#define DRAFTBOARD_IF_AVX512(...) __VA_ARGS__
#else
#define DRAFTBOARD_IF_AVX512(...)
#endif
#if HWY_TARGETS & HWY_AVX2
#define DRAFTBOARD_IF_AVX2(...) __VA_ARGS__
#else
#define DRAFTBOARD_IF_AVX2(...)
#endif

#define DRAFTBOARD_DISPATCH(set, function)                                                 \
    (DRAFTBOARD_IF_AVX512((set) == InstructionSet::avx512 ? &N_AVX3::function :)           \
         DRAFTBOARD_IF_AVX2((set) == InstructionSet::avx2 ? &N_AVX2::function :)           \
             &HWY_STATIC_DISPATCH(function))

// Loops over arrays of vectors have to be unrolled, or the arrays stay in memory.
#if defined(__clang__)
#define DRAFTBOARD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DRAFTBOARD_UNROLL _Pragma("GCC unroll 16")
#endif
