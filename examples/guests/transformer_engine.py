#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest: TransformerEngine's DotProductAttention with its context parallelism.

    cpattnd --guest te="python3 transformer_engine.py"
    cpattn-submit case --implementation te --world-size 2

Written after TransformerEngine's documentation and not run: TransformerEngine was not there to try it.
"""
import torch
import torch.distributed as dist
import transformer_engine.pytorch as te

import cpattn.guest

COMM = {"p2p": "p2p", "all_gather": "all_gather", "a2a": "a2a"}
MASKS = {
    "none": "no_mask",
    "none_bottom_right": "no_mask",
    "causal": "causal",
    "causal_bottom_right": "causal_bottom_right",
}
SOFTMAX = {"vanilla": "vanilla", "off_by_one": "off-by-one", "learnable": "learnable"}
stream = None


def refusal(case):
    if case.comm not in COMM:
        return "the hierarchical a2a+p2p needs groups that this adapter does not make"
    if case.format == "thd" or case.lengths_q or case.lengths_kv:
        return "takes bshd and sbhd without lists of lengths"
    if case.sharding != "zigzag":
        return "takes tokens dealt in zigzag"
    if case.softcap or case.max_logit or case.dtype == "fp32":
        return "has no softcap or largest logits, and takes bf16 and fp16"
    if case.bias != "none":
        return "has no bias"
    return None


def attend(case, shard, group):
    global stream
    if refusal(case):
        raise cpattn.guest.Unsupported(refusal(case))
    stream = stream or torch.cuda.Stream()
    attention = te.DotProductAttention(
        num_attention_heads=case.heads,
        kv_channels=(case.head_dim_qk, case.head_dim_v),
        num_gqa_groups=case.kv_heads,
        attention_dropout=0.0,
        qkv_format=case.format,
        attn_mask_type=MASKS[case.mask],
        window_size=(case.window_left, 0 if case.causal else case.window_right),
        softmax_scale=case.softmax_scale,
        softmax_type=SOFTMAX[case.softmax],
    ).cuda()
    if case.softmax == "learnable":
        with torch.no_grad():
            attention.softmax_offset.copy_(shard.sink.view_as(attention.softmax_offset))
    if shard.world_size > 1:
        attention.set_context_parallel_group(
            group, list(range(shard.world_size)), stream, COMM[case.comm]
        )
    inputs = [t.requires_grad_(case.training) for t in (shard.q, shard.k, shard.v)]
    out = attention(*inputs)
    out = out.view(*out.shape[:2], case.heads, case.head_dim_v)
    results = {"out": out}
    if case.training:
        shard.backward()
        out.backward(shard.do)
        results.update(zip(("dq", "dk", "dv"), (t.grad for t in inputs)))
        if case.softmax == "learnable":
            dsink = attention.softmax_offset.grad.float().flatten()
            dist.all_reduce(dsink, group=group)
            results["dsink"] = dsink
    return results


if __name__ == "__main__":
    cpattn.guest.serve(attend)
