# SPDX-License-Identifier: Apache-2.0
"""A guest with many variants of a ring. The model of a case lists the variants, joined by " + ".
Some are unusual but right; the others have faults that real rings have had."""
import math

import torch
import torch.distributed as dist

import cpattn.guest

LN2 = math.log(2)


class Ring:
    """Attention over all ranks. `how` is the set of variants and faults.

    All tensors are [batch, heads, tokens, dim] in fp32. given[r] lists the token positions of rank
    r in the case; owned[r] lists those of rank r in this ring. The two may differ.
    """

    def __init__(self, case, shard, group, how):
        self.case, self.group, self.how = case, group, how
        self.rank, self.size = shard.rank, shard.world_size
        self.scale = case.softmax_scale
        self.given = [self.positions(r) for r in range(self.size)]
        self.owned = [self.deal(r) for r in range(self.size)]

    # ---- the tokens of each rank ----

    def positions(self, rank):
        return torch.cat([torch.tensor([*c]) for c in self.case.chunks(rank)])

    def deal(self, rank):
        length = self.case.seqlen_q
        if "striped" in self.how:
            return torch.arange(rank, length, self.size)
        if "uneven" in self.how:
            edges = [length * r * r // self.size**2 for r in range(self.size + 1)]
            return torch.arange(edges[rank], edges[rank + 1])
        if "backwards" in self.how:
            return self.given[rank].flip(0)
        return self.given[rank]

    def gathered(self, tensor, owners):
        """Gathers all tokens, ordered by position. owners[r] lists the positions of rank r."""
        rows = [len(o) for o in owners]
        parts = [tensor.new_empty(*tensor.shape[:2], n, tensor.shape[3]) for n in rows]
        wide = max(rows)
        padded = torch.zeros(*tensor.shape[:2], wide, tensor.shape[3], dtype=tensor.dtype)
        padded[:, :, : tensor.shape[2]] = tensor
        every = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(every, padded.contiguous(), group=self.group)
        whole = tensor.new_empty(*tensor.shape[:2], sum(rows), tensor.shape[3])
        for at, part, n in zip(owners, every, rows):
            whole[:, :, at] = part[:, :, :n]
        return whole

    def redealt(self, tensor, before, after):
        if before is after or all(map(torch.equal, before, after)):
            return tensor
        return self.gathered(tensor, before)[:, :, after[self.rank]]

    # ---- passing on ----

    def step(self, i):
        """Returns the owner of the keys that this rank holds in step i."""
        return (self.rank + i if "reverse" in self.how else self.rank - i) % self.size

    def pass_on(self, tensors, i):
        if self.size == 1:
            return tensors
        to, from_ = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if "reverse" in self.how:
            to, from_ = from_, to
        rows = len(self.owned[self.step(i + 1)])
        arriving = [t.new_empty(*t.shape[:2], rows, t.shape[3]) for t in tensors]
        work = [dist.P2POp(dist.isend, t.contiguous(), to, self.group) for t in tensors]
        work += [dist.P2POp(dist.irecv, t, from_, self.group) for t in arriving]
        for request in dist.batch_isend_irecv(work):
            request.wait()
        return arriving

    # ---- one block ----

    def seen(self, q_at, k_at):
        case, far = self.case, k_at[None, :] - q_at[:, None]
        seen = torch.ones_like(far, dtype=torch.bool)
        if case.causal and "mask left out" not in self.how:
            seen &= far <= (1 if "mask one off" in self.how else 0)
        if case.window_left >= 0 and "window ignored" not in self.how:
            seen &= far >= -case.window_left
        if case.window_left >= 0 and "window one off" in self.how:
            seen &= far >= -case.window_left + 1
        return seen

    def logits(self, q, k, owner, q_at=None):
        q_at = self.owned[self.rank] if q_at is None else q_at
        k_at = self.owned[owner]
        if "tokens swapped" in self.how and owner != self.rank:
            half = len(k_at) // 2
            k_at = torch.cat([k_at[half:], k_at[:half]])
        return (q @ k.mT * self.scale).masked_fill(~self.seen(q_at, k_at), -torch.inf)

    def merge(self, out, lse, s, v):
        block = s.logsumexp(-1)
        part = (s - block.masked_fill(block == -torch.inf, 0)[..., None]).exp() @ v
        if "lse in base 2" in self.how:  # logaddexp() and exp() below still take it as base e
            block = block / LN2
        if "16-bit parts" in self.how:
            part = part.bfloat16().float()
        merged = torch.logaddexp(lse, block)
        safe = merged.masked_fill(merged == -torch.inf, 0)
        if "merged without lse" in self.how:
            return (out + part) / (1 if (lse == -torch.inf).all() else 2), merged
        out = out * (lse - safe).exp()[..., None] + part * (block - safe).exp()[..., None]
        return (out.bfloat16().float() if "16-bit merges" in self.how else out), merged

    # ---- forward ----

    def forward(self, q, k, v, sink):
        out = torch.zeros(*q.shape[:3], v.shape[3])
        lse = torch.full(q.shape[:3], -torch.inf)
        if sink is not None and "sink left out" not in self.how:
            first = torch.zeros_like(lse) + sink[None, :, None]
            lse = first + math.log(self.size) if "sink of each rank" in self.how else first
        if "whole rows" in self.how:
            return self.forward_whole(q, k, v, lse)
        if "running maximum" in self.how:
            return self.forward_running(q, k, v, lse)
        kv = [k, v]
        for i in range(self.size):
            if not ("last step left out" in self.how and i == self.size - 1 and self.size > 1):
                s = self.logits(q, kv[0], self.step(i))
                tiles = [s.shape[-1]] if "tiles" not in self.how else [7] * (s.shape[-1] // 7 + 1)
                for st, vt in zip(s.split(tiles[0], -1), kv[1].split(tiles[0], 2)):
                    out, lse = self.merge(out, lse, st, vt)
            kv = self.pass_on(kv, i)
        return out, lse

    def forward_whole(self, q, k, v, lse):
        k, v = (self.gathered(t, self.owned) for t in (k, v))
        far = torch.arange(k.shape[2])
        s = (q @ k.mT * self.scale).masked_fill(~self.seen(self.owned[self.rank], far), -torch.inf)
        return self.merge(torch.zeros(*q.shape[:3], v.shape[3]), lse, s, v)

    def forward_running(self, q, k, v, lse):
        """Carries numerator, denominator and maximum in base 2, and divides at the end."""
        top, kv = lse.masked_fill(lse == -torch.inf, -1e30) / LN2, [k, v]
        total = (lse > -torch.inf).float()
        sums = torch.zeros(*q.shape[:3], v.shape[3])
        for i in range(self.size):
            s = self.logits(q, kv[0], self.step(i)) / LN2
            new = torch.maximum(top, s.amax(-1).clamp(min=-1e30))
            p = (s - new[..., None]).exp2()
            total = total * (top - new).exp2() + p.sum(-1)
            sums = sums * (top - new).exp2()[..., None] + p @ kv[1]
            top, kv = new, self.pass_on(kv, i)
        safe = total.masked_fill(total == 0, 1)
        return sums / safe[..., None], (top * LN2 + safe.log()).masked_fill(total == 0, -torch.inf)

    # ---- backward ----

    def block_gradients(self, q, k, v, do, delta, lse, owner):
        safe = lse.masked_fill(lse == -torch.inf, 0)[..., None]
        p = (self.logits(q, k, owner) - safe).exp()
        dp = do @ v.mT
        ds = p * (dp if "delta left out" in self.how else dp - delta)
        if "gradients unscaled" not in self.how:
            ds = ds * self.scale
        return ds @ k, ds.mT @ q, p.mT @ do

    def backward(self, q, k, v, do, out, lse):
        delta = (do * (out.bfloat16().float() if "rounded out" in self.how else out)).sum(-1, keepdim=True)
        if "whole gradients" in self.how:
            return self.backward_whole(q, k, v, do, delta, lse)
        dq, kv, first = torch.zeros_like(q), [k, v], [k, v]
        gradients = [torch.zeros_like(k), torch.zeros_like(v)]
        for i in range(self.size):
            ks, vs = first if "stale keys" in self.how else kv
            parts = self.block_gradients(q, ks, vs, do, delta, lse, self.step(i))
            dq = dq + parts[0]
            gradients = [g + p for g, p in zip(gradients, parts[1:])]
            if "16-bit gradients" in self.how:
                gradients = [g.bfloat16().float() for g in gradients]
            kv = self.pass_on(kv, i)
            if not ("one hop short" in self.how and i == self.size - 1):
                gradients = self.pass_on(gradients, i)
        if "gradients of all ranks" in self.how:
            gradients = [g * self.size for g in gradients]
        return dq, *gradients

    def backward_whole(self, q, k, v, do, delta, lse):
        """Each rank computes gradients of all keys. An all-reduce adds them up."""
        rows = [len(o) for o in self.owned]
        dk, dv = (torch.zeros(*k.shape[:2], sum(rows), t.shape[3]) for t in (k, v))
        dq = torch.zeros_like(q)
        everything = [self.gathered(t, self.owned) for t in (k, v)]
        for owner, at in enumerate(self.owned):
            parts = self.block_gradients(q, *(t[:, :, at] for t in everything), do, delta, lse, owner)
            dq += parts[0]
            dk[:, :, at] += parts[1]
            dv[:, :, at] += parts[2]
        for gradient in (dk, dv):
            dist.all_reduce(gradient, group=self.group)
        mine = self.owned[self.rank]
        return dq, dk[:, :, mine], dv[:, :, mine]


def attend(case, shard, group):
    how = {word for word in case.model.split(" + ") if word}
    to_heads = (0, 2, 1, 3) if case.format == "bshd" else (1, 2, 0, 3)
    to_tokens = (0, 2, 1, 3) if case.format == "bshd" else (2, 0, 1, 3)
    ring = Ring(case, shard, group, how)
    share = case.heads // case.kv_heads
    if "wrong scale" in how:
        ring.scale *= math.sqrt(2)
    q, k, v, do = (
        ring.redealt(t.permute(to_heads).float(), ring.given, ring.owned)
        for t in (shard.q, shard.k, shard.v, shard.do)
    )
    k, v = (t.repeat_interleave(share, 1) for t in (k, v))
    sink = {"vanilla": None, "off_by_one": torch.zeros(case.heads)}.get(case.softmax, shard.sink)
    out, lse = ring.forward(q, k, v, sink)
    dq, dk, dv = ring.backward(q, k, v, do, out, lse)
    dk, dv = (t.unflatten(1, (case.kv_heads, share)).sum(2) for t in (dk, dv))
    results = {"out": out, "dq": dq, "dk": dk, "dv": dv}
    results = {
        name: ring.redealt(t, ring.owned, ring.given).permute(to_tokens).to(shard.q.dtype)
        for name, t in results.items()
    }
    if "no lse" not in how:
        results["lse"] = ring.redealt(lse[..., None], ring.owned, ring.given)[..., 0]
    if case.softmax == "learnable":
        delta = (do * out).sum(-1)
        dsink = -((sink[None, :, None] - lse).exp() * delta).sum((0, 2))
        dist.all_reduce(dsink, group=group)
        results["dsink"] = dsink * (ring.size if "sink gradient of all ranks" in how else 1)
    return results


cpattn.guest.serve(attend)
