# SPDX-License-Identifier: Apache-2.0
"""What a daemon answers: to cases, to questions about itself, and its events. The classes belong to
cpattn.client; the functions make them of the library's structs."""
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
    """The measurements of one rank. Times are in seconds, by phase."""

    rank: int
    passed: bool
    figures: tuple
    digest: int
    flops: float
    seconds: dict
    diagnosis: Optional[Diagnosis]
    # Number of attention operations computed by the daemon's own kernels and by the case's provider;
    # why the provider did not support the first of the former.
    own_operations: int
    provider_operations: int
    provider_reason: str


@dataclasses.dataclass(frozen=True)
class Failure:
    """The state of a rank when a case did not come to its end."""

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

    `verdict` is "pass", "fail" or "unverified". It is None if the case did not come to its end; then
    `status` and `text` give the reason, and `failures` the state of each rank.
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
        """All figures with their ranks."""
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
    """A daemon and its limits. GPUs and providers are dicts of struct cpattn_gpu and
    cpattn_provider_entry; guests are dicts with name, world_sizes and supports."""

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
    """The state of a daemon. Counters begin at its start; pools, requests
    and hosts are dicts of struct cpattn_pool, cpattn_open_request and cpattn_host."""

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

    `kind` is "admitted", "started" or "finished" (of a case), "pool", "device" or "daemon". `lost` is
    the number of lost events before it. id, case_text and text of another user's case are "", except
    for administrators. See struct cpattn_event in <cpattn_watch.h>.
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
            text=error.text.decode(),
            verdict=verdict,
            digest=values.get("digest", 0),
            seconds={n[:-3]: v / SECOND for n, v in values.items() if n.endswith("_ns")},
            ranks=tuple(_ranks(library, result)) if result else (),
            failures=tuple(_failures(library, result)) if result else (),
        )
    finally:
        library.cpattn_result_destroy(result)
