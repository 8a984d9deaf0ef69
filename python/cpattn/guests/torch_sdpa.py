# SPDX-License-Identifier: Apache-2.0
"""PyTorch's scaled_dot_product_attention as a guest, on one rank.

    cpattnd --guest sdpa="python3 -m cpattn.guests.torch_sdpa [--backend NAME]"

With the backend cudnn, flash, efficient or math PyTorch uses only this one. With the default, any,
PyTorch chooses.
"""
import argparse
import contextlib
import sys
import warnings

import torch
import torch.nn.functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import cpattn.guest

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def objection(case):
    """Returns why PyTorch does not support the case; None: it does."""
    if case.format == "thd" or case.lengths_q or case.lengths_kv:
        return "takes bshd and sbhd without lists of lengths"
    if case.mask not in ("none", "none_bottom_right", "causal"):
        return f"has no mask {case.mask}"
    if case.mask == "causal" and case.seqlen_q != case.seqlen_kv:
        return "takes causal masks with as many keys as queries"
    if case.window_left >= 0 or case.window_right > 0 or (not case.causal and case.window_right == 0):
        return "has no windows"
    if case.softmax != "vanilla" or case.softcap or case.max_logit:
        return "has no sinks, softcap or largest logits"
    return None


def sdpa(case, q, k, v, bias=None):
    """Returns out [batch, heads, tokens, dim] for q, k and v of this layout."""
    if bias is not None and case.causal:  # PyTorch takes either attn_mask or is_causal
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        bias = bias.masked_fill(~seen, -torch.inf)
    return torch.nn.functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=bias,
        is_causal=case.causal and bias is None,
        scale=case.softmax_scale,
        enable_gqa=case.heads != case.kv_heads,
    )


def no_kernel(error, complaints):
    """Returns PyTorch's message if the backend has no kernel for the case, else None."""
    if not any(words in str(error) for words in ("No available kernel", "No viable backend")):
        return None
    told = [str(c.message).split(" (Triggered")[0] for c in complaints]
    reasons = [text for text in told if not text.endswith("because:")]
    return "; ".join(["PyTorch has no kernel for it"] + reasons[-2:])


def serve(backend):
    def attend(case, shard, group):
        if objection(case):
            raise cpattn.guest.Unsupported(objection(case))
        to_heads = (0, 2, 1, 3) if case.format == "bshd" else (1, 2, 0, 3)
        to_tokens = (0, 2, 1, 3) if case.format == "bshd" else (2, 0, 1, 3)
        inputs = [t.permute(to_heads).requires_grad_(case.training) for t in (shard.q, shard.k, shard.v)]
        if shard.bias is not None:
            inputs.append(shard.bias.requires_grad_(case.training))
        chosen = contextlib.nullcontext() if backend == "any" else sdpa_kernel(BACKENDS[backend])
        with chosen, warnings.catch_warnings(record=True) as complaints:
            warnings.simplefilter("always")
            try:
                out = sdpa(case, *inputs)
            except RuntimeError as error:
                if no_kernel(error, complaints):
                    raise cpattn.guest.Unsupported(no_kernel(error, complaints)) from error
                raise
        results = {"out": out}
        if case.training:
            shard.backward()
            gradients = torch.autograd.grad(out, inputs, shard.do.permute(to_heads))
            results.update(zip(("dq", "dk", "dv", "dbias"), gradients))
        return {n: t if n == "dbias" else t.permute(to_tokens) for n, t in results.items()}

    cpattn.guest.serve(attend)


def main():
    parser = argparse.ArgumentParser(prog="torch_sdpa", description=__doc__)
    parser.add_argument("--backend", choices=["any", *BACKENDS], default="any")
    serve(parser.parse_args().backend)


if __name__ == "__main__":
    sys.exit(main())
