#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the fixtures of tests/fixtures/reference, or checks that those committed are what it makes. See README.md.

For each family: draw a model, save it, load the saved checkpoint back, and run that. What is expected thereby belongs to the files
and not to the model in memory. A seed is passed over where the routing is too near a tie, the logits spread too little or too much, or some
tensor cannot be seen in the logits; the first seed that serves is taken, so that the result is the same every time.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

import drafters
import expected_values
import quantized_checkpoint
import random_weights
from families import DECODE_LENGTH, PROMPT_LENGTH, Family, make_families

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures" / "reference"

TOLERANCE = 2e-3  # times max(1, standard deviation of the logits)
ROUTING_MARGIN = 1e-3
ARGMAX_LEAD = 0.05  # of the drafters, whose own choices are fed back
LOGIT_SPREAD = (1.0, 5.0)
DRAFT_VOCABULARY = 40
DRAFT_STEPS = 2
CHECKED_DIFFERENCE = 1e-4  # --check: other CPUs and BLAS builds add in another order
MAX_SEEDS = 400
RESERVED_TOKENS = 4  # the last ids are those of images where a family has a vision tower


def write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def fuse_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """experts.E.{gate,up,down}_proj.weight into experts.gate_up_proj [E, 2I, H] (gate above up) and experts.down_proj [E, H, I]."""
    fused: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        base, found, leaf = name.partition(".experts.0.")
        if not found:
            if ".experts." not in name:
                fused[name] = tensor
            continue
        count = sum(1 for other in tensors if other.startswith(f"{base}.experts.") and other.endswith(f".{leaf}"))
        part = {kind: [tensors[f"{base}.experts.{e}.{kind}_proj.weight"] for e in range(count)] for kind in ("gate", "up", "down")}
        pairs = zip(part["gate"], part["up"])
        fused[f"{base}.experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in pairs])
        fused[f"{base}.experts.down_proj"] = torch.stack(part["down"])
    return fused


def save_checkpoint(model: Any, family: Family, folder: Path, extra: dict[str, torch.Tensor], seed: int) -> None:
    """save_pretrained in BF16 (the correction bias stays F32), then what the family adds: MTP, quantisation, published config."""
    stored = copy.deepcopy(model).to(torch.bfloat16)
    exact = dict(random_weights.tensors_of(model))
    for name, tensor in random_weights.tensors_of(stored):
        if name.endswith(random_weights.KEEP_F32):
            tensor.data = exact[name].clone()
    stored.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tensors = load_file(folder / "model.safetensors")
    tensors = {**(fuse_experts(tensors) if family.fused_experts else tensors), **extra}
    config = json.loads((folder / "config.json").read_text())
    if family.quantization:
        tensors = quantized_checkpoint.quantize(tensors, family.quantization, seed)
        config["quantization_config"] = quantized_checkpoint.QUANTIZATION_CONFIGS[family.quantization]
    if family.published_config:
        config = family.published_config(config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)


def load_checkpoint(family: Family, folder: Path) -> Any:
    """The saved model in float32, through a plain copy where the weights are quantised. Missing or unknown tensors are an error."""
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch)
        tensors = quantized_checkpoint.dequantize(load_file(folder / "model.safetensors"))
        save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config.pop("quantization_config", None)
        config["model_type"] = family.model_class.config_class.model_type  # kimi_k2 is deepseek_v3 by another name
        write_json(plain / "config.json", config)
        model, report = family.model_class.from_pretrained(
            plain,
            config=type(family.config()).from_pretrained(plain),
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager" if any("experts" in name for name in tensors) else None,
            output_loading_info=True,
        )
    problems = {kind: report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if report[kind]}
    if problems:
        raise RuntimeError(f"{family.name}: transformers does not read the checkpoint back: {problems}")
    return model.eval()


def limit(logits: torch.Tensor) -> float:
    return TOLERANCE * max(1.0, logits.std().item())


def check_cache(model: Any, expected: dict[str, torch.Tensor], name: str) -> None:
    """Decoding through the cache must be what one pass over everything gives; an error here is one of the reference."""
    ids = torch.cat([expected["prompt_ids"], expected["decode_ids"]])
    with torch.no_grad():
        once = model(input_ids=ids[None], use_cache=False).logits[0]
    n = len(expected["prompt_ids"])
    difference = (once[n:] - expected["decode_logits"]).abs().max().item()
    if difference > limit(once) / 10:
        raise RuntimeError(f"{name}: decoding differs from one pass by {difference:.2e}")


