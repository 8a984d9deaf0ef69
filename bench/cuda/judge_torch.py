#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts results of PyTorch's attention kernels before the judge: all of them are honest, none may fail.

usage: judge_torch.py BENCH_JUDGE_RESULTS [CASES [SEED]]

Draws cases (300), computes each with FlashAttention-2, cuDNN and the math path, forward and
backward, and prints per kernel how many passed, and how close the worst came to each limit.
"""
import concurrent.futures
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
aten = torch.ops.aten


class Judge:
    """One process that judges; an order at a time."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, verb, path, case):
        words = " ".join(f"{field}={value}" for field, value in case.items())
        self.process.stdin.write(f"{verb} {path} {words}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()


def case_draw(rng):
    heads = rng.choice([1, 2, 4, 8])
    return {
        "dtype": rng.choice(["bf16", "fp16"]),
        "format": "bshd",
        "batch": rng.choice([1, 1, 2, 3]),
        "heads": heads,
        "kv_heads": heads,
        "head_dim_qk": (dim := rng.choice([32, 64, 96, 128, 128, 256])),
        "head_dim_v": dim,
        "seqlen_q": (length := rng.choice([1, 2, 17, 64, 127, 257, 512, 700, 1024, 1536])),
        "seqlen_kv": length,
        "mask": rng.choice(["causal", "none"]),
        "inputs": rng.choice(["sharp", "sharp", "te"]),
        "sharding": "contiguous",
        "seed": rng.randrange(1, 1 << 31),
    }


def inputs_read(path, case):
    """q, k, v, dO as [batch, heads, seqlen, dim] on the GPU."""
    data = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=DTYPES[case["dtype"]])
    shape = (4, case["batch"], case["seqlen_q"], case["heads"], case["head_dim_qk"])
    return [x.transpose(1, 2) for x in data.cuda().view(shape)]


def flash(q, k, v, d_out, causal):
    out, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, False
    )
    grads = aten._scaled_dot_product_flash_attention_backward(
        d_out, q, k, v, out, lse, cu_q, cu_k, max_q, max_k, 0.0, causal, seed, offset
    )
    return out, lse, *grads


def cudnn(q, k, v, d_out, causal):
    out, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False
    )
    grads = aten._scaled_dot_product_cudnn_attention_backward(
        d_out, q, k, v, out, lse, seed, offset, None, cu_q, cu_k, max_q, max_k, 0.0, causal
    )
    return out, lse, *grads


def math_path(q, k, v, d_out, causal):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    out.backward(d_out)
    scores = q.detach().double() @ k.detach().double().transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        length = q.shape[2]
        hidden = torch.ones(length, length, dtype=torch.bool, device="cuda").triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return out.detach(), scores.logsumexp(-1).float(), q.grad, k.grad, v.grad


KERNELS = {"FA2": flash, "cuDNN": cudnn, "math": math_path}


def results_write(path, results):
    out, lse, *grads = results
    lse = lse.reshape(lse.shape[:3]).permute(1, 0, 2)
    with open(path, "wb") as file:
        for tensor in (out.transpose(1, 2), lse, *(x.transpose(1, 2) for x in grads)):
            data = tensor.contiguous().cpu()
            file.write(data.view(torch.uint8).numpy().tobytes())


# cuDNN's attention in PyTorch 2.11 crashes where several threads call it at once.
kernels_lock = threading.Lock()


def case_judge(judges, case):
    """{kernel: words of the verdict, or None where the kernel refuses the case}"""
    judge = judges.get()
    answers = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tensors")
            judge.order("inputs", path, case)
            inputs = inputs_read(path, case)
            for name, kernel in KERNELS.items():
                try:
                    with kernels_lock:
                        results = kernel(*inputs, case["mask"] == "causal")
                        torch.cuda.synchronize()
                except (RuntimeError, ValueError):
                    answers[name] = None
                    continue
                results_write(path, results)
                answers[name] = judge.order("judge", path, case)
    finally:
        judges.put(judge)
    return answers


FIGURES = ("times the twin", "slope", "row / limit", "element / limit")


class Tally:
    def __init__(self):
        self.passed = self.failed = self.refused = 0
        self.worst = {}

    def add(self, case, words, name):
        if words is None:
            self.refused += 1
            return
        if words[0] == "pass":
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {name}", " ".join(f"{k}={v}" for k, v in case.items()), *words[1:])
        for i in range(1, len(words), 6):
            tensor, values = words[i], [abs(float(x)) for x in words[i + 2 : i + 6]]
            worst = self.worst.setdefault(tensor, [0.0] * len(FIGURES))
            self.worst[tensor] = [max(a, b) for a, b in zip(worst, values)]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    if not torch.cuda.is_available():
        sys.exit("judge_torch.py: PyTorch finds no GPU")
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    judges = queue.Queue()
    workers = min(os.cpu_count() or 1, 12)
    for _ in range(workers):
        judges.put(Judge(program))
    cases = [case_draw(rng) for _ in range(count)]
    tallies = {name: Tally() for name in KERNELS}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for case, answers in zip(cases, pool.map(lambda c: case_judge(judges, c), cases)):
            for name, words in answers.items():
                tallies[name].add(case, words, name)
    for name, tally in tallies.items():
        print(f"{name}: {tally.passed} passed, {tally.failed} failed, {tally.refused} refused")
        for tensor, worst in tally.worst.items():
            print(f"  {tensor:4}", ", ".join(f"{f} {w:.3g}" for f, w in zip(FIGURES, worst)))
    return any(tally.failed for tally in tallies.values())


if __name__ == "__main__":
    sys.exit(main())
