# SPDX-License-Identifier: Apache-2.0
"""Answers, descriptions, statuses and events of a daemon. The classes are part of cpattn.client.
The functions convert the library's structs to them."""
from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Iterator, Optional

from cpattn._library import Status
from cpattn._structs import Error, EventStruct, members
from cpattn._values import SECOND
from cpattn.case import Case
from cpattn.check import Diagnosis, Figures


@dataclasses.dataclass(frozen=True)
class Rank:
    """The measurements of one rank.

    figures: a tuple of Figures. digest: of the rank's outputs. flops: of its attention, forward and
    backward. seconds: times by name: "plan", "inputs", "forward", "backward", "reference" and
    "compare" are phases; "exchange": an exchange was under way; "exposed": only exchanges could
    proceed; "launch": launching operations on a GPU; "operations_begin": when the rank began its
    plan, on the monotonic clock of its host. diagnosis: None if there is none; a guest that
    changes its inputs has one although it passes.
    """

    rank: int
    passed: bool
    figures: tuple
    digest: int
    flops: float
    seconds: dict
    diagnosis: Optional[Diagnosis]
    # Numbers of attention operations that the daemon's own kernels and the case's provider
    # computed. provider_reason: why the provider did not support the first operation of the own
    # kernels, or "".
    own_operations: int
    provider_operations: int
    provider_reason: str


