// SPDX-License-Identifier: Apache-2.0
// Stored weights in registers, for the target that is being compiled (simd_targets.h).
//
// All formats are read as 32-bit words of E elements (fp32 1, bf16 2, fp8 4, int4 8): a unit is one vector of N words, and
// its element e is the vector of the e-th elements of the words. So a unit's E vectors hold columns
//   unit u, element e, lane l  ->  column (u N + l) E + e
// and x is brought into the same order once a call (pack_inputs). That costs m k moves and saves a shuffle an element of W.
// Rows are padded with zeros to 64 bytes, so that the last unit may be read whole; x is padded with zeros to match.
//
// Operations a vector of N weights, beside the multiply-add: bf16 1, fp8 5, int4 3 (AVX-512) or 5.
#if defined(DRAFTBOARD_BACKEND_CPU_STORED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DRAFTBOARD_BACKEND_CPU_STORED_ROWS_INL_H_
#undef DRAFTBOARD_BACKEND_CPU_STORED_ROWS_INL_H_
#else
#define DRAFTBOARD_BACKEND_CPU_STORED_ROWS_INL_H_
#endif

#include "backend/cpu/tiles_inl.h"

#include "backend/cpu/weight_matrix.h"

HWY_BEFORE_NAMESPACE();
namespace draftboard::backend::cpu {
namespace HWY_NAMESPACE {

using Words = hn::ScalableTag<std::uint32_t>;
using Ints = hn::ScalableTag<std::int32_t>;
using W = hn::Vec<Words>;

/// Where a unit finds its scales within a row of scales: one index a unit (fp8) or one a lane (int4).
struct ScaleIndex {
    const std::int32_t* of = nullptr;
    bool groups_of_32 = false;  ///< int4: four lanes share a scale, and groups follow one another
    std::size_t full_units = 0; ///< units whose groups all exist
};

/// Formats whose NaNs survive the conversion by themselves.
struct NothingToWatch {
    template <class Unit>
    HWY_INLINE void look(const Unit&) {}
    HWY_INLINE bool has_nan() const { return false; }
};

struct Fp32Rows {
    static constexpr std::size_t kElements = 1;
    using Watch = NothingToWatch;
    struct Unit {
        V values;
    };
    static HWY_INLINE Unit load(const std::byte* row, const float*, const ScaleIndex&, std::size_t u) {
        return {hn::LoadU(Floats(), reinterpret_cast<const float*>(row) + u * N)};
    }
    template <int E>
    static HWY_INLINE V element(const Unit& unit) {
        return unit.values;
    }
};

struct Bf16Rows {
    static constexpr std::size_t kElements = 2;
    using Watch = NothingToWatch;
    struct Unit {
        W words;
    };
    static HWY_INLINE Unit load(const std::byte* row, const float*, const ScaleIndex&, std::size_t u) {
        return {hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(row) + u * N)};
    }
    template <int E>
    static HWY_INLINE V element(const Unit& unit) {
        // bf16 is the upper half of a float.
        if constexpr (E == 0) {
            return hn::BitCast(Floats(), hn::ShiftLeft<16>(unit.words));
        } else {
            return hn::BitCast(Floats(), hn::And(unit.words, hn::Set(Words(), 0xFFFF0000u)));
        }
    }
};

/// Element E of fp8 words: sign to bit 31, exponent and fraction to bits 26-20. As a float that is 2^120 too small (the biases
/// are 7 and 127), subnormals included, and a NaN's code looks like 480.
template <int E>
HWY_INLINE W fp8_bits(W value) {
    const Words words;
    const W top = hn::ShiftLeft<24 - 8 * E>(value);
    const W bits = hn::BitCast(words, hn::ShiftRight<4>(hn::BitCast(Ints(), top)));
    return hn::And(bits, hn::Set(words, 0x87F00000u));
}

/// For loops that keep sums of whole rows: one NaN makes the whole sum a NaN, so that it is enough to look for one beside
/// the loop. The scale carries the 2^120; it must be below 2^7 (index_scales() sees to that).
struct Fp8Rows {
    static constexpr std::size_t kElements = 4;
    struct Unit {
        W words;
        V scale;
    };
    class Watch {
       public:
        // Written out: an implicit constructor would not be compiled for this target.
        HWY_INLINE Watch() : seen_(hn::Zero(Words())) {}
        /// Adding 1 to seven ones, and only to these, carries into the eighth bit.
        HWY_INLINE void look(const Unit& unit) {
            const Words words;
            seen_ = hn::Or(seen_, hn::Add(hn::And(unit.words, hn::Set(words, 0x7F7F7F7Fu)), hn::Set(words, 0x01010101u)));
        }
        HWY_INLINE bool has_nan() const {
            const Words words;
            return !hn::AllTrue(words, hn::Eq(hn::And(seen_, hn::Set(words, 0x80808080u)), hn::Zero(words)));
        }

       private:
        W seen_;
    };
    static HWY_INLINE Unit load(const std::byte* row, const float* scales, const ScaleIndex& index, std::size_t u) {
        return {hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(row) + u * N), hn::Set(Floats(), scales[index.of[u]] * 0x1p120F)};
    }
    template <int E>
    static HWY_INLINE V element(const Unit& unit) {
        return hn::Mul(hn::BitCast(Floats(), fp8_bits<E>(unit.words)), unit.scale);
    }
};

/// The same numbers, with a NaN in its place: for loops whose sums do not run along rows.
struct Fp8RowsWithNan : Fp8Rows {
    using Watch = NothingToWatch;
    template <int E>
    static HWY_INLINE V element(const Unit& unit) {
        const Words words;
        const Floats d;
        const W magnitude = hn::And(fp8_bits<E>(unit.words), hn::Set(words, 0x07F00000u));
        const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(words, 0x07F00000u)));
        return hn::IfThenElse(is_nan, hn::BitCast(d, hn::Set(words, 0x7FC00000u)), Fp8Rows::element<E>(unit));
    }
};

