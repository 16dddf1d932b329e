#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny model and its drafter on one GPU and writes them as published checkpoints with their logs.

usage: scripts/train/train.py --model tiny-kimi --corpus corpus.npz --output data/models

First the target by next-token loss, then, with the target rounded to its stored weights and frozen, the drafter
(EAGLE-3 head for tiny-kimi, MTP module for tiny-qwen) by distillation over several unrolled steps. Each phase
ends after its steps or its seconds, whichever comes first; the learning rate follows the share of that.
scripts/train/evaluate.py then measures and describes what was trained.
"""
import argparse
import csv
import math
import pathlib
import time

import torch
import torch._dynamo
import torch.nn.functional as F

import checkpoint
from batches import MIXTURE, Corpus, bits_per_byte
from drafting import DraftPair, unrolled_loss
from eagle3 import Eagle3Head
from kimi import TinyKimi
from layers import initialise
from qwen import MtpModule, TinyQwen

DRAFT_STEPS = 5
COLUMNS = ["phase", "step", "seconds", "tokens", "learning_rate", "train_bits", "heldout_code", "heldout_prose",
           "heldout_structured", "largest_expert_load", "smallest_expert_load",
           *(f"chain_{step}" for step in range(1, DRAFT_STEPS + 1))]


def new_pair(name, corpus):
    """The target and its drafter, untrained."""
    if name == "tiny-kimi":
        target, drafter = TinyKimi(), Eagle3Head()
        if corpus is not None:
            drafter.choose_vocabulary(corpus.counts().cpu())
    else:
        target = TinyQwen()
        drafter = MtpModule(target.shape)
        initialise(drafter, 1)
    return target, drafter


def save_pair(name, output, target, drafter):
    """Bytes of the weights, a folder each."""
    if name == "tiny-kimi":
        return {name: checkpoint.save_model(output / name, target, target.shape.config()),
                name + "-eagle3": checkpoint.save_model(output / (name + "-eagle3"), drafter, drafter.shape.config())}
    return {name: checkpoint.save_model(output / name, target, target.shape.config(), [("mtp.", drafter)])}


def load_pair(name, folder, device):
    """The pair as stored, in float32."""
    target, drafter = new_pair(name, None)
    tensors = checkpoint.load_tensors(folder / name)
    checkpoint.read_published(target, tensors)
    if name == "tiny-kimi":
        checkpoint.read_published(drafter, checkpoint.load_tensors(folder / (name + "-eagle3")))
    else:
        checkpoint.read_published(drafter, tensors, "mtp.")
    return target.to(device).eval(), drafter.to(device).eval()


class Phase:
    """One training phase: learning rate, optimizer, clock and log."""

    def __init__(self, name, module, options, tokens_a_step, steps, seconds, peak):
        decayed = [p for n, p in module.named_parameters() if p.dim() >= 2 and "embed" not in n and "conv" not in n]
        plain = [p for p in module.parameters() if all(p is not other for other in decayed)]
        self.name, self.steps, self.seconds, self.peak = name, steps, seconds, peak
        self.parameters = decayed + plain
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
            lr=peak, betas=(0.9, 0.95), eps=1e-10, fused=options.device == "cuda")
        self.step = 0
        self.begin = None
        self.tokens_a_step = tokens_a_step
        self.created = time.monotonic()
        self.deadline = options.begin + options.wall_seconds

    def progress(self):
        if self.begin is None:
            return 0.0
        return min(1.0, max(self.step / self.steps, (time.monotonic() - self.begin) / self.seconds))

    def rate(self):
        """Warm-up over 100 steps, then a cosine down to 1 % of the peak."""
        cosine = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * self.progress()))
        return self.peak * cosine * min(1.0, (self.step + 1) / 100)

    def update(self, loss):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.step += 1
        if self.begin is None:  # compilation is not training time
            if loss.is_cuda:
                torch.cuda.synchronize()
            self.begin = time.monotonic()
            self.seconds = min(self.seconds, self.deadline - self.begin)
            print(f"{self.name}: first step after {self.begin - self.created:.1f} s", flush=True)

    def row(self, **values):
        known = {"phase": self.name, "step": self.step, "seconds": round(time.monotonic() - self.begin, 1),
                 "tokens": self.step * self.tokens_a_step, "learning_rate": f"{self.rate():.3g}"}
        return known | {key: round(float(value), 4) for key, value in values.items()}


class Log:
    """training_log.csv, written row by row."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w", newline="", encoding="utf-8")
        self.table = csv.DictWriter(self.file, COLUMNS, lineterminator="\n")
        self.table.writeheader()

    def add(self, row):
        self.table.writerow(row)
        self.file.flush()
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def autocast(options):
    return torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.device == "cuda")


