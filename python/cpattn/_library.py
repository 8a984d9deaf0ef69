# SPDX-License-Identifier: Apache-2.0
"""The C libraries: loading, functions and errors."""
from __future__ import annotations

import ctypes
import ctypes.util
import enum
import functools
import os
import pathlib
from typing import Any

from cpattn._structs import (
    Array,
    CheckBuffer,
    CheckTensor,
    DaemonStatusStruct,
    DescriptionStruct,
    Error,
    EventStruct,
    FailureStruct,
    FiguresStruct,
    GpuStruct,
    GuestStruct,
    HostStruct,
    OpenRequestStruct,
    OptionsStruct,
    PoolStruct,
    ProviderStruct,
    RankStruct,
    ResultStruct,
    Shape,
    TensorsStruct,
)


class Status(enum.IntEnum):
    """The status of a call or an answer. Numbers and meanings are those of gRPC; <cpattn.h> has
    the meanings here."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CpattnError(Exception):
    """A call of the library failed. `status` is its Status; the message is one sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status)


# The names of enum cpattn_tensor, in its order. Their number is CPATTN_TENSORS.
TENSORS = (
    "q",
    "k",
    "v",
    "do",
    "out",
    "lse",
    "dq",
    "dk",
    "dv",
    "bias",
    "sink",
    "dbias",
    "dsink",
    "max_logit",
)

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int
_TEXT = ctypes.c_char_p
_ERROR = ctypes.POINTER(Error)
_ARRAY = ctypes.POINTER(Array)

