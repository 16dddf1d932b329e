# SPDX-License-Identifier: Apache-2.0
"""The families of the fixtures: a transformers config each, small, with every structural feature of the published model.

Dimensions are chosen to be awkward (not powers of two, head sizes that differ from hidden / heads) so that an engine that confuses
two of them fails. Numbers that scale a term (factors, eps, routed_scaling_factor) differ from 1 so that a forgotten term shows.
What the parameters hold is decided in random_weights.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import transformers

PROMPT_LENGTH = 24
DECODE_LENGTH = 6
TREE_PARENTS = [-1, 0, 0, 1, 1, 2, 4]  # node 0 is the root; siblings, cousins and a path of depth 3
CHAIN_PARENTS = [-1, 0, 1, 2]  # a recurrent state has one successor


@dataclass
class Family:
    """One fixture folder: the model, what hangs on it, and how its checkpoint is stored."""

    name: str
    first_seed: int
    model_class: Callable[..., Any]
    config: Callable[[], Any]
    aux_layers: list[int]
    parents: list[int] = field(default_factory=lambda: TREE_PARENTS)
    eagle3: bool = False
    mtp: bool = False
    fused_experts: bool = False  # the target's experts as one tensor a layer; those of MTP stay one by one
    quantization: str | None = None  # "fp8" or "int4"
    published_config: Callable[[dict], dict] | None = None  # rewrites config.json as the model's publisher writes it


def yarn(factor: float, mscale: float, mscale_all_dim: float) -> dict:
    """YaRN over a short original context, so that at rope size 8 one frequency is kept, one blended, two stretched."""
    return {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": factor,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 64,
    }


def deepseek_config(**overrides: Any) -> transformers.DeepseekV3Config:
    settings: dict[str, Any] = dict(
        vocab_size=96,
        hidden_size=24,
        intermediate_size=40,
        moe_intermediate_size=12,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=12,
        routed_scaling_factor=2.5,
        kv_lora_rank=16,
        q_lora_rank=20,
        qk_rope_head_dim=8,
        qk_nope_head_dim=12,
        v_head_dim=10,
        n_group=4,
        topk_group=2,
        num_experts_per_tok=3,
        first_k_dense_replace=2,
        norm_topk_prob=True,
        max_position_embeddings=512,
        rope_parameters=yarn(factor=8.0, mscale=1.0, mscale_all_dim=0.7),
        num_nextn_predict_layers=0,
    )
    settings.update(overrides)
    return transformers.DeepseekV3Config(**settings)


def qwen3_5_text_settings() -> dict[str, Any]:
    return dict(
        vocab_size=96,
        hidden_size=24,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_conv_kernel_dim=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=12,
        moe_intermediate_size=14,
        shared_expert_intermediate_size=20,
        num_experts=6,
        num_experts_per_tok=2,
        max_position_embeddings=512,
        full_attention_interval=4,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_interleaved": True,
            "mrope_section": [2, 1, 1],
        },
        attn_output_gate=True,
        mtp_num_hidden_layers=1,
        mtp_use_dedicated_embeddings=False,
    )


def published_deepseek(config: dict) -> dict:
    """config.json as DeepSeek and Moonshot publish it: rope_theta and rope_scaling apart, the router named in words."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {**rope, "type": kind}
    for derived in ("head_dim", "qk_head_dim", "rope_interleave", "output_router_logits"):
        config.pop(derived, None)
    config.update(scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1)
    return config


def published_qwen3_moe(config: dict) -> dict:
    """transformers 5 renames num_experts when it saves; the published name and rope fields are put back."""
    rope = config.pop("rope_parameters")
    config["num_experts"] = config.pop("num_local_experts", config.get("num_experts"))
    return {**config, "rope_theta": rope["rope_theta"], "rope_scaling": None}


def published_kimi(config: dict) -> dict:
    return {**published_deepseek(config), "model_type": "kimi_k2"}


