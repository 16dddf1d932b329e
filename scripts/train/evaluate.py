#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a trained model from its stored files and describes it beside them.

usage: scripts/train/evaluate.py --model tiny-kimi --models data/models --corpus corpus.npz

Writes README.md, loss.svg and reference_acceptance.json. Everything is computed in float32 from the stored bf16
weights. The held-out loss is computed a second time by the Hugging Face class on part of the windows, and the
program ends with 1 if the two differ by more than 1 %.
"""
import argparse
import json
import pathlib
import sys

import torch

import model_card
from acceptance import acceptance_document, measure, read_prompts
from batches import MIXTURE, Corpus, bits_per_byte
from checkpoint import write_json
from drafting import DraftPair
from loss_svg import write_loss_svg
from train import load_pair

CHAIN = 4
NEW_TOKENS = 128
LARGEST_DIFFERENCE = 0.01


def compare_with_transformers(folder, target, windows):
    """(our bits per byte, theirs) on the same windows."""
    import transformers
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    for problem in ("missing_keys", "mismatched_keys"):
        if report[problem]:
            raise SystemExit(f"{folder}: transformers reports {problem}: {sorted(report[problem])[:5]}")
    theirs = theirs.to(windows.device).eval()
    return (bits_per_byte(lambda ids: target(ids)[0], windows, chunk=8),
            bits_per_byte(lambda ids: theirs(ids).logits, windows, chunk=8), type(theirs).__name__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", choices=("tiny-kimi", "tiny-qwen"), required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True, help="the folder of the model folders")
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--prompts", type=pathlib.Path, help="default: MODELS/prompts")
    parser.add_argument("--windows", type=int, default=128, help="held-out windows a domain")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS, help="tokens decoded after each prompt")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("highest")

    folder = options.models / options.model
    corpus = Corpus(options.corpus, options.device)
    target, drafter = load_pair(options.model, options.models, options.device)
    held_out = {domain: corpus.held_out(domain, options.windows, options.length) for domain in MIXTURE}
    bits = {domain: bits_per_byte(lambda ids: target(ids)[0], windows) for domain, windows in held_out.items()}
    print("held-out bits per byte", {domain: round(value, 4) for domain, value in bits.items()})

    sample = torch.cat([windows[:8, :513] for windows in held_out.values()])
    ours, theirs, name = compare_with_transformers(folder, target, sample)
    difference = abs(ours - theirs) / theirs
    print(f"held-out bits per byte, {name}: {theirs:.5f}, ours: {ours:.5f}, difference {difference:.2e}")

    method = "eagle3" if options.model == "tiny-kimi" else "mtp"
    report = measure(DraftPair(target, drafter), read_prompts(options.prompts or options.models / "prompts"), CHAIN,
                     options.new_tokens, options.device)
    drafter_folder = options.models / (options.model + "-eagle3") if method == "eagle3" else folder
    write_json(drafter_folder / "reference_acceptance.json",
               acceptance_document(method, report, CHAIN, options.new_tokens))
    print(json.dumps(report))

    check = {"class": name, "ours": ours, "theirs": theirs, "version": __import__("transformers").__version__}
    for part in {folder, drafter_folder}:
        write_loss_svg(part / "training_log.csv", part / "loss.svg")
    model_card.write_target(folder, options.model, bits, check, report if drafter_folder == folder else None,
                            drafter_folder)
    if drafter_folder != folder:
        model_card.write_eagle3(drafter_folder, report, folder)
    return 0 if difference <= LARGEST_DIFFERENCE else 1


if __name__ == "__main__":
    sys.exit(main())