# Functions by name: (result, arguments).
CASE_FAILS = ctypes.CFUNCTYPE(ctypes.c_bool, _POINTER, _POINTER)  # of cpattn_case_minimize()
_CASE_FUNCTIONS = {
    "cpattn_case_copy": (_POINTER, [_POINTER]),
    "cpattn_case_minimize": (_INT, [_POINTER, CASE_FAILS, _POINTER, _INT]),
    "cpattn_case_create": (_POINTER, []),
    "cpattn_case_create_kind": (_POINTER, [_TEXT]),
    "cpattn_case_destroy": (None, [_POINTER]),
    "cpattn_case_set": (_INT, [_POINTER, _TEXT, _TEXT, _ERROR]),
    "cpattn_case_get": (_INT, [_POINTER, _TEXT, _TEXT, ctypes.c_size_t]),
    "cpattn_case_check": (_INT, [_POINTER, _ERROR]),
    "cpattn_case_describe": (_INT, [_POINTER, _TEXT, ctypes.c_size_t]),
    "cpattn_case_command": (_INT, [_POINTER, _TEXT, ctypes.c_size_t]),
    "cpattn_case_tensor": (
        ctypes.c_int64,
        [
            _POINTER,
            _TEXT,
            ctypes.POINTER(ctypes.c_int64),
            ctypes.POINTER(_INT),
            ctypes.POINTER(_TEXT),
        ],
    ),
    "cpattn_field_next": (_POINTER, [_POINTER]),
    "cpattn_field_name": (_TEXT, [_POINTER]),
}
_CLIENT_FUNCTIONS = {
    "cpattn_version": (_TEXT, []),
    "cpattn_client_create": (
        _INT,
        [ctypes.POINTER(OptionsStruct), ctypes.POINTER(_POINTER), _ERROR],
    ),
    "cpattn_client_destroy": (None, [_POINTER]),
    "cpattn_client_socket": (_TEXT, [_POINTER]),
    "cpattn_submit_limited": (
        _INT,
        [
            _POINTER,
            _POINTER,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.POINTER(_POINTER),
            _ERROR,
        ],
    ),
    "cpattn_request_id": (_TEXT, [_POINTER]),
    "cpattn_request_destroy": (None, [_POINTER]),
    "cpattn_poll": (ctypes.c_bool, [_POINTER]),
    "cpattn_wait": (ctypes.c_bool, [_POINTER, ctypes.c_uint64]),
    "cpattn_wait_any": (_POINTER, [_POINTER, ctypes.c_uint64]),
    "cpattn_collect": (
        _INT,
        [_POINTER, ctypes.POINTER(ctypes.POINTER(ResultStruct)), _ERROR],
    ),
    "cpattn_cancel": (_INT, [_POINTER, _ERROR]),
    "cpattn_cancel_id": (_INT, [_POINTER, _TEXT, ctypes.c_uint64, _ERROR]),
    "cpattn_order": (
        _INT,
        [_POINTER, _INT, _INT, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64), _ERROR],
    ),
    "cpattn_order_on": (
        _INT,
        [_POINTER, _INT, _INT, _INT, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64), _ERROR],
    ),
    "cpattn_result_destroy": (None, [ctypes.POINTER(ResultStruct)]),
    "cpattn_result_rank": (ctypes.POINTER(RankStruct), [ctypes.POINTER(ResultStruct), _INT]),
    "cpattn_result_figures": (
        ctypes.POINTER(FiguresStruct),
        [ctypes.POINTER(ResultStruct), _INT, _INT],
    ),
    "cpattn_result_failure": (
        ctypes.POINTER(FailureStruct),
        [ctypes.POINTER(ResultStruct), _INT],
    ),
    "cpattn_verdict_name": (_TEXT, [_INT]),
    "cpattn_describe": (
        _INT,
        [_POINTER, ctypes.c_uint64, ctypes.POINTER(ctypes.POINTER(DescriptionStruct)), _ERROR],
    ),
    "cpattn_description_gpu": (
        ctypes.POINTER(GpuStruct),
        [ctypes.POINTER(DescriptionStruct), _INT],
    ),
    "cpattn_description_provider": (
        ctypes.POINTER(ProviderStruct),
        [ctypes.POINTER(DescriptionStruct), _INT],
    ),
    "cpattn_description_guest": (
        ctypes.POINTER(GuestStruct),
        [ctypes.POINTER(DescriptionStruct), _INT],
    ),
    "cpattn_attend": (
        _INT,
        [
            _POINTER,
            _POINTER,
            ctypes.POINTER(TensorsStruct),
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.POINTER(ResultStruct)),
            _ERROR,
        ],
    ),
    "cpattn_description_destroy": (None, [ctypes.POINTER(DescriptionStruct)]),
    "cpattn_query_status": (
        _INT,
        [_POINTER, ctypes.c_uint64, ctypes.POINTER(ctypes.POINTER(DaemonStatusStruct)), _ERROR],
    ),
    "cpattn_daemon_status_pool": (
        ctypes.POINTER(PoolStruct),
        [ctypes.POINTER(DaemonStatusStruct), _INT],
    ),
    "cpattn_daemon_status_host": (
        ctypes.POINTER(HostStruct),
        [ctypes.POINTER(DaemonStatusStruct), _INT],
    ),
    "cpattn_daemon_status_request": (
        ctypes.POINTER(OpenRequestStruct),
        [ctypes.POINTER(DaemonStatusStruct), _INT],
    ),
    "cpattn_daemon_status_destroy": (None, [ctypes.POINTER(DaemonStatusStruct)]),
    "cpattn_event_kind_name": (_TEXT, [_INT]),
    "cpattn_watch_create": (
        _INT,
        [_POINTER, ctypes.c_uint64, _INT, ctypes.POINTER(_POINTER), _ERROR],
    ),
    "cpattn_watch_next": (
        _INT,
        [_POINTER, ctypes.c_uint64, ctypes.POINTER(ctypes.POINTER(EventStruct)), _ERROR],
    ),
    "cpattn_watch_destroy": (None, [_POINTER]),
}
_CHECK_FUNCTIONS = {
    "cpattn_check_create": (_INT, [_POINTER, _INT, ctypes.POINTER(_POINTER), _ERROR]),
    "cpattn_check_destroy": (None, [_POINTER]),
    "cpattn_check_place": (
        _INT,
        [
            _POINTER,
            _INT,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.POINTER(ctypes.c_int64),
            ctypes.c_int64,
            _ERROR,
        ],
    ),
    "cpattn_check_device": (_INT, [_POINTER, _INT, _POINTER, _ERROR]),
    "cpattn_check_sums": (None, [_POINTER, _INT]),
    "cpattn_check_shape": (Shape, [_POINTER, _INT]),
    "cpattn_check_sequence": (ctypes.c_int32, [_POINTER, _INT, ctypes.c_int64]),
    "cpattn_check_position": (ctypes.c_int64, [_POINTER, _INT, ctypes.c_int64]),
    "cpattn_check_fill": (_INT, [_POINTER, _INT, _ARRAY, _ERROR]),
    "cpattn_check_give": (_INT, [_POINTER, _ARRAY, _INT, _ERROR]),
    "cpattn_check_whole": (Shape, [_POINTER, _INT]),
    "cpattn_check_expected": (_INT, [_POINTER, _INT, _ARRAY, _ERROR]),
    "cpattn_check_verify": (_INT, [_POINTER, _ARRAY, _INT, ctypes.POINTER(_POINTER), _ERROR]),
    "cpattn_check_verdict_destroy": (None, [_POINTER]),
    "cpattn_check_verdict_pass": (ctypes.c_bool, [_POINTER]),
    "cpattn_check_verdict_figures": (ctypes.POINTER(FiguresStruct), [_POINTER, _INT]),
    "cpattn_check_verdict_diagnosis": (
        _TEXT,
        [_POINTER, ctypes.POINTER(_TEXT), ctypes.POINTER(ctypes.c_double)],
    ),
    "cpattn_check_verdict_text": (_TEXT, [_POINTER]),
    "cpattn_check_verdict_digest": (ctypes.c_uint64, [_POINTER]),
    "cpattn_check_job_create": (_INT, [_POINTER, _INT, ctypes.POINTER(_POINTER), _ERROR]),
    "cpattn_check_job_destroy": (None, [_POINTER]),
    "cpattn_check_job_device": (_INT, [_POINTER, _INT, _POINTER, _ERROR]),
    "cpattn_check_job_tensor": (ctypes.c_bool, [_POINTER, _INT, ctypes.POINTER(CheckTensor)]),
    "cpattn_check_job_fill": (_INT, [_POINTER, _TEXT, _POINTER, ctypes.c_size_t, _ERROR]),
    "cpattn_check_job_verify": (
        _INT,
        [_POINTER, ctypes.POINTER(CheckBuffer), _INT, ctypes.POINTER(_POINTER), _ERROR],
    ),
}


