# SPDX-License-Identifier: Apache-2.0
"""The C libraries, their structs and their errors."""
from __future__ import annotations

import ctypes
import ctypes.util
import enum
import functools
import os
import pathlib
from typing import Any


class Status(enum.IntEnum):
    """What a call of the library ended with; numbers and meanings are those of gRPC."""

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
    """A call that failed: `status` says how, the text is one sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status)


class Error(ctypes.Structure):
    """struct cpattn_error"""

    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 512)]


class Element(ctypes.Structure):
    """struct cpattn_element"""

    _fields_ = [
        ("sequence", ctypes.c_int32),
        ("head", ctypes.c_int32),
        ("dim", ctypes.c_int32),
        ("position", ctypes.c_int64),
    ]


class FiguresStruct(ctypes.Structure):
    """struct cpattn_figures"""

    _fields_ = [
        ("tensor", ctypes.c_char_p),
        ("chunk", ctypes.c_int32),
        ("broken", ctypes.c_uint32),
        ("elements", ctypes.c_int64),
        ("mismatches", ctypes.c_int64),
        ("nonfinite", ctypes.c_int64),
        ("rmse_rel", ctypes.c_double),
        ("rmse_limit", ctypes.c_double),
        ("max_abs", ctypes.c_double),
        ("worst_element", ctypes.c_double),
        ("worst_row_rel", ctypes.c_double),
        ("worst_row_limit", ctypes.c_double),
        ("worst_row", Element),
        ("first_bad", Element),
        ("first_bad_got", ctypes.c_double),
        ("first_bad_expected", ctypes.c_double),
        ("twin_rel", ctypes.c_double),
        ("slope", ctypes.c_double),
        ("slope_limit", ctypes.c_double),
        ("judged", ctypes.c_int64),
        ("te_mismatches", ctypes.c_int64),
        ("remark", ctypes.c_int),
    ]


class Array(ctypes.Structure):
    """struct cpattn_array"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("inner_rows", ctypes.c_int64),
        ("outer_stride", ctypes.c_int64),
    ]


class Shape(ctypes.Structure):
    """struct cpattn_shape"""

    _fields_ = [("rows", ctypes.c_int64), ("heads", ctypes.c_int32), ("dim", ctypes.c_int32)]


