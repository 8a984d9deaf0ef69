# SPDX-License-Identifier: Apache-2.0
"""A client of a daemon: submits cases and returns verdicts.

    with cpattn.Client() as client:
        print(client.run(cpattn.Case(world_size=4)))
        for answer in client.answers(cases):           # many in flight, in order of arrival
            print(answer.case, answer.verdict or answer.text)

Use a client from one thread at a time, and only in the process that created it. A forked child can
create a client only if its parent had none before the fork. Times are in seconds. A case is a Case,
a Job, or a dict with the fields of a Case.
"""
from __future__ import annotations

import collections
import ctypes
import os
import time
from typing import Any, Iterable, Iterator, Optional, Union

from cpattn import _attend
from cpattn._answers import (
    Answer,
    DaemonStatus,
    Description,
    Event,
    Failure,
    Rank,
    answer_of,
    event_of,
)
from cpattn._library import Status, client_library, insist
from cpattn._structs import (
    DaemonStatusStruct,
    DescriptionStruct,
    Error,
    EventStruct,
    OptionsStruct,
    ResultStruct,
    members,
)
from cpattn._values import DAY, SECOND, nanoseconds, one_of, whole, word
from cpattn.case import Case

__all__ = [
    "Answer",
    "Client",
    "DaemonStatus",
    "Description",
    "Event",
    "Failure",
    "Rank",
    "Request",
]

_FOREVER = 2**64 - 1

CaseLike = Union[Case, dict]


def _case(case: CaseLike) -> Case:
    if not isinstance(case, (Case, dict)):
        raise TypeError(f"case is {case!r}; it should be a Case, a Job or a dict of fields")
    return case if isinstance(case, Case) else Case(**case)


def _wait_ns(timeout: Optional[float]) -> int:
    """Returns the ns of a wait. None and infinity: no limit."""
    if timeout is None or timeout == float("inf"):
        return _FOREVER
    return min(_FOREVER, nanoseconds("timeout", timeout, float("inf")))


_EVENT_KINDS = ("admitted", "started", "finished", "pool", "device", "daemon")


