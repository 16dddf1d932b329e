#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads the trained models of data/models into transformers and prints their loss on the held-out prompts.

What it shows is that the shipped checkpoints are what their config.json says: transformers finds every weight it needs and knows every weight there
is (`mtp.*` excepted, for which it has no class), and the model it builds from them has learned something. Exit status 1 where a weight is missing,
unknown or of another shape, where a model is absent, or where the loss is no better than guessing among 256 bytes; 77 where torch is absent.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors import safe_open
except ImportError as missing:
    print(f"{missing.name} is absent: the trained models are not checked", file=sys.stderr)
    sys.exit(77)

MODELS = Path(__file__).resolve().parents[2] / "data" / "models"
NAMES = ("tiny-kimi", "tiny-qwen")
GUESSING_BITS = 8.0

CLASSES = {
    "deepseek_v3": (transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config),
    "kimi_k2": (transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config),
    "qwen3_5_moe_text": (transformers.Qwen3_5MoeForCausalLM, transformers.Qwen3_5MoeTextConfig),
}


def load(folder: Path) -> tuple[torch.nn.Module, list[str]]:
    """The model in float32, and what is wrong with its weights."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    model_class, config_class = CLASSES[kind]
    model, report = model_class.from_pretrained(
        folder,
        config=config_class.from_pretrained(folder),
        dtype=torch.float32,
        attn_implementation="eager",
        output_loading_info=True,
    )
    problems = [
        f"{kind.removesuffix('_keys')}: {key}"
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for key in sorted(map(str, report[kind]))
        if not key.startswith("mtp.")
    ]
    return model.eval(), problems


def mtp_tensors(folder: Path) -> int:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return sum(1 for name in file.keys() if name.startswith("mtp."))


@torch.no_grad()
def bits_per_byte(model: torch.nn.Module, prompts: Path, first: int) -> tuple[float, int]:
    """Mean of -log2 p(byte | bytes before it), the first byte after the token `first` included; and the number of bytes."""
    nats, count = 0.0, 0
    for line in prompts.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["prompt"].encode("utf-8")
        ids = torch.tensor([[first, *text]])
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
        nats += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        count += len(text)
    return nats / count / math.log(2.0), count


def check(folder: Path, prompts: list[Path]) -> bool:
    if not (folder / "model.safetensors").is_file():
        print(f"{folder.name}: absent")
        return False
    model, problems = load(folder)
    for problem in problems:
        print(f"{folder.name}: {problem}")
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{folder.name}: {parameters} parameters, {mtp_tensors(folder)} tensors of MTP beside them")
    first = json.loads((folder / "byte_tokenizer.json").read_text())["bos"]
    good = not problems
    for path in prompts:
        bits, count = bits_per_byte(model, path, first)
        print(f"{folder.name}: {path.stem}: {bits:.3f} bits a byte over {count} bytes")
        good = good and bits < GUESSING_BITS  # NaN is not less
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=MODELS, help="folder of the models")
    parser.add_argument("--prompts", type=Path, help="folder of the held-out prompts (default: prompts below --models)")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    prompts = sorted((arguments.prompts or arguments.models / "prompts").glob("*.jsonl"))
    if not prompts:
        print("no held-out prompts", file=sys.stderr)
        return 1
    results = [check(arguments.models / name, prompts) for name in NAMES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
