# SPDX-License-Identifier: Apache-2.0
"""Access to the memory of tensors through DLPack, without a copy."""
from __future__ import annotations

import ctypes
import dataclasses
import importlib
import sys
from typing import Any, Callable, Optional

HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged

# DLPack's type code and bits of each dtype of a case.
DTYPES = {"bf16": (4, 16), "fp16": (2, 16), "fp32": (2, 32)}
DTYPES.update({"int32": (0, 32), "int64": (0, 64), "uint8": (1, 8)})  # of collectives
_WHOLE = ("int32", "int64", "uint8")


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_NO_ELEMENTS = ctypes.create_string_buffer(1)

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


@dataclasses.dataclass
class View:
    """The memory of a tensor. `owner` keeps it alive as long as the view exists."""

    address: int
    shape: tuple
    strides: tuple  # in elements
    device: int  # the number of a CUDA device; -1: host memory
    owner: Any


def contiguous(shape: tuple) -> tuple:
    """Returns the strides, in elements, of a tensor without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def has_gaps(view: View) -> bool:
    """Returns True if elements are not consecutive. Ignores strides of dimensions of size 1."""
    dense = contiguous(view.shape)
    return any(s != d for n, s, d in zip(view.shape, view.strides, dense) if n > 1)


def _detached(tensor: Any) -> Any:
    """Returns a tensor that can be exported: PyTorch exports none that requires a gradient."""
    return tensor.detach() if hasattr(tensor, "detach") else tensor


def _capsule(tensor: Any) -> Any:
    """Returns the DLPack capsule of the tensor. Readers must wait for the stream of stream_of()."""
    device = tensor.__dlpack_device__() if hasattr(tensor, "__dlpack_device__") else (1, 0)
    return tensor.__dlpack__(stream=-1) if device[0] in CUDA_DEVICES else tensor.__dlpack__()


class Memory:
    """Tracks which memory the library uses for the tensors of the next call."""

    def __init__(self) -> None:
        self._device: Optional[tuple] = None

    def use(self, device: int, select: Callable[[int, ctypes.c_void_p], None]) -> None:
        """Calls `select` with the device (-1: the host) and its stream if they have changed."""
        if device < 0 and self._device is None:
            return
        stream = stream_of(device) if device >= 0 else 0
        if (device, stream) == self._device:
            return
        self._device = None
        select(device, ctypes.c_void_p(stream))
        self._device = (device, stream) if device >= 0 else None


def _element_name(kind: tuple) -> str:
    """Returns the name of a DLPack type code and number of bits: "fp16", "float64"."""
    for name, known in DTYPES.items():
        if kind == known:
            return name
    families = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
    return f"{families.get(kind[0], f'DLPack type {kind[0]}, bits ')}{kind[1]}"


def stream_of(device: int) -> int:
    """Returns the handle of PyTorch's current stream; 0, the default stream, without PyTorch."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream(device).cuda_stream if torch is not None else 0


def view(name: str, tensor: Any, dtype: str) -> View:
    """Returns the View of a tensor.

    `dtype` is that of the case. 16-bit unsigned integers are taken as the bits of bf16, because
    numpy has no bf16. Raises TypeError if the object has no DLPack, another dtype, or memory
    elsewhere than on the host or a CUDA device.
    """
    tensor = _detached(tensor)
    if not hasattr(tensor, "__dlpack__"):
        raise TypeError(
            f"{name} is a {type(tensor).__name__}; it should be a tensor of PyTorch, an array of "
            "numpy, or another that speaks DLPack"
        )
    capsule = _capsule(tensor)
    found = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    if found.device.type not in HOST_DEVICES + CUDA_DEVICES:
        raise TypeError(
            f"{name} is neither in host memory nor on a CUDA device (DLPack device "
            f"{found.device.type})"
        )
    kind = (found.dtype.code, found.dtype.bits)
    if kind != DTYPES[dtype] and not (dtype == "bf16" and kind == (1, 16)):
        bits = ", or uint16 with its bits" if dtype == "bf16" else ""
        raise TypeError(f"{name} has elements of {_element_name(kind)}; it should have {dtype}{bits}")
    shape = tuple(found.shape[i] for i in range(found.ndim))
    strides = (
        tuple(found.strides[i] for i in range(found.ndim)) if found.strides else contiguous(shape)
    )
    device = found.device.id if found.device.type in CUDA_DEVICES else -1
    # PyTorch gives a tensor without elements the address 0. The libraries take 0 for a missing
    # tensor.
    address = (found.data or 0) + found.byte_offset or ctypes.addressof(_NO_ELEMENTS)
    return View(address, shape, strides, device, (tensor, capsule))


def _imported(library: str, device: Any) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        other = "'numpy'" if library == "torch" else "'torch'"
        instead = "" if device is not None else f", or pass library={other}"
        raise ImportError(f"{library} cannot be imported: {error}; install it{instead}") from error


def empty(shape: tuple, dtype: str, library: str, device: Any = None) -> Any:
    """Returns a new tensor with undefined elements; bf16 is uint16 in numpy.

    `library` is "numpy" or "torch"; `device` is a device of PyTorch. Raises ValueError for another
    library, or for a device with numpy.
    """
    if device is not None and library != "torch":
        raise ValueError(f"{library} has no tensors on a device; library 'torch' has")
    if library == "torch":
        torch = _imported(library, device)
        names = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
        names.update({name: getattr(torch, name) for name in _WHOLE})
        return torch.empty(shape, dtype=names[dtype], device=device)
    if library == "numpy":
        numpy = _imported(library, device)
        names = {"bf16": numpy.uint16, "fp16": numpy.float16, "fp32": numpy.float32}
        names.update({name: getattr(numpy, name) for name in _WHOLE})
        return numpy.empty(shape, dtype=names[dtype])
    raise ValueError(f"library is {library!r}; it is 'numpy' or 'torch'")
