# SPDX-License-Identifier: Apache-2.0
"""tiny-kimi: the DeepSeek-V3 architecture (latent attention, sigmoid-routed experts, one dense layer), small.

A training model with the module names of the Hugging Face class, so that its state dict is the checkpoint but
for the fused experts (checkpoint.py splits them). docs/training.md has the formulas. It keeps no cache: decoding
is the engine's business.
"""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from layers import (Experts, GatedMlp, RmsNorm, causal_attention, chosen, initialise, join_heads, rope_angles,
                    rotate_pairs, split_heads)
from tokens import BOS, EOS, VOCABULARY


@dataclasses.dataclass(frozen=True)
class KimiShape:
    hidden: int = 256
    layers: int = 4
    dense_layers: int = 1
    heads: int = 4
    q_rank: int = 96
    kv_rank: int = 64
    nope: int = 32
    rope: int = 16
    value: int = 32
    dense_intermediate: int = 1024
    experts: int = 32
    top_k: int = 4
    intermediate: int = 64
    scaling: float = 2.5
    theta: float = 10000.0
    eps: float = 1e-6
    positions: int = 4096

    def config(self):
        """config.json as published checkpoints of this family have it."""
        return {
            "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
            "vocab_size": VOCABULARY, "hidden_size": self.hidden, "intermediate_size": self.dense_intermediate,
            "num_hidden_layers": self.layers, "first_k_dense_replace": self.dense_layers, "moe_layer_freq": 1,
            "num_attention_heads": self.heads, "num_key_value_heads": self.heads,
            "q_lora_rank": self.q_rank, "kv_lora_rank": self.kv_rank, "qk_nope_head_dim": self.nope,
            "qk_rope_head_dim": self.rope, "v_head_dim": self.value, "attention_bias": False,
            "attention_dropout": 0.0, "n_routed_experts": self.experts, "n_shared_experts": 1,
            "num_experts_per_tok": self.top_k, "moe_intermediate_size": self.intermediate, "n_group": 1,
            "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
            "routed_scaling_factor": self.scaling, "num_nextn_predict_layers": 0, "hidden_act": "silu",
            "rms_norm_eps": self.eps, "rope_theta": self.theta, "rope_scaling": None, "rope_interleave": True,
            "max_position_embeddings": self.positions, "tie_word_embeddings": False, "initializer_range": 0.02,
            "bos_token_id": BOS, "eos_token_id": EOS, "use_cache": True, "torch_dtype": "bfloat16",
        }


class LatentAttention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.q_a_proj = nn.Linear(shape.hidden, shape.q_rank, bias=False)
        self.q_a_layernorm = RmsNorm(shape.q_rank, 1e-6)
        self.q_b_proj = nn.Linear(shape.q_rank, shape.heads * (shape.nope + shape.rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(shape.hidden, shape.kv_rank + shape.rope, bias=False)
        self.kv_a_layernorm = RmsNorm(shape.kv_rank, 1e-6)
        self.kv_b_proj = nn.Linear(shape.kv_rank, shape.heads * (shape.nope + shape.value), bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.value, shape.hidden, bias=False)

    def forward(self, x, angles):
        shape = self.shape
        q = split_heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))), shape.heads)
        q_nope, q_rope = q.split((shape.nope, shape.rope), dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split((shape.kv_rank, shape.rope), dim=-1)
        kv = split_heads(self.kv_b_proj(self.kv_a_layernorm(latent)), shape.heads)
        k_nope, v = kv.split((shape.nope, shape.value), dim=-1)
        k_rope = rotate_pairs(k_rope, angles).unsqueeze(1).expand(-1, shape.heads, -1, -1)
        q = torch.cat((q_nope, rotate_pairs(q_rope, angles)), dim=-1)
        k = torch.cat((k_nope, k_rope), dim=-1)
        return self.o_proj(join_heads(causal_attention(q, k, v, (shape.nope + shape.rope) ** -0.5)))


class Router(nn.Module):
    """Sigmoid scores; the correction bias moves the choice, never the weight."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.hidden))
        self.register_buffer("e_score_correction_bias", torch.zeros(shape.experts))

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.weight.float()).sigmoid()
        mask = chosen(scores.detach() + self.e_score_correction_bias, self.shape.top_k)
        weights = scores * mask
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.shape.scaling
        return weights, mask.flatten(0, -2).mean(0)


class SparseMlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate = Router(shape)
        self.experts = Experts(shape.hidden, shape.intermediate, shape.experts)
        self.shared_experts = GatedMlp(shape.hidden, shape.intermediate)

    def forward(self, x):
        weights, load = self.gate(x)
        return self.experts(x, weights) + self.shared_experts(x), load


class Layer(nn.Module):
    def __init__(self, shape, index):
        super().__init__()
        self.dense = index < shape.dense_layers
        self.input_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.self_attn = LatentAttention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.mlp = GatedMlp(shape.hidden, shape.dense_intermediate) if self.dense else SparseMlp(shape)

    def forward(self, x, angles):
        x = x + self.self_attn(self.input_layernorm(x), angles)
        inner = self.post_attention_layernorm(x)
        if self.dense:
            return x + self.mlp(inner), None
        out, load = self.mlp(inner)
        return x + out, load


class Stack(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, index) for index in range(shape.layers))
        self.norm = RmsNorm(shape.hidden, shape.eps)


class TinyKimi(nn.Module):
    """trunk() gives the final hidden state, the outputs of all layers, the load of each expert, and no auxiliary
    loss: the correction bias balances the experts."""

    BALANCE_STEP = 2e-3  # of the correction bias, a training step

    def __init__(self, shape=KimiShape()):
        super().__init__()
        self.shape = shape
        self.model = Stack(shape)
        self.lm_head = nn.Linear(shape.hidden, VOCABULARY, bias=False)
        initialise(self, shape.layers)

    def trunk(self, ids):
        angles = rope_angles(torch.arange(ids.shape[1], device=ids.device), self.shape.rope, self.shape.theta)
        x, outputs, loads = self.model.embed_tokens(ids), [], []
        for layer in self.model.layers:
            x, load = layer(x, angles)
            outputs.append(x)
            if load is not None:
                loads.append(load)
        return self.model.norm(x), outputs, torch.stack(loads), None

    def forward(self, ids):
        """logits [B, T, V], loads [layers, E], auxiliary loss (None)."""
        hidden, _, loads, auxiliary = self.trunk(ids)
        return self.lm_head(hidden), loads, auxiliary

    @torch.no_grad()
    def balance(self, loads, progress):
        """b_e += u sign(1/E - load_e / k), u falling to 0 with the learning rate."""
        step = self.BALANCE_STEP * (1.0 - progress)
        routers = [layer.mlp.gate for layer in self.model.layers if not layer.dense]
        for router, load in zip(routers, loads):
            router.e_score_correction_bias += step * torch.sign(load.mean() - load)