@dataclasses.dataclass(frozen=True)
class Failure:
    """The state of a rank when a case did not come to its end.

    culprit: this rank is the cause. phase, step: the last phase that it reached, such as "forward",
    and the step of the algorithm there. waiting_for: the rank that it waited for, or -1. state: of
    its process, as in /proc ("R", "S", "T", "Z"), or "X": it is gone. fate: how it ended, such as
    "killed by signal 9", or "". text: the message that it reported, or "". stderr_tail: the last
    lines that it wrote to stderr, or "".
    """

    rank: int
    culprit: bool
    phase: str
    step: int
    waiting_for: int
    state: str
    fate: str
    text: str
    stderr_tail: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a case. True if the case passed.

    verdict: "pass", "fail" or "unverified". None: the case did not come to its end; `status` and
        `text` give the reason, and `failures` the state of each rank if the daemon has them.
    digest: of all bits of all outputs; equal digests mean equal results.
    seconds: times by name: "queue" (waiting for a turn), "start" (waiting for rank processes),
        "run" (ranks at work) and "total" (from admission to answer).
    ranks: a tuple of Rank. failures: a tuple of Failure.
    """

    case: Case
    status: Status
    text: str
    verdict: Optional[str]
    digest: int
    seconds: dict
    ranks: tuple
    failures: tuple

    def __bool__(self) -> bool:
        return self.verdict == "pass"

    @property
    def figures(self) -> list[tuple[int, Figures]]:
        """All figures, as pairs (rank, Figures)."""
        return [(rank.rank, f) for rank in self.ranks for f in rank.figures]

    @property
    def diagnosis(self) -> Optional[Diagnosis]:
        """The diagnosis of the first rank that has one."""
        return next((rank.diagnosis for rank in self.ranks if rank.diagnosis), None)

    def __str__(self) -> str:
        said = f": {self.text}" if self.text else ""
        lines = [f"{self.verdict or self.status.name} {self.case}{said}"]
        for rank, f in self.figures:
            if f.broken:
                lines.append(f"  {f.tensor} of rank {rank}, chunk {f.chunk}: {', '.join(f.broken)}")
        if self.diagnosis:
            lines.append(f"  diagnosis: {self.diagnosis}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Description:
    """A daemon and its limits.

    backend: "cpu" or "cuda". devices: number of cores or GPUs that the pools share. world_size_max:
    ranks of a case, over all hosts. memory_bytes_max: of a case over all ranks, and of all running
    cases together. timeout_default, timeout_max: seconds. queue_max: requests queued and running.
    gpus, providers: tuples of dicts with the members of struct cpattn_gpu and struct
    cpattn_provider_entry (<cpattn.h>). guests: a tuple of dicts with "name", "world_sizes" (a list
    of numbers of ranks) and "supports" (a text).
    """

    version: str
    backend: str
    devices: int
    world_size_max: int
    memory_bytes_max: int
    timeout_default: float
    timeout_max: float
    queue_max: int
    gpus: tuple
    providers: tuple
    guests: tuple


@dataclasses.dataclass(frozen=True)
class DaemonStatus:
    """The state of a daemon. Counters begin at its start.

    uptime, loop_lag_max, loop_lag_p99: seconds; the lags are the longest round of the daemon's
    event loop in the last minute or two, and the 99th percentile. errors: cases that did not come
    to their end. refused: cases that were not admitted. unverified: cases that were not compared.
    devices_out: bit mask of the devices that are drained. pools, requests, hosts: tuples of dicts
    with the members of struct cpattn_pool and struct cpattn_open_request (<cpattn.h>) and struct
    cpattn_host (<cpattn_watch.h>); members that end with _ns are nanoseconds.
    """

    uptime: float
    queued: int
    running: int
    admitted: int
    passed: int
    failed: int
    errors: int
    refused: int
    draining: bool
    pools: tuple
    requests: tuple
    unverified: int
    devices_out: int
    loop_lag_max: float
    loop_lag_p99: float
    hosts: tuple = ()


@dataclasses.dataclass(frozen=True)
class Event:
    """An event at a daemon. Members that its kind does not have are 0, "" or None.

    number: counts events since the daemon's start, from 1. lost: number of lost events before it.
    time: seconds since 1970-01-01 UTC. kind: "admitted", "started" or "finished" (of a case),
    "pool", "device" or "daemon". restarted: the first event after a restart of the daemon. seconds:
    "queue", "start", "run" and "total", as in Answer. devices: a bit mask. id, case_text and text
    of another user's case are "", except for administrators. See struct cpattn_event in
    <cpattn_watch.h>.
    """

    number: int
    lost: int
    time: float
    kind: str
    restarted: bool
    spare: bool
    world_size: int
    instance: int
    generation: int
    implementation: str
    id: str
    user: str
    case_text: str
    verdict: Optional[str]
    code: Status
    seconds: dict
    state: str
    devices: int
    text: str


def event_of(library: Any, event: EventStruct) -> Event:
    values = members(event)
    verdict = values.pop("verdict")
    values["kind"] = library.cpattn_event_kind_name(values["kind"]).decode()
    values["code"] = Status(values["code"])
    seconds = {n[:-3]: values.pop(n) / SECOND for n in list(values) if n.endswith("_ns")}
    return Event(
        time=seconds.pop("time"),
        seconds=seconds,
        verdict=library.cpattn_verdict_name(verdict).decode() if verdict else None,
        **values,
    )


def _ranks(library: Any, result: Any) -> Iterator[Rank]:
    for index in range(result.contents.world_size):
        found = library.cpattn_result_rank(result, index)
        if not found:
            return
        rank, figures = found.contents, []
        for i in itertools.count():
            f = library.cpattn_result_figures(result, index, i)
            if not f:
                break
            figures.append(Figures._of(f.contents))
        values = members(rank)
        said = values["diagnosis"]
        yield Rank(
            rank=rank.rank,
            passed=rank.passed,
            figures=tuple(figures),
            digest=rank.digest,
            flops=rank.flops,
            seconds={n[:-3]: v / SECOND for n, v in values.items() if n.endswith("_ns")},
            diagnosis=Diagnosis(said, values["diagnosis_tensor"], values["diagnosis_explained"])
            if said
            else None,
            own_operations=rank.own_forward + rank.own_backward,
            provider_operations=rank.provider_forward + rank.provider_backward,
            provider_reason=values["provider_reason"],
        )


def _failures(library: Any, result: Any) -> Iterator[Failure]:
    for index in range(result.contents.world_size):
        found = library.cpattn_result_failure(result, index)
        if found:
            yield Failure(**members(found.contents))


def answer_of(library: Any, case: Case, status: int, error: Error, result: Any) -> Answer:
    values: dict = {} if not result else members(result.contents)
    verdict = library.cpattn_verdict_name(values["verdict"]).decode() if status == 0 else None
    try:
        return Answer(
            case=case,
            status=Status(status),
            text=error.sentence(),
            verdict=verdict,
            digest=values.get("digest", 0),
            seconds={n[:-3]: v / SECOND for n, v in values.items() if n.endswith("_ns")},
            ranks=tuple(_ranks(library, result)) if result else (),
            failures=tuple(_failures(library, result)) if result else (),
        )
    finally:
        library.cpattn_result_destroy(result)
