# SPDX-License-Identifier: Apache-2.0
"""Runs a transformers model and collects what the engine must reproduce: logits, chosen experts, hidden states, and how near
the routing came to choosing otherwise.

A tree is evaluated path by path, each path a sequence of its own after the prompt; no tree mask is involved, so that the result
defines what a tree mask must bring about.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterator

import torch
from transformers import DynamicCache


@dataclass
class Routing:
    """What the routers of one forward pass chose: per MoE layer the sorted expert ids [tokens, k]; and the nearest miss."""

    experts: list[torch.Tensor] = field(default_factory=list)
    margin: float = float("inf")

    def stacked(self) -> torch.Tensor:
        return torch.stack(self.experts)


def gap(values: torch.Tensor, k: int) -> float:
    """Smallest distance over all rows between the k-th and the (k+1)-th largest value; infinite where nothing is left out."""
    if k >= values.shape[-1]:
        return float("inf")
    ordered = values.sort(dim=-1, descending=True).values
    return (ordered[:, k - 1] - ordered[:, k]).min().item()


def routing_margin(router: Any, router_logits: torch.Tensor) -> float:
    """The distance to another choice, in units of the score by which the router chooses."""
    if not hasattr(router, "e_score_correction_bias"):
        return gap(router_logits.float().softmax(dim=-1), router.top_k)
    scores = router_logits.sigmoid() + router.e_score_correction_bias
    grouped = scores.view(scores.shape[0], router.num_group, -1)
    group_scores = grouped.topk(2, dim=-1).values.sum(dim=-1)
    kept = group_scores.topk(router.topk_group, dim=-1).indices
    mask = torch.zeros_like(group_scores).scatter_(1, kept, 1).bool()
    eligible = grouped.masked_fill(~mask.unsqueeze(-1), float("-inf")).flatten(1)
    return min(gap(group_scores, router.topk_group), gap(eligible, router.top_k))


@contextmanager
def watched(module: torch.nn.Module, layers: list[torch.nn.Module]) -> Iterator[tuple[Routing, list[torch.Tensor]]]:
    """Collects the routing and the outputs of the given decoder layers (hidden states, one [tokens, H] a layer)."""
    routing = Routing()
    hidden: list[torch.Tensor] = []

    def on_router(router: Any, _inputs: Any, output: Any) -> None:
        router_logits, _, chosen = output
        routing.experts.append(chosen.sort(dim=-1).values.clone())
        routing.margin = min(routing.margin, routing_margin(router, router_logits))

    def on_layer(_layer: Any, _inputs: Any, output: Any) -> None:
        hidden.append((output[0] if isinstance(output, tuple) else output)[0].clone())

    hooks = [m.register_forward_hook(on_router) for m in module.modules() if type(m).__name__.lower().endswith("topkrouter")]
    hooks += [layer.register_forward_hook(on_layer) for layer in layers]
    try:
        yield routing, hidden
    finally:
        for hook in hooks:
            hook.remove()


def row(ids: list[int]) -> torch.Tensor:
    return torch.tensor([ids], dtype=torch.int64)


def path_to(node: int, parents: list[int]) -> list[int]:
    path = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    return path


@dataclass
class Inputs:
    prompt: list[int]
    continuation: list[int]
    tree: list[int]
    parents: list[int]


def draw_inputs(vocabulary: int, prompt: int, continuation: int, parents: list[int], seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def ids(n: int) -> list[int]:
        return torch.randint(0, vocabulary, (n,), generator=generator).tolist()

    return Inputs(ids(prompt), ids(continuation), ids(len(parents)), parents)


@dataclass
class Expected:
    tensors: dict[str, torch.Tensor]
    margin: float
    hidden: list[torch.Tensor]  # after every layer of the prompt, for the drafters
    final_hidden: torch.Tensor  # after the last norm


@torch.no_grad()
def evaluate(model: Any, inputs: Inputs, aux_layers: list[int]) -> Expected:
    """The whole of expected.safetensors but for the drafters."""
    layers = list(model.get_decoder().layers)
    has_experts = any("experts" in name for name, _ in model.named_parameters())
    margins = []

    with watched(model, layers) as (routing, hidden):
        final: list[torch.Tensor] = []
        hook = model.get_decoder().norm.register_forward_hook(lambda _m, _i, output: final.append(output[0].clone()))
        prefill = model(input_ids=row(inputs.prompt), use_cache=False).logits[0]
        hook.remove()
    prefill_routing, prompt_hidden = routing, hidden
    margins.append(routing.margin)

    cache = DynamicCache(config=model.config.get_text_config())
    model(input_ids=row(inputs.prompt), cache=cache, use_cache=True)
    decode, decode_experts = [], []
    for token in inputs.continuation:
        with watched(model, []) as (routing, _):
            decode.append(model(input_ids=row([token]), cache=cache, use_cache=True).logits[0, -1])
        margins.append(routing.margin)
        decode_experts.append(routing.experts)

    tree, tree_experts = [], []
    for node in range(len(inputs.tree)):
        path = [inputs.tree[i] for i in path_to(node, inputs.parents)]
        with watched(model, []) as (routing, _):
            tree.append(model(input_ids=row(inputs.prompt + path), use_cache=False).logits[0, -1])
        margins.append(routing.margin)
        tree_experts.append([chosen[-1:] for chosen in routing.experts])

    tensors = {
        "prompt_ids": torch.tensor(inputs.prompt),
        "prefill_logits": prefill,
        "decode_ids": torch.tensor(inputs.continuation),
        "decode_logits": torch.stack(decode),
        "tree_tokens": torch.tensor(inputs.tree),
        "tree_parents": torch.tensor(inputs.parents),
        "tree_logits": torch.stack(tree),
    }
    for layer in aux_layers:
        tensors[f"hidden_after_layer_{layer}"] = prompt_hidden[layer]
    if has_experts:
        tensors["prefill_experts"] = prefill_routing.stacked()
        tensors["decode_experts"] = torch.stack([torch.cat(chosen) for chosen in zip(*decode_experts)])
        tensors["tree_experts"] = torch.stack([torch.cat(chosen) for chosen in zip(*tree_experts)])
    return Expected(tensors, min(margins), prompt_hidden, final[0])