def make_families() -> list[Family]:
    deepseek = transformers.DeepseekV3ForCausalLM
    return [
        Family("deepseek_v3", 1000, deepseek, deepseek_config, aux_layers=[0, 1, 2], eagle3=True),
        Family(
            "deepseek_v3_no_qlora",
            2000,
            deepseek,
            lambda: deepseek_config(
                num_hidden_layers=3,
                first_k_dense_replace=1,
                q_lora_rank=None,
                n_group=1,
                topk_group=1,
                n_routed_experts=8,
                num_experts_per_tok=2,
                n_shared_experts=2,
                norm_topk_prob=False,
                routed_scaling_factor=1.5,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            ),
            aux_layers=[0, 1, 2],
        ),
        Family(
            "qwen3_moe",
            3000,
            transformers.Qwen3MoeForCausalLM,
            lambda: transformers.Qwen3MoeConfig(
                vocab_size=96,
                hidden_size=32,
                intermediate_size=40,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=12,
                moe_intermediate_size=16,
                num_experts=8,
                num_experts_per_tok=2,
                norm_topk_prob=True,
                decoder_sparse_step=1,
                mlp_only_layers=[],
                max_position_embeddings=512,
                rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            ),
            aux_layers=[0, 1, 2],
            published_config=published_qwen3_moe,
        ),
        Family(
            "qwen3_5_moe",
            4000,
            transformers.Qwen3_5MoeForCausalLM,
            lambda: transformers.Qwen3_5MoeTextConfig(**qwen3_5_text_settings()),
            aux_layers=[0, 2, 3],
            parents=CHAIN_PARENTS,
            mtp=True,
        ),
        Family(
            "qwen3_5_moe_published",
            4500,
            transformers.Qwen3_5MoeForConditionalGeneration,
            lambda: transformers.Qwen3_5MoeConfig(
                text_config={**qwen3_5_text_settings(), "num_hidden_layers": 2, "full_attention_interval": 2},
                vision_config=dict(
                    depth=1,
                    hidden_size=8,
                    intermediate_size=8,
                    num_heads=2,
                    out_hidden_size=24,
                    num_position_embeddings=4,
                    patch_size=2,
                ),
                image_token_id=92,
                video_token_id=93,
                vision_start_token_id=94,
                vision_end_token_id=95,
            ),
            aux_layers=[0, 1],
            parents=CHAIN_PARENTS,
            mtp=True,
            fused_experts=True,
        ),
        Family(
            "kimi_k2",
            5000,
            deepseek,
            lambda: deepseek_config(
                num_hidden_layers=3,
                first_k_dense_replace=1,
                n_group=1,
                topk_group=1,
                n_routed_experts=10,
                routed_scaling_factor=2.827,
                rms_norm_eps=1e-5,
                rope_parameters={**yarn(factor=64.0, mscale=1.0, mscale_all_dim=1.0), "rope_theta": 50000.0},
            ),
            aux_layers=[0, 1, 2],
            published_config=published_kimi,
        ),
        Family(
            "qwen3",
            6000,
            transformers.Qwen3ForCausalLM,
            lambda: transformers.Qwen3Config(
                vocab_size=96,
                hidden_size=32,
                intermediate_size=44,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=12,
                max_position_embeddings=512,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            ),
            aux_layers=[0, 1, 2],
        ),
        Family(
            "deepseek_v3_fp8",
            7000,
            deepseek,
            lambda: deepseek_config(
                vocab_size=48,
                hidden_size=160,
                intermediate_size=136,
                moe_intermediate_size=16,
                num_hidden_layers=2,
                first_k_dense_replace=1,
                n_routed_experts=6,
                n_group=2,
                topk_group=1,
                num_experts_per_tok=2,
                rope_parameters=yarn(factor=40.0, mscale=1.0, mscale_all_dim=1.0),
            ),
            aux_layers=[0, 1],
            quantization="fp8",
            published_config=published_deepseek,
        ),
        Family(
            "kimi_k2_int4",
            8000,
            deepseek,
            lambda: deepseek_config(
                vocab_size=64,
                hidden_size=64,
                intermediate_size=40,
                moe_intermediate_size=32,
                num_hidden_layers=2,
                first_k_dense_replace=1,
                n_routed_experts=6,
                n_group=1,
                topk_group=1,
                num_experts_per_tok=2,
                routed_scaling_factor=2.827,
                rms_norm_eps=1e-5,
                rope_parameters={**yarn(factor=64.0, mscale=1.0, mscale_all_dim=1.0), "rope_theta": 50000.0},
            ),
            aux_layers=[0, 1],
            quantization="int4",
            published_config=published_kimi,
        ),
    ]
