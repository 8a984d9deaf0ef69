# SPDX-License-Identifier: Apache-2.0
"""Tensors of the caller for a daemon: shapes and memory."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional

from cpattn import _arrays
from cpattn._structs import TensorsStruct
from cpattn.case import Case

INPUTS = ("q", "k", "v", "do", "bias", "sink")
RESULTS = ("out", "lse", "dq", "dk", "dv", "dbias", "dsink", "max_logit")
_MEMBERS = {"do": "d_out"}  # members of struct cpattn_tensors with another name than the tensor
_SIZES = 4


def shape(case: Case, tensor: str) -> Optional[tuple]:
    """Returns the shape and the dtype of a whole tensor; None: the case has no such tensor."""
    sizes, dims, dtype = (ctypes.c_int64 * _SIZES)(), ctypes.c_int(), ctypes.c_char_p()
    found = case._library.cpattn_case_tensor(
        case._handle, tensor.encode(), sizes, ctypes.byref(dims), ctypes.byref(dtype)
    )
    if found < 0 or dtype.value is None:
        return None
    return tuple(sizes[: dims.value]), dtype.value.decode()


def _view(case: Case, name: str, tensor: Any) -> _arrays.View:
    wanted = shape(case, name)
    if wanted is None:
        raise ValueError(f"the case has no {name}")
    view = _arrays.view(name, tensor, wanted[1])
    if view.device >= 0:
        raise ValueError(f"{name} is on a GPU; it has to be in host memory")
    if view.shape != wanted[0]:
        raise ValueError(f"{name} has the shape {view.shape}; the case's is {wanted[0]}")
    if _arrays.has_gaps(view):
        raise ValueError(f"{name} is not contiguous")
    return view


def _library_of(tensor: Any) -> str:
    torch = sys.modules.get("torch")
    return "torch" if torch is not None and isinstance(tensor, torch.Tensor) else "numpy"


class Tensors:
    """Inputs and results of attend().

    `results` has new tensors by name. `struct` points to them and to the inputs. Raises TypeError
    or ValueError if an input does not fit the case.
    """

    def __init__(self, case: Case, inputs: dict[str, Any]) -> None:
        unknown = set(inputs) - set(INPUTS)
        if unknown:
            raise TypeError(f"{sorted(unknown)[0]} is no input; inputs are {', '.join(INPUTS)}")
        given = {name: tensor for name, tensor in inputs.items() if tensor is not None}
        library = _library_of(given.get("q"))
        self.results: dict[str, Any] = {}
        for name in RESULTS:
            has = shape(case, name)
            if has is not None:
                self.results[name] = _arrays.empty(has[0], has[1], library)
        self._views = {n: _view(case, n, t) for n, t in {**given, **self.results}.items()}
        self.struct = TensorsStruct(size=ctypes.sizeof(TensorsStruct))
        for name, view in self._views.items():
            setattr(self.struct, _MEMBERS.get(name, name), view.address)
