#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A test harness on libcpattn through ctypes, to be copied and changed; it needs nothing but Python.

    python3 harness.py [SEQLEN]  # the daemon is that of $CPATTN_SOCKET, else the one of this machine

As a module it is a binding: Client.run() gives an Answer for each case as it comes.

    from harness import Client
    with Client() as client:
        for answer in client.run([{"world_size": 4, "comm": comm} for comm in ("p2p", "a2a")]):
            print(answer.case, answer.verdict or answer.text)
"""
import collections
import ctypes
import itertools
import os
import sys
import time
from ctypes import (POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_int, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer)

OK, UNAVAILABLE = 0, 14  # enum cpattn_status
SECOND = 10**9


# ---- what <cpattn.h> declares, as far as it is used here. Structs grow at their end only. -----------


class Error(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 512)]


class Options(Structure):
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("connect_timeout_ns", c_uint64),
                ("grace_ns", c_uint64), ("requests_max", c_int)]


class Result(Structure):
    _fields_ = [("verdict", c_int), ("world_size", c_int32), ("digest", c_uint64),
                ("queue_ns", c_uint64), ("start_ns", c_uint64), ("run_ns", c_uint64),
                ("total_ns", c_uint64)]


class Element(Structure):
    _fields_ = [("sequence", c_int32), ("head", c_int32), ("dim", c_int32), ("position", c_int64)]


class Figures(Structure):
    _fields_ = [("tensor", c_char_p), ("chunk", c_int32), ("broken", c_uint32),
                ("elements", c_int64), ("mismatches", c_int64), ("nonfinite", c_int64),
                ("rmse_rel", c_double), ("rmse_limit", c_double), ("max_abs", c_double),
                ("worst_element", c_double), ("worst_row_rel", c_double),
                ("worst_row_limit", c_double), ("worst_row", Element), ("first_bad", Element),
                ("first_bad_got", c_double), ("first_bad_expected", c_double)]


class Failure(Structure):
    _fields_ = [("rank", c_int32), ("culprit", c_bool), ("phase", c_char_p), ("step", c_int32),
                ("waiting_for", c_int32), ("state", c_char), ("fate", c_char_p),
                ("text", c_char_p), ("stderr_tail", c_char_p)]


FUNCTIONS = {  # name: what it returns, what it takes
    "cpattn_case_create": (c_void_p, []),
    "cpattn_case_destroy": (None, [c_void_p]),
    "cpattn_case_set": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(Error)]),
    "cpattn_case_describe": (c_int, [c_void_p, c_char_p, c_size_t]),
    "cpattn_case_command": (c_int, [c_void_p, c_char_p, c_size_t]),
    "cpattn_client_create": (c_int, [POINTER(Options), POINTER(c_void_p), POINTER(Error)]),
    "cpattn_client_destroy": (None, [c_void_p]),
    "cpattn_submit_limited": (c_int, [c_void_p, c_void_p, c_uint64, c_uint64, POINTER(c_void_p),
                                      POINTER(Error)]),
    "cpattn_wait_any": (c_void_p, [c_void_p, c_uint64]),
    "cpattn_collect": (c_int, [c_void_p, POINTER(POINTER(Result)), POINTER(Error)]),
    "cpattn_cancel": (c_int, [c_void_p, POINTER(Error)]),
    "cpattn_request_destroy": (None, [c_void_p]),
    "cpattn_result_destroy": (None, [POINTER(Result)]),
    "cpattn_result_figures": (POINTER(Figures), [POINTER(Result), c_int, c_int]),
    "cpattn_result_failure": (POINTER(Failure), [POINTER(Result), c_int]),
    "cpattn_verdict_name": (c_char_p, [c_int]),
    "cpattn_status_name": (c_char_p, [c_int]),
}


def load(path=None):
    library = ctypes.CDLL(path or os.environ.get("CPATTN_LIBRARY") or "libcpattn.so.0")
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class CpattnError(Exception):
    pass


# ---- cases and answers ----------------------------------------------------------------------------


class Case:
    """Fields by name; None of them has to be given. Raises CpattnError for what a field refuses."""

    def __init__(self, library, fields):
        self.library, self.handle, error = library, library.cpattn_case_create(), Error()
        self.tries = 0
        for name, value in fields.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if library.cpattn_case_set(self.handle, name.encode(), text.encode(), byref(error)):
                raise CpattnError(error.text.decode())

    def __del__(self):
        self.library.cpattn_case_destroy(self.handle)

    def _text(self, function):
        text = create_string_buffer(4096)
        function(self.handle, text, len(text))
        return text.value.decode()

    def __str__(self):
        return self._text(self.library.cpattn_case_describe)

    def command(self):
        return self._text(self.library.cpattn_case_command)


def members(struct):
    """A dict of a struct, which may be gone when its owner is destroyed."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_}
    return {name: value.decode() if isinstance(value, bytes) else
            members(value) if isinstance(value, Structure) else value
            for name, value in values.items()}


