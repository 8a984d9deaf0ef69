#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges PyTorch's attention kernels, forward and backward. All are honest, so none may fail.

Draws cases of one rank, with grouped heads, biases, windows, packed sequences and softcaps as far
as a kernel has them. Prints for each kernel and dtype how many cases passed, and how near the worst
one came to each limit. A kernel may refuse a case. Exit status: 1 if a case failed.

Needs PyTorch and the package cpattn (make wheel). Without --device cpu it needs a GPU, and the
results are judged there.
"""
import argparse
import random
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import cpattn

aten = torch.ops.aten
LENGTHS = (1, 2, 17, 64, 127, 257, 512, 700, 1024, 1536)
LENGTH_CPU = 127  # the longest on a CPU
CPU_TOLERANCE = 1e-4  # exponentials of PyTorch's 16-bit kernels for CPUs are approximate
FLEX_LENGTHS = (300, 1024)


# ---- cases ----------------------------------------------------------------------------------------


def heads_draw(rng):
    heads = rng.choice((1, 2, 4, 8))
    return {"heads": heads, "kv_heads": rng.choice([n for n in (1, 2, 4, 8, heads, heads) if heads % n == 0])}


def padded_draw(rng, lengths):
    """A case for scaled_dot_product_attention()."""
    fields = heads_draw(rng)
    dim, length = rng.choice((8, 32, 40, 64, 96, 128, 128, 256)), rng.choice(lengths)
    fields.update(
        dtype=rng.choice(("bf16", "bf16", "fp16", "fp16", "fp32")),
        format="bshd",
        batch=rng.choice((1, 1, 2, 3)),
        head_dim_qk=dim,
        head_dim_v=dim if rng.random() < 0.8 else rng.choice((32, 64, 128)),
        seqlen_q=length,
        seqlen_kv=length,
        mask=rng.choice(("causal", "none")),
    )
    if fields["mask"] == "none" and rng.random() < 0.3:
        fields["seqlen_kv"] = rng.choice(lengths)
    if rng.random() < 0.15:
        fields["scale"] = rng.choice((0.03, 0.2, 1.0))
    if rng.random() < 0.25:
        fields["bias"] = rng.choice(("1hss", "11ss", "b1ss", "bhss"))
    return fields


def packed_draw(rng, lengths):
    """A case for FlashAttention-2's entry for packed sequences."""
    fields = heads_draw(rng)
    dim = rng.choice((32, 64, 96, 128, 192, 256))
    sequences = [rng.choice(lengths) for _ in range(rng.choice((1, 2, 3, 5)))]
    fields.update(
        dtype=rng.choice(("bf16", "fp16")),
        format="thd",
        batch=len(sequences),
        head_dim_qk=dim,
        head_dim_v=dim,
        seqlen_q=max(sequences),
        seqlen_kv=max(sequences),
        lengths_q=sequences,
        mask=rng.choice(("causal", "none")),
    )
    if rng.random() < 0.4:
        fields["window_left"] = rng.choice((0, 1, 63, 100))
        if fields["mask"] == "none":
            fields["window_right"] = rng.choice((0, 5, 128))
    return fields


def flex_draw(rng, lengths):
    """A case for flex_attention(), whose variants are few because each has to be compiled."""
    del lengths
    length, dim = rng.choice(FLEX_LENGTHS), rng.choice((64, 128))
    fields = {
        "dtype": "bf16",
        "format": "bshd",
        "batch": 2,
        "heads": 8,
        "kv_heads": 2,
        "head_dim_qk": dim,
        "head_dim_v": dim,
        "seqlen_q": length,
        "seqlen_kv": length,
        "mask": "causal",
    }
    fields.update(rng.choice(({"softcap": 10}, {"window_left": 100})))
    return fields


def case_draw(rng, draw, device):
    on_cpu = device == "cpu"
    fields = draw(rng, [n for n in LENGTHS if n <= LENGTH_CPU or not on_cpu])
    if on_cpu and fields["dtype"] != "fp32":
        fields["lse_tolerance"] = CPU_TOLERANCE
    fields.update(
        world_size=1,
        sharding="contiguous",
        inputs=rng.choice(("sharp", "sharp", "te")),
        seed=rng.randrange(1, 1 << 31),
    )
    return cpattn.Case(**fields)


