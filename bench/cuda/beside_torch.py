#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the CUDA backend beside PyTorch's attention on one GPU, in turns within one run.

usage: beside_torch.py BENCH_ATTENTION_CUDA [--quick]

Prints TFLOP/s: 4 * seqlen^2 * heads * d for forward, half of it where causal.
"""
import statistics
import subprocess
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

# batch, heads, kv heads, seqlen, d_qk, d_v
SHAPES = [
    (1, 32, 32, 16384, 128, 128),
    (1, 32, 8, 16384, 128, 128),
    (4, 16, 16, 4096, 128, 128),
    (16, 16, 16, 1024, 128, 128),
    (1, 32, 32, 16384, 64, 64),
    (4, 16, 16, 4096, 64, 64),
    (1, 16, 16, 8192, 192, 128),
    (1, 16, 16, 8192, 256, 256),
]
PEERS = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def flops(shape, mask):
    batch, heads, _, seqlen, d_qk, d_v = shape
    return 2 * batch * heads * seqlen**2 * (d_qk + d_v) / (2 if mask == "causal" else 1)


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def forward(self, shape, mask, calls):
        fields = ["forward", "bf16", *map(str, shape), mask, str(calls)]
        self.process.stdin.write(" ".join(fields) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[0])


def peer_forward(backend, tensors, mask, calls):
    """Median milliseconds of a call; None where this peer refuses the shape."""
    q, k, v = tensors
    times = []
    try:
        with sdpa_kernel(backend), torch.no_grad():
            for call in range(-2, calls):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                scaled_dot_product_attention(
                    q, k, v, is_causal=mask == "causal", enable_gqa=q.shape[1] != k.shape[1]
                )
                end.record()
                end.synchronize()
                if call >= 0:
                    times.append(begin.elapsed_time(end))
    except RuntimeError:
        return None
    return statistics.median(times)


def tensors_of(shape):
    batch, heads, kv_heads, seqlen, d_qk, d_v = shape
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    return [
        torch.randn(batch, seqlen, h, d, **options).transpose(1, 2)
        for h, d in ((heads, d_qk), (kv_heads, d_qk), (kv_heads, d_v))
    ]


def measure(ours, shape, mask, rounds, calls):
    """TFLOP/s of each, the median of several turns."""
    times = {name: [] for name in ["ours", *PEERS]}
    tensors = tensors_of(shape)
    for _ in range(rounds):
        times["ours"].append(ours.forward(shape, mask, calls))
        for name, backend in PEERS.items():
            times[name].append(peer_forward(backend, tensors, mask, calls))
    work = flops(shape, mask) / 1e9
    return {
        name: None if None in list_ else work / statistics.median(list_)
        for name, list_ in times.items()
    }


def main():
    quick = "--quick" in sys.argv
    ours = Ours(sys.argv[1])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, TFLOP/s")
    print("| b, h, hk, s, d | mask | ours | FA2 | cuDNN | ours / FA2 |")
    print("|---|---|---|---|---|---|")
    for shape in SHAPES:
        for mask in ("full", "causal"):
            rates = measure(ours, shape, mask, 1 if quick else 3, 5)
            cells = [f"{rate:.0f}" if rate else "-" for rate in rates.values()]
            ratio = f"{rates['ours'] / rates['FA2']:.2f}" if rates["FA2"] else "-"
            print("|", ", ".join(map(str, shape)), "|", mask, "|", " | ".join(cells), "|", ratio, "|")
            sys.stdout.flush()


main()
