#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest to copy: ring attention over torch.distributed, gloo on CPUs and NCCL on GPUs.

    cpattnd --guest ring="python3 torch_ring.py"
    cpattn-submit case --implementation ring --world-size 2 --seqlen 256
"""
import torch
import torch.distributed as dist

import cpattn.guest


def pass_on(tensors, tokens, group):
    """Sends tensors to the next rank and returns those of the previous rank, which have `tokens` tokens."""
    if group.size() == 1:
        return tensors
    send_to, receive_from = (group.rank() + 1) % group.size(), (group.rank() - 1) % group.size()
    arriving = [t.new_empty(*t.shape[:2], tokens, t.shape[3]) for t in tensors]
    work = [dist.P2POp(dist.isend, t, send_to, group) for t in tensors]
    work += [dist.P2POp(dist.irecv, t, receive_from, group) for t in arriving]
    for request in dist.batch_isend_irecv(work):
        request.wait()
    return arriving


def positions(case, rank, side, device):
    return torch.cat([torch.tensor([*chunk], device=device) for chunk in case.chunks(rank, side)])


def logits(case, q, k, q_at, k_at, bias):
    """[batch, heads, queries, keys], minus infinity where the mask hides a key."""
    shift = case.seqlen_q - case.seqlen_kv if case.mask.endswith("bottom_right") else 0
    far = k_at[None, :] - q_at[:, None] + shift
    seen = torch.ones_like(far, dtype=torch.bool)
    if case.causal:
        seen &= far <= 0
    if case.window_left >= 0:
        seen &= far >= -case.window_left
    if case.window_right >= 0:
        seen &= far <= case.window_right
    s = q @ k.mT * case.softmax_scale
    s = s if bias is None else s + bias[..., k_at]
    return s.masked_fill(~seen, -torch.inf)


def attend(case, shard, group):
    if case.format == "thd" or case.lengths_q or case.lengths_kv or case.max_logit or case.softcap:
        raise cpattn.guest.Unsupported("takes bshd and sbhd, no lists, softcap or largest logits")
    to_heads = (0, 2, 1, 3) if case.format == "bshd" else (1, 2, 0, 3)  # also back: the order is its own inverse, or
    to_tokens = (0, 2, 1, 3) if case.format == "bshd" else (2, 0, 1, 3)
    share, rank, size = case.heads // case.kv_heads, shard.rank, shard.world_size

    def own(tensor):
        return tensor.permute(to_heads).float().contiguous()

    def wide(tensor):  # key heads repeated for the query heads
        return tensor.repeat_interleave(share, dim=1)

    def k_at(step):  # the rank whose keys are here in this step
        return positions(case, (rank - step) % size, "k", q.device)

    q, kv = own(shard.q), [own(shard.k), own(shard.v)]
    q_at = positions(case, rank, "q", q.device)
    bias = None if shard.bias is None else shard.bias.float()
    out = q.new_zeros(*q.shape[:3], case.head_dim_v)
    lse = q.new_full(q.shape[:3], -torch.inf)
    if case.softmax != "vanilla":  # a key without a value, with logit 0 or a sink for each head
        lse[:] = 0 if shard.sink is None else shard.sink[None, :, None]
    for step in range(size):
        s = logits(case, q, wide(kv[0]), q_at, k_at(step), bias)
        merged = torch.logaddexp(lse, s.logsumexp(-1))
        new = merged.masked_fill(merged == -torch.inf, 0)[..., None]
        out = out * (lse[..., None] - new).exp() + (s - new).exp() @ wide(kv[1])
        lse, kv = merged, pass_on(kv, len(k_at(step + 1)), group)
    results = {"out": out, "lse": lse}
    if case.training:
        shard.backward()
        do, dq = own(shard.do), torch.zeros_like(q)
        delta = (do * out).sum(-1, keepdim=True)
        finite = lse.masked_fill(lse == -torch.inf, 0)[..., None]
        gradients = [torch.zeros_like(t) for t in kv]
        dbias = None if bias is None else torch.zeros_like(bias)
        for step in range(size):  # gradients travel with the keys that they belong to
            k, v = (wide(t) for t in kv)
            s = logits(case, q, k, q_at, k_at(step), bias)
            p = (s - finite).exp()
            ds = p * (do @ v.mT - delta)
            if bias is not None:  # what queries, heads or sequences share is added up
                dbias[..., k_at(step)] += ds.sum_to_size(*bias.shape[:3], ds.shape[3])
            ds *= case.softmax_scale
            dq += ds @ k
            for gradient, part in zip(gradients, (ds.mT @ q, p.mT @ do)):
                gradient += part.unflatten(1, (case.kv_heads, share)).sum(2)
            coming = len(k_at(step + 1))
            kv, gradients = pass_on(kv, coming, group), pass_on(gradients, coming, group)
        results.update(dq=dq, dk=gradients[0], dv=gradients[1])
        if case.softmax == "learnable":
            dsink = -((shard.sink[None, :, None] - finite[..., 0]).exp() * delta[..., 0])
            results["dsink"] = dsink.sum((0, 2))
            dist.all_reduce(results["dsink"], group=group)
        if bias is not None:
            if case.bias[2] == "1":  # all queries share a row
                dist.all_reduce(dbias, group=group)
            results["dbias"] = dbias
    for name in set(results) & {"out", "dq", "dk", "dv"}:
        results[name] = results[name].permute(to_tokens)
    return {name: t if t.dim() < 4 else t.to(shard.q.dtype) for name, t in results.items()}


if __name__ == "__main__":
    cpattn.guest.serve(attend)
