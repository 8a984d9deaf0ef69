#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times MLPs of a daemon beside PyTorch's tensor parallel layers on the same GPUs, in turns within one run.

usage: beside_tensor_parallel.py [--devices N] [--turns N] [--tokens N] [--features N] [--hidden N]

Wants a daemon with the CUDA backend, CPATTN_SOCKET and cpattn-submit in PATH. bf16, no bias, forward and backward.
PyTorch shards the layers with ColwiseParallel and RowwiseParallel, one process a GPU; its rounds begin at a
barrier and last as long as in the slowest rank. Each layer of the daemon is verified before it is timed. Prints
the median of the turns: milliseconds of forward, and TFLOP/s of each GPU for forward and backward. A layer of n
products has 6 n tokens features hidden operations.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

LAYERS = [(activation, parallel) for activation in ("gelu", "swiglu") for parallel in (False, True)]
CHUNKS = (1, 2, 4)
ROUNDS = 12


# ---- PyTorch ---------------------------------------------------------------------------------------


class Mlp(nn.Module):
    def __init__(self, features, hidden, gated):
        super().__init__()
        options = {"bias": False, "dtype": torch.bfloat16, "device": "cuda"}
        self.up = nn.Linear(features, hidden, **options)
        self.gate = nn.Linear(features, hidden, **options) if gated else None
        self.down = nn.Linear(hidden, features, **options)

    def forward(self, x):
        if self.gate is None:
            return self.down(nn.functional.gelu(self.up(x)))
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def rounds_ms(step):
    """Forward, and forward and backward, of the slowest rank."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    dist.barrier()
    torch.cuda.synchronize()
    step(events)
    events[2].synchronize()
    took = torch.tensor([events[0].elapsed_time(e) for e in events[1:]], device="cuda")
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return took.tolist()


def peer_time(mesh, size, activation, sequence_parallel):
    tokens, features, hidden = size
    torch.manual_seed(1)
    names = ["up", "gate"] if activation == "swiglu" else ["up"]
    layout = Shard(0) if sequence_parallel else Replicate()
    plan = {name: ColwiseParallel(input_layouts=layout) for name in names}
    plan["down"] = RowwiseParallel(output_layouts=layout)
    mlp = parallelize_module(Mlp(features, hidden, activation == "swiglu"), mesh, plan)
    rows = tokens // mesh.size() if sequence_parallel else tokens
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    x = torch.randn(rows, features, **options, requires_grad=True)
    dy = torch.randn(rows, features, **options)
    inputs = [x, *mlp.parameters()]

    def step(events):
        events[0].record()
        y = mlp(x)
        events[1].record()
        torch.autograd.grad(y, inputs, dy)
        events[2].record()

    times = [rounds_ms(step) for _ in range(ROUNDS)][ROUNDS // 2 :]
    return [statistics.median(t) for t in zip(*times)]


def worker(rank, devices, port, requests, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(devices))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    mesh = dist.device_mesh.init_device_mesh("cuda", (devices,), mesh_dim_names=("tp",))
    for request in iter(requests[rank].get, None):
        try:
            result = peer_time(mesh, *request)
        except Exception as error:  # listed in the table's notes
            result = f"{type(error).__name__}: {error}"[:300]
        torch.cuda.empty_cache()
        if rank == 0:
            answers.put(result)
    dist.destroy_process_group()


# ---- the daemon ------------------------------------------------------------------------------------


def submit(arguments):
    run = subprocess.run(["cpattn-submit", *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        print("#", " ".join(arguments), run.stderr.strip()[:300] or run.stdout.strip()[:300])
        return None
    return json.loads(run.stdout)


def daemon_time(devices, size, activation, sequence_parallel, chunks):
    """Milliseconds of forward, and of both; None where the layer does not pass."""
    layer = ["mlp", "--json", "--world-size", str(devices), "--bias", "false", "--activation", activation]
    layer += ["--sequence-parallel", str(sequence_parallel).lower(), "--chunks", str(chunks)]
    for name, value in zip(("tokens", "in-features", "hidden", "out-features"), (*size, size[1])):
        layer += [f"--{name}", str(value)]
    answer = submit(["bench", "linear", *layer, "--iterations", "10", "--warmup", "1", "--repeat", "3"])
    if answer is None or answer["verified"] != "pass":
        return None
    return [answer["times_ns"][name]["median"] / 1e6 for name in ("forward", "run")]


# ---- the table -------------------------------------------------------------------------------------


def cell(values, work):
    values = [v for v in values if isinstance(v, list)]
    if not values:
        return "-"
    forward, both = (statistics.median(v) for v in zip(*values))
    return f"{forward:.2f} / {work / both / 1e9:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=torch.cuda.device_count())
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--features", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=28672)
    parser.add_argument("--port", type=int, default=29518)
    args = parser.parse_args()
    count = torch.cuda.device_count()
    if count == 0:
        sys.exit("beside_tensor_parallel.py: PyTorch finds no GPU")
    if not 1 <= args.devices <= count:
        parser.error(f"--devices is {args.devices}; accepted is 1 to {count}")
    size = args.tokens, args.features, args.hidden
    context = mp.get_context("spawn")
    requests, answers = [context.Queue() for _ in range(args.devices)], context.Queue()
    workers = [
        context.Process(target=worker, args=(r, args.devices, args.port, requests, answers), daemon=True)
        for r in range(args.devices)
    ]
    for process in workers:
        process.start()
    print(f"{args.devices} {torch.cuda.get_device_name()}, torch {torch.__version__}; {' x '.join(map(str, size))}")
    print("forward in ms / TFLOP/s a GPU of forward and backward")
    names = ["PyTorch", *(f"{c} chunks" for c in CHUNKS)]
    print("| layer |", " | ".join(names), "|")
    print("|" + "---|" * (1 + len(names)))
    for activation, parallel in LAYERS:
        times = {name: [] for name in names}
        for _ in range(args.turns):
            for queue in requests:
                queue.put((size, activation, parallel))
            theirs = answers.get(timeout=180)
            if isinstance(theirs, str):
                print("#", theirs)
            times["PyTorch"].append(theirs)
            for chunks in CHUNKS:
                times[f"{chunks} chunks"].append(daemon_time(args.devices, size, activation, parallel, chunks))
        products = 3 if activation == "swiglu" else 2
        work = 6 * products * args.tokens * args.features * args.hidden / args.devices
        label = activation + (", sequence parallel" if parallel else "")
        print("|", label, "|", " | ".join(cell(times[name], work) for name in names), "|")
        sys.stdout.flush()
    for queue in requests:
        queue.put(None)
    for process in workers:
        process.join(20)


if __name__ == "__main__":
    main()