class Answer:
    """verdict is "pass", "fail" or "unverified", or None when the case was not brought to its end;
    status and text say why, then, and failures where each rank stood."""

    def __init__(self, library, case, status, text, result):
        self.case, self.status, self.text = case, library.cpattn_status_name(status).decode(), text
        self.verdict, self.figures, self.failures, self.times = None, [], [], {}
        if not result:
            return
        self.times = members(result.contents)
        if status == OK:
            self.verdict = library.cpattn_verdict_name(result.contents.verdict).decode()
        for rank in range(result.contents.world_size):
            for index in itertools.count():
                figures = library.cpattn_result_figures(result, rank, index)
                if not figures:
                    break
                self.figures.append({"rank": rank, **members(figures.contents)})
            failure = library.cpattn_result_failure(result, rank)
            if failure:
                self.failures.append(members(failure.contents))


# ---- the client -----------------------------------------------------------------------------------


class Client:
    """For one thread at a time: each thread, and each process after a fork, makes its own."""

    def __init__(self, socket=None, in_flight=16, library=None):
        self.library, self.handle, self.in_flight = load(library), c_void_p(), in_flight
        options = Options(size=ctypes.sizeof(Options), socket=socket and os.fsencode(socket),
                          requests_max=in_flight)
        error = Error()
        if self.library.cpattn_client_create(byref(options), byref(self.handle), byref(error)):
            raise CpattnError(error.text.decode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.cpattn_client_destroy(self.handle)

    def _submit(self, case, run_seconds):
        """The handle of the request; None where no daemon is there now."""
        request, error = c_void_p(), Error()
        status = self.library.cpattn_submit_limited(
            self.handle, case.handle, 24 * 3600 * SECOND, int(run_seconds * SECOND),
            byref(request), byref(error))
        if status not in (OK, UNAVAILABLE):
            raise CpattnError(error.text.decode())
        return request.value

    def _collect(self, request, case):
        result, error = POINTER(Result)(), Error()
        status = self.library.cpattn_collect(request, byref(result), byref(error))
        self.library.cpattn_request_destroy(request)
        answer = Answer(self.library, case, status, error.text.decode(), result)
        self.library.cpattn_result_destroy(result)
        return answer

    def run(self, cases, run_seconds=60, tries=2, patience=20):
        """Yields the Answer of each case, given as a dict of fields, as it comes. Cancels what is in
        flight when it is left early, as by Ctrl-C. A case whose daemon goes away is tried again, up
        to `tries` times in all, for it may be what the daemon died of; `patience` is how many seconds
        to wait for a daemon."""
        waiting = collections.deque(Case(self.library, fields) for fields in cases)
        flying, absent_since = {}, None
        try:
            while waiting or flying:
                while waiting and len(flying) < self.in_flight:
                    request = self._submit(waiting[0], run_seconds)
                    if not request:
                        break
                    flying[request], absent_since = waiting.popleft(), None
                if not flying:
                    absent_since = absent_since or time.monotonic()
                    if time.monotonic() - absent_since > patience:
                        raise CpattnError("no daemon for %g s" % patience)
                    time.sleep(0.1)
                request = self.library.cpattn_wait_any(self.handle, SECOND // 10)
                if not request:
                    continue
                answer = self._collect(request, flying.pop(request))
                answer.case.tries += 1
                if answer.status == "UNAVAILABLE" and answer.case.tries < tries:
                    waiting.append(answer.case)
                else:
                    yield answer
        finally:
            for request in flying:  # destroying one that is not answered cancels it
                self.library.cpattn_request_destroy(request)


# ---- a harness ------------------------------------------------------------------------------------


def show(answer):
    print("%-5s %s%s" % (answer.verdict or "error", answer.case,
                         ": " + answer.text if answer.text else ""), flush=True)
    for rank in answer.failures:
        print("      rank %(rank)d: %(fate)s in %(phase)s, step %(step)d %(text)s" % rank,
              "(the cause)" if rank["culprit"] else "")
    if answer.verdict == "pass":
        worst = max(answer.figures, key=lambda figures: figures["worst_element"])
        print("      %s of rank %d: largest error %.2e, %.0f %% of what is allowed"
              % (worst["tensor"], worst["rank"], worst["max_abs"], 100 * worst["worst_element"]))
        return
    for figures in answer.figures:
        if figures["broken"]:
            print("      %(tensor)s of rank %(rank)d, chunk %(chunk)d: %(mismatches)d of "
                  "%(elements)d elements, the first at %(first_bad)s" % figures)
    print("      again:", answer.case.command())


def main(seqlen=301):  # no length has to divide
    cases = [{"world_size": world, "comm": comm, "mask": mask, "heads": 8, "kv_heads": 4,
              "head_dim_qk": 64, "head_dim_v": 64,
              "seqlen_q": seqlen, "seqlen_kv": seqlen}
             for world in (2, 4) for comm in ("p2p", "all_gather", "a2a")
             for mask in ("none", "causal")]
    verdicts = collections.Counter()
    try:
        with Client() as client:
            for answer in client.run(cases):
                show(answer)
                verdicts[answer.verdict or "not run"] += 1
    except CpattnError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print("%d cases: %d passed, %d failed, %d not run" % (
        len(cases), verdicts["pass"], verdicts["fail"],
        len(cases) - verdicts["pass"] - verdicts["fail"]))
    return 1 if verdicts["fail"] else 0 if verdicts["pass"] == len(cases) else 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