def _candidates(name: str) -> list[str]:
    folders = [pathlib.Path(__file__).parent / "lib"]
    folders += [pathlib.Path(p) for p in os.environ.get("CPATTN_LIBRARY_PATH", "").split(":") if p]
    paths = [str(folder / f"lib{name}.so.0") for folder in folders]
    found = [path for path in paths if os.path.exists(path)]
    return found + [f"lib{name}.so.0"]


def _load(name: str, functions: dict[str, Any]) -> ctypes.CDLL:
    tried = []
    for path in _candidates(name):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for function, (result, arguments) in functions.items():
            entry = getattr(library, function)
            entry.restype = result
            entry.argtypes = arguments
        return library
    named = os.environ.get("CPATTN_LIBRARY_PATH", "")
    wrong = f", which is {named} and has none" if named and len(tried) == 1 else ""
    raise ImportError(
        f"lib{name} cannot be loaded: {'; '.join(tried)}. Install cpattnd, or name the folder of "
        f"its libraries in CPATTN_LIBRARY_PATH{wrong}"
    )


@functools.lru_cache(maxsize=None)
def case_library() -> ctypes.CDLL:
    """Returns libcpattn with the functions of cases."""
    return _load("cpattn", _CASE_FUNCTIONS)


@functools.lru_cache(maxsize=None)
def client_library() -> ctypes.CDLL:
    """Returns libcpattn with the functions of cases and of the client."""
    return _load("cpattn", {**_CASE_FUNCTIONS, **_CLIENT_FUNCTIONS})


@functools.lru_cache(maxsize=None)
def check_library() -> ctypes.CDLL:
    """Returns libcpattn-check."""
    case_library()
    return _load("cpattn-check", _CHECK_FUNCTIONS)


def insist(status: int, error: Error) -> None:
    """Raises CpattnError if the status is not OK."""
    if status != Status.OK:
        raise CpattnError(status, error.sentence())
