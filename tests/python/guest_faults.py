# SPDX-License-Identifier: Apache-2.0
"""A guest with faults. The model of a case names the fault. Without a fault all results are zero:
that is right only when no query sees a key. Tensors are numpy arrays; with the argument "torch",
and on GPUs, they are PyTorch tensors."""
import io
import os
import signal
import sys
import time

import numpy

import cpattn.guest

hoard = []


def right(shard):
    like = numpy.zeros_like if isinstance(shard.q, numpy.ndarray) else sys.modules["torch"].zeros_like
    return {name: like(of) for name, of in zip(("out", "dq", "dk", "dv"), inputs(shard))}


def inputs(shard):
    return shard.do, shard.q, shard.k, shard.v


def deep():
    raise ValueError("the ring is\nbroken")


def oversleep():
    time.sleep(600)


def wait_for_peer():
    time.sleep(600)


def misbehave_in_torch(how, shard, results, torch):
    """Returns False for a fault that is the same in numpy."""
    if how == "NaN":
        results["out"][..., 3] = torch.nan
    elif how == "wrong dtype":
        results["dq"] = results["dq"].double()
    elif how == "wrong device":
        results["dq"] = results["dq"].to("meta" if shard.device < 0 else "cpu")
    elif how == "leaks" and shard.device >= 0:
        hoard.append(torch.ones(1 << 30, dtype=torch.uint8, device=results["dq"].device))
    elif how == "takes all memory":
        torch.ones(1 << 46, dtype=torch.uint8, device=results["dq"].device)
    elif how == "breaks the device":
        torch.zeros(4, device=results["dq"].device)[torch.tensor([9], device=results["dq"].device)]
    elif how == "keeps the device busy":
        torch.cuda._sleep(1 << 40)
    elif how == "another stream":  # the results are returned before the stream has written them
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            for tensor in results.values():
                tensor.zero_()
    elif how == "raises while others exchange":
        if shard.rank == 1:
            deep()
        torch.distributed.all_reduce(results["dq"])
    else:
        return False
    return True


def misbehave(how, shard, results):
    torch = None if isinstance(shard.q, numpy.ndarray) else sys.modules["torch"]
    if torch and misbehave_in_torch(how, shard, results, torch):
        return results
    if how == "raises":
        deep()
    elif how == "raises alone" and shard.rank == 1:
        deep()
    elif how == "raises while others wait":
        if shard.rank == 1:
            deep()
        time.sleep(600)
    elif how == "exits":
        sys.exit(7)
    elif how == "exits with a sentence":
        sys.exit("the fabric is down")
    elif how == "dies" and shard.rank == shard.world_size - 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "hangs" and shard.rank == shard.world_size - 1:
        time.sleep(600)
    elif how == "one hangs, one waits":
        oversleep() if shard.rank == shard.world_size - 1 else wait_for_peer()
    elif how == "forks":
        os.fork()
    elif how == "leaves a process behind":
        if os.fork() == 0:
            time.sleep(600)
    elif how == "prints":
        for _ in range(10):
            sys.stdout.write("x" * (1 << 20) + "\n")
            sys.stderr.write("\0\x1b" * (1 << 10))
    elif how == "changes its directory":
        assert os.getcwd() != "/"
        os.chdir("/")
    elif how == "leaks":
        hoard.append(numpy.ones(1 << 30, numpy.uint8))
    elif how == "replaces stderr":
        sys.stderr = io.StringIO()
    elif how == "ends the daemon":
        results["out"].view(numpy.uint16)[..., 3] = 0x7FC0
        if shard.world_size == 1:
            os.kill(os.getppid(), signal.SIGKILL)
    elif how == "replaces signals":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    elif how == "closes descriptors":
        os.closerange(3, 64)
    elif how == "NaN":
        results["out"].view(numpy.uint16)[..., 3] = 0x7FC0
    elif how == "wrong dtype":
        results["dq"] = results["dq"].astype(numpy.float64)
    elif how == "wrong shape":
        results["dq"] = results["dq"][:, :-1]
    elif how == "too few":
        del results["dv"]
    elif how == "unknown":
        results["dx"] = results["dv"]
    elif how == "a tuple":
        return tuple(results.values())
    elif how == "lse of one":
        if shard.rank == 0:
            results["lse"] = numpy.zeros((2, 8, shard.q.shape[1]), numpy.float32)
    elif how == "unsupported":
        raise cpattn.guest.Unsupported("only sees nothing")
    return results


def attend(case, shard, group):
    return misbehave(case.model, shard, right(shard))


if "torch" in sys.argv[1:]:
    import torch  # noqa: F401
cpattn.guest.serve(attend)
