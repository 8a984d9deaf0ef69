# SPDX-License-Identifier: Apache-2.0
"""How much too large or small an honest bf16 kernel makes the output where softcaps saturate.

Prints the 99th percentile of |slope| over draws, in units of half a step of bf16 (2^-8). The slope is
<error, reference> / <reference, reference>, as in judge/rules.h. The kernel rounds P to bf16 and is
exact otherwise. It subtracts the largest logit of a row (`max`), or a sink up to 1.4 above the cap
(`sink`). Logits before the cap have a standard deviation of RATIO softcaps.
"""
import numpy as np

CAPS, RATIOS, DRAWS, QUERIES, DIM = (0.1, 0.5, 1, 3), (1, 1.5, 2, 3, 4, 6, 8, 16, 64), 150, 128, 64


def rounded(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + ((bits >> 16) & 1) + 0x7FFF) & 0xFFFF0000).view(np.float32).astype(float)


def slope(draw, cap, ratio, keys, sink):
    logits = cap * np.tanh(ratio * draw.standard_normal((QUERIES, keys)))
    values = draw.standard_normal((keys, DIM))
    subtracted = cap + draw.uniform(0, 1.4) if sink else logits.max(1, keepdims=True)
    weights = np.exp(logits - subtracted)
    total = weights.sum(1, keepdims=True)
    reference, got = weights @ values / total, rounded(weights) @ values / total
    return ((got - reference) * reference).sum() / (reference**2).sum()


def percentile(cap, ratio, keys, sink):
    draw = np.random.default_rng(1)
    slopes = [abs(slope(draw, cap, ratio, keys, sink)) for _ in range(DRAWS)]
    return np.percentile(slopes, 99) * 256


print("| softcap | ratio | 65 keys, max | 65 keys, sink | 512 keys, max | 512 keys, sink | allowed |")
print("|---|---|---|---|---|---|---|")
for cap in CAPS:
    for ratio in RATIOS:
        found = [percentile(cap, ratio, keys, sink) for keys in (65, 512) for sink in (False, True)]
        allowed = min(max((ratio - 1) / 7, 0), 1)
        print(f"| {cap} | {ratio} |", " | ".join(f"{f:.3f}" for f in found), f"| {allowed:.3f} |")
