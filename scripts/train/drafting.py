# SPDX-License-Identifier: Apache-2.0
"""Chains of draft steps, for all positions of a sequence at once: in training and when acceptance is measured.

A drafter has begin(hidden, outputs) -> feature and step(embeds, feature, memory) -> (out, next feature, loss).
Row t of step j = 1, 2, .. combines the embedding of token x_{t+j} with a feature (j = 1: the target's at t; later:
the drafter's own) and predicts x_{t+j+1}. Later steps attend to the first step's entries of rows <= t and to
their own row's (layers.chain_attention): the cache that the drafter has when a cycle begins at row t.
"""
import torch
import torch.nn.functional as F

STEP_DECAY = 0.8  # weight of step j + 1 over step j in the loss
BALANCE_WEIGHT = 0.01  # of a drafter's own experts


class DraftPair:
    """A frozen target and its drafter: an EAGLE-3 head with a vocabulary of its own, or an MTP module without."""

    def __init__(self, target, drafter):
        self.target = target
        self.drafter = drafter
        self.own_head = hasattr(drafter, "lm_head")

    def logits(self, out):
        return self.drafter.lm_head(out) if self.own_head else self.target.lm_head(out)

    def in_draft_vocabulary(self, target_logits):
        return target_logits[..., self.drafter.token_ids()] if self.own_head else target_logits

    def covered(self, tokens):
        """Which tokens the drafter can name."""
        return self.drafter.t2d[tokens] if self.own_head else torch.ones_like(tokens, dtype=torch.bool)

    def target_tokens(self, drafts):
        return drafts + self.drafter.d2t[drafts] if self.own_head else drafts

    def target_state(self, ids):
        """(hidden, outputs, logits) of the target, without gradients."""
        with torch.no_grad():
            hidden, outputs, _, _ = self.target.trunk(ids)
            return hidden, outputs, self.target.lm_head(hidden).float()

    def embed(self, tokens):
        return self.target.model.embed_tokens(tokens).detach()


def shifted(x, by):
    """Row t of the result is row t + by of x [B, T, ...]; zeros at the end."""
    tail = x.new_zeros(x.shape[0], by, *x.shape[2:])
    return torch.cat((x[:, by:], tail), dim=1)


def unrolled_loss(pair, ids, state, steps):
    """(loss, chain [steps]): distillation of the target's distribution over `steps` teacher-forced steps.

    loss = sum_j 0.8^(j-1) mean_t -sum_v p(v | x_{<=t+j}) log q_j(v | row t), p over the draft vocabulary, rows whose
    target token the drafter cannot name left out. chain[j] is the share of rows whose first j drafts all were
    the target's greedy tokens. state: of pair.target_state(ids).
    """
    hidden, outputs, target_logits = state
    greedy = target_logits.argmax(-1)
    feature, memory = pair.drafter.begin(hidden, outputs), []
    loss, right, chain = 0.0, torch.ones_like(ids, dtype=torch.bool), []
    rows = ids.shape[1] - steps
    for step in range(1, steps + 1):
        out, feature, uneven = pair.drafter.step(pair.embed(shifted(ids, step)), feature, memory)
        logits = pair.logits(out).float()
        wanted = shifted(greedy, step)
        share = pair.in_draft_vocabulary(shifted(target_logits, step)).softmax(-1)
        surprise = -(share * F.log_softmax(logits, dim=-1)).sum(-1)
        surprise = (surprise * pair.covered(wanted))[:, :rows].mean()
        if uneven is not None:
            surprise = surprise + BALANCE_WEIGHT * uneven
        loss = loss + STEP_DECAY ** (step - 1) * surprise
        right = right & (pair.target_tokens(logits.argmax(-1)) == wanted)
        chain.append(right[:, :rows].float().mean())
    return loss, torch.stack(chain)


@torch.no_grad()
def draft_chains(pair, ids, steps):
    """drafts [B, T, steps]: row t holds what the drafter says for x_{t+2}, x_{t+3}, .. knowing x_{<=t+1}."""
    hidden, outputs, _ = pair.target_state(ids)
    feature, memory, drafts = pair.drafter.begin(hidden, outputs), [], []
    tokens = shifted(ids, 1)
    for _ in range(steps):
        out, feature, _ = pair.drafter.step(pair.embed(tokens), feature, memory)
        tokens = pair.target_tokens(pair.logits(out).argmax(-1))
        drafts.append(tokens)
    return torch.stack(drafts, dim=-1)