class OptionsStruct(ctypes.Structure):
    """struct cpattn_options"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("connect_timeout_ns", ctypes.c_uint64),
        ("grace_ns", ctypes.c_uint64),
        ("requests_max", ctypes.c_int),
        ("token_file", ctypes.c_char_p),
        ("tls_ca", ctypes.c_char_p),
        ("tls_certificate", ctypes.c_char_p),
        ("tls_key", ctypes.c_char_p),
        ("patience_ns", ctypes.c_uint64),
        ("cancel_on_disconnect", ctypes.c_bool),
    ]


class ResultStruct(ctypes.Structure):
    """struct cpattn_result"""

    _fields_ = [
        ("verdict", ctypes.c_int),
        ("world_size", ctypes.c_int32),
        ("digest", ctypes.c_uint64),
        ("queue_ns", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("run_ns", ctypes.c_uint64),
        ("total_ns", ctypes.c_uint64),
    ]


class OperationTimeStruct(ctypes.Structure):
    """struct cpattn_operation_time"""

    _fields_ = [
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
    ]


class RankStruct(ctypes.Structure):
    """struct cpattn_rank"""

    _fields_ = [
        ("rank", ctypes.c_int32),
        ("passed", ctypes.c_bool),
        ("figures_count", ctypes.c_int32),
        ("digest", ctypes.c_uint64),
        ("flops", ctypes.c_double),
        ("plan_ns", ctypes.c_uint64),
        ("inputs_ns", ctypes.c_uint64),
        ("forward_ns", ctypes.c_uint64),
        ("backward_ns", ctypes.c_uint64),
        ("exchange_ns", ctypes.c_uint64),
        ("exposed_ns", ctypes.c_uint64),
        ("reference_ns", ctypes.c_uint64),
        ("compare_ns", ctypes.c_uint64),
        ("diagnosis", ctypes.c_char_p),
        ("diagnosis_tensor", ctypes.c_char_p),
        ("diagnosis_explained", ctypes.c_double),
        ("own_forward", ctypes.c_int32),
        ("own_backward", ctypes.c_int32),
        ("provider_forward", ctypes.c_int32),
        ("provider_backward", ctypes.c_int32),
        ("provider_reason", ctypes.c_char_p),
        ("launch_ns", ctypes.c_uint64),
        ("operations", ctypes.c_int32),
        ("operation_times_count", ctypes.c_int32),
        ("operations_begin_ns", ctypes.c_uint64),
        ("operation_times", ctypes.POINTER(OperationTimeStruct)),
    ]


class FailureStruct(ctypes.Structure):
    """struct cpattn_failure"""

    _fields_ = [
        ("rank", ctypes.c_int32),
        ("culprit", ctypes.c_bool),
        ("phase", ctypes.c_char_p),
        ("step", ctypes.c_int32),
        ("waiting_for", ctypes.c_int32),
        ("state", ctypes.c_char),
        ("fate", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
        ("stderr_tail", ctypes.c_char_p),
    ]


class DescriptionStruct(ctypes.Structure):
    """struct cpattn_description"""

    _fields_ = [
        ("version", ctypes.c_char_p),
        ("backend", ctypes.c_char_p),
        ("devices", ctypes.c_int32),
        ("world_size_max", ctypes.c_int32),
        ("memory_bytes_max", ctypes.c_int64),
        ("timeout_default_ns", ctypes.c_uint64),
        ("timeout_max_ns", ctypes.c_uint64),
        ("queue_max", ctypes.c_int32),
        ("gpu_count", ctypes.c_int32),
        ("provider_count", ctypes.c_int32),
        ("guest_count", ctypes.c_int32),
    ]


class GuestStruct(ctypes.Structure):
    """struct cpattn_implementation"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("world_sizes", ctypes.c_uint64),
        ("supports", ctypes.c_char_p),
    ]


class TensorsStruct(ctypes.Structure):
    """struct cpattn_tensors"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "d_out", "bias", "sink")),
        *((name, ctypes.c_void_p) for name in ("out", "lse", "dq", "dk", "dv", "dbias", "dsink")),
        ("max_logit", ctypes.c_void_p),
    ]


class ProviderStruct(ctypes.Structure):
    """struct cpattn_provider_entry"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("about", ctypes.c_char_p),
        ("trouble", ctypes.c_char_p),
    ]


