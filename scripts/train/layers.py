# SPDX-License-Identifier: Apache-2.0
"""Building blocks that both tiny models and both drafters share.

Written for training on one GPU: a mixture of experts is computed as one wide gated MLP over all experts whose
hidden units are multiplied by the routing weights (zero for experts that were not chosen), which is exact, has
no gather or scatter, and costs E/k times the flops of the chosen experts: little at this size. The engine, which
reads only the chosen experts, computes the same function.
"""
import torch
import torch.nn.functional as F
from torch import nn


class RmsNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * w, or * (1 + w) where unit_offset (Qwen3.5)."""

    def __init__(self, width, eps, unit_offset=False):
        super().__init__()
        self.eps = eps
        self.unit_offset = unit_offset
        self.weight = nn.Parameter(torch.zeros(width) if unit_offset else torch.ones(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight if self.unit_offset else self.weight)).type_as(x)


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))"""

    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """E gated MLPs of width I as one of width E*I: y = sum_e r_e down_e(silu(gate_e x) * up_e x)."""

    def __init__(self, hidden, intermediate, count):
        super().__init__()
        self.count = count
        self.intermediate = intermediate
        self.gate = nn.Parameter(torch.empty(count * intermediate, hidden))
        self.up = nn.Parameter(torch.empty(count * intermediate, hidden))
        self.down = nn.Parameter(torch.empty(hidden, count * intermediate))

    def forward(self, x, routing):
        """x [..., H], routing [..., E], zero where not chosen."""
        inner = F.silu(F.linear(x, self.gate)) * F.linear(x, self.up)
        shape = inner.shape
        inner = inner.view(*shape[:-1], self.count, self.intermediate) * routing.to(inner.dtype).unsqueeze(-1)
        return F.linear(inner.reshape(shape), self.down)

    def expert(self, index):
        """gate [I, H], up [I, H], down [H, I] of one expert."""
        rows = slice(index * self.intermediate, (index + 1) * self.intermediate)
        return self.gate[rows], self.up[rows], self.down[:, rows]


def chosen(scores, count):
    """0/1 mask of the `count` largest of the last axis."""
    index = scores.topk(count, dim=-1).indices
    return torch.zeros_like(scores).scatter_(-1, index, 1.0)


def rope_angles(positions, rotary, theta):
    """positions x (rotary / 2) angles p * theta^(-2i / rotary)."""
    rates = theta ** (-torch.arange(0, rotary, 2, device=positions.device, dtype=torch.float32) / rotary)
    return positions.float().unsqueeze(-1) * rates


def rotate_halves(x, angles):
    """RoPE with pairs (i, i + rotary/2) on the first `rotary` of the last axis. x [..., T, D], angles [T, rotary/2]."""
    half = angles.shape[-1]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def rotate_pairs(x, angles):
    """RoPE with pairs (2i, 2i + 1) over the whole last axis (DeepSeek's interleaved layout)."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def causal_attention(q, k, v, scale):
    """q, k [B, H, T, D], v [B, H, T, V]; V may be smaller than D."""
    padding = q.shape[-1] - v.shape[-1]
    wide = F.pad(v, (0, padding)) if padding else v
    out = F.scaled_dot_product_attention(q, k, wide, is_causal=True, scale=scale)
    return out[..., :v.shape[-1]]


def chain_attention(q, memory, scale):
    """Attention of one step of a draft chain, all rows t at once.

    memory is a list of (k, v), one a step so far, each [B, H, T, D]; the last belongs to this step. Row t sees
    the first step's entries of rows s <= t, which hold the target's features, and of every later step only its own
    row: what it drafted itself.
    """
    (k, v), own = memory[0], memory[1:]
    if not own:
        return causal_attention(q, k, v, scale)
    rows = q.shape[-2]
    scores = (q @ k.transpose(-1, -2)).float() * scale
    hidden = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(hidden, float("-inf"))
    extra = torch.stack([(q * k_step).sum(-1).float() * scale for k_step, _ in own], dim=-1)
    share = torch.cat((scores, extra), dim=-1).softmax(-1).to(v.dtype)
    out = share[..., :rows] @ v
    for index, (_, v_step) in enumerate(own):
        out = out + share[..., rows + index, None] * v_step
    return out


def split_heads(x, heads):
    """[B, T, H * D] to [B, H, T, D]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x):
    """[B, H, T, D] to [B, T, H * D]"""
    return x.transpose(1, 2).flatten(-2)


def initialise(module, layers, deviation=0.05):
    """Normal weights; what writes into the residual stream is divided by sqrt(2 layers). Norms keep theirs."""
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2 or name.endswith("conv1d.weight"):
            continue
        writes = any(part in name for part in ("o_proj", "down", "out_proj"))
        nn.init.normal_(parameter, std=deviation / (2 * layers) ** 0.5 if writes else deviation)
