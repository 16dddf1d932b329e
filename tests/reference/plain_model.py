# SPDX-License-Identifier: Apache-2.0
"""The formulas of README.md in numpy and float64, without torch and without transformers.

One function a formula, in the order of the README. It runs all rows at once under a visibility matrix (row i sees row j), so that a draft tree is
one pass here, where the fixtures ran each path alone. It is slow and exact, and what the formulas are checked with (check_formulas.py).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from plain_checkpoint import read_weights

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rms(x: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def largest(values: Array, k: int) -> Array:
    """Indices of the k largest of each row, ascending."""
    return np.sort(np.argsort(-values, axis=-1, kind="stable")[:, :k], axis=-1)


@dataclass
class Rope:
    """Frequencies of the rotated dimensions, and what cos and sin are multiplied by."""

    frequencies: Array
    magnitude: float = 1.0

    def angles(self, positions: Array) -> tuple[Array, Array]:
        """[rows, 1, d/2]: the middle dimension runs over heads."""
        a = positions[:, None, None] * self.frequencies
        return np.cos(a) * self.magnitude, np.sin(a) * self.magnitude


def yarn_m(factor: float, t: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * t * math.log(factor) + 1.0


def make_rope(rope: dict, d: int) -> Rope:
    base = rope["rope_theta"]
    i = np.arange(d // 2)
    plain = base ** (-2.0 * i / d)
    if rope["rope_type"] == "default":
        return Rope(plain)
    original, factor = rope["original_max_position_embeddings"], rope["factor"]

    def dimension(rotations: float) -> float:
        return d * math.log(original / (2 * math.pi * rotations)) / (2 * math.log(base))

    low = max(math.floor(dimension(rope["beta_fast"])), 0)
    high = min(math.ceil(dimension(rope["beta_slow"])), d - 1)
    ramp = np.clip((i - low) / (high - low if high > low else 0.001), 0, 1)
    mscale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    magnitude = yarn_m(factor, mscale) / yarn_m(factor, all_dim) if mscale and all_dim else yarn_m(factor, 1.0)
    return Rope(plain * ((1 - ramp) + ramp / factor), magnitude)


def rotate_half(x: Array, cos: Array, sin: Array) -> Array:
    """Dimension i with i + d/2; what lies beyond the rotated dimensions passes."""
    h = cos.shape[-1]
    a, b, rest = x[..., :h], x[..., h : 2 * h], x[..., 2 * h :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def rotate_interleaved(x: Array, cos: Array, sin: Array) -> Array:
    """Dimension 2i with 2i + 1."""
    a, b = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    return out


@dataclass
class Rows:
    """The rows of one pass: where they stand and which of each other they see."""

    positions: Array
    visible: Array
    experts: list[Array] = field(default_factory=list)
    hidden: list[Array] = field(default_factory=list)


def causal(n: int) -> Rows:
    return Rows(np.arange(n), np.tril(np.ones((n, n), dtype=bool)))


def with_tree(n: int, parents: list[int]) -> Rows:
    """A prompt of n rows, then a tree: a node sees the prompt, its ancestors and itself, and stands at n + depth."""
    total = n + len(parents)
    rows = causal(total)
    for node, parent in enumerate(parents):
        i = n + node
        rows.visible[i, n:] = rows.visible[n + parent, n:] if parent >= 0 else False
        rows.visible[i, i] = True
        rows.positions[i] = n if parent < 0 else rows.positions[n + parent] + 1
    return rows


class PlainModel:
    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.w = read_weights(folder / "model.safetensors")
        self.c = config.get("text_config", config)
        self.kind = self.c["model_type"]
        self.is_mla = self.kind in ("deepseek_v3", "kimi_k2")
        self.is_qwen35 = self.kind == "qwen3_5_moe_text"
        self.eps = self.c["rms_norm_eps"]
        self.rope_settings = self.read_rope()
        self.rope = make_rope(self.rope_settings, self.rotated_dimensions())
        if self.c["tie_word_embeddings"]:
            self.w["lm_head.weight"] = self.w["model.embed_tokens.weight"]

    def read_rope(self) -> dict:
        if "rope_parameters" in self.c:
            return self.c["rope_parameters"]
        scaling = self.c.get("rope_scaling") or {"type": "default"}
        return {**scaling, "rope_type": scaling["type"], "rope_theta": self.c["rope_theta"]}

    def rotated_dimensions(self) -> int:
        if self.is_mla:
            return self.c["qk_rope_head_dim"]
        return int(self.c["head_dim"] * self.rope_settings.get("partial_rotary_factor", 1.0))

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.w[name + ".weight"].T

    def norm(self, x: Array, name: str) -> Array:
        return (self.w[name + ".weight"] + (1.0 if self.is_qwen35 else 0.0)) * rms(x, self.eps)

    def mlp(self, x: Array, name: str) -> Array:
        return self.linear(silu(self.linear(x, f"{name}.gate_proj")) * self.linear(x, f"{name}.up_proj"), f"{name}.down_proj")

    # ---- attention

    def attend(self, q: Array, k: Array, v: Array, scale: float, rows: Rows) -> Array:
        """q [rows, heads, d], k and v [rows, kv heads, d]; query head h reads KV head h // (heads / kv heads)."""
        share = q.shape[1] // k.shape[1]
        out = np.empty((q.shape[0], q.shape[1], v.shape[2]))
        for h in range(q.shape[1]):
            score = q[:, h] @ k[:, h // share].T * scale
            out[:, h] = softmax(np.where(rows.visible, score, -np.inf)) @ v[:, h // share]
        return out

    def softmax_scale_of_mla(self) -> float:
        size = self.c["qk_nope_head_dim"] + self.c["qk_rope_head_dim"]
        all_dim = self.rope_settings.get("mscale_all_dim")
        m = yarn_m(self.rope_settings["factor"], all_dim) if all_dim else 1.0
        return size**-0.5 * m * m

    def mla(self, x: Array, name: str, rows: Rows) -> Array:
        heads, nope, value = self.c["num_attention_heads"], self.c["qk_nope_head_dim"], self.c["v_head_dim"]
        n = len(x)
        if self.c["q_lora_rank"] is None:
            q = self.linear(x, f"{name}.q_proj")
        else:
            q = self.linear(self.norm(self.linear(x, f"{name}.q_a_proj"), f"{name}.q_a_layernorm"), f"{name}.q_b_proj")
        q = q.reshape(n, heads, -1)
        compressed = self.linear(x, f"{name}.kv_a_proj_with_mqa")
        rank = self.c["kv_lora_rank"]
        latent = self.norm(compressed[:, :rank], f"{name}.kv_a_layernorm")
        kv = self.linear(latent, f"{name}.kv_b_proj").reshape(n, heads, nope + value)
        cos, sin = self.rope.angles(rows.positions)
        rotated_key = self.rotate_mla(compressed[:, None, rank:], cos, sin)
        q = np.concatenate([q[..., :nope], self.rotate_mla(q[..., nope:], cos, sin)], axis=-1)
        k = np.concatenate([kv[..., :nope], np.repeat(rotated_key, heads, axis=1)], axis=-1)
        out = self.attend(q, k, kv[..., nope:], self.softmax_scale_of_mla(), rows)
        return self.linear(out.reshape(n, -1), f"{name}.o_proj")

    def rotate_mla(self, x: Array, cos: Array, sin: Array) -> Array:
        return rotate_interleaved(x, cos, sin)

    def split_query_and_gate(self, q: Array) -> tuple[Array, Array]:
        """[rows, heads, 2 d]: each head has its query, then its gate."""
        d = self.c["head_dim"]
        return q[..., :d], q[..., d:]

    def gqa(self, x: Array, name: str, rows: Rows) -> Array:
        n, heads, d = len(x), self.c["num_attention_heads"], self.c["head_dim"]
        q = self.linear(x, f"{name}.q_proj").reshape(n, heads, -1)
        gate = None
        if self.is_qwen35:
            q, gate = self.split_query_and_gate(q)
        k = self.linear(x, f"{name}.k_proj").reshape(n, -1, d)
        v = self.linear(x, f"{name}.v_proj").reshape(n, -1, d)
        cos, sin = self.rope.angles(rows.positions)
        q = rotate_half(self.norm(q, f"{name}.q_norm"), cos, sin)
        k = rotate_half(self.norm(k, f"{name}.k_norm"), cos, sin)
        out = self.attend(q, k, v, d**-0.5, rows)
        if gate is not None:
            out = out * sigmoid(gate)
        return self.linear(out.reshape(n, -1), f"{name}.o_proj")

    # ---- gated delta net

    def convolve(self, u: Array, kernel: Array) -> Array:
        """Causal and depthwise: the last column of the kernel meets the current row."""
        taps = kernel.shape[-1]
        padded = np.concatenate([np.zeros((taps - 1, u.shape[1])), u])
        return silu(sum(padded[j : j + len(u)] * kernel[:, 0, j] for j in range(taps)))

    def delta_decay(self, a: Array, name: str) -> Array:
        return np.exp(-np.exp(self.w[f"{name}.A_log"]) * np.logaddexp(0.0, a + self.w[f"{name}.dt_bias"]))

    def gated_norm(self, o: Array, z: Array, name: str) -> Array:
        return self.w[f"{name}.norm.weight"] * rms(o, self.eps) * silu(z)

    def delta_net(self, x: Array, name: str, rows: Rows) -> Array:
        assert np.array_equal(rows.visible, causal(len(x)).visible), "a recurrent state cannot branch"
        hk, hv = self.c["linear_num_key_heads"], self.c["linear_num_value_heads"]
        dk, dv = self.c["linear_key_head_dim"], self.c["linear_value_head_dim"]
        n = len(x)
        u = self.convolve(self.linear(x, f"{name}.in_proj_qkv"), self.w[f"{name}.conv1d.weight"])
        q, k, v = np.split(u, [hk * dk, 2 * hk * dk], axis=1)
        q, k, v = q.reshape(n, hk, dk), k.reshape(n, hk, dk), v.reshape(n, hv, dv)
        q = q / np.sqrt((q * q).sum(-1, keepdims=True) + 1e-6) / math.sqrt(dk)
        k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
        beta = sigmoid(self.linear(x, f"{name}.in_proj_b"))
        decay = self.delta_decay(self.linear(x, f"{name}.in_proj_a"), name)
        out = np.empty((n, hv, dv))
        for h in range(hv):
            state = np.zeros((dk, dv))
            key_head = h // (hv // hk)
            for t in range(n):
                state = decay[t, h] * state
                delta = beta[t, h] * (v[t, h] - state.T @ k[t, key_head])
                state = state + np.outer(k[t, key_head], delta)
                out[t, h] = state.T @ q[t, key_head]
        z = self.linear(x, f"{name}.in_proj_z").reshape(n, hv, dv)
        return self.linear(self.gated_norm(out, z, name).reshape(n, -1), f"{name}.out_proj")

    # ---- mixture of experts

    def route_sigmoid(self, x: Array, name: str) -> tuple[Array, Array]:
        """Chosen experts [rows, k] and their weights, DeepSeek's way."""
        scores = sigmoid(self.linear(x, f"{name}.gate"))
        choice = scores + self.w[f"{name}.gate.e_score_correction_bias"]
        groups = choice.reshape(len(x), self.c["n_group"], -1)
        best = np.sort(groups, axis=-1)[..., -2:].sum(-1)
        kept = np.zeros(best.shape, dtype=bool)
        np.put_along_axis(kept, largest(best, self.c["topk_group"]), True, axis=1)
        eligible = np.where(kept[..., None], groups, -np.inf).reshape(len(x), -1)
        chosen = largest(eligible, self.c["num_experts_per_tok"])
        weights = np.take_along_axis(scores, chosen, axis=1)
        if self.c["norm_topk_prob"]:
            weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
        return chosen, weights * self.c["routed_scaling_factor"]

    def route_softmax(self, x: Array, name: str) -> tuple[Array, Array]:
        p = softmax(self.linear(x, f"{name}.gate"))
        chosen = largest(p, self.c["num_experts_per_tok"])
        weights = np.take_along_axis(p, chosen, axis=1)
        if self.is_qwen35 or self.c["norm_topk_prob"]:
            weights = weights / weights.sum(-1, keepdims=True)
        return chosen, weights

    def moe(self, x: Array, name: str, rows: Rows) -> Array:
        chosen, weights = (self.route_sigmoid if self.is_mla else self.route_softmax)(x, name)
        rows.experts.append(chosen)
        y = np.zeros_like(x)
        for t in range(len(x)):
            for e, weight in zip(chosen[t], weights[t]):
                y[t] += weight * self.mlp(x[t], f"{name}.experts.{e}")
        if self.is_mla:
            y += self.mlp(x, f"{name}.shared_experts")
        if self.is_qwen35:
            y += sigmoid(self.linear(x, f"{name}.shared_expert_gate")) * self.mlp(x, f"{name}.shared_expert")
        return y

    # ---- the whole

    def layer(self, x: Array, name: str, rows: Rows) -> Array:
        h = self.norm(x, f"{name}.input_layernorm")
        if f"{name}.linear_attn.A_log" in self.w:
            x = x + self.delta_net(h, f"{name}.linear_attn", rows)
        else:
            x = x + (self.mla if self.is_mla else self.gqa)(h, f"{name}.self_attn", rows)
        h = self.norm(x, f"{name}.post_attention_layernorm")
        has_experts = f"{name}.mlp.gate.weight" in self.w
        return x + (self.moe(h, f"{name}.mlp", rows) if has_experts else self.mlp(h, f"{name}.mlp"))

    def embed(self, ids: Array) -> Array:
        return self.w["model.embed_tokens.weight"][np.asarray(ids)]

    def forward(self, ids: Array, rows: Rows) -> tuple[Array, Array]:
        """Logits and the hidden states after the last norm; the rows collect experts and hidden states of the layers."""
        x = self.embed(ids)
        for i in range(self.c["num_hidden_layers"]):
            x = self.layer(x, f"model.layers.{i}", rows)
            rows.hidden.append(x)
        final = self.norm(x, "model.norm")
        return self.linear(final, "lm_head"), final
