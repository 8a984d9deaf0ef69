#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times cases of a daemon beside PyTorch's context_parallel on the same GPUs, in turns within one run.

usage: beside_context_parallel.py [--devices N] [--turns N] [--quick] [SUBMIT_OPTION...]

Wants a daemon with the CUDA backend, CPATTN_SOCKET and cpattn-submit in PATH. bf16, causal, d 128.
PyTorch runs one process a GPU with cuDNN inside and takes the better of its two rotations, all-gather and
all-to-all; its rounds begin at a barrier and last as long as in the slowest rank. Each case of the daemon
is verified before it is timed. Prints TFLOP/s for each GPU, the median of the turns: 4 b h s^2 d operations for
forward, 3.5 times that for forward and backward, half of it for causal. Further options go to
cpattn-submit bench.
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
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# batch, heads, kv heads, tokens of all GPUs
SHAPES = [(1, 32, 8, 65536), (1, 32, 32, 32768), (1, 32, 8, 16384), (2, 16, 16, 8192)]
COMMS = ("p2p", "all_gather", "a2a")
ROTATIONS = ("allgather", "alltoall")
DIM = 128
WARM_MS = 200
ROUNDS = 7


def rate(shape, devices, training, ms):
    batch, heads, _, tokens = shape
    work = 2 * batch * heads * tokens**2 * DIM * (3.5 if training else 1)
    return work / devices / ms / 1e9


# ---- PyTorch ---------------------------------------------------------------------------------------


def api():
    try:
        from torch.distributed.tensor.experimental import _attention as module

        module.set_rotate_method
    except (ImportError, AttributeError):
        from torch.distributed.tensor.experimental._context_parallel import _attention as module
    from torch.distributed.tensor.experimental import context_parallel

    return context_parallel, module.set_rotate_method


def round_ms(attend):
    """How long the slowest rank takes."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    attend()
    end.record()
    end.synchronize()
    took = torch.tensor([begin.elapsed_time(end)], device="cuda")
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return took.item()


def peer_time(mesh, shape, training, rotation):
    batch, heads, kv_heads, tokens = shape
    context_parallel, set_rotate_method = api()
    torch.manual_seed(1)
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    tensors = [torch.randn(batch, h, tokens, DIM, **options) for h in (heads, kv_heads, kv_heads, heads)]
    set_rotate_method(rotation)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), context_parallel(
        mesh, buffers=tensors, buffer_seq_dims=[2] * 4
    ):
        q, k, v, d_out = (t.detach().clone() for t in tensors)
        for t in (q, k, v):
            t.requires_grad_(training)

        def attend():
            # Called by its module's name, because context_parallel replaces it.
            out = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=heads != kv_heads
            )
            if training:
                torch.autograd.grad(out, (q, k, v), d_out)

        warm = round_ms(attend)
        while warm < WARM_MS:
            warm += round_ms(attend)
        return statistics.median(round_ms(attend) for _ in range(ROUNDS))


def worker(rank, devices, port, requests, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(devices))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    mesh = dist.device_mesh.init_device_mesh("cuda", (devices,), mesh_dim_names=("cp",))
    for request in iter(requests[rank].get, None):
        try:
            result = peer_time(mesh, *request)
        except Exception as error:  # listed in the table's notes
            result = f"{type(error).__name__}: {error}"[:200]
        if rank == 0:
            answers.put(result)
    dist.destroy_process_group()


class Peer:
    def __init__(self, devices, port):
        context = mp.get_context("spawn")
        self.requests = [context.Queue() for _ in range(devices)]
        self.answers = context.Queue()
        self.workers = [
            context.Process(target=worker, args=(r, devices, port, self.requests, self.answers), daemon=True)
            for r in range(devices)
        ]
        for process in self.workers:
            process.start()

    def ask(self, shape, training, rotation):
        for queue in self.requests:
            queue.put((shape, training, rotation))
        return self.answers.get(timeout=120)

    def close(self):
        for queue in self.requests:
            queue.put(None)
        for process in self.workers:
            process.join(20)


# ---- the daemon ------------------------------------------------------------------------------------


def daemon_rates(shape, devices, comm, options):
    """TFLOP/s of forward, and of forward and backward; None where the case does not pass."""
    batch, heads, kv_heads, tokens = map(str, shape)
    command = ["cpattn-submit", "bench", "--json", "--world-size", str(devices), "--comm", comm]
    command += ["--batch", batch, "--heads", heads, "--kv-heads", kv_heads, "--seqlen", tokens]
    command += ["--head-dim", str(DIM), "--deterministic", "false", "--repeat", "12", *options]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        print("#", comm, shape, run.stderr.strip()[:300] or run.stdout.strip()[:300])
        return None
    ns = {name: times["median"] for name, times in json.loads(run.stdout)["times_ns"].items()}
    return [rate(shape, devices, name == "run", ns[name] / 1e6) for name in ("forward", "run")]


# ---- the table -------------------------------------------------------------------------------------


def measure(peer, shape, devices, turns, options):
    ours = {comm: [] for comm in COMMS}
    theirs = {training: [] for training in (False, True)}
    for _ in range(turns):
        for comm in COMMS:
            ours[comm].append(daemon_rates(shape, devices, comm, options))
        for training in theirs:
            times = [peer.ask(shape, training, rotation) for rotation in ROTATIONS]
            for time in times:
                if isinstance(time, str):
                    print("# context_parallel", shape, time)
            times = [rate(shape, devices, training, t) for t in times if not isinstance(t, str)]
            theirs[training].append(max(times, default=None))
    return ours, theirs


def cell(pairs, index):
    values = [pair[index] for pair in pairs if pair and pair[index]]
    return f"{statistics.median(values):.0f}" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=torch.cuda.device_count())
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--quick", action="store_true", help="the first and the last shape, one turn")
    args, options = parser.parse_known_args()
    count = torch.cuda.device_count()
    if count == 0:
        sys.exit("beside_context_parallel.py: PyTorch finds no GPU")
    if not 1 <= args.devices <= count:
        parser.error(f"--devices is {args.devices}; accepted is 1 to {count}")
    peer = Peer(args.devices, args.port)
    names = ["context_parallel", *COMMS]
    print(f"{args.devices} {torch.cuda.get_device_name()}, torch {torch.__version__}; TFLOP/s a GPU, forward / both")
    print("| b, h, hk, s |", " | ".join(names), "|")
    print("|" + "---|" * (1 + len(names)))
    for shape in SHAPES[:: len(SHAPES) - 1] if args.quick else SHAPES:
        ours, theirs = measure(peer, shape, args.devices, 1 if args.quick else args.turns, options)
        pairs = {"context_parallel": list(zip(theirs[False], theirs[True])), **ours}
        cells = [f"{cell(pairs[name], 0)} / {cell(pairs[name], 1)}" for name in names]
        print("|", ", ".join(map(str, shape)), "|", " | ".join(cells), "|")
        sys.stdout.flush()
    peer.close()


if __name__ == "__main__":
    main()
