# SPDX-License-Identifier: Apache-2.0
"""The judge of collectives and linear layers that your own code has computed."""
from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import Any, Optional

from cpattn import _arrays
from cpattn._library import check_library, insist
from cpattn._structs import CheckBuffer, CheckTensor, Error
from cpattn._values import whole
from cpattn.case import Case, Job
from cpattn.check import Check, Verdict, VerdictError, verdict_of


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a rank. An extent of its shape is 0 if the rank has no elements of it."""

    name: str
    dtype: str
    is_result: bool
    shape: tuple
    bytes: int


class JobCheck:
    """A check of one rank of a collective or a linear layer.

        job = cpattn.Job("collective", operation="all_reduce", world_size=4, count=1000)
        check = cpattn.JobCheck(job, rank=rank)
        send, receive = check.input("send"), check.empty("receive")
        ...                                        # your all-reduce
        print(check.verify(receive=receive))

    `tensors` is a dict of Tensor by name: send and receive of a collective, with one dimension; x,
    w, b, dy, y, dx, dw, db of a layer; an mlp has w1, b1, w2, b2 and their gradients dw1, db1, dw2,
    db2. A dtype is "fp32", "bf16", "fp16", "int32", "int64" or "uint8"; in numpy, bf16 is uint16.
    Memory has no gaps. It is host memory, or memory of one CUDA device, where tensors are drawn and
    judged.

    New tensors are PyTorch's if PyTorch is imported, else numpy arrays. `library` ("torch" or
    "numpy") selects one of them; `device` is a device of PyTorch, such as "cuda".

    Raises CpattnError if the job cannot run, has no such rank, or is a case of attention.
    """

    def __init__(self, job: Job, rank: int = 0) -> None:
        if not isinstance(job, Case):
            raise TypeError(f"job is {job!r}; it should be a Job")
        self._library, self._handle = check_library(), ctypes.c_void_p()
        self.job, self.rank = job, whole("rank", rank)
        self._memory = _arrays.Memory()
        error = Error()
        status = self._library.cpattn_check_job_create(
            job._handle, self.rank, ctypes.byref(self._handle), ctypes.byref(error)
        )
        insist(status, error)
        self.tensors = {tensor.name: tensor for tensor in self._tensors()}

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.cpattn_check_job_destroy(self._handle)
            self._handle = None

    def _tensors(self) -> Any:
        found, index = CheckTensor(), 0
        while self._library.cpattn_check_job_tensor(self._handle, index, ctypes.byref(found)):
            shape = tuple(found.shape[: found.dims])
            name, dtype = found.name.decode(), found.dtype.decode()
            yield Tensor(name, dtype, found.is_result, shape, found.bytes)
            index += 1

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise KeyError(f"this job has no {name}; it has {', '.join(self.tensors)}")
        return self.tensors[name]

    def _view(self, name: str, value: Any) -> _arrays.View:
        """Returns the View of a tensor. Raises an error if the tensor does not fit the job."""
        tensor = self._tensor(name)
        view = _arrays.view(name, value, tensor.dtype)
        if view.shape != tensor.shape and math.prod(view.shape) + math.prod(tensor.shape) > 0:
            raise ValueError(f"{name} has the shape {view.shape}, not {tensor.shape}")
        if tensor.bytes > 0 and _arrays.has_gaps(view):
            raise ValueError(f"{name} has gaps between its elements")
        return view

    def _select(self, device: int, stream: ctypes.c_void_p) -> None:
        error = Error()
        insist(self._library.cpattn_check_job_device(self._handle, device, stream, ctypes.byref(error)), error)

    def fill(self, name: str, value: Any) -> None:
        """Fills an input with its elements. Fills a result with a pattern; by this pattern the
        diagnosis recognizes memory that was never written. If the job is in place, fill send last.

        Raises KeyError for an unknown name, TypeError for a wrong dtype, ValueError for a wrong
        shape or gaps.
        """
        view = self._view(name, value)
        self._memory.use(view.device, self._select)
        error = Error()
        status = self._library.cpattn_check_job_fill(
            self._handle, name.encode(), view.address, self.tensors[name].bytes, ctypes.byref(error)
        )
        insist(status, error)

    def empty(self, name: str, library: Optional[str] = None, device: Any = None) -> Any:
        """Returns a new tensor, an input or a result, filled as by fill()."""
        tensor = self._tensor(name)
        if device is not None:
            library = library or "torch"
        library = library or Check._library_default()
        value = _arrays.empty(tensor.shape, tensor.dtype, library, device)
        self.fill(name, value)
        return value

    def input(self, name: str, library: Optional[str] = None, device: Any = None) -> Any:
        """Returns a new tensor with an input of the rank. Raises ValueError for a result."""
        if self._tensor(name).is_result:
            raise ValueError(f"{name} is a result; empty() makes memory for it")
        return self.empty(name, library, device)

    def verify(self, **tensors: Any) -> Verdict:
        """Judges the named tensors. Others are not judged; `unjudged` of the verdict has the results
        among them. Named inputs must be unchanged.

        All tensors are in host memory or all on one CUDA device; there the call waits for the work
        on PyTorch's current stream. The verdict's `digest` covers the results that must have the
        same bits on all ranks: compare it with the digests of the other ranks.

        Raises KeyError for an unknown name, TypeError for a wrong dtype, ValueError for a wrong
        shape, gaps or several devices, CpattnError if there is nothing to judge.
        """
        held = {name: self._view(name, value) for name, value in tensors.items()}
        devices = {view.device for name, view in held.items() if self.tensors[name].bytes > 0}
        if len(devices) > 1:
            raise ValueError(f"tensors lie on several devices: {sorted(devices)} (-1 is the host)")
        self._memory.use(devices.pop() if devices else -1, self._select)
        buffers = (CheckBuffer * max(len(held), 1))()
        for buffer, (name, view) in zip(buffers, held.items()):
            buffer.tensor, buffer.data = name.encode(), view.address
            buffer.bytes = self.tensors[name].bytes
        verdict, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_check_job_verify(
            self._handle, buffers, len(held), ctypes.byref(verdict), ctypes.byref(error)
        )
        insist(status, error)
        try:
            rest = (tensor.name for tensor in self.tensors.values() if tensor.is_result and tensor.name not in held)
            return verdict_of(self._library, verdict, self.job.command(), self.rank, rest)
        finally:
            self._library.cpattn_check_verdict_destroy(verdict)

    def insist(self, **tensors: Any) -> Verdict:
        """Judges as verify() does. Raises VerdictError (an AssertionError) after a fail."""
        verdict = self.verify(**tensors)
        if not verdict:
            raise VerdictError(verdict)
        return verdict
