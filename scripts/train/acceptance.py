# SPDX-License-Identifier: Apache-2.0
"""Greedy acceptance of a drafter on the held-out prompts, position by position: an independent reference for the
engine's own measurement.

Greedy speculative decoding gives exactly the target's greedy text. So the text is decoded first, the drafter's
chain of k tokens is computed at every position of it, and the cycles that an engine would run are walked: a
cycle at row t (last token known: x_{t+1}) accepts the a leading drafts that agree and goes on at t + a + 1.
"""
import json

import torch

from drafting import draft_chains
from tokens import EOS, encode


def read_prompts(folder):
    """domain -> list of prompts"""
    return {path.stem: [json.loads(line)["prompt"] for line in path.read_text(encoding="utf-8").splitlines()]
            for path in sorted(folder.glob("*.jsonl"))}


@torch.no_grad()
def greedy_texts(logits_of, prompts, new_tokens, device):
    """(tokens [n, longest], lengths): BOS, prompt, continuation; a text ends with its first new EOS."""
    rows = [encode(prompt) for prompt in prompts]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    tokens = torch.zeros(len(rows), int(lengths.max()) + new_tokens, dtype=torch.long, device=device)
    for index, row in enumerate(rows):
        tokens[index, :len(row)] = torch.tensor(row, device=device)
    line = torch.arange(len(rows), device=device)
    ended = torch.zeros_like(lengths, dtype=torch.bool)
    for _ in range(new_tokens):
        logits = logits_of(tokens[:, :int(lengths.max())])
        following = logits[line, lengths - 1].argmax(-1)
        tokens[line[~ended], lengths[~ended]] = following[~ended]
        lengths += ~ended
        ended |= following == EOS
    return tokens, lengths


def walk(row, drafts, first, length, steps):
    """(reached [steps], accepted [steps], cycles) over cycles that lie inside the text.

    row: token ids; drafts [T, steps]; first: index of the first generated token."""
    reached, accepted, cycles = [0] * steps, [0] * steps, 0
    known = first  # x_known is the newest token; the target has seen what is before it
    while known + steps < length:
        cycles += 1
        right = 0
        for step in range(steps):
            reached[step] += 1
            if drafts[known - 1][step] != row[known + 1 + step]:
                break
            accepted[step] += 1
            right += 1
        known += right + 1
    return reached, accepted, cycles


def measure(pair, prompts, steps, new_tokens, device):
    """domain -> what was reached, accepted and counted; conditional rate a_i = accepted_i / reached_i."""
    report = {}
    for domain, texts in prompts.items():
        tokens, lengths = greedy_texts(lambda ids: pair.target(ids)[0], texts, new_tokens, device)
        drafts = draft_chains(pair, tokens, steps).tolist()
        reached, accepted, cycles = [0] * steps, [0] * steps, 0
        for index, text in enumerate(texts):
            counted = walk(tokens[index].tolist(), drafts[index], len(encode(text)), int(lengths[index]), steps)
            reached = [a + b for a, b in zip(reached, counted[0])]
            accepted = [a + b for a, b in zip(accepted, counted[1])]
            cycles += counted[2]
        report[domain] = {
            "prompts": len(texts), "cycles": cycles, "reached": reached, "accepted": accepted,
            "tokens": cycles + sum(accepted),
            "conditional": [round(a / r, 4) if r else 0.0 for a, r in zip(accepted, reached)],
            "unconditional": [round(a / cycles, 4) for a in accepted],
            "acceptance_length": round(1 + sum(accepted) / cycles, 4),
        }
    return report


def acceptance_document(method, report, steps, new_tokens):
    return {"format": "draftboard.reference_acceptance", "version": 1, "method": method, "sampling": "greedy",
            "draft_tokens": steps, "new_tokens": new_tokens, "compute": "float32 of the stored weights",
            "counting": "conditional a_i = accepted_i / reached_i; acceptance_length counts the bonus token; "
                        "cycles that would reach beyond the text are left out",
            "domains": report}
