# SPDX-License-Identifier: Apache-2.0
"""Writes and reads checkpoints in two published weight formats, tensor by tensor. No activation is quantised here.

fp8   DeepSeek-V3: `weight` F8_E4M3 [N, K] and `weight_scale_inv` F32 [ceil(N/128), ceil(K/128)];
      w[n, k] = weight[n, k] * weight_scale_inv[n // 128, k // 128]. Blocks at the edges are cut off, not padded.
int4  Kimi-K2 (compressed-tensors, pack-quantized, symmetric, group 32): `weight_packed` I32 [N, K/8], `weight_scale` BF16 [N, K/32],
      `weight_shape` I32 [2] = N, K. Column k is bits 4*(k mod 8) .. +3 of word k // 8 (lowest column in the lowest bits), stored as q + 8;
      w[n, k] = (stored - 8) * weight_scale[n, k // 32], q from -8 to 7.

Before quantisation each block (group) is multiplied by a factor of its own between 1/2 and 2: random weights would otherwise give nearly
equal scales, and an engine that reads the scale of the wrong block would pass.
"""

from __future__ import annotations

import re

import torch

FP8_BLOCK = 128
FP8_MAX = 448.0
INT4_GROUP = 32

# All Linear layers but the head; the router is no Linear (`mlp.gate`).
FP8_TARGETS = re.compile(r"(q_proj|q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj|gate_proj|up_proj|down_proj)\.weight$")
INT4_TARGETS = re.compile(r"mlp\.experts\.\d+\.(gate_proj|up_proj|down_proj)\.weight$")

QUANTIZATION_CONFIGS = {
    "fp8": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
    },
    "int4": {
        "config_groups": {
            "group_0": {
                "input_activations": None,
                "output_activations": None,
                "targets": ["Linear"],
                "weights": {
                    "actorder": None,
                    "block_structure": None,
                    "dynamic": False,
                    "group_size": INT4_GROUP,
                    "num_bits": 4,
                    "observer": "minmax",
                    "observer_kwargs": {},
                    "strategy": "group",
                    "symmetric": True,
                    "type": "int",
                },
            }
        },
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    },
}


def spread(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    """Factors between 1/2 and 2, evenly on a log scale."""
    return 2.0 ** (2.0 * torch.rand((rows, columns), generator=generator) - 1.0)


def over_blocks(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """One value a block, repeated over the block and cut to the shape."""
    wide = scale.repeat_interleave(FP8_BLOCK, dim=0).repeat_interleave(FP8_BLOCK, dim=1)
    return wide[: shape[0], : shape[1]]


def quantize_fp8(name: str, weight: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
    rows, columns = -(-weight.shape[0] // FP8_BLOCK), -(-weight.shape[1] // FP8_BLOCK)
    weight = weight * over_blocks(spread(rows, columns, generator), weight.shape)
    scale = torch.empty((rows, columns))
    for i in range(rows):
        for j in range(columns):
            block = weight[i * FP8_BLOCK : (i + 1) * FP8_BLOCK, j * FP8_BLOCK : (j + 1) * FP8_BLOCK]
            scale[i, j] = block.abs().max() / FP8_MAX
    stored = (weight / over_blocks(scale, weight.shape)).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return {name: stored, f"{name}_scale_inv": scale}


def dequantize_fp8(stored: torch.Tensor, scale_inv: torch.Tensor) -> torch.Tensor:
    return stored.to(torch.float32) * over_blocks(scale_inv, stored.shape)


def quantize_int4(name: str, weight: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
    rows, columns = weight.shape
    assert columns % INT4_GROUP == 0
    groups = weight.view(rows, -1, INT4_GROUP)
    groups = groups * spread(rows, groups.shape[1], generator).unsqueeze(-1)
    scale = (groups.abs().amax(dim=-1) / 7.5).to(torch.bfloat16)
    q = (groups / scale.float().unsqueeze(-1)).round().clamp(-8, 7).to(torch.int64).view(rows, -1, 8)
    words = ((q + 8) << (4 * torch.arange(8))).sum(dim=-1)
    packed = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    base = name.removesuffix(".weight")
    return {
        f"{base}.weight_packed": packed,
        f"{base}.weight_scale": scale,
        f"{base}.weight_shape": torch.tensor([rows, columns], dtype=torch.int32),
    }


def dequantize_int4(packed: torch.Tensor, scale: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    rows, columns = shape.tolist()
    words = packed.to(torch.int64) & 0xFFFFFFFF
    q = ((words.unsqueeze(-1) >> (4 * torch.arange(8))) & 0xF) - 8
    groups = q.to(torch.float32).view(rows, -1, INT4_GROUP)
    return (groups * scale.to(torch.float32).unsqueeze(-1)).view(rows, columns)


def quantize(tensors: dict[str, torch.Tensor], method: str, seed: int) -> dict[str, torch.Tensor]:
    """A checkpoint of BF16 tensors into the published layout; what the format leaves alone is passed on."""
    generator = torch.Generator().manual_seed(seed)
    targets, convert = {"fp8": (FP8_TARGETS, quantize_fp8), "int4": (INT4_TARGETS, quantize_int4)}[method]
    result: dict[str, torch.Tensor] = {}
    for name, tensor in sorted(tensors.items()):
        result.update(convert(name, tensor.to(torch.float32), generator) if targets.search(name) else {name: tensor})
    return result


def dequantize(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Plain weights in float32 from a checkpoint in either layout."""
    result: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith((".weight_scale", ".weight_shape", "_scale_inv")):
            continue
        if name.endswith(".weight_packed"):
            base = name.removesuffix("_packed")
            result[base] = dequantize_int4(tensor, tensors[f"{base}_scale"], tensors[f"{base}_shape"])
        elif tensor.dtype == torch.float8_e4m3fn:
            result[name] = dequantize_fp8(tensor, tensors[f"{name}_scale_inv"])
        else:
            result[name] = tensor.to(torch.float32)
    return result
