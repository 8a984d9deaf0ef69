#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the CUDA backend beside PyTorch's attention on one GPU, in turns within one run.

usage: beside_torch.py BENCH_ATTENTION_CUDA [--quick] [forward] [backward]

Each turn of each first warms the device up, then times bursts of calls that follow each other
(forward) or single calls (backward). Prints TFLOP/s: 2 * batch * heads * seqlen^2 * (d_qk + d_v) for forward,
2.5 times that for backward, half of it where causal. Both count all passes, from nothing to results in bf16. "ordered" is a backward that gives the same bits every
time: of FlashAttention-2 the one under use_deterministic_algorithms(); cuDNN has none, its column is the plain one.
The ceilings are those of a bf16 matrix product of 8192^3 and of a copy within the device. bench/draw.py draws the
tables.
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
    (1, 32, 32, 8192, 96, 96),
    (1, 16, 16, 8192, 192, 128),
    (1, 16, 16, 8192, 256, 256),
]
WARM_MS = 100
BURST_MS = 20
BURSTS = 5
PEERS = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def flops(verb, shape, mask):
    batch, heads, _, seqlen, d_qk, d_v = shape
    work = 2 * batch * heads * seqlen**2 * (d_qk + d_v) * (1 if verb == "forward" else 2.5)
    return work / (2 if mask == "causal" else 1)


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    # Of this project's backward: with the clearing and rounding of gradients.
    VERBS = {"forward": "forward", "backward": "whole", "ordered": "whole_ordered"}

    def time(self, verb, shape, mask):
        fields = [self.VERBS[verb], "bf16", *map(str, shape), mask, str(BURSTS)]
        self.process.stdin.write(" ".join(fields) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[0])


def burst_time(attend, calls):
    """Milliseconds of a call, when so many follow each other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        attend()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def warm_up(attend):
    """Milliseconds of a call."""
    times = [burst_time(attend, 1)]
    while len(times) < 3 or sum(times) < WARM_MS:
        times.append(burst_time(attend, 1))
    return times[-1]


def ceilings():
    """TFLOP/s of a matrix product of random numbers, TB/s of a copy, bytes read and written counted."""
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    big = torch.empty(1 << 30, dtype=torch.float32, device="cuda")
    results = []
    for call, work in ((lambda: a @ b, 2 * 8192**3 / 1e9), (lambda: big[: 1 << 29].copy_(big[1 << 29 :]), 4.295)):
        one = warm_up(call)
        results.append(work / statistics.median(burst_time(call, max(1, int(BURST_MS / one))) for _ in range(BURSTS)))
    return results


def peer_time(backend, verb, tensors, mask):
    """Median milliseconds of a call; None where this peer refuses the shape."""
    q, k, v, d_out = tensors
    forward = verb == "forward"

    def attend():
        return scaled_dot_product_attention(
            q, k, v, is_causal=mask == "causal", enable_gqa=q.shape[1] != k.shape[1]
        )

    try:
        torch.use_deterministic_algorithms(verb == "ordered" and backend == PEERS["FA2"])
        with sdpa_kernel(backend), torch.set_grad_enabled(not forward):
            call = attend
            if not forward:
                out = attend()

                def call():
                    torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)

            one = warm_up(call)
            calls = max(1, int(BURST_MS / one)) if forward else 1
            return statistics.median(burst_time(call, calls) for _ in range(BURSTS))
    except RuntimeError:
        return None
    finally:
        torch.use_deterministic_algorithms(False)


def tensors_of(shape):
    batch, heads, kv_heads, seqlen, d_qk, d_v = shape
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    widths = ((heads, d_qk), (kv_heads, d_qk), (kv_heads, d_v), (heads, d_v))
    return [
        torch.randn(batch, seqlen, h, d, **options).transpose(1, 2).requires_grad_(i < 3)
        for i, (h, d) in enumerate(widths)
    ]


def measure(ours, verb, shape, mask, rounds):
    """TFLOP/s of each, the median of several turns."""
    times = {name: [] for name in ["ours", *PEERS]}
    tensors = tensors_of(shape)
    for _ in range(rounds):
        times["ours"].append(ours.time(verb, shape, mask))
        for name, backend in PEERS.items():
            times[name].append(peer_time(backend, verb, tensors, mask))
    work = flops(verb, shape, mask) / 1e9
    return {
        name: None if None in list_ else work / statistics.median(list_)
        for name, list_ in times.items()
    }


def table(ours, verb, rounds):
    print(f"\n{verb}\n")
    print("| b, h, hk, s, d_qk, d_v | mask | ours | FA2 | cuDNN | ours / FA2 | ours / cuDNN |")
    print("|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for mask in ("full", "causal"):
            rates = measure(ours, verb, shape, mask, rounds)
            cells = [f"{rate:.0f}" if rate else "-" for rate in rates.values()]
            cells += [f"{rates['ours'] / rates[name]:.2f}" if rates[name] else "-" for name in PEERS]
            print("|", ", ".join(map(str, shape)), "|", mask, "|", " | ".join(cells), "|")
            sys.stdout.flush()


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    if not torch.cuda.is_available():
        sys.exit("beside_torch.py: PyTorch finds no GPU")
    wanted = [a for a in sys.argv[2:] if a != "--quick"] or ["forward", "backward"]
    ours = Ours(sys.argv[1])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, TFLOP/s")
    print("ceilings: {:.0f} TFLOP/s, {:.2f} TB/s".format(*ceilings()))
    for verb in ("forward", "backward", "ordered"):
        if verb in wanted or (verb == "ordered" and "backward" in wanted):
            table(ours, verb, 1 if "--quick" in sys.argv else 3)


main()
