# SPDX-License-Identifier: Apache-2.0
"""tiny-qwen: the Qwen3.5 architecture (gated delta net and gated full attention, experts in every layer), small,
with its multi-token-prediction (MTP) module.

A training model with the module names of the Hugging Face class; checkpoint.py splits the fused experts.
docs/training.md has the formulas. It keeps no cache: decoding is the engine's business.
"""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from delta_rule import gated_delta_rule
from layers import (Experts, GatedMlp, RmsNorm, chain_attention, chosen, initialise, join_heads, rope_angles,
                    rotate_halves, split_heads)
from tokens import BOS, EOS, VOCABULARY


@dataclasses.dataclass(frozen=True)
class QwenShape:
    hidden: int = 256
    layer_types: tuple = ("linear_attention",) * 3 + ("full_attention",)
    key_heads: int = 4
    value_heads: int = 8
    delta_dim: int = 32  # of keys and of values
    conv: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rotary_share: float = 0.25
    theta: float = 10000.0
    experts: int = 32
    top_k: int = 4
    intermediate: int = 32
    shared_intermediate: int = 128
    eps: float = 1e-6
    positions: int = 4096

    def config(self):
        """config.json of the text model, as the family's checkpoints have it."""
        third = int(self.head_dim * self.rotary_share) // 2
        return {
            "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
            "vocab_size": VOCABULARY, "hidden_size": self.hidden, "num_hidden_layers": len(self.layer_types),
            "layer_types": list(self.layer_types), "full_attention_interval": 4,
            "linear_num_key_heads": self.key_heads, "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.delta_dim, "linear_value_head_dim": self.delta_dim,
            "linear_conv_kernel_dim": self.conv, "mamba_ssm_dtype": "float32",
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim,
            "attn_output_gate": True, "attention_bias": False, "attention_dropout": 0.0,
            "num_experts": self.experts, "num_experts_per_tok": self.top_k,
            "moe_intermediate_size": self.intermediate,
            "shared_expert_intermediate_size": self.shared_intermediate, "mlp_only_layers": [],
            "router_aux_loss_coef": 0.001, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
            "hidden_act": "silu", "rms_norm_eps": self.eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta,
                                "partial_rotary_factor": self.rotary_share, "mrope_interleaved": True,
                                "mrope_section": [third - 2 * (third // 3), third // 3, third // 3]},
            "max_position_embeddings": self.positions, "tie_word_embeddings": False, "initializer_range": 0.02,
            "bos_token_id": BOS, "eos_token_id": EOS, "use_cache": True, "dtype": "bfloat16",
        }

    def rotary(self):
        return int(self.head_dim * self.rotary_share)


class GatedRmsNorm(nn.Module):
    """norm(x) * w * silu(gate), each head by itself"""

    def __init__(self, width, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
        return (x * F.silu(gate.float())).to(gate.dtype)


class CausalConvolution(nn.Module):
    """Depthwise, over time, then SiLU: y_t = silu(sum_i w_i x_{t - (K - 1) + i})"""

    def __init__(self, channels, kernel):
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel) * kernel ** -0.5)

    def forward(self, x):
        length = x.shape[1]
        padded = F.pad(x, (0, 0, self.kernel - 1, 0))
        weight = self.weight.to(x.dtype)
        return F.silu(sum(padded[:, i:i + length] * weight[:, 0, i] for i in range(self.kernel)))


class GatedDeltaNet(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        keys, values = shape.key_heads * shape.delta_dim, shape.value_heads * shape.delta_dim
        self.widths = (keys, keys, values)
        self.in_proj_qkv = nn.Linear(shape.hidden, 2 * keys + values, bias=False)
        self.in_proj_z = nn.Linear(shape.hidden, values, bias=False)
        self.in_proj_b = nn.Linear(shape.hidden, shape.value_heads, bias=False)
        self.in_proj_a = nn.Linear(shape.hidden, shape.value_heads, bias=False)
        self.conv1d = CausalConvolution(2 * keys + values, shape.conv)
        self.A_log = nn.Parameter(torch.empty(shape.value_heads).uniform_(0.5, 8.0).log())
        self.dt_bias = nn.Parameter(torch.linspace(-5.0, -1.0, shape.value_heads))
        self.norm = GatedRmsNorm(shape.delta_dim, shape.eps)
        self.out_proj = nn.Linear(values, shape.hidden, bias=False)

    def forward(self, x):
        shape = self.shape
        q, k, v = self.conv1d(self.in_proj_qkv(x)).split(self.widths, dim=-1)
        repeats = shape.value_heads // shape.key_heads
        q = split_heads(q, shape.key_heads).repeat_interleave(repeats, dim=1)
        k = split_heads(k, shape.key_heads).repeat_interleave(repeats, dim=1)
        with torch.autocast(x.device.type, enabled=False):
            rate = F.softplus(self.in_proj_a(x.float()) + self.dt_bias)
            g = (-self.A_log.exp() * rate).transpose(1, 2)
            beta = self.in_proj_b(x.float()).sigmoid().transpose(1, 2)
            out = gated_delta_rule(q, k, split_heads(v, shape.value_heads), g, beta)
        z = self.in_proj_z(x).unflatten(-1, (shape.value_heads, -1))
        return self.out_proj(self.norm(out.transpose(1, 2), z).flatten(-2))


class GatedAttention(nn.Module):
    """Grouped-query attention with q/k norms, partial RoPE and an output gate beside each query head."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim * 2, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.q_norm = RmsNorm(shape.head_dim, shape.eps, unit_offset=True)
        self.k_norm = RmsNorm(shape.head_dim, shape.eps, unit_offset=True)

    def forward(self, x, angles, memory=None):
        """memory: (k, v) of the earlier steps of a draft chain; this step's are appended."""
        shape = self.shape
        q, gate = split_heads(self.q_proj(x), shape.heads).chunk(2, dim=-1)
        repeats = shape.heads // shape.kv_heads
        q = rotate_halves(self.q_norm(q), angles)
        k = rotate_halves(self.k_norm(split_heads(self.k_proj(x), shape.kv_heads)), angles)
        v = split_heads(self.v_proj(x), shape.kv_heads)
        entry = (k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1))
        memory = [] if memory is None else memory
        memory.append(entry)
        out = chain_attention(q, memory, shape.head_dim ** -0.5) * gate.sigmoid()
        return self.o_proj(join_heads(out))


class SparseMlp(nn.Module):
    """Softmax router, normalised top k; a shared expert behind a sigmoid gate."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.gate = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts = Experts(shape.hidden, shape.intermediate, shape.experts)
        self.shared_expert = GatedMlp(shape.hidden, shape.shared_intermediate)
        self.shared_expert_gate = nn.Linear(shape.hidden, 1, bias=False)

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            probabilities = F.linear(x.float(), self.gate.weight.float()).softmax(-1)
        mask = chosen(probabilities.detach(), self.shape.top_k)
        weights = probabilities * mask
        weights = weights / weights.sum(-1, keepdim=True)
        load = mask.flatten(0, -2).mean(0)
        # Switch Transformer's balance: E sum_e f_e P_e with f_e = load_e / k, 1 where balanced
        uneven = self.shape.experts / self.shape.top_k * (load * probabilities.flatten(0, -2).mean(0)).sum()
        out = self.experts(x, weights) + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)
        return out, load, uneven


class Layer(nn.Module):
    def __init__(self, shape, kind):
        super().__init__()
        self.full = kind == "full_attention"
        self.input_layernorm = RmsNorm(shape.hidden, shape.eps, unit_offset=True)
        if self.full:
            self.self_attn = GatedAttention(shape)
        else:
            self.linear_attn = GatedDeltaNet(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.eps, unit_offset=True)
        self.mlp = SparseMlp(shape)

    def forward(self, x, angles, memory=None):
        inner = self.input_layernorm(x)
        x = x + (self.self_attn(inner, angles, memory) if self.full else self.linear_attn(inner))
        out, load, uneven = self.mlp(self.post_attention_layernorm(x))
        return x + out, load, uneven


class Stack(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, kind) for kind in shape.layer_types)
        self.norm = RmsNorm(shape.hidden, shape.eps, unit_offset=True)


class MtpModule(nn.Module):
    """Drafts from the target's final hidden state, then from its own output. The drafter protocol is drafting.py's."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.pre_fc_norm_embedding = RmsNorm(shape.hidden, shape.eps, unit_offset=True)
        self.pre_fc_norm_hidden = RmsNorm(shape.hidden, shape.eps, unit_offset=True)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.layers = nn.ModuleList([Layer(shape, "full_attention")])
        self.norm = RmsNorm(shape.hidden, shape.eps, unit_offset=True)

    def begin(self, hidden, _outputs):
        return hidden

    def step(self, embeds, feature, memory):
        """(what the LM head reads, the next step's feature, balance loss)"""
        joined = torch.cat((self.pre_fc_norm_embedding(embeds), self.pre_fc_norm_hidden(feature)), dim=-1)
        positions = torch.arange(embeds.shape[1], device=embeds.device) + len(memory)
        angles = rope_angles(positions, self.shape.rotary(), self.shape.theta)
        out, _, uneven = self.layers[0](self.fc(joined), angles, memory)
        out = self.norm(out)
        return out, out, uneven


class TinyQwen(nn.Module):
    """trunk() gives the final hidden state (after the final norm), the outputs of all layers, the load of each
    expert, and the auxiliary loss that balances the experts."""

    BALANCE_WEIGHT = 0.01

    def __init__(self, shape=QwenShape()):
        super().__init__()
        self.shape = shape
        self.model = Stack(shape)
        self.lm_head = nn.Linear(shape.hidden, VOCABULARY, bias=False)
        initialise(self, len(shape.layer_types))

    def trunk(self, ids):
        positions = torch.arange(ids.shape[1], device=ids.device)
        angles = rope_angles(positions, self.shape.rotary(), self.shape.theta)
        x, outputs, loads, unevens = self.model.embed_tokens(ids), [], [], []
        for layer in self.model.layers:
            x, load, uneven = layer(x, angles)
            outputs.append(x)
            loads.append(load)
            unevens.append(uneven)
        auxiliary = self.BALANCE_WEIGHT * torch.stack(unevens).mean()
        return self.model.norm(x), outputs, torch.stack(loads), auxiliary

    def forward(self, ids):
        """logits [B, T, V], loads [layers, E], auxiliary loss."""
        hidden, _, loads, auxiliary = self.trunk(ids)
        return self.lm_head(hidden), loads, auxiliary

    def balance(self, loads, progress):
        """Nothing beside the auxiliary loss."""