class Request:
    """A submitted case. It is answered exactly once. `id` has 32 hexadecimal digits.

    The client keeps it until answer() has returned. Only cancel() cancels its case.
    """

    def __init__(self, client: "Client", case: Case, handle: int) -> None:
        self._library, self._client = client._library, client
        self._handle: Optional[int] = handle
        self._answer: Optional[Answer] = None
        self.case = case
        self.id = self._library.cpattn_request_id(handle).decode()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.cpattn_request_destroy(self._handle)
            self._handle = None

    def _abandon(self) -> None:
        """Cancels the case without waiting. The client forgets the request."""
        if self._handle is not None:
            self._client._flying.pop(self._handle, None)
        self.__del__()

    @property
    def answered(self) -> bool:
        """True if the request is answered."""
        return self._library.cpattn_poll(self._handle)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits up to `timeout` seconds (None: no limit). Returns True if answered."""
        return self._library.cpattn_wait(self._handle, _wait_ns(timeout))

    def cancel(self) -> None:
        """Asks the daemon to cancel the request, without waiting. The answer is then CANCELLED,
        or the result if the case ended first."""
        error = Error()
        insist(self._library.cpattn_cancel(self._handle, ctypes.byref(error)), error)

    def answer(self) -> Answer:
        """Waits for the answer and returns it."""
        if self._answer is None:
            self.wait()
            result, error = ctypes.POINTER(ResultStruct)(), Error()
            status = self._library.cpattn_collect(
                self._handle, ctypes.byref(result), ctypes.byref(error)
            )
            if self._handle is not None:
                self._client._flying.pop(self._handle, None)
            self._answer = answer_of(self._library, self.case, status, error, result)
        return self._answer


class Client:
    """Connects to a daemon.

    socket: a path, tcp://HOST:PORT or tls+tcp://HOST:PORT; None: $CPATTN_SOCKET, else the default
        socket of this machine.
    connect_timeout: limit for connecting. grace: extra wait for an answer after the time limit of
        its request. Both in seconds; 0: 5 s.
    in_flight: maximum number of requests in flight, 1 to 512; 0: 64.
    token_file, tls_ca, tls_certificate, tls_key: files for a daemon on a network; None: the file
        that $CPATTN_TOKEN_FILE, $CPATTN_TLS_CA, $CPATTN_TLS_CERTIFICATE or $CPATTN_TLS_KEY names,
        or none.
    patience: how long a case waits if the daemon cannot start its ranks, in seconds, at most a day;
        None: as long as its time limits allow.
    cancel_on_disconnect: running cases are cancelled when the connection ends, for example because
        this process dies. Otherwise they continue.

    Raises CpattnError: UNAVAILABLE if no daemon listens, DEADLINE_EXCEEDED if it does not answer,
    PERMISSION_DENIED, UNAUTHENTICATED for a refused certificate, INVALID_ARGUMENT for a wrong
    option. The first request reports a wrong token. TypeError and ValueError name an argument of
    another type or out of range.
    """

    def __init__(
        self,
        socket: Union[str, os.PathLike, None] = None,
        connect_timeout: float = 5,
        grace: float = 5,
        in_flight: int = 64,
        token_file: Optional[str] = None,
        tls_ca: Optional[str] = None,
        tls_certificate: Optional[str] = None,
        tls_key: Optional[str] = None,
        patience: Optional[float] = None,
        cancel_on_disconnect: bool = False,
    ) -> None:
        def path(name: Any) -> Optional[bytes]:
            return None if name is None else os.fsencode(name)

        self._library = client_library()
        self._handle: Optional[ctypes.c_void_p] = None
        self._in_flight = in_flight
        self._flying: dict[int, Any] = {}
        self._aside: list[Request] = []  # answered requests that a loop of answers() has met and not sent
        options = OptionsStruct(
            size=ctypes.sizeof(OptionsStruct),
            socket=path(socket),
            connect_timeout_ns=nanoseconds("connect_timeout", connect_timeout),
            grace_ns=nanoseconds("grace", grace),
            requests_max=whole("in_flight", in_flight),
            token_file=path(token_file),
            tls_ca=path(tls_ca),
            tls_certificate=path(tls_certificate),
            tls_key=path(tls_key),
            patience_ns=0 if patience is None else max(1, nanoseconds("patience", patience)),
            cancel_on_disconnect=cancel_on_disconnect,
        )
        handle, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_client_create(
            ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error)
        )
        insist(status, error)
        self._handle = handle

    def close(self) -> None:
        """Ends the client. Waiting requests are cancelled. Running cases continue, unless
        cancel_on_disconnect is set; their answers are dropped."""
        if getattr(self, "_handle", None):
            self._library.cpattn_client_destroy(self._handle)
            self._handle = None

    __del__ = close

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def socket(self) -> str:
        """The socket or address of the daemon."""
        return os.fsdecode(self._library.cpattn_client_socket(self._handle))

    # ---- cases ----

    def submit(self, case: CaseLike, timeout: float = 0, run_timeout: float = 0) -> Request:
        """Sends a case and returns without waiting for the answer.

        `timeout` counts from the arrival at the daemon and includes the wait for a turn; 0: the
        daemon's timeout_default. `run_timeout` counts from the moment when the ranks receive the
        case; 0: no limit. Both are in seconds, at most a day.

        Raises CpattnError: RESOURCE_EXHAUSTED if `in_flight` requests are in flight, UNAVAILABLE if
        there is no daemon; ValueError for a time limit out of range. A refusal by the daemon, for
        example of a limit above its timeout_max, is an answer.
        """
        case = _case(case)
        handle, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_submit_limited(
            self._handle,
            case._handle,
            nanoseconds("timeout", timeout),
            nanoseconds("run_timeout", run_timeout),
            ctypes.byref(handle),
            ctypes.byref(error),
        )
        insist(status, error)
        assert handle.value is not None
        request = Request(self, case, handle.value)
        self._flying[handle.value] = request
        return request

    def run(self, case: CaseLike, timeout: float = 0, run_timeout: float = 0) -> Answer:
        """Runs a case and returns the answer. Time limits and errors are those of submit()."""
        return self.submit(case, timeout, run_timeout).answer()

    def attend(
        self, case: CaseLike, timeout: float = 0, **inputs: Any
    ) -> tuple[Answer, dict[str, Any]]:
        """Runs a case on tensors of the caller. Returns the answer and a dict of results by name.

        Inputs are q, k and v; with `training` do, the gradient of out; bias and sink if the case
        has them. They are whole tensors (not one rank's part), contiguous, in host memory, with the
        case's format and dtype; sink is fp32, and bf16 is uint16 in numpy. shapes() returns their
        shapes.

        Results are PyTorch tensors if q is one, else numpy arrays: out, lse (fp32); with `training`
        dq, dk, dv, and dbias and dsink (fp32) if the case has them; max_logit (fp32) if the case
        asks for it. The dict is empty unless the answer's status is OK. The case's `verify` decides
        whether results are judged. `timeout` is that of submit().

        Raises TypeError for an unknown input or a wrong dtype, ValueError for a wrong shape, a gap,
        a tensor on a GPU, or an input that the case does not have. The answer is INVALID_ARGUMENT
        if an input is missing, and UNIMPLEMENTED over a network.
        """
        case = _case(case)
        tensors = _attend.Tensors(case, inputs)
        result, error = ctypes.POINTER(ResultStruct)(), Error()
        status = self._library.cpattn_attend(
            self._handle,
            case._handle,
            ctypes.byref(tensors.struct),
            nanoseconds("timeout", timeout),
            ctypes.byref(result),
            ctypes.byref(error),
        )
        answer = answer_of(self._library, case, status, error, result)
        return answer, tensors.results if status == Status.OK else {}

    @staticmethod
    def shapes(case: CaseLike) -> dict[str, tuple]:
        """Returns the shapes of all tensors that attend() takes and returns for a case, by name."""
        found = {name: _attend.shape(_case(case), name) for name in _attend.INPUTS + _attend.RESULTS}
        return {name: has[0] for name, has in found.items() if has is not None}

    def wait_any(self, timeout: Optional[float] = None) -> Optional[Request]:
        """Returns the next answered request, each once, in the order of the answers. None:
        `timeout` seconds have passed (None: no limit), or nothing is in flight."""
        wait = _wait_ns(timeout)
        while self._aside:
            request = self._aside.pop(0)
            if request._answer is None:
                return request
        handle = self._library.cpattn_wait_any(self._handle, wait)
        return self._flying.get(handle) if handle else None

    def _wait_for(self, requests: dict[Request, int]) -> Optional[Request]:
        """Returns one of `requests` that is answered, after at most a moment. Sets others aside."""
        for request in self._aside:
            if request in requests:
                self._aside.remove(request)
                return request
        handle = self._library.cpattn_wait_any(self._handle, nanoseconds("timeout", 0.1))
        answered = self._flying.get(handle) if handle else None
        if answered is None or answered in requests:
            return answered
        self._aside.append(answered)
        return None

    def answers(
        self,
        cases: Iterable[CaseLike],
        run_timeout: float = 60,
        tries: int = 2,
        patience: float = 20,
    ) -> Iterator[Answer]:
        """Runs many cases and yields the answers in order of arrival.

        `run_timeout` limits each case, in seconds, without its wait for a turn. Leaving the loop
        early cancels the cases in flight. If the daemon goes away, its cases are submitted again,
        each at most `tries` times in total: a case may be the reason. Raises CpattnError
        (UNAVAILABLE) if there is no daemon for `patience` seconds. Answers to other requests of the
        client remain for wait_any() and for other loops. Do not call wait_any() in the loop.
        """
        waiting = collections.deque((_case(case), 1) for case in cases)
        flying: dict[Request, int] = {}
        absent_since = None
        try:
            while waiting or flying:
                while waiting and len(flying) < self._in_flight:
                    try:
                        request = self.submit(waiting[0][0], DAY, run_timeout)
                    except Exception as error:
                        if getattr(error, "status", None) != Status.UNAVAILABLE:
                            raise
                        absent_since = absent_since or time.monotonic()
                        if not flying and time.monotonic() - absent_since > patience:
                            raise
                        time.sleep(0.1)
                        break
                    flying[request], absent_since = waiting.popleft()[1], None
                answered = self._wait_for(flying) if flying else None
                if answered is None:
                    continue
                tried, answer = flying.pop(answered), answered.answer()
                if answer.status == Status.UNAVAILABLE and tried < tries:
                    waiting.append((answer.case, tried + 1))
                else:
                    yield answer
        finally:
            self._aside = [request for request in self._aside if request not in flying]
            for request in flying:
                request._abandon()

    def cancel(self, request_id: str, timeout: float = 5) -> None:
        """Cancels a request, also of another client, by its id, 32 hexadecimal digits.

        Raises CpattnError: INVALID_ARGUMENT if it is no id, NOT_FOUND if no such request waits or
        runs.
        """
        error, name = Error(), word("request_id", request_id, "the id of a request")
        status = self._library.cpattn_cancel_id(
            self._handle, name, nanoseconds("timeout", timeout), ctypes.byref(error)
        )
        insist(status, error)

    def drain(self, device: int, timeout: float = 5, host: int = 0) -> int:
        """Takes a device out of use. Running cases finish. Returns how many devices are out of use.

        `device` is the index of a GPU, or a core; `host` is an index in DaemonStatus.hosts, 0 for
        the daemon's own. Raises CpattnError: PERMISSION_DENIED unless the user is an administrator,
        INVALID_ARGUMENT for another device.
        """
        return self._order(1, device, timeout, host)

    def enable(self, device: int, timeout: float = 5, host: int = 0) -> int:
        """Uses a device again. Arguments, errors and the returned number are those of drain()."""
        return self._order(2, device, timeout, host)

    def unpoison(self, timeout: float = 5) -> int:
        """Accepts cases again that are refused because they killed their pools. Returns their
        number. For administrators."""
        return self._order(3, 0, timeout)

    def reload(self, timeout: float = 30) -> bool:
        """Makes the daemon read its settings again. For administrators.

        Returns False if some settings need a restart; the daemon's log names them. Raises
        CpattnError if the settings have an error; then nothing changes.
        """
        return self._order(4, 0, timeout) < 2

    def _order(self, order: int, device: int, timeout: float, host: int = 0) -> int:
        count, error = ctypes.c_uint64(), Error()
        status = self._library.cpattn_order_on(
            self._handle,
            order,
            whole("host", host),
            whole("device", device),
            nanoseconds("timeout", timeout),
            ctypes.byref(count),
            ctypes.byref(error),
        )
        insist(status, error)
        return count.value

    # ---- the daemon ----

    def describe(self, timeout: float = 5) -> Description:
        """Returns the daemon and its limits."""
        found, error = ctypes.POINTER(DescriptionStruct)(), Error()
        wait = nanoseconds("timeout", timeout)
        status = self._library.cpattn_describe(
            self._handle, wait, ctypes.byref(found), ctypes.byref(error)
        )
        insist(status, error)
        values = members(found.contents)
        gpus = [
            members(self._library.cpattn_description_gpu(found, i).contents)
            for i in range(values["gpu_count"])
        ]
        providers = [
            members(self._library.cpattn_description_provider(found, i).contents)
            for i in range(values["provider_count"])
        ]
        guests = [
            members(self._library.cpattn_description_guest(found, i).contents)
            for i in range(values["guest_count"])
        ]
        for guest in guests:
            sizes = guest["world_sizes"]
            guest["world_sizes"] = [w + 1 for w in range(64) if sizes >> w & 1]
        self._library.cpattn_description_destroy(found)
        return Description(
            gpus=tuple(gpus),
            providers=tuple(providers),
            guests=tuple(guests),
            timeout_default=values["timeout_default_ns"] / SECOND,
            timeout_max=values["timeout_max_ns"] / SECOND,
            **{
                name: values[name]
                for name in (
                    "version",
                    "backend",
                    "devices",
                    "world_size_max",
                    "memory_bytes_max",
                    "queue_max",
                )
            },
        )

    def status(self, timeout: float = 5) -> DaemonStatus:
        """Returns the state of the daemon."""
        found, error = ctypes.POINTER(DaemonStatusStruct)(), Error()
        wait = nanoseconds("timeout", timeout)
        status = self._library.cpattn_query_status(
            self._handle, wait, ctypes.byref(found), ctypes.byref(error)
        )
        insist(status, error)
        values = members(found.contents)
        pools = [
            members(self._library.cpattn_daemon_status_pool(found, i).contents)
            for i in range(values.pop("pool_count"))
        ]
        hosts = [
            members(self._library.cpattn_daemon_status_host(found, i).contents)
            for i in range(values.pop("host_count"))
        ]
        requests = [
            members(self._library.cpattn_daemon_status_request(found, i).contents)
            for i in range(values.pop("request_count"))
        ]
        for request in requests:
            places = request.pop("ranks")
            request["ranks"] = [members(places[i]) for i in range(request.pop("rank_count"))]
        self._library.cpattn_daemon_status_destroy(found)
        return DaemonStatus(
            uptime=values.pop("uptime_ns") / SECOND,
            loop_lag_max=values.pop("loop_lag_max_ns") / SECOND,
            loop_lag_p99=values.pop("loop_lag_p99_ns") / SECOND,
            pools=tuple(pools),
            requests=tuple(requests),
            hosts=tuple(hosts),
            **values,
        )

    def watch(
        self, kinds: Iterable[str] = (), recent: int = 0, timeout: Optional[float] = None
    ) -> Iterator[Event]:
        """Yields events until there is none for `timeout` seconds (None: without end).

        `kinds` are values of Event.kind, or one of them; empty: all. The first events are up to
        `recent` past ones (0 to 1024); with a timeout of 0 there are no others. Raises ValueError
        for an unknown kind, CpattnError if the daemon goes away.
        """
        kinds = {kinds} if isinstance(kinds, str) else set(kinds)
        for kind in kinds:
            one_of("a kind", kind, _EVENT_KINDS)
        mask = sum(2 << _EVENT_KINDS.index(kind) for kind in kinds)
        watch, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_watch_create(
            self._handle, mask, whole("recent", recent), ctypes.byref(watch), ctypes.byref(error)
        )
        insist(status, error)
        try:
            until = None if timeout is None else time.monotonic() + timeout
            while True:
                # Waits at most a second, so that Python can handle signals.
                left = 1.0 if until is None else min(1.0, max(0.0, until - time.monotonic()))
                found = ctypes.POINTER(EventStruct)()
                status = self._library.cpattn_watch_next(
                    watch, int(left * SECOND), ctypes.byref(found), ctypes.byref(error)
                )
                insist(status, error)
                if found:
                    yield event_of(self._library, found.contents)
                    until = None if timeout is None else time.monotonic() + timeout
                elif until is not None and time.monotonic() >= until:
                    return
        finally:
            self._library.cpattn_watch_destroy(watch)
