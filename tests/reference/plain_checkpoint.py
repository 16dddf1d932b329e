# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint of a fixture with numpy alone: safetensors by its definition, and the two quantised layouts by theirs.

Written apart from quantized_checkpoint.py on purpose: that one writes the files, this one is a second opinion on them. It trusts its input
(the fixtures are ours) and is no model of a reader of foreign files.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def bf16(raw: np.ndarray) -> np.ndarray:
    """The upper half of an IEEE float32."""
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def e4m3(raw: np.ndarray) -> np.ndarray:
    """Sign, 4 bits of exponent (bias 7), 3 of mantissa; exponent 0 is subnormal; 0x7f and 0xff are NaN."""
    byte = raw.view(np.uint8).astype(np.int64)
    sign = np.where(byte & 0x80, -1.0, 1.0)
    exponent, mantissa = (byte >> 3) & 0xF, byte & 0x7
    normal = (1 + mantissa / 8) * np.exp2(exponent - 7.0)
    value = sign * np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
    return np.where((byte & 0x7F) == 0x7F, np.nan, value)


DECODE = {
    "BF16": bf16,
    "F8_E4M3": e4m3,
    "F32": lambda raw: raw.view("<f4"),
    "I32": lambda raw: raw.view("<i4"),
    "I64": lambda raw: raw.view("<i8"),
    "BOOL": lambda raw: raw.view(np.uint8).astype(bool),
}


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """8 bytes of header length, a JSON header, then the data; offsets count from the end of the header."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        raw = np.frombuffer(content[begin:end], dtype=np.uint8)
        tensors[name] = DECODE[entry["dtype"]](raw).reshape(entry["shape"])
    return tensors


def unpack_int4(words: np.ndarray, scale: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """w[n, k] = (bits 4 (k mod 8) .. of words[n, k // 8] - 8) * scale[n, k // 32]."""
    rows, columns = (int(size) for size in shape)
    weight = np.empty((rows, columns))
    for k in range(columns):
        q = ((words[:, k // 8].astype(np.int64) >> (4 * (k % 8))) & 0xF) - 8
        weight[:, k] = q * scale[:, k // 32].astype(np.float64)
    return weight


def unpack_fp8(stored: np.ndarray, scale_inv: np.ndarray) -> np.ndarray:
    """w[n, k] = stored[n, k] * scale_inv[n // 128, k // 128]."""
    n, k = np.indices(stored.shape)
    return stored * scale_inv.astype(np.float64)[n // 128, k // 128]


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """All weights in float64 under one set of names: the target's below `model.`, experts one by one, nothing quantised."""
    stored = read_safetensors(path)
    weights: dict[str, np.ndarray] = {}
    for name, tensor in stored.items():
        plain = name.replace("model.language_model.", "model.")
        if name.endswith((".weight_scale", ".weight_shape", "_scale_inv")):
            continue
        if name.endswith(".weight_packed"):
            base = name.removesuffix("_packed")
            weights[plain.removesuffix("_packed")] = unpack_int4(tensor, stored[f"{base}_scale"], stored[f"{base}_shape"])
        elif f"{name}_scale_inv" in stored:
            weights[plain] = unpack_fp8(tensor, stored[f"{name}_scale_inv"])
        elif name.endswith("experts.gate_up_proj"):
            base = plain.removesuffix("gate_up_proj")
            half = tensor.shape[1] // 2
            for e, fused in enumerate(tensor.astype(np.float64)):
                weights[f"{base}{e}.gate_proj.weight"] = fused[:half]
                weights[f"{base}{e}.up_proj.weight"] = fused[half:]
        elif name.endswith("experts.down_proj"):
            base = plain.removesuffix("down_proj")
            for e, down in enumerate(tensor.astype(np.float64)):
                weights[f"{base}{e}.down_proj.weight"] = down
        else:
            weights[plain] = tensor if tensor.dtype.kind in "ib" else tensor.astype(np.float64)
    return weights