def train_target(model, corpus, options, log, generator):
    phase = Phase("target", model, options, options.batch * options.length, options.target_steps,
                  options.target_seconds, options.target_rate)

    def loss_of(tokens):
        with autocast(options):
            logits, loads, auxiliary = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        return (loss, loads, None) if auxiliary is None else (loss + auxiliary, loads, auxiliary.detach())

    compiled = torch.compile(loss_of, dynamic=False) if options.compile else loss_of
    windows = {domain: corpus.held_out(domain, options.batch // 2, options.length) for domain in MIXTURE}

    def held_out():
        with autocast(options):
            return {f"heldout_{domain}": bits_per_byte(lambda ids: model(ids)[0], windows[domain])
                    for domain in MIXTURE}

    while phase.progress() < 1.0:
        total, loads, auxiliary = compiled(corpus.batch(options.batch, options.length, generator))
        phase.update(total)
        model.balance(loads, phase.progress())
        if phase.step % options.log_every == 0 or phase.progress() >= 1.0:
            often = phase.step % (10 * options.log_every) == 0 or phase.progress() >= 1.0
            loss = total.detach() if auxiliary is None else total.detach() - auxiliary
            log.add(phase.row(train_bits=loss / math.log(2.0), largest_expert_load=loads.max(),
                              smallest_expert_load=loads.min(), **(held_out() if often else {})))
    checkpoint.round_as_stored(model)


def train_drafter(target, drafter, corpus, options, log, generator):
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    length = options.length // 2
    phase = Phase("drafter", drafter, options, options.batch * length, options.drafter_steps, options.drafter_seconds,
                  options.drafter_rate)
    pair = DraftPair(target, drafter)

    def loss_of(ids, state):
        with autocast(options):
            return unrolled_loss(pair, ids, state, DRAFT_STEPS)

    compiled = torch.compile(loss_of, dynamic=False) if options.compile else loss_of
    while phase.progress() < 1.0:
        ids = corpus.batch(options.batch, length - 1, generator)
        with autocast(options):
            state = pair.target_state(ids)
        loss, chain = compiled(ids, state)
        phase.update(loss)
        if phase.step % options.log_every == 0 or phase.progress() >= 1.0:
            log.add(phase.row(train_bits=loss.detach() / math.log(2.0),
                              **{f"chain_{step + 1}": share for step, share in enumerate(chain)}))
    checkpoint.round_as_stored(drafter)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", choices=("tiny-kimi", "tiny-qwen"), required=True)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--target-steps", type=int, default=4000)
    parser.add_argument("--target-seconds", type=float, default=3600)
    parser.add_argument("--target-rate", type=float, default=3e-3)
    parser.add_argument("--drafter-steps", type=int, default=2500)
    parser.add_argument("--drafter-seconds", type=float, default=1800)
    parser.add_argument("--drafter-rate", type=float, default=2e-3)
    parser.add_argument("--batch", type=int, default=40, help="windows a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens a window; the drafter takes half")
    parser.add_argument("--wall-seconds", type=float, default=86400, help="the whole run ends by then")
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    options.begin = time.monotonic()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs uncompiled
    corpus = Corpus(options.corpus, options.device)
    target, drafter = (part.to(options.device) for part in new_pair(options.model, corpus))
    generator = torch.Generator(options.device).manual_seed(options.seed)
    log = Log(options.output / options.model / "training_log.csv")
    train_target(target, corpus, options, log, generator)
    save_pair(options.model, options.output, target, drafter)
    if options.model == "tiny-kimi":
        log = Log(options.output / "tiny-kimi-eagle3" / "training_log.csv")
    train_drafter(target, drafter, corpus, options, log, generator)
    print(save_pair(options.model, options.output, target, drafter))


if __name__ == "__main__":
    main()
