# SPDX-License-Identifier: Apache-2.0
"""PyTorch's context_parallel as a guest, on any number of ranks.

    cpattnd --guest cp="python3 -m cpattn.guests.torch_context_parallel [--backend NAME]"

PyTorch rotates keys and values with `alltoall` for comm p2p, and with `allgather` for comm
all_gather. It needs GPUs: PyTorch does not support context_parallel on CPUs.
"""
import argparse
import sys

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method
from torch.nn.attention import sdpa_kernel

import cpattn.guest
from cpattn.guests.torch_sdpa import BACKENDS, no_kernel, objection, sdpa

ROTATIONS = {"p2p": "alltoall", "all_gather": "allgather"}


def refusal(case, shard):
    """Returns why PyTorch's context_parallel does not support the case; None: it does."""
    if shard.device < 0:
        return "PyTorch's context_parallel needs GPUs"
    if case.comm not in ROTATIONS:
        return f"rotates keys (comm p2p) or gathers them (comm all_gather), and has no {case.comm}"
    if case.bias != "none":
        return "has no bias"
    pieces = case.world_size * (2 if case.sharding == "zigzag" else 1)
    if case.seqlen_q % pieces or case.seqlen_kv % pieces:
        return f"takes lengths that {pieces} divides, the number of pieces of a sequence"
    return objection(case)


def serve(backend):
    meshes = []

    def attend(case, shard, group):
        if refusal(case, shard):
            raise cpattn.guest.Unsupported(refusal(case, shard))
        if not meshes:
            meshes.append(DeviceMesh("cuda", list(range(shard.world_size))))
        set_rotate_method(ROTATIONS[case.comm])
        # PyTorch's load balance is the zigzag sharding, and only for causal masks. Without a mask
        # the order of the keys does not matter.
        _cp_options.enable_load_balance = case.causal and case.sharding == "zigzag"
        carrier = torch.zeros(1, 2 * shard.world_size, device=shard.q.device)
        to_heads = (0, 2, 1, 3) if case.format == "bshd" else (1, 2, 0, 3)
        to_tokens = (0, 2, 1, 3) if case.format == "bshd" else (2, 0, 1, 3)
        inputs = [
            t.permute(to_heads).contiguous().requires_grad_(case.training)
            for t in (shard.q, shard.k, shard.v)
        ]
        # context_parallel shards its buffers and replaces scaled_dot_product_attention. The tokens
        # are already sharded, so it gets a dummy tensor.
        with context_parallel(meshes[0], buffers=[carrier], buffer_seq_dims=[1]), sdpa_kernel(
            BACKENDS[backend]
        ):
            try:
                out = sdpa(case, *inputs)
            except RuntimeError as error:
                if no_kernel(error, []):
                    raise cpattn.guest.Unsupported(no_kernel(error, [])) from error
                raise
            results = {"out": out}
            if case.training:
                shard.backward()
                gradients = torch.autograd.grad(out, inputs, shard.do.permute(to_heads).contiguous())
                results.update(zip(("dq", "dk", "dv"), gradients))
        return {name: t.permute(to_tokens) for name, t in results.items()}

    cpattn.guest.serve(attend)


def main():
    parser = argparse.ArgumentParser(prog="torch_context_parallel", description=__doc__)
    parser.add_argument("--backend", choices=["cudnn", "flash", "efficient"], default="flash")
    serve(parser.parse_args().backend)


if __name__ == "__main__":
    sys.exit(main())
