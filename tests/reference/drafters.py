# SPDX-License-Identifier: Apache-2.0
"""Two drafters for which transformers has no class, written out in its own building blocks: the MTP module of Qwen3.5 and an EAGLE-3 head.

Both are run without a cache: a further draft step appends a row and evaluates all rows again under a causal mask. What a cache must give is
thereby defined, not tested. Row i holds the token at i+1 and the target's state at i, and stands at position i.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as qwen


def causal_mask(n: int) -> torch.Tensor:
    return torch.full((n, n), float("-inf")).triu(1)[None, None]


class Qwen35Mtp(nn.Module):
    """y = norm(layer(fc([norm(e), norm(h)]))), draft logits = lm_head of the target on y. Names as in the checkpoint, less `mtp.`."""

    def __init__(self, target_config: Any) -> None:
        super().__init__()
        config = copy.deepcopy(target_config)
        config.num_hidden_layers = 1
        config.layer_types = ["full_attention"]
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = qwen.Qwen3_5MoeRMSNorm(size, eps)
        self.pre_fc_norm_hidden = qwen.Qwen3_5MoeRMSNorm(size, eps)
        self.layers = nn.ModuleList([qwen.Qwen3_5MoeDecoderLayer(config, 0)])
        self.norm = qwen.Qwen3_5MoeRMSNorm(size, eps)

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor, rotary: nn.Module) -> torch.Tensor:
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], dim=-1))[None]
        n = x.shape[1]
        positions = torch.arange(n)[None]
        x = self.layers[0](
            x,
            position_embeddings=rotary(x, positions),
            attention_mask=causal_mask(n),
            position_ids=positions,
        )
        return self.norm(x)[0]

    def checkpoint(self) -> dict[str, torch.Tensor]:
        """Tensors as stored: experts one by one, as save_pretrained writes those of the target."""
        stored: dict[str, torch.Tensor] = {}
        for name, tensor in self.state_dict().items():
            if name.endswith("experts.gate_up_proj"):
                base = name.removesuffix("gate_up_proj")
                for e, fused in enumerate(tensor):
                    gate, up = fused.chunk(2, dim=0)
                    stored[f"mtp.{base}{e}.gate_proj.weight"] = gate
                    stored[f"mtp.{base}{e}.up_proj.weight"] = up
            elif name.endswith("experts.down_proj"):
                base = name.removesuffix("down_proj")
                for e, down in enumerate(tensor):
                    stored[f"mtp.{base}{e}.down_proj.weight"] = down
            else:
                stored[f"mtp.{name}"] = tensor
        return {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in stored.items()}


class Eagle3Layer(nn.Module):
    """A Llama layer whose attention reads [norm(embedding), norm(hidden)] and whose residual is the hidden state as it came."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = llama.LlamaAttention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = getattr(self.self_attn, name).out_features
            setattr(self.self_attn, name, nn.Linear(2 * size, rows, bias=False))
        self.mlp = llama.LlamaMLP(config)
        self.hidden_norm = llama.LlamaRMSNorm(size, eps)
        self.input_layernorm = llama.LlamaRMSNorm(size, eps)
        self.post_attention_layernorm = llama.LlamaRMSNorm(size, eps)

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor, rotary: nn.Module) -> torch.Tensor:
        n = hidden.shape[1]
        both = torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], dim=-1)
        attended, _ = self.self_attn(both, rotary(both, torch.arange(n)[None]), causal_mask(n))
        hidden = hidden + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Head(nn.Module):
    """Names as published. d2t and t2d are kept beside it: they hold token ids, not weights."""

    def __init__(self, config: Any, draft_vocabulary: int) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = Eagle3Layer(config)
        self.norm = llama.LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, draft_vocabulary, bias=False)
        self._rotary = [llama.LlamaRotaryEmbedding(config)]  # in a list: no part of the checkpoint

    def project(self, auxiliary: list[torch.Tensor]) -> torch.Tensor:
        return self.fc(torch.cat(auxiliary, dim=-1))

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self.midlayer(embedded[None], hidden[None], self._rotary[0])[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.norm(hidden))


def eagle3_config(hidden_size: int, vocabulary: int) -> transformers.LlamaConfig:
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden_size,
        intermediate_size=44,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden_size // 4,
        rms_norm_eps=1e-5,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    config._attn_implementation = "eager"
    return config


def eagle3_published_config(config: Any, draft_vocabulary: int, aux_layers: list[int]) -> dict:
    """config.json with the fields that published heads have."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "draft_vocab_size": draft_vocabulary,
        "dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": aux_layers, "use_aux_hidden_state": True},
        "head_dim": config.head_dim,
        "hidden_act": config.hidden_act,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "model_type": "llama",
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": config.num_key_value_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_parameters["rope_theta"],
        "tie_word_embeddings": False,
        "vocab_size": config.vocab_size,
    }


def draft_vocabulary_maps(vocabulary: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """d2t I64 [size] and t2d BOOL [vocabulary] of a random subset of the target's tokens, ascending as published maps are."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(vocabulary, generator=generator)[:size].sort().values
    t2d = torch.zeros(vocabulary, dtype=torch.bool)
    t2d[kept] = True
    return kept - torch.arange(size), t2d


def sure_argmax(logits: torch.Tensor) -> tuple[int, float]:
    """The most likely index and how far the runner-up is behind."""
    best = logits.topk(2)
    return int(best.indices[0]), float(best.values[0] - best.values[1])


@torch.no_grad()
def run_mtp(mtp: Qwen35Mtp, target: Any, tokens: list[int], hidden: torch.Tensor, steps: int) -> tuple[dict, float]:
    """One pass over the prompt, then `steps` draft steps on the module's own output. Returns tensors and the nearest argmax."""
    decoder = target.get_decoder()
    ids, states, drafted, nearest = list(tokens), hidden, [], float("inf")
    for _ in range(steps + 1):
        out = mtp(decoder.embed_tokens(torch.tensor(ids)), states, decoder.rotary_emb)
        token, lead = sure_argmax(target.lm_head(out[-1]))
        nearest = min(nearest, lead)
        drafted.append(token)
        ids, states = ids + [token], torch.cat([states, out[-1:]])
    logits = target.lm_head(out)
    n = len(tokens)
    return {
        "mtp_input_ids": torch.tensor(tokens),
        "mtp_logits": logits[:n],
        "mtp_step_tokens": torch.tensor(drafted[:steps]),
        "mtp_step_logits": logits[n:],
    }, nearest


@torch.no_grad()
def run_eagle3(
    head: Eagle3Head, d2t: torch.Tensor, target: Any, tokens: list[int], auxiliary: list[torch.Tensor], steps: int
) -> tuple[dict, float]:
    """As run_mtp. Draft indices become the target's tokens through d2t before they are fed back."""
    embed = target.get_decoder().embed_tokens
    ids, states, drafted, nearest = list(tokens), head.project(auxiliary), [], float("inf")
    for _ in range(steps + 1):
        out = head(embed(torch.tensor(ids)), states)
        index, lead = sure_argmax(head.logits(out[-1]))
        nearest = min(nearest, lead)
        drafted.append(index + int(d2t[index]))
        ids, states = ids + [drafted[-1]], torch.cat([states, out[-1:]])
    logits = head.logits(out)
    n = len(tokens)
    return {
        "eagle3_input_ids": torch.tensor(tokens),
        "eagle3_logits": logits[:n],
        "eagle3_step_tokens": torch.tensor(drafted[:steps]),
        "eagle3_step_logits": logits[n:],
    }, nearest