class GpuStruct(ctypes.Structure):
    """struct cpattn_gpu"""

    _fields_ = [
        ("index", ctypes.c_int32),
        ("arch", ctypes.c_char_p),
        ("memory_bytes", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    ]


class DaemonStatusStruct(ctypes.Structure):
    """struct cpattn_daemon_status"""

    _fields_ = [
        ("uptime_ns", ctypes.c_uint64),
        ("queued", ctypes.c_int32),
        ("running", ctypes.c_int32),
        ("admitted", ctypes.c_uint64),
        ("passed", ctypes.c_uint64),
        ("failed", ctypes.c_uint64),
        ("errors", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("draining", ctypes.c_bool),
        ("pool_count", ctypes.c_int32),
        ("request_count", ctypes.c_int32),
        ("unverified", ctypes.c_uint64),
        ("devices_out", ctypes.c_uint64),
        ("loop_lag_max_ns", ctypes.c_uint64),
        ("loop_lag_p99_ns", ctypes.c_uint64),
        ("host_count", ctypes.c_int32),
    ]


class PoolStruct(ctypes.Structure):
    """struct cpattn_pool"""

    _fields_ = [
        ("world_size", ctypes.c_int32),
        ("instance", ctypes.c_int32),
        ("state", ctypes.c_char_p),
        ("generation", ctypes.c_uint32),
        ("jobs", ctypes.c_uint64),
        ("deaths", ctypes.c_uint64),
        ("last_failure", ctypes.c_char_p),
        ("devices", ctypes.c_uint64),
        ("spare", ctypes.c_bool),
        ("implementation", ctypes.c_char_p),
        ("hosts", ctypes.c_uint64),
        ("exchange", ctypes.c_char_p),
    ]


class HostStruct(ctypes.Structure):
    """struct cpattn_host"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("state", ctypes.c_char_p),
        ("devices", ctypes.c_int32),
        ("devices_out", ctypes.c_uint64),
    ]


class RankPlaceStruct(ctypes.Structure):
    """struct cpattn_rank_place"""

    _fields_ = [("phase", ctypes.c_char_p), ("step", ctypes.c_int32)]


class OpenRequestStruct(ctypes.Structure):
    """struct cpattn_open_request"""

    _fields_ = [
        ("id", ctypes.c_char_p),
        ("user", ctypes.c_char_p),
        ("implementation", ctypes.c_char_p),
        ("case_text", ctypes.c_char_p),
        ("phase", ctypes.c_char_p),
        ("step", ctypes.c_int32),
        ("world_size", ctypes.c_int32),
        ("running", ctypes.c_bool),
        ("age_ns", ctypes.c_uint64),
        ("run_ns", ctypes.c_uint64),
        ("rank_count", ctypes.c_int32),
        ("ranks", ctypes.POINTER(RankPlaceStruct)),
    ]


class EventStruct(ctypes.Structure):
    """struct cpattn_event"""

    _fields_ = [
        ("number", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("time_ns", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("restarted", ctypes.c_bool),
        ("spare", ctypes.c_bool),
        ("world_size", ctypes.c_int32),
        ("instance", ctypes.c_int32),
        ("generation", ctypes.c_uint32),
        ("implementation", ctypes.c_char_p),
        ("id", ctypes.c_char_p),
        ("user", ctypes.c_char_p),
        ("case_text", ctypes.c_char_p),
        ("verdict", ctypes.c_int),
        ("code", ctypes.c_int),
        ("queue_ns", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("run_ns", ctypes.c_uint64),
        ("total_ns", ctypes.c_uint64),
        ("state", ctypes.c_char_p),
        ("devices", ctypes.c_uint64),
        ("text", ctypes.c_char_p),
    ]


def members(struct: ctypes.Structure) -> dict[str, Any]:
    """The members of a struct, texts as str: what is left when its owner is destroyed."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_}
    texts = {field[0] for field in struct._fields_ if field[1] in (ctypes.c_char_p, ctypes.c_char)}
    return {
        name: (value or b"").decode(errors="replace") if name in texts else value
        for name, value in values.items()
    }


# The enum cpattn_tensor, and how many there are.
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
class CheckTensor(ctypes.Structure):
    """struct cpattn_check_tensor"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("is_result", ctypes.c_bool),
        ("dims", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 2),
        ("bytes", ctypes.c_size_t),
    ]


class CheckBuffer(ctypes.Structure):
    """struct cpattn_check_buffer"""

    _fields_ = [("tensor", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


_TEXT = ctypes.c_char_p
_ERROR = ctypes.POINTER(Error)
_ARRAY = ctypes.POINTER(Array)

# name: (result, arguments)
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
    raise ImportError(
        f"lib{name} cannot be loaded: {'; '.join(tried)}. Install cpattnd, or name the folder of "
        "its libraries in CPATTN_LIBRARY_PATH"
    )


@functools.lru_cache(maxsize=None)
def case_library() -> ctypes.CDLL:
    """libcpattn"""
    return _load("cpattn", _CASE_FUNCTIONS)


@functools.lru_cache(maxsize=None)
def client_library() -> ctypes.CDLL:
    """libcpattn, with what talks to a daemon"""
    return _load("cpattn", {**_CASE_FUNCTIONS, **_CLIENT_FUNCTIONS})


@functools.lru_cache(maxsize=None)
def check_library() -> ctypes.CDLL:
    """libcpattn-check"""
    case_library()
    return _load("cpattn-check", _CHECK_FUNCTIONS)


def insist(status: int, error: Error) -> None:
    """Raises what a call reports."""
    if status != Status.OK:
        raise CpattnError(status, error.text.decode())
