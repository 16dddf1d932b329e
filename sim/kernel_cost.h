// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one kernel of the plan takes on one GPU, alone, replayed in a CUDA graph with weights out of
// cache. Launch costs and gaps belong to ranks.h, communication to collective.h. The constants are
// fitted in calibration/kernel_fit.h and kept in calibration files; docs/kernels.md tells the story.
//
//   t = max( floor, fixed + per_item * items + sqrt( s^2 + b^2 + f^2 ) ) * residual(m)
//
//   s = serial * min(length, serial_limit) / 1024      the loop one thread block can't share
//   b = bytes / bandwidth          f = flops / rate
//
//   floor, fixed  us       what the smallest call takes; start and end effects
//   per_item      us       experts: per distinct expert; attention: per row (token x head; MLA's
//                          heads rounded up to tiles of 16, in the flops too); else unused
//   serial        us       per 1024 of length; gemm, batched_gemm, experts: k; attention: cached tokens; else 0
//   verify_serial us       attention: stands for serial where a sequence has several rows, without limit: kernels
//                          that split the context only for single rows walk it in one block; 0: they split it too
//   serial_limit           length beyond which the kernel splits the loop further; 0: never
//   bytes                  weight + activation + cache bytes of the operation
//   bandwidth     GB/s     achieved, weights cold; on a CPU the share h of bytes that a pass finds in the core's own cache
//                          has the warm bandwidth: b = bytes ((1 - h) / bandwidth + h / warm bandwidth), see near_share()
//   rate          TFLOP/s  achieved at large m; 0: compute is not part of the model
//   residual(m)            piecewise linear in log2(m), 1 where not given
//
// The root of squares is a roofline with a round corner: it is at least the largest of the three, and
// at most sqrt(3) times it. Measured kernels follow it: fp8 GEMM on an RTX PRO 6000, 7168 x 7168, has a
// loop of 53 us and 34 us of bytes, and takes 59 to 62.
// Worked example (bf16 gemm, fixed 2.3, serial 0.5, 1530 GB/s, no rate): 7168 x 2112 weights, m = 1: k = 7168,
// 30.3 MB: s = 3.5, b = 19.8, t = 2.3 + sqrt(3.5^2 + 19.8^2) = 22.4 us.
//
// Constants are held by (operation kind, weight format, implementation). Without a calibration they come
// from the GPU's datasheet through datasheet_kernels(), with a wide interval that says so.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/machine.h"
#include "model/plan.h"
#include "sim/coverage.h"

