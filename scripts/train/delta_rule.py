# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule, in chunks: what a delta-net layer does between its projections.

One head with state S (key_dim x value_dim), S_0 = 0, for t = 1..T:
    S_t = exp(g_t) S_{t-1} + k_t outer (beta_t (v_t - exp(g_t) S_{t-1}^T k_t)),    o_t = S_t^T q_t

In a chunk of C steps with L_i = g_1 + .. + g_i, the corrections u_i = beta_i (v_i - what the state already says)
solve a unit lower-triangular system:
    (I + A) u = beta v - (beta k exp(L)) S_0,    A_ij = beta_i k_i.k_j exp(L_i - L_j) for i > j
    o_i = exp(L_i) S_0^T q_i + sum_{j<=i} exp(L_i - L_j) (q_i.k_j) u_j
    S_C = exp(L_C) S_0 + sum_j exp(L_C - L_j) k_j outer u_j
(I + A)^-1 is built by doubling blocks, [[P, 0], [C, Q]]^-1 = [[P^-1, 0], [-Q^-1 C P^-1, Q^-1]], which stays bounded
where keys repeat; a power series does not.
"""
import torch
import torch.nn.functional as F

CHUNK = 64


def l2_normalised(x, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps)


def unit_lower_inverse(a):
    """(I + a)^-1 of strictly lower-triangular a [..., n, n], n a power of two."""
    n = a.shape[-1]
    lead = a.shape[:-2]
    inverse = torch.ones(*lead, n, 1, 1, dtype=a.dtype, device=a.device)  # n blocks of 1 x 1
    size = 1
    while size < n:
        pairs = n // (2 * size)
        first, second = inverse.unflatten(-3, (pairs, 2)).unbind(-3)
        blocks = a.unflatten(-1, (pairs, 2 * size)).unflatten(-3, (pairs, 2 * size))
        corner = blocks.diagonal(dim1=-4, dim2=-2)[..., size:, :size, :].movedim(-1, -3)
        lower = -second @ corner @ first
        top = torch.cat((first, torch.zeros_like(first)), dim=-1)
        inverse = torch.cat((top, torch.cat((lower, second), dim=-1)), dim=-2)
        size *= 2
    return inverse.squeeze(-3)


def gated_delta_rule(q, k, v, g, beta):
    """q, k [B, H, T, K], v [B, H, T, V], g, beta [B, H, T]; q and k are normalised here. Returns o [B, H, T, V]."""
    length = q.shape[-2]
    q, k, v, g, beta = (x.float() for x in (q, k, v, g, beta))
    q = l2_normalised(q) * q.shape[-1] ** -0.5
    k = l2_normalised(k)
    padding = -length % CHUNK
    if padding:
        q, k, v = (F.pad(x, (0, 0, 0, padding)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, padding)) for x in (g, beta))
    q, k, v = (x.unflatten(-2, (-1, CHUNK)) for x in (q, k, v))
    g, beta = (x.unflatten(-1, (-1, CHUNK)) for x in (g, beta))

    total = g.cumsum(-1)
    hidden = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(hidden, float("-inf")).exp()
    k_beta = k * beta.unsqueeze(-1)
    inverse = unit_lower_inverse(((k_beta @ k.transpose(-1, -2)) * decay).tril(-1))
    fresh = inverse @ (v * beta.unsqueeze(-1))
    recall = inverse @ (k_beta * total.exp().unsqueeze(-1))
    inside = (q @ k.transpose(-1, -2)) * decay
    q_in = q * total.exp().unsqueeze(-1)
    k_out = (k * (total[..., -1:] - total).exp().unsqueeze(-1)).transpose(-1, -2)
    last = total[..., -1].exp().unsqueeze(-1).unsqueeze(-1)

    state = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=q.dtype, device=q.device)
    outputs = []
    for chunk in range(q.shape[2]):
        update = fresh[:, :, chunk] - recall[:, :, chunk] @ state
        outputs.append(q_in[:, :, chunk] @ state + inside[:, :, chunk] @ update)
        state = state * last[:, :, chunk] + k_out[:, :, chunk] @ update
    return torch.cat(outputs, dim=-2)[..., :length, :]
