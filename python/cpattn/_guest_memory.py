# SPDX-License-Identifier: Apache-2.0
"""The library libcpattn-guest, and the memory of its tensors as PyTorch tensors or numpy arrays."""
from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any, Optional

from cpattn import _library

_DTYPES = {1: "bf16", 2: "fp16", 3: "fp32", 4: "int32", 5: "int64", 6: "uint8"}
_BYTES = {1: 2, 2: 2, 3: 4, 4: 4, 5: 8, 6: 1}
_KEPT_BYTES = 1 << 30


class Place(ctypes.Structure):
    """struct cpattn_guest_place"""

    _fields_ = [
        ("rank", ctypes.c_int),
        ("world_size", ctypes.c_int),
        ("device", ctypes.c_int),
        ("port", ctypes.c_int),
        ("listener", ctypes.c_int),
    ]


class Tensor(ctypes.Structure):
    """struct cpattn_guest_tensor"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("dims", ctypes.c_int),
        ("shape", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
        ("bytes", ctypes.c_size_t),
    ]


START = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Place), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)
ATTEND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Guest(ctypes.Structure):
    """struct cpattn_guest"""

    _fields_ = [("start", START), ("attend", ATTEND), ("context", ctypes.c_void_p)]


_FUNCTIONS = {
    "cpattn_guest_main": (ctypes.c_int, [ctypes.POINTER(Guest)]),
    "cpattn_guest_place": (ctypes.POINTER(Place), [ctypes.c_void_p]),
    "cpattn_guest_field": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    "cpattn_guest_field_name": (ctypes.c_char_p, [ctypes.c_int]),
    "cpattn_guest_tensor": (
        ctypes.c_bool,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Tensor)],
    ),
    "cpattn_guest_token": (
        ctypes.c_bool,
        [
            ctypes.c_void_p,
            ctypes.c_bool,
            ctypes.c_int64,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.POINTER(ctypes.c_int64),
        ],
    ),
    "cpattn_guest_add": (ctypes.c_bool, [ctypes.c_char_p, ATTEND, ctypes.c_void_p]),
    "cpattn_guest_kind": (ctypes.c_char_p, [ctypes.c_void_p]),
    "cpattn_guest_job_field_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
    "cpattn_guest_message": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
    "cpattn_guest_time_left": (ctypes.c_int64, [ctypes.c_void_p]),
    "cpattn_guest_has_lse": (None, [ctypes.c_void_p]),
    "cpattn_guest_backward": (None, [ctypes.c_void_p]),
    "cpattn_guest_fail": (None, [ctypes.c_void_p, ctypes.c_bool, ctypes.c_char_p]),
}


@functools.lru_cache(maxsize=None)
def guest_library() -> ctypes.CDLL:
    """libcpattn-guest"""
    return _library._load("cpattn-guest", _FUNCTIONS)


class _DeviceMemory:
    """Device memory in the form that PyTorch accepts."""

    def __init__(self, tensor: Tensor, size: int) -> None:
        kind = {3: "<f4", 4: "<i4", 5: "<i8", 6: "|u1"}.get(tensor.dtype, "<i2")
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": kind,
            "data": (tensor.data, False),
            "version": 3,
            "strides": None,
        }


class TorchMemory:
    """Memory of the library as PyTorch tensors."""

    name = "torch"

    def __init__(self, device: int) -> None:
        import torch

        self.torch = torch
        self.device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self.dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
        self.dtypes.update({"int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8})

    def view(self, tensor: Tensor, shape: tuple, strides: tuple) -> Any:
        dtype = self.dtypes[_DTYPES[tensor.dtype]]
        size = tensor.bytes // _BYTES[tensor.dtype]
        if size == 0:
            return self.torch.empty(shape, dtype=dtype, device=self.device)
        if self.device.type == "cuda":
            flat = self.torch.as_tensor(_DeviceMemory(tensor, size), device=self.device).view(dtype)
        else:
            memory = (ctypes.c_char * tensor.bytes).from_address(tensor.data)
            flat = self.torch.frombuffer(memory, dtype=dtype)
        return flat.as_strided(shape, strides)

    def copy(self, view: Any) -> Any:
        return view.clone(memory_format=self.torch.contiguous_format)

    def fill(self, view: Any, value: Any) -> None:
        view.copy_(value.detach())

    def finish(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def trim(self) -> None:
        """Frees device memory that PyTorch caches, if it is more than 1 GiB. The daemon's inputs
        and verdicts need it between cases."""
        if self.device.type == "cuda" and self.torch.cuda.memory_reserved() > _KEPT_BYTES:
            with contextlib.suppress(RuntimeError):  # other calls report a broken device
                self.torch.cuda.empty_cache()

    def objection(self, view: Any, value: Any) -> Optional[str]:
        if not isinstance(value, self.torch.Tensor):
            return f"is a {type(value).__name__}, not a PyTorch tensor"
        if value.device != view.device:
            return f"is on {value.device}, not on {view.device}"
        if value.dtype != view.dtype:
            return f"has elements of {value.dtype}, not {view.dtype}"
        if tuple(value.shape) != tuple(view.shape):
            return f"has the shape {tuple(value.shape)}, not {tuple(view.shape)}"
        return None


class NumpyMemory:
    """Memory of the library as numpy arrays. bf16 is uint16 with the same bits."""

    name = "numpy"

    def __init__(self) -> None:
        import numpy

        self.numpy = numpy
        self.dtypes = {"bf16": numpy.uint16, "fp16": numpy.float16, "fp32": numpy.float32}
        self.dtypes.update({"int32": numpy.int32, "int64": numpy.int64, "uint8": numpy.uint8})

    def view(self, tensor: Tensor, shape: tuple, strides: tuple) -> Any:
        dtype = self.numpy.dtype(self.dtypes[_DTYPES[tensor.dtype]])
        if tensor.bytes == 0:
            return self.numpy.empty(shape, dtype)
        memory = (ctypes.c_char * tensor.bytes).from_address(tensor.data)
        flat = self.numpy.frombuffer(memory, dtype=dtype)
        steps = tuple(stride * dtype.itemsize for stride in strides)
        return self.numpy.lib.stride_tricks.as_strided(flat, shape, steps)

    def copy(self, view: Any) -> Any:
        return view.copy()

    def fill(self, view: Any, value: Any) -> None:
        view[...] = value

    def finish(self) -> None:
        pass

    def trim(self) -> None:
        pass

    def objection(self, view: Any, value: Any) -> Optional[str]:
        if not isinstance(value, self.numpy.ndarray):
            return f"is a {type(value).__name__}, not a numpy array"
        if value.dtype != view.dtype:
            return f"has elements of {value.dtype}, not {view.dtype}"
        if value.shape != view.shape:
            return f"has the shape {value.shape}, not {view.shape}"
        return None


def view_of(job: int, name: str, memory: Any) -> Any:
    """Returns a tensor of the rank, without a copy; None: the job has no such tensor."""
    tensor = Tensor()
    if not guest_library().cpattn_guest_tensor(job, name.encode(), ctypes.byref(tensor)):
        return None
    shape, strides = tensor.shape[: tensor.dims], tensor.strides[: tensor.dims]
    return memory.view(tensor, tuple(shape), tuple(strides))
