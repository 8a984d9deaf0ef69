# SPDX-License-Identifier: Apache-2.0
"""The structs of the C libraries as ctypes structures."""
from __future__ import annotations

import ctypes
from typing import Any


class Error(ctypes.Structure):
    """struct cpattn_error"""

    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 512)]

    def sentence(self) -> str:
        """Returns the text, which may name files that are not UTF-8."""
        return self.text.decode(errors="replace")


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
        ("devices_stuck", ctypes.c_uint64),
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


def members(struct: ctypes.Structure) -> dict[str, Any]:
    """Returns the members of a struct, texts as str. Copied texts outlive the owner of the struct;
    pointers do not."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_}
    texts = {field[0] for field in struct._fields_ if field[1] in (ctypes.c_char_p, ctypes.c_char)}
    return {
        name: (value or b"").decode(errors="replace") if name in texts else value
        for name, value in values.items()
    }