def make_eagle3(family: Family, folder: Path, target: Any, expected: expected_values.Expected, seed: int) -> str | None:
    """The head in folder/eagle3 and its expected tensors; the reason why the seed does not serve, if so."""
    vocabulary, size = target.config.vocab_size, target.config.hidden_size
    config = drafters.eagle3_config(size, vocabulary)
    head = drafters.Eagle3Head(config, DRAFT_VOCABULARY).eval()
    random_weights.fill(head, seed + 1, zero_centred_norms=False)
    d2t, t2d = drafters.draft_vocabulary_maps(vocabulary, DRAFT_VOCABULARY, seed + 2)
    (folder / "eagle3").mkdir()
    stored = {name: tensor.to(torch.bfloat16) for name, tensor in head.state_dict().items()}
    save_file({**stored, "d2t": d2t, "t2d": t2d}, folder / "eagle3" / "model.safetensors", metadata={"format": "pt"})
    write_json(
        folder / "eagle3" / "config.json",
        drafters.eagle3_published_config(config, DRAFT_VOCABULARY, family.aux_layers),
    )
    tokens = (expected.tensors["prompt_ids"].tolist() + expected.tensors["decode_ids"].tolist())[1 : PROMPT_LENGTH + 1]
    auxiliary = [expected.hidden[layer] for layer in family.aux_layers]

    def run() -> dict[str, torch.Tensor]:
        return drafters.run_eagle3(head, d2t, target, tokens, auxiliary, DRAFT_STEPS)[0]

    tensors, lead = drafters.run_eagle3(head, d2t, target, tokens, auxiliary, DRAFT_STEPS)
    expected.tensors.update(tensors)
    if lead < ARGMAX_LEAD:
        return f"EAGLE-3 argmax is ahead by {lead:.1e} only"
    threshold = 10 * limit(tensors["eagle3_logits"])
    unseen = random_weights.invisible_tensors(head, lambda: run()["eagle3_logits"], False, threshold)
    return f"EAGLE-3 tensors unseen: {unseen}" if unseen else None


def run_mtp(mtp: Any, target: Any, expected: expected_values.Expected) -> str | None:
    tokens = (expected.tensors["prompt_ids"].tolist() + expected.tensors["decode_ids"].tolist())[1 : PROMPT_LENGTH + 1]

    def run() -> tuple[dict[str, torch.Tensor], float]:
        return drafters.run_mtp(mtp, target, tokens, expected.final_hidden, DRAFT_STEPS)

    with expected_values.watched(mtp, []) as (routing, _):
        tensors, lead = run()
    tensors["mtp_experts"] = routing.experts[-1][None]  # the last pass has all rows: prompt, then the steps
    expected.tensors.update(tensors)
    if lead < ARGMAX_LEAD or routing.margin < ROUTING_MARGIN:
        return f"MTP: argmax ahead by {lead:.1e}, routing by {routing.margin:.1e}"
    threshold = 10 * limit(tensors["mtp_logits"])
    unseen = random_weights.invisible_tensors(mtp, lambda: run()[0]["mtp_logits"], True, threshold)
    return f"MTP tensors unseen: {unseen}" if unseen else None


