# SPDX-License-Identifier: Apache-2.0
"""The two drafters of README.md in numpy, over the target of plain_model.py. Row i: the token at i+1, the target's state at i."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from plain_checkpoint import read_weights
from plain_model import Array, PlainModel, causal, make_rope, rms, rotate_half


class PlainMtp:
    def __init__(self, target: PlainModel) -> None:
        self.target = target

    def first_states(self, auxiliary: list[Array], final: Array) -> Array:
        return final

    def join(self, e: Array, h: Array) -> Array:
        return np.concatenate([e, h], axis=-1)

    def forward(self, ids: list[int], states: Array) -> tuple[Array, Array, list[Array]]:
        """Draft logits, the states that a further step takes, and the experts chosen."""
        t, rows = self.target, causal(len(ids))
        e = t.norm(t.embed(ids), "mtp.pre_fc_norm_embedding")
        h = t.norm(states, "mtp.pre_fc_norm_hidden")
        x = t.layer(t.linear(self.join(e, h), "mtp.fc"), "mtp.layers.0", rows)
        y = t.norm(x, "mtp.norm")
        return t.linear(y, "lm_head"), y, rows.experts

    def token(self, index: int) -> int:
        return index


class PlainEagle3:
    def __init__(self, target: PlainModel, folder: Path) -> None:
        self.target = target
        self.w = read_weights(folder / "model.safetensors")
        self.c = json.loads((folder / "config.json").read_text())
        self.rope = make_rope({"rope_type": "default", "rope_theta": self.c["rope_theta"]}, self.c["head_dim"])

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.w[name + ".weight"].T

    def norm(self, x: Array, name: str) -> Array:
        return self.w[name + ".weight"] * rms(x, self.c["rms_norm_eps"])

    def first_states(self, auxiliary: list[Array], final: Array) -> Array:
        return self.linear(np.concatenate(auxiliary, axis=-1), "fc")

    def join(self, e: Array, h: Array) -> Array:
        return np.concatenate([e, h], axis=-1)

    def forward(self, ids: list[int], states: Array) -> tuple[Array, Array, list[Array]]:
        rows, n, d = causal(len(ids)), len(ids), self.c["head_dim"]
        e = self.norm(self.target.embed(ids), "midlayer.input_layernorm")
        a = self.join(e, self.norm(states, "midlayer.hidden_norm"))
        q, k, v = (self.linear(a, f"midlayer.self_attn.{x}_proj").reshape(n, -1, d) for x in "qkv")
        cos, sin = self.rope.angles(rows.positions)
        out = self.target.attend(rotate_half(q, cos, sin), rotate_half(k, cos, sin), v, d**-0.5, rows)
        x = states + self.linear(out.reshape(n, -1), "midlayer.self_attn.o_proj")
        h = self.norm(x, "midlayer.post_attention_layernorm")
        gate, up = self.linear(h, "midlayer.mlp.gate_proj"), self.linear(h, "midlayer.mlp.up_proj")
        x = x + self.linear(gate / (1.0 + np.exp(-gate)) * up, "midlayer.mlp.down_proj")
        return self.linear(self.norm(x, "norm"), "lm_head"), x, []

    def token(self, index: int) -> int:
        """The target's id of a draft index."""
        return index + int(self.w["d2t"][index])


def draft(drafter: PlainMtp | PlainEagle3, ids: list[int], states: Array, steps: int) -> tuple[Array, list[int], list[Array]]:
    """The logits of the rows given and of `steps` more, each fed with the drafter's own token and state."""
    ids, drafted = list(ids), []
    for step in range(steps + 1):
        logits, out, experts = drafter.forward(ids, states)
        if step < steps:
            drafted.append(drafter.token(int(logits[-1].argmax())))
            ids, states = ids + drafted[-1:], np.concatenate([states, out[-1:]])
    return logits, drafted, experts
