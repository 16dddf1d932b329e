# SPDX-License-Identifier: Apache-2.0
"""Windows of the corpus on the training device, drawn by domain.

Every window is BOS and then a run of a stream, as a prompt of the engine is; the stream of a domain is its
documents, each followed by EOS and BOS. Windows begin at a document (30 %) or at a line.
"""
import math

import numpy
import torch
import torch.nn.functional as F

from tokens import BOS, BYTES, EOS, VOCABULARY

MIXTURE = {"code": 0.55, "prose": 0.30, "structured": 0.15}
DOCUMENT_STARTS = 0.3


class Corpus:
    """The arrays of corpus.py as token streams."""

    def __init__(self, path, device):
        self.device = device
        with numpy.load(path) as arrays:
            self.streams = {name: self.stream(arrays, name) for name in
                            (f"{domain}_{part}" for domain in MIXTURE for part in ("train", "heldout"))}

    def stream(self, arrays, name):
        data, lengths = arrays[name].astype(numpy.int16), arrays[name + "_lengths"]
        ends = numpy.cumsum(lengths)
        tokens = numpy.insert(data, numpy.repeat(ends, 2), numpy.tile([EOS, BOS], len(ends)))
        documents = ends - lengths + 2 * numpy.arange(len(ends))
        lines = numpy.flatnonzero(tokens[:-2] == ord("\n")) + 1
        return {"tokens": torch.from_numpy(tokens).to(self.device),
                "documents": torch.from_numpy(documents).to(self.device),
                "lines": torch.from_numpy(lines).to(self.device)}

    def counts(self):
        """Occurrences of each token in the training streams, weighted by the mixture."""
        total = torch.zeros(VOCABULARY, dtype=torch.float64, device=self.device)
        for domain, weight in MIXTURE.items():
            tokens = self.streams[f"{domain}_train"]["tokens"]
            total += torch.bincount(tokens.long(), minlength=VOCABULARY).double() * (weight / len(tokens))
        return total

    def draw(self, domain, count, length, generator):
        """[count, length + 1] training tokens."""
        stream = self.streams[f"{domain}_train"]
        at_document = int(round(count * DOCUMENT_STARTS))
        picks = [("documents", at_document), ("lines", count - at_document)]
        starts = torch.cat([stream[kind][torch.randint(len(stream[kind]), (n,), device=self.device,
                                                       generator=generator)] for kind, n in picks])
        starts = starts.clamp(max=len(stream["tokens"]) - length)
        body = stream["tokens"][starts.unsqueeze(1) + torch.arange(length, device=self.device)].long()
        return torch.cat((torch.full_like(body[:, :1], BOS), body), dim=1)

    def batch(self, count, length, generator):
        """[count, length + 1], the domains in the shares of MIXTURE; fractions are spread by chance."""
        sizes = {domain: int(count * weight) for domain, weight in MIXTURE.items()}
        sizes["code"] += count - sum(sizes.values())
        return torch.cat([self.draw(domain, size, length, generator) for domain, size in sizes.items()])

    def held_out(self, domain, windows, length):
        """Up to `windows` windows [n, length + 1] at even distances over the held-out stream."""
        tokens = self.streams[f"{domain}_heldout"]["tokens"]
        available = max(1, len(tokens) // length)
        count = min(windows, available)
        starts = torch.arange(count, device=self.device) * (available // count) * length
        starts = starts.clamp(max=len(tokens) - length)
        body = tokens[starts.unsqueeze(1) + torch.arange(length, device=self.device)].long()
        return torch.cat((torch.full_like(body[:, :1], BOS), body), dim=1)


@torch.no_grad()
def bits_per_byte(logits_of, windows, chunk=16):
    """Mean of -log2 p over the byte targets of windows [n, T + 1]; logits_of(ids) gives [n, T, V]."""
    bits, count = 0.0, 0
    for piece in windows.split(chunk):
        ids, targets = piece[:, :-1], piece[:, 1:]
        loss = F.cross_entropy(logits_of(ids).float().flatten(0, 1), targets.flatten(), reduction="none")
        is_byte = targets.flatten() < BYTES
        bits += loss[is_byte].double().sum().item() / math.log(2.0)
        count += int(is_byte.sum())
    return bits / count