# ---- kernels --------------------------------------------------------------------------------------


def number(case, field):
    return int(case[field])


def scale_of(case):
    return float(case["scale"]) or None


def causal_bias(case, bias):
    """The bias as a mask of scores, -inf where the causal mask hides a key."""
    if case["mask"] != "causal":
        return bias
    hidden = torch.ones(bias.shape[-2:], dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(hidden, float("-inf"))


def backend_lse(backend, q, k, v, mask, causal, scale):
    """LSE as [batch, heads, seqlen], or None if the backend does not return it."""
    if q.shape[1] != k.shape[1]:
        return None
    if backend == SDPBackend.FLASH_ATTENTION and q.device.type == "cpu":
        op = aten._scaled_dot_product_flash_attention_for_cpu
        return op(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)[1]
    if backend == SDPBackend.FLASH_ATTENTION:
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)[1]
    if backend == SDPBackend.EFFICIENT_ATTENTION and mask is None:
        op = aten._scaled_dot_product_efficient_attention
        return op(q, k, v, None, True, 0.0, causal, scale=scale)[1][..., : q.shape[2]]
    if backend == SDPBackend.CUDNN_ATTENTION and mask is None:
        op = aten._scaled_dot_product_cudnn_attention
        return op(q, k, v, None, True, 0.0, causal, False, scale=scale)[1].reshape(q.shape[:3])
    return None


