# SPDX-License-Identifier: Apache-2.0
"""Turn a program into a guest of cpattnd.

A guest implements attention, collectives or linear layers. cpattnd starts it, keeps it warm,
supervises it and judges it as its own implementation.

    import cpattn.guest

    def attend(case, shard, group):
        out, dq, dk, dv = my_ring(shard.q, shard.k, shard.v, shard.do, causal=case.mask == "causal")
        return {"out": out, "dq": dq, "dk": dk, "dv": dv}

    cpattn.guest.serve(attend)

The daemon runs the program once for each rank:

    cpattnd --guest mine="python3 my_ring.py"
    cpattn-submit case --implementation mine --world-size 4

Collectives and linear layers have separate functions:

    def collective(job, tensors, group):
        tensors.receive.copy_(my_all_reduce(tensors.send))

    cpattn.guest.serve(collective=collective)

    cpattn-submit collective all_reduce --implementation mine --world-size 4

Tensors are PyTorch's if PyTorch is imported or the rank has a GPU, else numpy arrays; serve() can
select one of them. In numpy, bf16 is uint16. Importing this module needs neither.
"""
from __future__ import annotations

import ctypes
import faulthandler
import itertools
import math
import os
import sys
import traceback
import types
from typing import Any, Callable, Optional

from cpattn._guest_memory import (
    ATTEND,
    START,
    Guest,
    NumpyMemory,
    Place,
    TorchMemory,
    guest_library,
    view_of,
)

__all__ = ["Case", "Job", "Shard", "Tensors", "Unsupported", "serve"]

INPUTS = ("q", "k", "v", "do", "sink", "bias")
RESULTS = ("out", "lse", "dq", "dk", "dv", "dsink", "max_logit", "dbias")
# Tensors of collectives and linear layers.
TENSORS = ("send", "receive", "x", "w", "b", "w1", "b1", "w2", "b2", "dy")
TENSORS += ("y", "dx", "dw", "db", "dw1", "db1", "dw2", "db2")
_TEXT_MAX = 500
_FRAMES_TOLD = 3
# A rank writes its stacks _DUMP_S before its time limit, but not before _WAIT_LEAST_S from now. A
# limit of _WATCHED_S or more counts as none.
_DUMP_S = 0.5
_WAIT_LEAST_S = 1e-3
_STDERR = 2
_WATCHED_S = 1e6


class Unsupported(Exception):
    """The guest does not support a case or job. Raise it with the reason, on all ranks, from the
    function of the guest. The answer is then UNIMPLEMENTED with the reason."""


class WrongResult(Exception):
    """A function of the guest returned something that is not a result of the case or job."""


# ---- the case -----------------------------------------------------------------------------------

_LISTS = ("lengths_q", "lengths_kv", "padded_q", "padded_kv")
_TEXTS = ("model", "implementation")


def _value(name: str, text: str) -> Any:
    if name in _LISTS:
        return [int(number) for number in text.split(",") if number]
    if name in _TEXTS:
        return text
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