struct Int4Rows {
    static constexpr std::size_t kElements = 8;
    using Watch = NothingToWatch;
    struct Unit {
        W words;
        V scale;
    };
    static HWY_INLINE V scale_of(const float* scales, const ScaleIndex& index, std::size_t u) {
        const Floats d;
        const std::int32_t* of = index.of + u * N;
        if (index.groups_of_32 && u < index.full_units) {
            const float* first = scales + of[0];
            if constexpr (N <= 4) {
                return hn::Set(d, first[0]);
            }
#if HWY_TARGET == HWY_AVX2
            return hn::Combine(d, hn::Set(hn::Half<Floats>(), first[1]), hn::Set(hn::Half<Floats>(), first[0]));
#elif HWY_TARGET == HWY_AVX3
            alignas(64) static constexpr std::int32_t kFours[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
            const hn::Half<Floats> half;
            const V four = hn::ZeroExtendVector(d, hn::ZeroExtendVector(half, hn::LoadU(hn::Half<decltype(half)>(), first)));
            return hn::TableLookupLanes(four, hn::SetTableIndices(d, kFours));
#endif
        }
        return hn::GatherIndex(d, scales, hn::LoadU(Ints(), of));
    }
    static HWY_INLINE Unit load(const std::byte* row, const float* scales, const ScaleIndex& index, std::size_t u) {
        return {hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(row) + u * N), scale_of(scales, index, u)};
    }
    template <int E>
    static HWY_INLINE V element(const Unit& unit) {
        const Floats d;
        const W shifted = E == 0 ? unit.words : hn::ShiftRight<4 * E>(unit.words);
#if HWY_TARGET == HWY_AVX3
        // A permutation looks at the low 4 bits of its index only: the code is the index of its value.
        alignas(64) static constexpr float kValues[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
        const V value = hn::TableLookupLanes(hn::Load(d, kValues), hn::Indices512<float>{shifted.raw});
#else
        const W code = hn::And(shifted, hn::Set(Words(), 15u));
        const V value = hn::ConvertTo(d, hn::Sub(hn::BitCast(Ints(), code), hn::Set(Ints(), 8)));
#endif
        return hn::Mul(value, unit.scale);
    }
};

/// Calls `apply<E>(unit's element E)` for each element of a unit.
template <class Format, class Unit, class Apply, int E = 0>
HWY_INLINE void for_each_element(const Unit& unit, Apply& apply) {
    if constexpr (E < static_cast<int>(Format::kElements)) {
        apply.template operator()<E>(Format::template element<E>(unit));
        for_each_element<Format, Unit, Apply, E + 1>(unit, apply);
    }
}

/// x in the order of units: packed[(u E + e) N + l] = x[(u N + l) E + e], 0 beyond `columns`.
template <std::size_t E>
HWY_INLINE void pack_row(const float* x, std::size_t columns, std::size_t units, float* packed) {
    const Floats d;
    constexpr std::size_t kWidth = E * N;
    const std::size_t whole = columns / kWidth;
    for (std::size_t u = 0; u < whole; ++u) {
        const float* source = x + u * kWidth;
        float* target = packed + u * kWidth;
        if constexpr (E == 1) {
            hn::StoreU(hn::LoadU(d, source), d, target);
#if HWY_TARGET != HWY_SCALAR
        } else if constexpr (E == 2) {
            V even, odd;
            hn::LoadInterleaved2(d, source, even, odd);
            hn::StoreU(even, d, target);
            hn::StoreU(odd, d, target + N);
        } else if constexpr (E == 4) {
            V v[4];
            hn::LoadInterleaved4(d, source, v[0], v[1], v[2], v[3]);
            for (std::size_t e = 0; e < 4; ++e) hn::StoreU(v[e], d, target + e * N);
        } else if constexpr (E == 8) {
            V low[4], high[4];
            hn::LoadInterleaved4(d, source, low[0], low[1], low[2], low[3]);
            hn::LoadInterleaved4(d, source + 4 * N, high[0], high[1], high[2], high[3]);
            for (std::size_t e = 0; e < 4; ++e) {
                hn::StoreU(hn::ConcatEven(d, high[e], low[e]), d, target + e * N);
                hn::StoreU(hn::ConcatOdd(d, high[e], low[e]), d, target + (e + 4) * N);
            }
#endif
        } else {
            for (std::size_t e = 0; e < E; ++e) {
                for (std::size_t l = 0; l < N; ++l) target[e * N + l] = source[l * E + e];
            }
        }
    }
    for (std::size_t u = whole; u < units; ++u) {
        for (std::size_t e = 0; e < E; ++e) {
            for (std::size_t l = 0; l < N; ++l) {
                const std::size_t column = (u * N + l) * E + e;
                packed[(u * E + e) * N + l] = column < columns ? x[column] : 0.0F;
            }
        }
    }
}

struct WriteElements {
    float* target;
    template <int E>
    HWY_INLINE void operator()(V value) {
        hn::StoreU(value, Floats(), target + static_cast<std::size_t>(E) * N);
    }
};

/// A row of W as floats in the order of units.
template <class Format>
HWY_INLINE void unpack_row(const std::byte* row, const float* scales, const ScaleIndex& index, std::size_t units, float* output) {
    for (std::size_t u = 0; u < units; ++u) {
        WriteElements write{output + u * Format::kElements * N};
        const auto unit = Format::load(row, scales, index, u);
        for_each_element<Format>(unit, write);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace draftboard::backend::cpu
HWY_AFTER_NAMESPACE();
#endif