namespace draftboard::sim {

/// Rows of a tensor core's tile, which MLA's heads fill. The CPU engine has none: 1.
inline constexpr double kMlaHeadTile = 16;

struct ResidualPoint {
    double log2_m = 0;
    double factor = 1;
};

struct KernelConstants {
    double floor_us = 0;
    double fixed_us = 0;
    double per_item_us = 0;
    double serial_us = 0;           ///< per 1024 of length
    double serial_limit = 0;        ///< 0: no limit
    double verify_serial_us = 0;    ///< attention with several rows a sequence; 0: as with one
    double bandwidth_gb_s = 0;      ///< cold; must be > 0 where there are bytes
    double warm_bandwidth_gb_s = 0; ///< what looped benchmarks see below L2 size; GPU: never used for pricing a plan; 0: unknown
    double rate_tflops = 0;         ///< 0: not modelled
    /// CPU: bytes beyond near_bytes do not stay in a cache near the core and cost far_factor times as much.
    double near_bytes = 0;
    double far_factor = 1;
    double head_tile = kMlaHeadTile;  ///< MLA attention: heads are multiplied in tiles of this many, full or not
    std::vector<ResidualPoint> residuals;  ///< sorted by log2_m; held constant outside
    double relative_error = 0.3;           ///< standard deviation of log(measured / fitted)
    /// The same of the sum over a pass's operations of this entry: what they share and more of them do not even out.
    /// 0: not told apart, they err together.
    double common_error = 0;
    double m_low = 0;                      ///< range of m the fit saw; beyond: extrapolated. 0, 0: any
    double m_high = 0;
    int points = 0;                        ///< measurements behind the fit, 0: none
    Coverage coverage = Coverage::datasheet;
    std::string source;
};

/// "experts/int4_g32/marlin", "gemm/bf16/any", "attention_mla/bf16/triton", ...: kind or subkind, weight or
/// cache format ("any": all), implementation ("any": not told). An implementation that differs between engines
/// is "marlin@sglang", "marlin@vllm"; plain "marlin" finds the first of them. "elementwise@moe.combine/any/cpu" prices
/// one role alone, where the roles of a kind differ in more than their sizes; it goes before the kind's own entry.
using KernelKey = std::string;

struct KernelTable {
    std::map<KernelKey, KernelConstants> entries;
    std::string name;    ///< calibration name or "datasheet"
    std::string source;
};

/// Which implementation runs a format, e.g. {"experts/int4_g32": "marlin"}; the scenario's choice. A key
/// without format ("experts") holds for all formats that the table has in that implementation.
using ImplementationChoice = std::map<std::string, std::string>;

struct KernelTime {
    double us = 0;
    double occupied_us = 0;  ///< max(b, f), at most us: what a kernel beside it can't use meanwhile
    double relative_uncertainty = 0;
    double common_uncertainty = 0;  ///< of a pass's operations of this entry together
    Coverage coverage = Coverage::datasheet;
    KernelKey key;        ///< the entry that priced it
    std::string formula;  ///< with numbers; only filled by explain()
};

/// What the formula needs to know of a call; kernel_work() takes it from an operation.
struct KernelWork {
    double m = 1;
    double items = 0;
    double length = 0;
    double bytes = 0;
    double flops = 0;
    bool several_rows = false;  ///< attention: a sequence has more than one
    double near_share = 0;      ///< of the bytes: those in a core's own cache
};
[[nodiscard]] KernelWork kernel_work(const model::Operation& operation, double head_tile = kMlaHeadTile);

/// Share of a pass's bytes that the pass before it left in a cache of `cache_bytes`, where that was the same pass: plain steps, a
/// drafter's further steps; 0 for other passes and without a cache. Walking again and again through D bytes, a line is still
/// there if none of the lines that were missed since took its place, and places are taken at random in a cache of C bytes:
///     h = exp(-D / C (1 - h)),  1 where D <= C
/// Worked example: D = 1.5 C: h = 0.417. D = 2 C: h = 0.203.
[[nodiscard]] double near_share(const model::Plan& plan, double cache_bytes);
[[nodiscard]] double near_share(double bytes, double cache_bytes);

/// bytes + (far_factor - 1) max(0, bytes - near_bytes)
[[nodiscard]] double priced_bytes(const KernelConstants& constants, double bytes);

/// The formula. `warm` takes warm_bandwidth (where known) and no residual: what a looped benchmark
/// would see whose weights stay in L2. Finite and non-negative for any input.
[[nodiscard]] double kernel_us(const KernelConstants& constants, const KernelWork& work,
                               bool warm = false);
[[nodiscard]] double residual_factor(const std::vector<ResidualPoint>& residuals, double m);

/// Immutable after construction, so one may be shared between threads; pricing builds no strings but the key.
class KernelModel {
   public:
    KernelModel(const model::GpuSpec& gpu, KernelTable table, ImplementationChoice choice);
    /// Precondition: not a collective. Never fails: the calibration's entry for the format and the chosen
    /// implementation; else, extrapolated, another grouping of the same number format (fp8 for fp8_b128;
    /// attention: any cache format); else its entry for any format; else the datasheet's.
    /// `near_share`: of the pass that the operation is of.
    [[nodiscard]] KernelTime time(const model::Operation& operation, double near_share = 0) const;
    [[nodiscard]] KernelTime explain(const model::Operation& operation, double near_share = 0) const;

   private:
    struct Entry {
        std::uint8_t subkind = 0;
        std::uint32_t format = 0;  // packed WeightFormat::name()
        std::string role;
        bool datasheet = false;
        KernelKey key;
        KernelConstants constants;
    };
    struct Match {
        const Entry* entry = nullptr;
        bool substitute = false;  // another grouping or any format, of the same calibration
    };
    void add(const KernelTable& table, bool datasheet, const ImplementationChoice& choice);
    [[nodiscard]] Match find(const model::Operation& operation) const;
    [[nodiscard]] KernelTime price(const model::Operation& operation, double near_share, bool with_formula) const;
    std::vector<Entry> entries_;  // calibration first, one per (subkind, format), then the datasheet's
};

/// Constants from datasheet figures: share of peak bandwidth and rate, floors, each named with its source.
[[nodiscard]] KernelTable datasheet_kernels(const model::GpuSpec& gpu);

/// The table's subkind and format of an operation: "experts/int4_g32", "attention_mla/bf16", ... The format of
/// attention is its cache's and stands in the operation's weight_format.
[[nodiscard]] std::string kernel_subkind(const model::Operation& operation);

/// All subkinds a key may begin with, in fixed order.
[[nodiscard]] const std::vector<std::string_view>& kernel_subkinds();

struct KernelKeyParts {
    std::string subkind;
    std::string role;  ///< empty: any
    std::string format;
    std::string implementation;
};
/// Splits and checks a key: known subkind, "@" and a role where there is one, a format name ("bf16", "fp8_b128", "int4_g32", ..., "any"), an implementation.
[[nodiscard]] model::Expected<KernelKeyParts> parse_kernel_key(std::string_view key);

}  // namespace draftboard::sim
