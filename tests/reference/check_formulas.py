#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the formulas of README.md give what the fixtures expect, and that each deliberate mistake in them is seen.

Needs numpy and nothing else, so that it runs where torch does not. With --faults every mistake of the list below is made in turn; one that stays
inside the tolerance in every fixture means that the fixtures do not test that formula, and is an error. Exit status 1 for a finding, 77 without numpy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable, Iterator
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("numpy is absent: the formulas are not checked", file=sys.stderr)
    sys.exit(77)

import plain_drafters
import plain_model
from plain_checkpoint import read_safetensors
from plain_model import PlainModel, causal, with_tree

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "reference"
TOLERANCE = 2e-3


def shares(folder: Path) -> Iterator[tuple[str, float]]:
    """Each comparison of a fixture: its name and the error as a share of the tolerance; infinite for wrong ids."""
    want = read_safetensors(folder / "expected.safetensors")
    model = PlainModel(folder)

    def logits(name: str, got: Any) -> tuple[str, float]:
        error = np.abs(got - want[name]).max() / (TOLERANCE * max(1.0, want[name].std()))
        return name, float(error) if np.isfinite(error) else float("inf")

    def ids(name: str, got: Any) -> tuple[str, float]:
        return name, 0.0 if np.array_equal(np.asarray(got), want[name]) else float("inf")

    prompt, n = want["prompt_ids"], len(want["prompt_ids"])
    rows = causal(n)
    prefill, final = model.forward(prompt, rows)
    yield logits("prefill_logits", prefill)
    for layer, hidden in enumerate(rows.hidden):
        if f"hidden_after_layer_{layer}" in want:
            yield logits(f"hidden_after_layer_{layer}", hidden)
    longer = np.concatenate([prompt, want["decode_ids"]])
    decode_rows = causal(len(longer))
    yield logits("decode_logits", model.forward(longer, decode_rows)[0][n:])
    tree_rows = with_tree(n, want["tree_parents"].tolist())
    yield logits("tree_logits", model.forward(np.concatenate([prompt, want["tree_tokens"]]), tree_rows)[0][n:])
    if rows.experts:
        yield ids("prefill_experts", rows.experts)
        yield ids("decode_experts", [chosen[n:] for chosen in decode_rows.experts])
        yield ids("tree_experts", [chosen[n:] for chosen in tree_rows.experts])

    drafters: list[tuple[str, Any, list]] = []
    if "mtp_logits" in want:
        drafters.append(("mtp", plain_drafters.PlainMtp(model), []))
    if "eagle3_logits" in want:
        head = plain_drafters.PlainEagle3(model, folder / "eagle3")
        layers = head.c["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
        drafters.append(("eagle3", head, [rows.hidden[layer] for layer in layers]))
    for name, drafter, auxiliary in drafters:
        steps = len(want[f"{name}_step_tokens"])
        states = drafter.first_states(auxiliary, final)
        got, tokens, experts = plain_drafters.draft(drafter, want[f"{name}_input_ids"].tolist(), states, steps)
        yield logits(f"{name}_logits", got[:n])
        yield logits(f"{name}_step_logits", got[n:])
        yield ids(f"{name}_step_tokens", tokens)
        if experts:
            yield ids(f"{name}_experts", experts)


def worst(folder: Path) -> tuple[str, float]:
    return max(shares(folder), key=lambda item: item[1])


# ---- mistakes, each as (what, object, attribute, replacement made from the original)

Wrap = Callable[[Callable], Callable]


def faults() -> list[tuple[str, Any, str, Wrap]]:
    model, eagle, mtp = PlainModel, plain_drafters.PlainEagle3, plain_drafters.PlainMtp

    def rope_changed(**changes: float) -> Wrap:
        return lambda original: lambda rope, d: original({**rope, **{k: v for k, v in changes.items() if k in rope}}, d)

    def router(change: Callable) -> Wrap:
        def wrap(original: Callable) -> Callable:
            def route(self: PlainModel, x: Any, name: str) -> Any:
                bias = f"{name}.gate.e_score_correction_bias"
                return change(self, x, name, *original(self, x, name), self.w.get(bias))

            return route

        return wrap

    def weigh_with_bias(self: Any, x: Any, name: str, chosen: Any, weights: Any, bias: Any) -> Any:
        biased = plain_model.sigmoid(self.linear(x, f"{name}.gate")) + bias
        weights = np.take_along_axis(biased, chosen, axis=1)
        return chosen, weights / weights.sum(-1, keepdims=True) * self.c["routed_scaling_factor"]

    def without_groups(original: Callable) -> Callable:
        def route(self: PlainModel, x: Any, name: str) -> Any:
            with mock.patch.dict(self.c, {"topk_group": self.c["n_group"]}):
                return original(self, x, name)

        return route

    def chunked_gate(original: Callable) -> Callable:
        def split(self: PlainModel, q: Any) -> Any:
            n, heads, width = q.shape
            query, gate = np.split(q.reshape(n, -1), 2, axis=1)
            return query.reshape(n, heads, width // 2), gate.reshape(n, heads, width // 2)

        return split

    def swapped(original: Callable) -> Callable:
        return lambda self, e, h: original(self, h, e)

    def positions_shifted(original: Callable) -> Callable:
        def rows(n: int, parents: list[int]) -> Any:
            made = original(n, parents)
            made.positions = np.arange(n + len(parents))
            return made

        return rows

    def tree_as_chain(original: Callable) -> Callable:
        def rows(n: int, parents: list[int]) -> Any:
            made = original(n, parents)
            made.visible = causal(n + len(parents)).visible
            return made

        return rows

    return [
        ("half rotation in MLA", model, "rotate_mla", lambda _: lambda self, x, c, s: plain_model.rotate_half(x, c, s)),
        ("interleaved rotation in GQA", plain_model, "rotate_half", lambda original: half_as_interleaved),
        ("cos and sin with another YaRN mscale", plain_model, "make_rope", rope_changed(mscale=0.7)),
        ("YaRN ramp without its slow end", plain_model, "make_rope", rope_changed(beta_slow=8.0)),
        ("YaRN without interpolation", plain_model, "make_rope", rope_changed(factor=1.0)),
        ("softmax scale without mscale_all_dim", model, "softmax_scale_of_mla",
         lambda _: lambda self: (self.c["qk_nope_head_dim"] + self.c["qk_rope_head_dim"]) ** -0.5),
        ("expert weights with the correction bias", model, "route_sigmoid", router(weigh_with_bias)),
        ("experts chosen from all groups", model, "route_sigmoid", without_groups),
        ("no routed_scaling_factor", model, "route_sigmoid",
         router(lambda self, x, name, chosen, weights, bias: (chosen, weights / self.c["routed_scaling_factor"]))),
        ("softmax weights not normalised", model, "route_softmax",
         router(lambda self, x, name, chosen, w, bias: (chosen, w * np.take_along_axis(
             plain_model.softmax(self.linear(x, f"{name}.gate")), chosen, axis=1).sum(-1, keepdims=True)))),
        ("queries and gates in two halves", model, "split_query_and_gate", chunked_gate),
        ("norms without 1 +", model, "norm", lambda _: lambda self, x, name: self.w[name + ".weight"] * plain_model.rms(x, self.eps)),
        ("gated norm with 1 + w", model, "gated_norm",
         lambda original: lambda self, o, z, name: original(self, o, z, name) + plain_model.rms(o, self.eps) * plain_model.silu(z)),
        ("convolution kernel reversed", model, "convolve", lambda original: lambda self, u, k: original(self, u, k[:, :, ::-1])),
        ("decay without dt_bias", model, "delta_decay",
         lambda original: lambda self, a, name: original(self, a - self.w[f"{name}.dt_bias"], name)),
        ("tree positions counted on", sys.modules[__name__], "with_tree", positions_shifted),
        ("tree seen as a chain", sys.modules[__name__], "with_tree", tree_as_chain),
        ("MTP hidden state before the embedding", mtp, "join", swapped),
        ("EAGLE-3 hidden state before the embedding", eagle, "join", swapped),
        ("EAGLE-3 auxiliary layers reversed", eagle, "first_states",
         lambda original: lambda self, auxiliary, final: original(self, auxiliary[::-1], final)),
        ("EAGLE-3 draft index taken for a token", eagle, "token", lambda _: lambda self, index: index),
    ]


def half_as_interleaved(x: Any, cos: Any, sin: Any) -> Any:
    d = 2 * cos.shape[-1]
    return np.concatenate([plain_model.rotate_interleaved(x[..., :d], cos, sin), x[..., d:]], axis=-1)


def check_faults(folders: list[Path]) -> int:
    unseen = 0
    for what, owner, name, wrap in faults():
        seen = []
        with mock.patch.object(owner, name, wrap(getattr(owner, name))), np.errstate(all="ignore"):
            for folder in folders:
                if worst(folder)[1] > 1.0:
                    seen.append(folder.name)
        print(f"{what}: {'seen by ' + ', '.join(seen) if seen else 'NOT SEEN'}")
        unseen += not seen
    return unseen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fixtures", type=Path, default=FIXTURES)
    parser.add_argument("--faults", action="store_true", help="also make every mistake of the list and see that it is found")
    arguments = parser.parse_args()
    folders = sorted(f.parent for f in arguments.fixtures.glob("*/expected.safetensors"))
    if not folders:
        print(f"no fixtures below {arguments.fixtures}", file=sys.stderr)
        return 1
    bad = 0
    for folder in folders:
        name, share = worst(folder)
        print(f"{folder.name}: largest error {100 * share:.2f} % of the tolerance ({name})")
        bad += share > 1.0
    if arguments.faults and not bad:
        bad += check_faults(folders)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
