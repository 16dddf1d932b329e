# SPDX-License-Identifier: Apache-2.0
"""An EAGLE-3 head in the published Llama-style layout, for tiny-kimi.

One decoder layer whose attention reads [normed embedding ; normed feature], a draft vocabulary of the most
frequent tokens, and an LM head of its own; the embedding table is the target's. docs/training.md has the
formulas. The drafter protocol (begin, step) is drafting.py's.
"""
import dataclasses

import torch
from torch import nn

from layers import (GatedMlp, RmsNorm, chain_attention, initialise, join_heads, rope_angles, rotate_halves,
                    split_heads)
from tokens import BOS, EOS, VOCABULARY


@dataclasses.dataclass(frozen=True)
class Eagle3Shape:
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 64
    intermediate: int = 512
    draft_vocabulary: int = 160
    aux_layers: tuple = (0, 1, 2)  # their outputs, i.e. the inputs of layers 1, 2, 3
    theta: float = 10000.0
    eps: float = 1e-6
    positions: int = 4096

    def config(self):
        return {
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
            "hidden_size": self.hidden, "target_hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": 1, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim, "attention_bias": False, "hidden_act": "silu", "rms_norm_eps": self.eps,
            "rope_theta": self.theta, "rope_scaling": None, "max_position_embeddings": self.positions,
            "vocab_size": VOCABULARY, "draft_vocab_size": self.draft_vocabulary, "tie_word_embeddings": False,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(self.aux_layers),
                             "use_aux_hidden_state": True},
            "bos_token_id": BOS, "eos_token_id": EOS, "use_cache": True, "torch_dtype": "bfloat16",
        }


class Attention(nn.Module):
    """Llama attention over inputs of twice the hidden size."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(2 * shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(2 * shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(2 * shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def forward(self, x, angles, memory):
        shape = self.shape
        repeats = shape.heads // shape.kv_heads
        q = rotate_halves(split_heads(self.q_proj(x), shape.heads), angles)
        k = rotate_halves(split_heads(self.k_proj(x), shape.kv_heads), angles)
        v = split_heads(self.v_proj(x), shape.kv_heads)
        memory.append((k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)))
        return self.o_proj(join_heads(chain_attention(q, memory, shape.head_dim ** -0.5)))


class MidLayer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.hidden_norm = RmsNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.mlp = GatedMlp(shape.hidden, shape.intermediate)

    def forward(self, embeds, feature, angles, memory):
        joined = torch.cat((self.input_layernorm(embeds), self.hidden_norm(feature)), dim=-1)
        x = feature + self.self_attn(joined, angles, memory)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3Head(nn.Module):
    def __init__(self, shape=Eagle3Shape()):
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.aux_layers) * shape.hidden, shape.hidden, bias=False)
        self.midlayer = MidLayer(shape)
        self.norm = RmsNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocabulary, bias=False)
        self.register_buffer("d2t", torch.zeros(shape.draft_vocabulary, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(VOCABULARY, dtype=torch.bool))
        initialise(self, 1)

    def choose_vocabulary(self, counts):
        """The most frequent tokens, ascending: d2t[i] = id_i - i, t2d marks them. counts: [V]."""
        ids = counts.topk(self.shape.draft_vocabulary).indices.sort().values
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.t2d.zero_()
        self.t2d[ids] = True

    def token_ids(self):
        """Target ids of the draft vocabulary."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def begin(self, _hidden, outputs):
        return self.fc(torch.cat([outputs[layer] for layer in self.shape.aux_layers], dim=-1))

    def step(self, embeds, feature, memory):
        """(what the LM head reads, the next step's feature, balance loss: None)"""
        positions = torch.arange(embeds.shape[1], device=embeds.device) + len(memory)
        angles = rope_angles(positions, self.shape.head_dim, self.shape.theta)
        out = self.midlayer(embeds, feature, angles, memory)
        return self.norm(out), out, None
