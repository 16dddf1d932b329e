#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/trained/*.json: what an engine has to reproduce with the shipped models.

usage: scripts/train/fixtures.py --models data/models --output tests/fixtures/trained

For one prompt of each domain: 48 greedy bytes by the Hugging Face class in float32 on the CPU, and the first draft chain after the
prompt by drafting.py. A position where the two best logits are closer than 0.02 could turn on rounding, so the first
prompt of a domain is taken that has none among its greedy and draft tokens and whose continuation has at least
12 different bytes; the smallest margin is written down.
"""
import argparse
import json
import pathlib
import re
import sys

import torch
import transformers

from acceptance import read_prompts
from drafting import DraftPair, shifted
from tokens import EOS, decode, encode
from train import load_pair

NEW_TOKENS = 48
CHAIN = 4
SMALLEST_MARGIN = 0.02
DIFFERENT_BYTES = 12


def margin_of(logits):
    """Distance of the two largest."""
    best = logits.topk(2).values
    return (best[0] - best[1]).item()


@torch.no_grad()
def continuation(model, prompt):
    """(greedy tokens, smallest margin); None where the text ends early."""
    fresh, cache, tokens, smallest = encode(prompt), None, [], float("inf")
    while len(tokens) < NEW_TOKENS:
        out = model(torch.tensor([fresh]), past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1]
        smallest = min(smallest, margin_of(logits))
        fresh = [int(logits.argmax())]
        tokens += fresh
        if fresh[0] == EOS:
            return None
    return tokens, smallest


@torch.no_grad()
def first_chain(pair, known):
    """(draft tokens, smallest margin) of the first cycle: `known` ends with the first generated token."""
    ids = torch.tensor([known])
    hidden, outputs, _ = pair.target_state(ids)
    feature, memory = pair.drafter.begin(hidden, outputs), []
    tokens, drafts, smallest, row = shifted(ids, 1), [], float("inf"), len(known) - 2
    for _ in range(CHAIN):
        out, feature, _ = pair.drafter.step(pair.embed(tokens), feature, memory)
        logits = pair.logits(out)
        tokens = pair.target_tokens(logits.argmax(-1))
        smallest = min(smallest, margin_of(logits[0, row]))
        drafts.append(int(tokens[0, row]))
    return drafts, smallest


def write_lines(path, document):
    """JSON with lists of numbers on one line."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    text = re.sub(r"\[[\s\d,]*\]", lambda match: re.sub(r"\s+", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), text)
    path.write_text(text + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--prompts", type=pathlib.Path, help="default: MODELS/prompts")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    prompts = read_prompts(options.prompts or options.models / "prompts")
    for name, method in (("tiny-kimi", "eagle3"), ("tiny-qwen", "mtp")):
        target, drafter = load_pair(name, options.models, "cpu")
        pair = DraftPair(target, drafter)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(options.models / name, dtype=torch.float32).eval()
        cases = []
        for domain, texts in prompts.items():
            for index, prompt in enumerate(texts):
                found = continuation(theirs, prompt)
                if found is None or found[1] < SMALLEST_MARGIN or len(set(found[0])) < DIFFERENT_BYTES:
                    continue
                tokens, margin = found
                drafts, draft_margin = first_chain(pair, encode(prompt) + tokens[:1])
                if draft_margin < SMALLEST_MARGIN:
                    continue
                cases.append({"domain": domain, "prompt": prompt, "continuation": tokens, "text": decode(tokens),
                              "smallest_margin": round(margin, 4), "draft_chain": drafts,
                              "draft_smallest_margin": round(draft_margin, 4)})
                print(name, domain, index, json.dumps(decode(tokens)), json.dumps(decode(drafts)))
                break
            else:
                sys.exit(f"{name}: no prompt of {domain} is free of near ties")
        write_lines(options.output / f"{name}.json", {
            "format": "draftboard.trained_reference", "version": 1, "model": name, "method": method,
            "made_by": f"scripts/train/fixtures.py, transformers {transformers.__version__}, float32 on a CPU",
            "tokens": "prompt: BOS and its bytes; continuation: greedy; draft_chain: the drafts that follow the "
                      "first continuation token", "cases": cases})


if __name__ == "__main__":
    main()
