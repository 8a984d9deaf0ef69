# SPDX-License-Identifier: Apache-2.0
"""A guest that does what the model of a case says, mostly wrong. It knows one right answer: that of
queries that see no key, which is zero."""
import os
import signal
import sys
import time

import numpy

import cpattn.guest

hoard = []


def right(shard):
    return {name: numpy.zeros_like(of) for name, of in zip(("out", "dq", "dk", "dv"), inputs(shard))}


def inputs(shard):
    return shard.do, shard.q, shard.k, shard.v


def deep():
    raise ValueError("the ring is\nbroken")


def misbehave(how, shard, results):
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
    elif how == "dies" and shard.rank == shard.world_size - 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "hangs" and shard.rank == shard.world_size - 1:
        time.sleep(600)
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


cpattn.guest.serve(attend)
