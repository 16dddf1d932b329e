# SPDX-License-Identifier: Apache-2.0
"""Random parameters in which no term is invisible, and the test that none is.

A freshly built model has norms of 1, biases of 0 and products near 0: an engine could forget any of them and still agree. Here every tensor is drawn:
norms around 1, biases of the size of what they are added to, linear maps that keep the scale of their input, decays that remember some ten tokens.
Every value is a BF16 number held in float32 (the router's correction bias is published as F32 and stays F32).
"""

from __future__ import annotations

from typing import Callable, Iterator

import torch

KEEP_F32 = ("e_score_correction_bias",)


def is_norm(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 1 and "norm" in parts[-2]


def fan_in(tensor: torch.Tensor) -> int:
    return tensor.shape[-1]


def draw(name: str, shape: torch.Size, zero_centred_norms: bool, tied: bool, generator: torch.Generator) -> torch.Tensor:
    """The rule for one parameter, by its name."""
    normal = torch.randn(shape, generator=generator)
    uniform = torch.rand(shape, generator=generator)
    leaf = name.rsplit(".", 1)[-1]
    if leaf == "A_log":
        return torch.log(0.05 + 0.6 * uniform)  # decay exp(-A softplus(.)): 0.6 to 0.97 a token
    if leaf == "dt_bias":
        return 0.7 * normal
    if leaf == "e_score_correction_bias":
        return 0.1 * normal
    if "conv1d" in name:
        return 0.6 * normal
    if is_norm(name):
        gated = "linear_attn.norm" in name  # this one multiplies by w, not by 1 + w
        return 0.3 * normal + (0.0 if zero_centred_norms and not gated else 1.0)
    if "embed_tokens" in name:
        return (0.35 if tied else 1.0) * normal
    if leaf == "bias":
        return 0.3 * normal
    gain = 1.0
    if "lm_head" in name:
        gain = 2.0
    elif ".gate.weight" in name or "shared_expert_gate" in name:
        gain = 1.5
    elif any(part in name for part in ("q_proj", "q_b_proj", "k_proj", "in_proj_a", "in_proj_b")):
        gain = 1.6
    return gain * normal / fan_in(normal) ** 0.5


def to_bf16_values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16).to(torch.float32)


def tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers, tied ones once."""
    stored = module.state_dict()
    yield from ((n, p.data) for n, p in module.named_parameters())
    yield from ((n, b) for n, b in module.named_buffers() if n in stored)


@torch.no_grad()
def fill(module: torch.nn.Module, seed: int, zero_centred_norms: bool, tied: bool = False, prefix: str = "") -> None:
    """Draws every tensor in the order of its name, so that the result does not hang on the order of declaration."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in sorted(tensors_of(module)):
        values = draw(prefix + name, tensor.shape, zero_centred_norms, tied, generator)
        tensor.copy_(values if name.endswith(KEEP_F32) else to_bf16_values(values))


@torch.no_grad()
def invisible_tensors(
    module: torch.nn.Module, logits: Callable[[], torch.Tensor], zero_centred_norms: bool, threshold: float
) -> list[str]:
    """Names of the tensors (fused experts: one a slice) whose neutral value moves no logit by more than the threshold.

    Neutral is what a forgotten tensor amounts to: a factor of 1 for norms, 0 for everything else.
    """
    before = logits()
    found = []
    for name, tensor in tensors_of(module):
        if "visual" in name:  # no prompt here has an image
            continue
        neutral = 0.0
        if is_norm(name) and not (zero_centred_norms and "linear_attn.norm" not in name):
            neutral = 1.0
        slices = [(name, tensor)]
        if tensor.dim() == 3 and "experts" in name:
            slices = [(f"{name}[{i}]", tensor[i]) for i in range(tensor.shape[0])]
        for label, part in slices:
            kept = part.clone()
            part.fill_(neutral)
            if (logits() - before).abs().max().item() <= threshold:
                found.append(label)
            part.copy_(kept)
    return found