class Case(types.SimpleNamespace):
    """The fields of a case as typed attributes: case.heads is a number, case.dtype a text such as
    "bf16", case.training a bool, case.lengths_q a list of numbers.

    The fields are those of cpattn-submit(1), with underscores. softmax_scale is the scale, or its
    default 1 / sqrt(head_dim_qk). causal is True for the masks causal and causal_bottom_right.
    """

    @property
    def softmax_scale(self) -> float:
        return self.scale or 1 / math.sqrt(self.head_dim_qk)

    @property
    def causal(self) -> bool:
        return self.mask in ("causal", "causal_bottom_right")

    def chunks(self, rank: int, side: str = "q") -> list:
        """Returns the positions that a rank has of each sequence with bshd and sbhd, for the
        queries ("q") or the keys ("k"): a list of ranges in the order of its tokens, two with the
        sharding zigzag, else one. Not for thd; Shard.tokens() works with every format."""
        length = self.seqlen_q if side == "q" else self.seqlen_kv
        count = self.world_size * (2 if self.sharding == "zigzag" else 1)
        mine = [rank, count - 1 - rank] if self.sharding == "zigzag" else [rank]
        return [range(k * length // count, (k + 1) * length // count) for k in mine]


class Job(types.SimpleNamespace):
    """The fields of a collective or a linear layer as typed attributes: job.operation, job.count,
    job.bias. `kind` is "collective" or "linear". Fields are those of `cpattn-submit KIND --help`,
    with underscores."""


def _fields_of(job: int) -> dict:
    library, fields, index = guest_library(), {}, 0
    text = ctypes.create_string_buffer(1 << 14)
    while name := library.cpattn_guest_job_field_name(job, index):
        library.cpattn_guest_field(job, name, text, len(text))
        fields[name.decode()] = _value(name.decode(), text.value.decode())
        index += 1
    return fields


# ---- tensors ------------------------------------------------------------------------------------


class Tensors:
    """A rank's tensors of a collective or a linear layer, as attributes; None if the job has no
    such tensor.

    - Collective: `send` and `receive`, of one dimension. In place they share memory. Only `receive`
      may be written.
    - Linear: inputs `x` [tokens, in features], `w` [out features, in features], `b` [out features]
      with a bias, and `dy` with training; results `y`, and with training `dx`, `dw`, `db`. An mlp
      has `w1`, `b1`, `w2`, `b2` and the results `dw1`, `db1`, `dw2`, `db2`. Only results may be
      written. <cpattn_guest.h> and cpattn-submit(1) define the share of each rank.
    - Elements have the job's dtype. Tensors are the rank's own memory: write results in place, with
      copy_() or [:]. They are valid until the function returns. If a rank has no share of a tensor,
      the tensor has no elements.
    - `rank` and `world_size` are those of the rank; `device` is the number of its GPU, or -1.
    """

    def __init__(self, job: int, memory: Any) -> None:
        self._job = job
        place = guest_library().cpattn_guest_place(job).contents
        self.rank, self.world_size, self.device = place.rank, place.world_size, place.device
        for name in TENSORS:
            setattr(self, name, view_of(job, name, memory))

    def message(self, source: int, target: int) -> int:
        """Returns how many elements rank `source` sends to rank `target` in an all_to_all or
        all_to_allv; -1 in other jobs, or if there is no such rank."""
        return guest_library().cpattn_guest_message(self._job, source, target)

    def backward(self) -> None:
        """Marks the begin of the backward pass, for times and progress."""
        guest_library().cpattn_guest_backward(self._job)


class Shard:
    """A rank's share of a case.

    `q`, `k`, `v`, `do`, `sink` and `bias` are inputs, or None if the case does not have them. They are
    copies that the guest may keep and change. Elements have the case's dtype; the sink is fp32.
    - Shape: [batch, tokens, heads, dim] with bshd, [tokens, batch, heads, dim] with sbhd, [tokens,
      heads, dim] with thd, with the tokens of the rank. k and v have `kv_heads`, the others
      `heads`.
    - Padding is NaN in inputs and must be zero in results.
    - The sink has the shape [heads].
    - The bias is [batch or 1, heads or 1, rows or 1, seqlen_kv], by the case's bias. Its columns
      are all key positions of a sequence, its rows the rank's own queries. With thd it is [heads or
      1, rows, seqlen_kv]: the rows are the rank's own queries with b1ss and bhss, all positions 0
      to seqlen_q - 1 with 11ss and 1hss, and there are `batch` rows with b11s and bh1s. Positions
      without a query of this rank are NaN.
    - `rank` and `world_size` are those of the rank; `device` is the number of its GPU, or -1.
    """

    def __init__(self, job: int, memory: Any) -> None:
        self._job, self._memory = job, memory
        place = guest_library().cpattn_guest_place(job).contents
        self.rank, self.world_size, self.device = place.rank, place.world_size, place.device
        for name in INPUTS:
            view = self._view(name)
            setattr(self, name, None if view is None else memory.copy(view))

    def _view(self, name: str) -> Any:
        return view_of(self._job, name, self._memory)

    def tokens(self, side: str = "q") -> list:
        """Returns a list of (sequence, position), one for each row of the queries ("q") or the keys
        ("k"). Rows are numbered in the order of the dimensions before the heads. Positions after
        the last token of the sequence are padding."""
        library = guest_library()
        found: list = []
        sequence, position = ctypes.c_int32(), ctypes.c_int64()
        while library.cpattn_guest_token(
            self._job, side != "q", len(found), ctypes.byref(sequence), ctypes.byref(position)
        ):
            found.append((sequence.value, position.value))
        return found

    def backward(self) -> None:
        """Marks the begin of the backward pass, for times and progress."""
        guest_library().cpattn_guest_backward(self._job)

    def _deliver(self, results: Any) -> None:
        if not isinstance(results, dict):
            raise WrongResult(
                f"attend returned a {type(results).__name__}, not a dict of tensors by name"
            )
        views = {name: self._view(name) for name in RESULTS}
        shared = views["dbias"] is not None and len(views["dbias"].shape) == 1
        for name in results:
            if views.get(name) is None:
                wanted = ", ".join(n for n in RESULTS if views[n] is not None)
                raise WrongResult(f"attend returned {name!r}; the results of this case are {wanted}")
        for name, view in views.items():
            value = results.get(name)
            if view is None or (value is None and name == "lse"):
                continue
            if value is None:
                raise WrongResult(f"attend returned no {name}")
            of_all = name == "dbias" and shared  # the memory holds only the share of this rank
            objection = self._memory.objection(self._view("bias") if of_all else view, value)
            if objection:
                raise WrongResult(f"{name} {objection}")
            if of_all:
                first = self.rank * math.prod(value.shape) // self.world_size
                value = value.swapaxes(0, 1).reshape(-1)[first : first + len(view)]
            self._memory.fill(view, value)
            if name == "lse":
                guest_library().cpattn_guest_has_lse(self._job)
        self._memory.finish()


# ---- the process group --------------------------------------------------------------------------


def _group_create(place: Place) -> Any:
    """Creates PyTorch's process group of all ranks. Its store is at the port where rank 0
    listens."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    backend = "gloo" if place.device < 0 else "cpu:gloo,cuda:nccl"
    more = {"master_listen_fd": place.listener} if place.rank == 0 else {}
    store = dist.TCPStore(
        "127.0.0.1", place.port, place.world_size, place.rank == 0, wait_for_workers=False, **more
    )
    if place.device >= 0:
        torch.cuda.set_device(place.device)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world_size)
    if place.device >= 0:  # connects NCCL now, not during the first case
        dist.all_reduce(torch.zeros(1, device=torch.device("cuda", place.device)))
        torch.cuda.synchronize(place.device)
    return dist.group.WORLD


def _environment_follow() -> None:
    """Copies the environment of the process to os.environ, because os.environ misses changes by C
    code. The library sets CUDA_VISIBLE_DEVICES to the pool's devices; PyTorch reads os.environ."""
    process = ctypes.CDLL(None)
    variables = ctypes.POINTER(ctypes.c_char_p).in_dll(process, "environ")
    now = {}
    for index in itertools.count():
        variable = variables[index]
        if variable is None:  # the end
            break
        name, _, value = os.fsdecode(variable).partition("=")
        now[name] = value
    for name in set(os.environ) - set(now):
        del os.environ[name]
    for name in now:
        if os.environ.get(name) != now[name]:
            os.environ[name] = now[name]


def _environment_set(place: Place) -> None:
    """Sets the environment variables of torchrun, for guests that read them."""
    os.environ.update(
        RANK=str(place.rank),
        LOCAL_RANK=str(place.rank),
        WORLD_SIZE=str(place.world_size),
        LOCAL_WORLD_SIZE=str(place.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(place.port),
    )


# ---- serving ------------------------------------------------------------------------------------


def _told(error: BaseException) -> str:
    """Returns the type, message and last frames of an exception in one line."""
    frames = [
        f"{os.path.basename(f.filename)}:{f.lineno} in {f.name}"
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename != __file__
    ]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if len(text) > _TEXT_MAX // 2:
        text = text[: _TEXT_MAX // 2] + "..."
    return f"{text} [{', '.join(frames[-_FRAMES_TOLD:])}]" if frames else text


class _Server:
    def __init__(self, functions: dict, library: Optional[str], group: bool) -> None:
        self._functions, self._library, self._wants_group = functions, library, group
        self._memory: Any = None
        self._group: Any = None

    def _begin(self, place: Place) -> None:
        _environment_follow()
        _environment_set(place)
        library = self._library
        if library is None:
            library = "torch" if "torch" in sys.modules or place.device >= 0 else "numpy"
        if library not in ("torch", "numpy"):
            raise ValueError(f"library is {library!r}; it is 'numpy' or 'torch'")
        if library == "numpy" and place.device >= 0:
            raise ValueError("numpy has no tensors on GPUs; the daemon has GPUs")
        self._memory = TorchMemory(place.device) if library == "torch" else NumpyMemory()
        if library == "torch" and self._wants_group:
            self._group = _group_create(place)

    def start(self, place: Any, text: int, size: int, _context: Any) -> int:
        try:
            self._begin(place.contents)
            return 0
        except BaseException as error:
            traceback.print_exc()
            told = _told(error).encode("ascii", "replace")[: size - 1] + b"\0"
            ctypes.memmove(text, told, len(told))
            return 1

    def run(self, job: int, _context: Any) -> int:
        left = guest_library().cpattn_guest_time_left(job) / 1e9
        watched = left < _WATCHED_S
        try:
            if watched:  # writes to the descriptor, because the guest may have replaced sys.stderr
                wait = max(left - min(_DUMP_S, left / 4), _WAIT_LEAST_S)
                faulthandler.dump_traceback_later(wait, file=_STDERR)
            return self._run_guarded(job)
        finally:
            if watched:
                faulthandler.cancel_dump_traceback_later()
            self._memory.trim()

    def _run_job(self, job: int) -> None:
        kind = guest_library().cpattn_guest_kind(job).decode()
        function, fields = self._functions[kind], _fields_of(job)
        if kind == "attention":
            shard = Shard(job, self._memory)
            shard._deliver(function(Case(**fields), shard, self._group))
            return
        if function(Job(kind=kind, **fields), Tensors(job, self._memory), self._group) is not None:
            raise WrongResult(f"{kind} returned something; it writes results to its tensors")
        self._memory.finish()

    def _run_guarded(self, job: int) -> int:
        fail = guest_library().cpattn_guest_fail
        try:
            self._run_job(job)
            return 0
        except SystemExit as error:
            told = error.code is not None and not isinstance(error.code, int)
            if told:  # as Python does when it exits
                print(error.code, file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(1 if told else error.code or 0)
        except Unsupported as error:
            fail(job, True, str(error).encode("ascii", "replace"))
        except WrongResult as error:
            fail(job, False, str(error).encode("ascii", "replace"))
        except BaseException as error:
            traceback.print_exc()
            fail(job, False, _told(error).encode("ascii", "replace"))
        return 1


def serve(
    attend: Optional[Callable] = None,
    *,
    collective: Optional[Callable] = None,
    linear: Optional[Callable] = None,
    library: Optional[str] = None,
    group: bool = True,
) -> None:
    """Serves cases and jobs until the daemon ends the process; does not return.

    attend(case, shard, group) gets a Case, its Shard, and PyTorch's process group of all ranks:
    gloo for host memory, NCCL for GPUs, None with numpy or without `group`. It returns a dict of
    tensors on the device of the inputs:
    - out, with the layout of q and head_dim_v as the last dimension;
    - dq, dk and dv, with the shapes of q, k and v, with case.training;
    - dsink [heads], fp32, with case.softmax == "learnable" and training;
    - dbias, with the shape of the bias, with a bias and training;
    - max_logit [heads], fp32, with case.max_logit;
    - lse, optional, on all ranks or on none: [batch, heads, tokens], with thd [heads, tokens],
      fp32, natural logarithms.
    dsink and max_logit cover the queries of all ranks: the ranks have to reduce them. So does dbias
    if the bias has one row for all queries or, with thd, a row for each position.

    collective(job, tensors, group) and linear(job, tensors, group) get a Job and its Tensors, write the
    results to these, and return None. A job selects the guest with `--implementation`.

    If a function raises an exception or returns a wrong result, the case is answered with the
    reason, and the process continues. Shortly before the time limit each rank writes the stacks of
    its threads to stderr (faulthandler); the answer shows them.

    `library` is "torch" or "numpy"; None: "torch" if PyTorch is imported or the rank has a GPU.
    """
    others = {"collective": collective, "linear": linear}
    server = _Server({"attention": attend, **others}, library, group)
    run = ATTEND(server.run)
    for kind, function in others.items():
        if function is not None:
            guest_library().cpattn_guest_add(kind.encode(), run, None)
    guest = Guest(START(server.start), run if attend is not None else ATTEND(), None)
    status = guest_library().cpattn_guest_main(ctypes.byref(guest))
    sys.exit(status)
