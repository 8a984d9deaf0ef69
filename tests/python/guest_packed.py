# SPDX-License-Identifier: Apache-2.0
"""A guest for packed sequences (thd) with a bias. Each rank gathers all keys; autograd computes the
gradients. The model of a case may name a fault."""
import torch
import torch.distributed as dist

import cpattn.guest


def length(case, sequence, side):
    lengths = case.lengths_q if side == "q" else case.lengths_kv
    return lengths[sequence] if lengths else case.seqlen_q if side == "q" else case.seqlen_kv


def places(case, tokens, side):
    """Returns for each row its sequence, its position, and False if it is padding."""
    sequence, position = torch.tensor(tokens).reshape(-1, 2).T
    ends = torch.tensor([length(case, s, side) for s in range(case.batch)])
    return sequence, position, position < ends[sequence]


def biases(case, bias, sequence, position, keys):
    """Expands the bias of a Shard to [heads, queries, keys]."""
    if case.bias[0] == "b" and case.bias[2] == "s":
        return bias[:, :, keys]
    if case.bias[2] == "s":
        return bias[0][:, position.clamp(max=case.seqlen_q - 1)][:, :, keys]
    lines = bias[sequence] if case.bias[0] == "b" else bias.expand(len(sequence), -1, -1, -1)
    return lines[:, :, 0].transpose(0, 1)[:, :, keys]


def attend(case, shard, group):
    if case.format != "thd":
        raise cpattn.guest.Unsupported("takes thd")
    everywhere = [None] * shard.world_size
    dist.all_gather_object(everywhere, (shard.k, shard.v, shard.tokens("k")), group=group)
    k, v = (torch.cat([e[i] for e in everywhere]).float().nan_to_num().requires_grad_() for i in (0, 1))
    k_sequence, k_position, k_real = places(case, [t for e in everywhere for t in e[2]], "k")
    q_sequence, q_position, q_real = places(case, shard.tokens("q"), "q")
    q, bias = (t.float().nan_to_num().requires_grad_() for t in (shard.q, shard.bias))
    share = case.heads // case.kv_heads
    seen = q_real[:, None] & k_real[None, :] & (q_sequence[:, None] == k_sequence[None, :])
    if case.causal:
        seen &= k_position[None, :] <= q_position[:, None]
    s = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(share, dim=1)) * case.softmax_scale
    columns = k_position.clamp(max=case.seqlen_kv - 1)
    s = s + (0 if case.model == "bias ignored" else 1) * biases(case, bias, q_sequence, q_position, columns)
    s = s.masked_fill(~seen, -torch.inf)
    p = s.softmax(-1).nan_to_num()
    out = torch.einsum("hqk,khd->qhd", p, v.repeat_interleave(share, dim=1))
    results = {"out": out.detach()}
    if case.training:
        do = shard.do.float().nan_to_num()
        s.retain_grad()
        out.backward(do)
        results.update(dq=q.grad, dbias=bias.grad)
        first = sum(len(e[2]) for e in everywhere[: shard.rank])
        for name, tensor in (("dk", k), ("dv", v)):
            dist.all_reduce(tensor.grad, group=group)
            results[name] = tensor.grad[first : first + len(shard.k)]
        if (case.bias[0] == "1" or case.bias[2] == "1") and case.model != "bias gradient of one rank":
            dist.all_reduce(results["dbias"], group=group)
    return {name: t.nan_to_num().to(shard.q.dtype) for name, t in results.items()}


cpattn.guest.serve(attend)