def backend_run(backend):
    def run(case, check, device):
        q, k, v, d_out = (x.transpose(1, 2) for x in check.inputs(library="torch", device=device))
        leaves = [x.requires_grad_() for x in (q, k, v)]
        bias = mask = None
        if check.has("bias"):
            bias = check.input("bias", library="torch", device=device).requires_grad_()
            mask = causal_bias(case, bias)
        causal = mask is None and case["mask"] == "causal"
        scale = scale_of(case)
        with sdpa_kernel([backend]):
            out = scaled_dot_product_attention(
                q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        grads = torch.autograd.grad(out, leaves + ([bias] if bias is not None else []), d_out)
        results = {"out": out.detach(), "dq": grads[0], "dk": grads[1], "dv": grads[2]}
        results = {name: x.transpose(1, 2).contiguous() for name, x in results.items()}
        if bias is not None:
            results["dbias"] = grads[3].contiguous()
        with torch.no_grad():
            lse = backend_lse(backend, q, k, v, mask, causal, scale)
        if lse is not None:
            results["lse"] = lse
        return results

    return run


def packed_run(case, check, device):
    q, k, v, d_out = check.inputs(library="torch", device=device)
    lengths = torch.tensor([int(n) for n in case["lengths_q"].split(",")])
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device, torch.int32)
    longest, causal = int(lengths.max()), case["mask"] == "causal"
    window = {}
    if number(case, "window_left") >= 0 or number(case, "window_right") >= 0:
        right = 0 if causal else number(case, "window_right")
        window = {"window_size_left": number(case, "window_left"), "window_size_right": right}
    where = (ends, ends, longest, longest, 0.0, causal)
    out, lse, seed, offset, _ = aten._flash_attention_forward(q, k, v, *where, False, **window)
    dq, dk, dv = aten._flash_attention_backward(
        d_out, q, k, v, out, lse, *where, seed, offset, **window
    )
    return {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


flex_compiled = {}


def flex_run(case, check, device):
    from torch.nn.attention import flex_attention as flex

    cap, left, length = float(case["softcap"]), number(case, "window_left"), number(case, "seqlen_q")
    kind = (cap, left, length, case["head_dim_qk"])
    torch._dynamo.config.recompile_limit = 64
    if kind not in flex_compiled:

        def visible(batch, head, query, key):
            seen = query >= key
            return seen & (query - key <= left) if left >= 0 else seen

        def capped(score, batch, head, query, key):
            return cap * torch.tanh(score / cap)

        blocks = flex.create_block_mask(visible, None, None, length, length, device=device)
        compiled = torch.compile(flex.flex_attention, dynamic=False)
        flex_compiled[kind] = (compiled, blocks, capped if cap else None)
    attention, blocks, score = flex_compiled[kind]
    q, k, v, d_out = (x.transpose(1, 2) for x in check.inputs(library="torch", device=device))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out, lse = attention(
        *leaves, score_mod=score, block_mask=blocks, enable_gqa=True, return_lse=True
    )
    dq, dk, dv = torch.autograd.grad(out, leaves, d_out)
    results = {"out": out.detach(), "dq": dq, "dk": dk, "dv": dv}
    return {name: x.transpose(1, 2) for name, x in results.items()} | {"lse": lse.detach()}


BACKENDS = {
    "flash": backend_run(SDPBackend.FLASH_ATTENTION),
    "cuDNN": backend_run(SDPBackend.CUDNN_ATTENTION),
    "efficient": backend_run(SDPBackend.EFFICIENT_ATTENTION),
    "math": backend_run(SDPBackend.MATH),
}


# ---- verdicts -------------------------------------------------------------------------------------


class Tally:
    def __init__(self):
        self.passed = self.failed = self.refused = 0
        self.worst = {}  # by rule and tensor: the largest part of the limit

    def add(self, verdict):
        self.passed += bool(verdict)
        self.failed += not verdict
        for f in verdict.figures:
            parts = {
                "rmse": f.rmse / f.rmse_limit if f.rmse_limit else 0,
                "slope": abs(f.slope) / f.slope_limit if f.slope_limit else 0,
                "row": f.worst_row / f.worst_row_limit if f.worst_row_limit else 0,
                "element": f.worst_element,
            }
            for rule, part in parts.items():
                before = self.worst.setdefault(rule, {}).get(f.tensor, 0)
                self.worst[rule][f.tensor] = max(before, part)


def judge(name, run, case, device, tallies):
    tally = tallies.setdefault((name, case["dtype"]), Tally())
    check = cpattn.Check(case)
    try:
        results = run(case, check, device)
    except (RuntimeError, ValueError) as why:
        if "CUDA error" in str(why):
            raise
        tally.refused += 1
        return
    verdict = check.verify(**results)
    tally.add(verdict)
    if not verdict:
        print(f"{name}: {verdict}", flush=True)


def report(tallies):
    print("| kernel | dtype | passed | failed | refused | RMS | slope | row | element |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, dtype), tally in sorted(tallies.items()):
        cells = [name, dtype, tally.passed, tally.failed, tally.refused]
        for rule in ("rmse", "slope", "row", "element"):
            tensor, part = max(tally.worst.get(rule, {"": 0}).items(), key=lambda item: item[1])
            cells.append(f"{part:.2f} ({tensor})" if tensor else "-")
        print("|", " | ".join(str(cell) for cell in cells), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300, help="cases of each kind [300]")
    parser.add_argument("--flex", type=int, default=0, help="cases of flex_attention, which compiles for a minute [0]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases [1]")
    parser.add_argument("--device", default="cuda", help="device of PyTorch [cuda]")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("judge_torch.py: PyTorch finds no GPU; --device cpu needs none")
    rng, tallies = random.Random(args.seed), {}
    for _ in range(args.cases):
        case = case_draw(rng, padded_draw, args.device)
        for name, run in BACKENDS.items():
            judge(name, run, case, args.device, tallies)
    if args.device != "cpu":
        for _ in range(args.cases):
            case = case_draw(rng, packed_draw, args.device)
            judge("flash, packed", packed_run, case, args.device, tallies)
    for _ in range(args.flex):
        case = case_draw(rng, flex_draw, args.device)
        judge("flex_attention", flex_run, case, args.device, tallies)
    report(tallies)
    return any(tally.failed for tally in tallies.values())


if __name__ == "__main__":
    sys.exit(main())
