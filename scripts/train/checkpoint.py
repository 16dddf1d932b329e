# SPDX-License-Identifier: Apache-2.0
"""Writes and reads the models in the layout of their published families.

bf16 but for the router's correction bias, A_log and dt_bias, which stay float32; one matrix an expert and
projection; an MTP module as mtp.* in the target's own file.
"""
import json

import torch
from safetensors.torch import load_file, save_file

from tokens import BOS, EOS, write_tokenizer

KEPT_WIDE = ("e_score_correction_bias", "A_log", "dt_bias")
EXPERT_PARTS = ("gate", "up", "down")
WEIGHTS_FILE = "model.safetensors"


def expert_blocks(module):
    """(prefix, module) of each mixture of experts."""
    return [(name, part) for name, part in module.named_modules() if type(part).__name__ == "Experts"]


def published_tensors(module, prefix=""):
    """name -> tensor as stored."""
    blocks = dict(expert_blocks(module))
    tensors = {}
    for name, value in module.state_dict().items():
        owner, _, part = name.rpartition(".")
        if owner in blocks and part in EXPERT_PARTS:
            continue
        wide = value.dtype != torch.float32 or name.endswith(KEPT_WIDE)
        tensors[prefix + name] = value if wide else value.to(torch.bfloat16)
    for owner, block in blocks.items():
        for index in range(block.count):
            for part, weight in zip(EXPERT_PARTS, block.expert(index)):
                tensors[f"{prefix}{owner}.{index}.{part}_proj.weight"] = weight.detach().to(torch.bfloat16)
    return {name: value.contiguous().cpu() for name, value in sorted(tensors.items())}


@torch.no_grad()
def read_published(module, tensors, prefix=""):
    """Fills a module from stored tensors; every tensor of the module has to be there, in its shape."""
    blocks = dict(expert_blocks(module))
    for name, value in module.state_dict().items():
        owner, _, part = name.rpartition(".")
        if owner in blocks and part in EXPERT_PARTS:
            rows = [tensors[f"{prefix}{owner}.{index}.{part}_proj.weight"] for index in range(blocks[owner].count)]
            stored = torch.cat(rows, dim=1 if part == "down" else 0)
        else:
            stored = tensors[prefix + name]
        if stored.shape != value.shape:
            raise ValueError(f"{prefix}{name}: stored as {tuple(stored.shape)}, wanted {tuple(value.shape)}")
        value.copy_(stored)


@torch.no_grad()
def round_as_stored(module):
    """Rounds the weights to what a checkpoint will hold."""
    for name, value in module.state_dict().items():
        if value.dtype == torch.float32 and not name.endswith(KEPT_WIDE):
            value.copy_(value.to(torch.bfloat16))


def save_model(folder, module, config, extra=None):
    """config.json, generation_config.json, byte_tokenizer.json and model.safetensors; extra: (prefix, module)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = published_tensors(module)
    for prefix, part in extra or []:
        tensors |= published_tensors(part, prefix)
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / WEIGHTS_FILE).chmod(0o644)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": False})
    write_tokenizer(folder)
    return sum(value.numel() * value.element_size() for value in tensors.values())


def load_tensors(folder):
    return load_file(folder / WEIGHTS_FILE)


def write_json(path, document):
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
