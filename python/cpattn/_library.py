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
_TEXT = ctypes.c_char_p
_ERROR = ctypes.POINTER(Error)
_ARRAY = ctypes.POINTER(Array)

# name: (result, arguments)
_CASE_FUNCTIONS = {
    "cpattn_case_create": (_POINTER, []),
    "cpattn_case_destroy": (None, [_POINTER]),
    "cpattn_case_set": (_INT, [_POINTER, _TEXT, _TEXT, _ERROR]),
    "cpattn_case_get": (_INT, [_POINTER, _TEXT, _TEXT, ctypes.c_size_t]),
    "cpattn_case_check": (_INT, [_POINTER, _ERROR]),
    "cpattn_case_describe": (_INT, [_POINTER, _TEXT, ctypes.c_size_t]),
    "cpattn_case_command": (_INT, [_POINTER, _TEXT, ctypes.c_size_t]),
    "cpattn_field_next": (_POINTER, [_POINTER]),
    "cpattn_field_name": (_TEXT, [_POINTER]),
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
    "cpattn_check_sums": (None, [_POINTER, _INT]),
    "cpattn_check_shape": (Shape, [_POINTER, _INT]),
    "cpattn_check_sequence": (ctypes.c_int32, [_POINTER, _INT, ctypes.c_int64]),
    "cpattn_check_position": (ctypes.c_int64, [_POINTER, _INT, ctypes.c_int64]),
    "cpattn_check_fill": (_INT, [_POINTER, _INT, _ARRAY, _ERROR]),
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
def check_library() -> ctypes.CDLL:
    """libcpattn-check"""
    case_library()
    return _load("cpattn-check", _CHECK_FUNCTIONS)


def insist(status: int, error: Error) -> None:
    """Raises what a call reports."""
    if status != Status.OK:
        raise CpattnError(status, error.text.decode())
