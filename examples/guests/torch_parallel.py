#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest to copy: collectives and tensor-parallel linear layers over torch.distributed, gloo on CPUs and
NCCL on GPUs.

    cpattnd --guest parallel="python3 torch_parallel.py"
    cpattn-submit collective all_reduce --implementation parallel --world-size 2
    cpattn-submit linear mlp --implementation parallel --world-size 2
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import cpattn.guest

REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


def gathered(tensor, sizes, group):
    """The tensors of all ranks, along the first dimension."""
    parts = [tensor.new_empty(size, *tensor.shape[1:]) for size in sizes]
    if len(set(sizes)) == 1:
        dist.all_gather(parts, tensor.contiguous(), group=group)
    else:  # ranks have shares of different sizes
        for rank, part in enumerate(parts):
            if rank == group.rank():
                part.copy_(tensor)
            dist.broadcast(part, rank, group=group)
    return torch.cat(parts)


# ---- collectives --------------------------------------------------------------------------------


def reduced(job, send, group):
    total = send.clone()
    dist.all_reduce(total, REDUCTIONS[job.reduction], group=group)
    if job.reduction != "avg":
        return total
    whole = not total.is_floating_point()
    return torch.div(total, group.size(), rounding_mode="trunc" if whole else None)


def collective(job, t, group):
    size, rank = group.size(), group.rank()
    if job.operation == "all_reduce":
        t.receive.copy_(reduced(job, t.send, group))
    elif job.operation == "reduce_scatter":
        t.receive.copy_(reduced(job, t.send, group).view(size, -1)[rank])
    elif job.operation == "all_gather":
        t.receive.copy_(gathered(t.send, [job.count] * size, group))
    elif job.operation == "broadcast":
        value = t.send.clone() if rank == job.root else t.receive.clone()
        dist.broadcast(value, job.root, group=group)
        t.receive.copy_(value)
    else:
        raise cpattn.guest.Unsupported(f"does no {job.operation}")


# ---- linear layers ------------------------------------------------------------------------------


def shares(count, size):
    return [count // size + (rank < count % size) for rank in range(size)]


class Between:
    """What lies before a column layer and behind a row layer: with sequence parallelism tokens are
    gathered and sums scattered."""

    def __init__(self, job, group):
        self.tokens, self.group = shares(job.tokens, group.size()), group
        self.dealt = job.sequence_parallel

    def gather(self, tensor):
        return gathered(tensor, self.tokens, self.group) if self.dealt else tensor

    def sum(self, tensor):
        total = tensor.float().contiguous()
        dist.all_reduce(total, group=self.group)
        total = total.to(tensor.dtype)
        return total.split(self.tokens)[self.group.rank()] if self.dealt else total


def activate(job, h):
    if job.activation == "swiglu":
        gate, up = h.chunk(2, dim=-1)
        return F.silu(gate) * up
    return F.gelu(h, approximate="tanh" if job.activation == "gelu_tanh" else "none")


def linear(job, t, group):
    between = Between(job, group)
    column, row = job.layer != "row", job.layer != "column"
    w1, b1 = (t.w1, t.b1) if job.layer == "mlp" else (t.w, t.b)
    w2, b2 = (t.w2, t.b2) if job.layer == "mlp" else (t.w, t.b)
    x = between.gather(t.x) if column else t.x
    if column:
        h = F.linear(x, w1, b1)
    if job.layer == "mlp":
        h = h.detach().requires_grad_()
        a = activate(job, h)
    else:
        a = x
    if row:
        y = between.sum(F.linear(a.detach(), w2))
        t.y.copy_(y if b2 is None else y + b2)
    else:
        t.y.copy_(h)
    if not job.training:
        return
    t.backward()
    dy = between.gather(t.dy) if row else t.dy
    if row:
        da = dy @ w2
        (t.dw2 if job.layer == "mlp" else t.dw).copy_(dy.T @ a.detach())
        if b2 is not None:
            (t.db2 if job.layer == "mlp" else t.db).copy_(dy.float().sum(0))
    if job.layer == "row":
        t.dx.copy_(da)
        return
    dh = torch.autograd.grad(a, h, da)[0] if job.layer == "mlp" else dy
    (t.dw1 if job.layer == "mlp" else t.dw).copy_(dh.T @ x)
    if b1 is not None:
        (t.db1 if job.layer == "mlp" else t.db).copy_(dh.float().sum(0))
    t.dx.copy_(between.sum(dh @ w1))


cpattn.guest.serve(collective=collective, linear=linear)
