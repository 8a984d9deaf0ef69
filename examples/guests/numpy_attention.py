#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest of one rank: attention in numpy, forward and backward, to be copied.

    cpattnd --guest numpy="python3 numpy_attention.py"
    cpattn-submit case --implementation numpy --world-size 1 --seqlen 200
"""
import numpy

import cpattn.guest


def read(tensor, dtype):
    """fp32 of [batch, tokens, heads, dim] as [batch, heads, tokens, dim]."""
    if dtype == "bf16":  # numpy has the bits of them
        tensor = (tensor.astype(numpy.uint32) << 16).view(numpy.float32)
    return tensor.astype(numpy.float32).transpose(0, 2, 1, 3)


def write(tensor, dtype):
    tensor = numpy.ascontiguousarray(tensor.transpose(0, 2, 1, 3), dtype=numpy.float32)
    if dtype == "fp16":
        return tensor.astype(numpy.float16)
    if dtype == "bf16":  # to the nearest, ties to even
        bits = tensor.view(numpy.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
    return tensor


def attend(case, shard, group):
    if case.format != "bshd" or case.mask not in ("none", "causal") or case.softcap:
        raise cpattn.guest.Unsupported("takes format bshd with mask none or causal")
    if case.window_left >= 0 or case.softmax != "vanilla" or case.max_logit:
        raise cpattn.guest.Unsupported("takes no windows, sinks or largest logits")
    if case.lengths_q or case.lengths_kv:
        raise cpattn.guest.Unsupported("takes no lists of lengths")
    share = case.heads // case.kv_heads
    q = read(shard.q, case.dtype)
    k = read(shard.k, case.dtype).repeat(share, axis=1)
    v = read(shard.v, case.dtype).repeat(share, axis=1)
    s = q @ k.swapaxes(2, 3) * numpy.float32(case.softmax_scale)
    if shard.bias is not None:
        s += read(shard.bias, case.dtype).transpose(0, 2, 1, 3)
    if case.mask == "causal":
        s[..., ~numpy.tri(*s.shape[2:], dtype=bool)] = -numpy.inf
    top = s.max(axis=-1, keepdims=True)
    p = numpy.exp(s - top)
    total = p.sum(axis=-1, keepdims=True)
    p /= total
    out = p @ v
    results = {
        "out": write(out, case.dtype),
        "lse": (top + numpy.log(total))[..., 0].astype(numpy.float32),
    }
    if case.training:
        shard.backward()
        do = read(shard.do, case.dtype)
        ds = p * (do @ v.swapaxes(2, 3) - (do * out).sum(axis=-1, keepdims=True))
        if shard.bias is not None:  # what queries, heads or sequences share is added up
            once = tuple(i for i, size in enumerate(shard.bias.shape) if size < ds.shape[i])
            dbias = ds.sum(axis=once, keepdims=True).transpose(0, 2, 1, 3)
            results["dbias"] = write(dbias, case.dtype)
        ds *= numpy.float32(case.softmax_scale)
        groups = (case.batch, case.kv_heads, share)
        dk = (ds.swapaxes(2, 3) @ q).reshape(*groups, *k.shape[2:]).sum(axis=2)
        dv = (p.swapaxes(2, 3) @ do).reshape(*groups, *v.shape[2:]).sum(axis=2)
        for name, value in (("dq", ds @ k), ("dk", dk), ("dv", dv)):
            results[name] = write(value, case.dtype)
    return results


if __name__ == "__main__":
    cpattn.guest.serve(attend, library="numpy")