def try_seed(family: Family, folder: Path, seed: int) -> tuple[dict[str, torch.Tensor] | None, str]:
    """Writes the checkpoint of one seed. Returns the expected tensors, or None and what is wrong with the seed."""
    config = family.config()
    text = config.get_text_config()
    zero_centred = family.name.startswith("qwen3_5")
    tied = bool(getattr(text, "tie_word_embeddings", False))
    model = family.model_class(config).eval()
    random_weights.fill(model, seed, zero_centred, tied)
    extra: dict[str, torch.Tensor] = {}
    mtp = None
    if family.mtp:
        mtp = drafters.Qwen35Mtp(text).eval()
        random_weights.fill(mtp, seed + 1, zero_centred, prefix="mtp.")
        extra = mtp.checkpoint()
    save_checkpoint(model, family, folder, extra, seed + 3)
    loaded = load_checkpoint(family, folder)

    inputs = expected_values.draw_inputs(text.vocab_size - RESERVED_TOKENS, PROMPT_LENGTH, DECODE_LENGTH, family.parents, seed + 4)
    expected = expected_values.evaluate(loaded, inputs, family.aux_layers)
    if expected.margin < ROUTING_MARGIN:
        return None, f"routing within {expected.margin:.1e} of a tie"
    logits = expected.tensors["prefill_logits"]
    if not LOGIT_SPREAD[0] <= logits.std().item() <= LOGIT_SPREAD[1]:
        return None, f"logits spread {logits.std().item():.2f}"
    check_cache(loaded, expected.tensors, family.name)

    @torch.no_grad()
    def prefill() -> torch.Tensor:
        return loaded(input_ids=expected.tensors["prompt_ids"][None], use_cache=False).logits[0]

    unseen = random_weights.invisible_tensors(loaded, prefill, zero_centred, 10 * limit(logits))
    if unseen:
        return None, f"tensors unseen: {unseen}"
    problem = None
    if mtp is not None:
        problem = run_mtp(mtp, loaded, expected)
    if family.eagle3:
        problem = make_eagle3(family, folder, loaded, expected, seed)
    return (None, problem) if problem else (expected.tensors, "")


def make(family: Family, output: Path) -> None:
    """The folder of one family under output, replacing its files."""
    for seed in range(family.first_seed, family.first_seed + 10 * MAX_SEEDS, 10):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            tensors, problem = try_seed(family, folder, seed)
            if tensors is None:
                print(f"{family.name}: seed {seed} passed over, {problem}", file=sys.stderr)
                continue
            save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "expected.safetensors")
            for source in sorted(folder.rglob("*")):
                if source.is_file():
                    target = output / family.name / source.relative_to(folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(source.read_bytes())
        kib = sum(f.stat().st_size for f in (output / family.name).rglob("*") if f.is_file()) / 1024
        spread = tensors["prefill_logits"].std().item()
        print(f"{family.name}: seed {seed}, {kib:.0f} KiB, logits spread {spread:.2f}")
        return
    raise RuntimeError(f"{family.name}: no seed of {MAX_SEEDS} serves")


def difference(made: Path, committed: Path) -> float:
    """Largest difference between two files: 0 for equal bytes, infinite where anything but float32 values differs."""
    if not committed.is_file():
        return float("inf")
    if made.read_bytes() == committed.read_bytes():
        return 0.0
    if made.name != "expected.safetensors":
        return float("inf")
    ours, theirs = load_file(made), load_file(committed)
    if ours.keys() != theirs.keys():
        return float("inf")
    worst = 0.0
    for name, tensor in ours.items():
        other = theirs[name]
        if tensor.shape != other.shape or tensor.dtype != other.dtype:
            return float("inf")
        if tensor.dtype == torch.float32:
            worst = max(worst, (tensor - other).abs().max().item())
        elif not torch.equal(tensor, other):
            return float("inf")
    return worst


def check(families: list[Family], committed: Path) -> int:
    """Makes everything again in a scratch folder and compares; exit status 1 where something differs."""
    bad = 0
    for family in families:
        with tempfile.TemporaryDirectory() as scratch:
            make(family, Path(scratch))
            ours = Path(scratch) / family.name
            names = {f.relative_to(ours) for f in ours.rglob("*") if f.is_file()}
            there = committed / family.name
            names |= {f.relative_to(there) for f in there.rglob("*") if f.is_file()}
            worst = max(difference(ours / n, there / n) if (ours / n).is_file() else float("inf") for n in names)
        verdict = "equal" if worst == 0 else f"largest difference {worst:.1e}"
        print(f"{family.name}: {len(names)} files, {verdict}")
        bad += worst > CHECKED_DIFFERENCE
    return 1 if bad else 0


def main() -> int:
    families = make_families()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=FIXTURES, help="folder of the fixtures")
    parser.add_argument("--family", action="append", choices=[f.name for f in families], help="only this one (repeatable)")
    parser.add_argument("--check", action="store_true", help="make in a scratch folder and compare with --output")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    chosen = [f for f in families if arguments.family is None or f.name in arguments.family]
    if arguments.check:
        return check(chosen, arguments.output)
    for family in chosen:
        make(family, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
