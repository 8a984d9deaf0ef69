# SPDX-License-Identifier: Apache-2.0
"""The judge: inputs of a case, and the verdict on results computed from them."""
from __future__ import annotations

import ctypes
import dataclasses
import difflib
import math
import sys
import warnings
from typing import Any, Iterable, Optional

from cpattn import _arrays, _map
from cpattn._library import TENSORS, check_library, insist
from cpattn._structs import Array, Element, Error, FiguresStruct
from cpattn.case import Case

INPUTS = ("q", "k", "v", "do", "bias", "sink")
RESULTS = ("out", "lse", "dq", "dk", "dv", "dbias", "dsink", "max_logit")
KEY_SIDE = ("k", "v", "dk", "dv")
MAPPED = ("out", "lse", "dq", "dk", "dv")
BIASES = ("bias", "dbias")
OF_HEADS = ("sink", "dsink", "max_logit")
PADDING = 2

RULES = {
    1: "element",
    2: "rms",
    4: "row",
    8: "nonfinite",
    16: "padding",
    32: "slope",
    64: "zero",
}
REMARKS = {1: "long_sum", 2: "zeros_pass"}


def _known(tensor: str, names: tuple, what: str) -> int:
    """The number in the library of a tensor, which must be one of `names`."""
    if tensor not in names:
        near = difflib.get_close_matches(tensor.lower(), names, 1, 0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise TypeError(f"{tensor} is no {what}{hint}; {what}s are {', '.join(names)}")
    return TENSORS.index(tensor)


def _place(element: Element) -> Optional[dict[str, int]]:
    if element.position < 0:
        return None
    return {name: getattr(element, name) for name in ("sequence", "position", "head", "dim")}


@dataclasses.dataclass(frozen=True)
class Figures:
    """The errors of one tensor in one chunk of the rank.

    Errors are RMS errors relative to the RMS of the reference; `times_twin` is the error in units of
    the error of an honest kernel. `broken` names the broken rules.
    """

    tensor: str
    chunk: int  # 0 or 1; PADDING: the rows of padding
    broken: tuple
    elements: int
    mismatches: int
    nonfinite: int
    rmse: float
    rmse_limit: float
    times_twin: Optional[float]
    slope: float
    slope_limit: float
    worst_row: float
    worst_row_limit: float
    worst_row_at: Optional[dict]
    worst_element: float
    max_error: float
    first_bad: Optional[dict]
    first_bad_got: float
    first_bad_expected: float
    te_mismatches: int
    remark: str = ""  # "long_sum", "zeros_pass", or "": there is none

    @classmethod
    def _of(cls, f: FiguresStruct) -> "Figures":
        return cls(
            tensor=f.tensor.decode(),
            chunk=f.chunk,
            broken=tuple(name for bit, name in RULES.items() if f.broken & bit),
            elements=f.elements,
            mismatches=f.mismatches,
            nonfinite=f.nonfinite,
            rmse=f.rmse_rel,
            rmse_limit=f.rmse_limit,
            times_twin=f.rmse_rel / f.twin_rel if f.twin_rel > 0 else None,
            slope=f.slope,
            slope_limit=f.slope_limit,
            worst_row=f.worst_row_rel,
            worst_row_limit=f.worst_row_limit,
            worst_row_at=_place(f.worst_row),
            worst_element=f.worst_element,
            max_error=f.max_abs,
            first_bad=_place(f.first_bad),
            first_bad_got=f.first_bad_got,
            first_bad_expected=f.first_bad_expected,
            te_mismatches=f.te_mismatches,
            remark=REMARKS.get(f.remark, ""),
        )


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The mistake that explains a fail, and the explained share of the tensor's squared error."""

    text: str
    tensor: str
    explained: float

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, repr=False)
class Verdict:
    """True if every judged tensor passed. The text has a line for each tensor and chunk, and the
    diagnosis. `diagnosis` is None if no known mistake explains a fail. `rank` is None if a case of attention
    has one rank."""

    passed: bool
    figures: tuple
    text: str
    command: str
    diagnosis: Optional[Diagnosis] = None
    digest: int = 0  # of a layer's results that must be the same on all ranks
    rank: Optional[int] = None

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        of_rank = "" if self.rank is None else f" on rank {self.rank}"
        word = "pass" if self.passed else "FAIL"
        return f"{word}{of_rank}: {self.command}\n{self.text.rstrip()}"

    def __repr__(self) -> str:
        return str(self)


class VerdictError(AssertionError):
    """A failed verdict; its text is the text of the verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


def _diagnosis_of(library: Any, handle: ctypes.c_void_p) -> Optional[Diagnosis]:
    tensor, explained = ctypes.c_char_p(), ctypes.c_double()
    text = library.cpattn_check_verdict_diagnosis(
        handle, ctypes.byref(tensor), ctypes.byref(explained)
    )
    if not text:
        return None
    return Diagnosis(text.decode(), (tensor.value or b"").decode(), explained.value)


def verdict_of(
    library: Any, handle: ctypes.c_void_p, command: str, rank: Optional[int]
) -> Verdict:
    """The library's verdict, which the caller destroys."""
    figures, index = [], 0
    while found := library.cpattn_check_verdict_figures(handle, index):
        figures.append(Figures._of(found.contents))
        index += 1
    return Verdict(
        passed=library.cpattn_check_verdict_pass(handle),
        figures=tuple(figures),
        text=library.cpattn_check_verdict_text(handle).decode(),
        command=command,
        diagnosis=_diagnosis_of(library, handle),
        digest=library.cpattn_check_verdict_digest(handle),
        rank=rank,
    )


class Check:
    """The judge of a case for one rank, or for the tokens of place().

    Shapes, with the rank's own tokens:
    - bshd: [batch, tokens, heads, dim]; LSE [batch, heads, tokens]
    - sbhd: [tokens, batch, heads, dim]; LSE [batch, heads, tokens]
    - thd, and after place(): [tokens, heads, dim]; LSE [heads, tokens]
    - bias and dbias: [batch or 1, heads or 1, tokens or 1, seqlen_kv], by the case's bias. With thd
      there is no batch dimension if each query has a row of its own; otherwise the rows are all
      positions.
    - sinks, dsink and largest logits: [heads]
    Strides are arbitrary, except that the last dimension is consecutive.

    dbias, dsink and the largest logits cover all queries of the case, after the ranks have been added
    up. With sums="own" they cover the queries of this check alone.
    """

    def __init__(self, case: Case, rank: int = 0, sums: str = "all") -> None:
        self._library = check_library()
        self.case = case
        self.rank = rank
        self._placed = {"q": False, "k": False}
        self._memory = _arrays.Memory()
        self._handle: Optional[ctypes.c_void_p] = None
        handle, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_check_create(
            case._handle, rank, ctypes.byref(handle), ctypes.byref(error)
        )
        insist(status, error)
        self._handle = handle
        self._given = False
        if sums not in ("all", "own"):
            raise ValueError(f"sums is {sums!r}; it is 'all' or 'own'")
        self._library.cpattn_check_sums(handle, sums == "own")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.cpattn_check_destroy(self._handle)
            self._handle = None

    # ---- tokens ----

    def place(
        self, side: str, positions: Iterable[int], sequences: Optional[Iterable[int]] = None
    ) -> None:
        """Replaces the tokens of the queries ("q") or the keys ("k"), row by row."""
        wanted = list(positions)
        of_sequences = [0] * len(wanted) if sequences is None else list(sequences)
        if len(of_sequences) != len(wanted):
            raise ValueError(f"{len(wanted)} positions and {len(of_sequences)} sequences")
        if side not in self._placed:
            raise ValueError(f"side is {side!r}; it is 'q' or 'k'")
        error = Error()
        status = self._library.cpattn_check_place(
            self._handle,
            side == "k",
            (ctypes.c_int32 * len(wanted))(*of_sequences),
            (ctypes.c_int64 * len(wanted))(*wanted),
            len(wanted),
            ctypes.byref(error),
        )
        insist(status, error)
        self._placed[side] = True

    def tokens(self, side: str) -> list[tuple[int, int]]:
        """The sequence and position of each row of the queries ("q") or the keys ("k")."""
        if side not in self._placed:
            raise ValueError(f"side is {side!r}; it is 'q' or 'k'")
        rows = self._library.cpattn_check_shape(self._handle, TENSORS.index(side)).rows
        which = int(side == "k")
        return [
            (
                self._library.cpattn_check_sequence(self._handle, which, row),
                self._library.cpattn_check_position(self._handle, which, row),
            )
            for row in range(rows)
        ]

    # ---- shapes ----

    def _layout(self, tensor: str) -> str:
        placed = self._placed["k" if tensor in KEY_SIDE else "q"]
        return "thd" if placed else self.case["format"]

    def has(self, tensor: str) -> bool:
        """True if the case has the tensor: for example "bias" only with a bias."""
        number = _known(tensor, INPUTS + RESULTS, "tensor")
        if tensor in RESULTS and tensor.startswith("d") and self.case["training"] != "true":
            return False
        return self._library.cpattn_check_shape(self._handle, number).heads > 0

    def _insist_on(self, tensor: str) -> None:
        if not self.has(tensor):
            fields = {"dbias": ("bias", "training"), "dsink": ("softmax", "training")}
            fields.update(bias=("bias",), sink=("softmax",), max_logit=("max_logit",))
            why = " and ".join(f"{f} {self.case[f]}" for f in fields.get(tensor, ("training",)))
            raise ValueError(f"the case has {why}, so it has no {tensor}")

    def shape(self, tensor: str) -> tuple:
        """The shape of an input (INPUTS) or a result (RESULTS)."""
        number = _known(tensor, INPUTS + RESULTS, "tensor")
        s = self._library.cpattn_check_shape(self._handle, number)
        layout, batch = self._layout(tensor), int(self.case["batch"])
        if tensor in OF_HEADS:
            return (s.heads,)
        if tensor in BIASES:
            return self._bias_shape(s, layout, batch)
        if tensor == "lse":
            return (s.heads, s.rows) if layout == "thd" else (batch, s.heads, s.rows // batch)
        if layout == "thd":
            return (s.rows, s.heads, s.dim)
        tokens = s.rows // batch
        return (
            (batch, tokens, s.heads, s.dim) if layout == "bshd" else (tokens, batch, s.heads, s.dim)
        )

    def _bias_shape(self, s: Any, layout: str, batch: int) -> tuple:
        bias = self.case["bias"]
        if bias[0] == "1":
            return (1, s.heads, s.rows, s.dim)
        if bias[2] == "1":
            return (s.rows, s.heads, 1, s.dim)
        if layout == "thd":
            return (s.heads, s.rows, s.dim)
        return (batch, s.heads, s.rows // batch, s.dim)

    def _dtype(self, tensor: str) -> str:
        return "fp32" if tensor in ("lse", *OF_HEADS) else self.case["dtype"]

    def _array(self, tensor: str, view: _arrays.View) -> Array:
        shape, strides, layout = self.shape(tensor), view.strides, self._layout(tensor)
        if view.shape != shape:
            raise ValueError(f"{tensor} has the shape {view.shape}; it should have {shape}")
        if tensor in OF_HEADS:
            return Array(view.address, 0, strides[0], 0, 0)
        if tensor == "lse":
            if layout == "thd":
                return Array(view.address, strides[1], strides[0], 0, 0)
            if layout == "bshd":
                return Array(view.address, strides[2], strides[1], shape[2], strides[0])
            return Array(view.address, strides[0], strides[1], shape[0], strides[2])
        if math.prod(shape) > 0 and shape[-1] > 1 and strides[-1] != 1:
            raise ValueError(f"{tensor} has a stride of {strides[-1]} in its last dimension, not 1")
        if tensor in BIASES:
            return self._bias_array(view, layout)
        if layout == "thd":
            return Array(view.address, strides[0], strides[1], 0, 0)
        return Array(view.address, strides[1], strides[2], shape[1], strides[0])

    def _bias_array(self, view: _arrays.View, layout: str) -> Array:
        strides, bias = view.strides, self.case["bias"]
        if len(strides) == 3:
            return Array(view.address, strides[1], strides[0], 0, 0)
        if bias[0] == "1":
            return Array(view.address, strides[2], strides[1], 0, 0)
        if bias[2] == "1":
            return Array(view.address, strides[0], strides[1], 0, 0)
        if layout == "bshd":
            return Array(view.address, strides[2], strides[1], view.shape[2], strides[0])
        return Array(view.address, strides[0], strides[1], view.shape[0], strides[2])

    # ---- inputs, results ----

    @staticmethod
    def _library_default() -> str:
        return "torch" if "torch" in sys.modules else "numpy"

    def _filled(self, function: Any, tensor: str, library: Optional[str], device: Any) -> Any:
        if device is not None:
            library = library or "torch"
        made = _arrays.empty(
            self.shape(tensor), self._dtype(tensor), library or self._library_default(), device
        )
        view = _arrays.view(tensor, made, self._dtype(tensor))
        self._memory.use(view.device, self._select)
        array, error = self._array(tensor, view), Error()
        status = function(
            self._handle, TENSORS.index(tensor), ctypes.byref(array), ctypes.byref(error)
        )
        insist(status, error)
        return made

    def _select(self, device: int, stream: ctypes.c_void_p) -> None:
        error = Error()
        insist(self._library.cpattn_check_device(self._handle, device, stream, ctypes.byref(error)), error)

    def inputs(self, library: Optional[str] = None, device: Any = None) -> tuple:
        """q, k, v and dO of the tokens, as PyTorch tensors if PyTorch is imported, else numpy arrays.

        `library` is "torch" or "numpy". `device` is a device of PyTorch, as "cuda", on which the
        inputs are drawn. numpy has no bf16: its arrays hold the bits as uint16. Padding is filled
        with NaN.
        """
        fill = self._library.cpattn_check_fill
        return tuple(self._filled(fill, tensor, library, device) for tensor in INPUTS[:4])

    def input(self, tensor: str, library: Optional[str] = None, device: Any = None) -> Any:
        """One input: one of inputs(), or "bias" or "sink" if the case has it."""
        _known(tensor, INPUTS, "input")
        return self._filled(self._library.cpattn_check_fill, tensor, library, device)

    def give(self, **inputs: Any) -> None:
        """Uses these inputs instead of drawn ones: q, k, v and do of all tokens of all sequences.

        Shapes are those of the case's format with all tokens, whichever tokens this check covers:
        [batch, seqlen, heads, dim] for bshd, and so on. The tensors, all in host memory or all on one
        CUDA device, are copied. inputs() then returns the part of this check. Without arguments
        inputs are drawn again.
        """
        arrays, views = (Array * len(TENSORS))(), []
        for tensor, value in inputs.items():
            if tensor not in INPUTS[:4]:
                raise TypeError(f"{tensor} cannot be given; q, k, v and do can")
            view = _arrays.view(tensor, value, self._dtype(tensor))
            views.append(view)
            arrays[TENSORS.index(tensor)] = self._whole_array(tensor, view)
        devices = {view.device for view in views}
        if len(devices) > 1:
            raise ValueError(f"inputs lie on several devices: {sorted(devices)} (-1 is the host)")
        self._memory.use(devices.pop() if devices else -1, self._select)
        error = Error()
        status = self._library.cpattn_check_give(
            self._handle, arrays, len(TENSORS), ctypes.byref(error)
        )
        insist(status, error)
        self._given = bool(inputs)

    def _whole_array(self, tensor: str, view: _arrays.View) -> Array:
        s = self._library.cpattn_check_whole(self._handle, TENSORS.index(tensor))
        layout, batch = self.case["format"], int(self.case["batch"])
        shape: tuple = (s.rows, s.heads, s.dim)
        if layout == "bshd":
            shape = (batch, s.rows // batch, s.heads, s.dim)
        elif layout == "sbhd":
            shape = (s.rows // batch, batch, s.heads, s.dim)
        strides = view.strides
        if view.shape != shape:
            raise ValueError(f"{tensor} has the shape {view.shape}; it should have {shape}")
        if math.prod(shape) > 0 and shape[-1] > 1 and strides[-1] != 1:
            raise ValueError(f"{tensor} has a stride of {strides[-1]} in its last dimension, not 1")
        if layout == "thd":
            return Array(view.address, strides[0], strides[1], 0, 0)
        return Array(view.address, strides[1], strides[2], shape[1], strides[0])

    def expected(self, tensor: str, library: Optional[str] = None, device: Any = None) -> Any:
        """A result with the values of the reference, rounded to its dtype."""
        _known(tensor, RESULTS, "result")
        self._insist_on(tensor)
        made = self._filled(self._library.cpattn_check_expected, tensor, library, None)
        return made if device is None else made.to(device)

    def verify(self, **results: Any) -> Verdict:
        """Judges some or all of out, lse, dq, dk, dv, dbias, dsink and max_logit; a result that is not named
        is not judged. They are all in host memory or all on one CUDA device, where the work on
        PyTorch's current stream is finished first. A result may be None only if the case does not have
        it. Warns if a result passes with inputs of give() that let zeros pass, too."""
        arrays = (Array * len(TENSORS))()
        views = []
        for tensor, value in results.items():
            _known(tensor, RESULTS, "result")
            if value is None and not self.has(tensor):
                continue
            self._insist_on(tensor)
            if value is None:
                raise TypeError(f"{tensor} is None; give a tensor, or leave {tensor} out, then it is not judged")
            views.append(_arrays.view(tensor, value, self._dtype(tensor)))
            arrays[TENSORS.index(tensor)] = self._array(tensor, views[-1])
        devices = {view.device for view in views}
        if len(devices) > 1:
            raise ValueError(f"results lie on several devices: {sorted(devices)} (-1 is the host)")
        self._memory.use(devices.pop() if devices else -1, self._select)
        handle, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_check_verify(
            self._handle, arrays, len(TENSORS), ctypes.byref(handle), ctypes.byref(error)
        )
        insist(status, error)
        try:
            rank = self.rank if int(self.case["world_size"]) > 1 else None
            verdict = verdict_of(self._library, handle, self.case.command(), rank)
        finally:
            self._library.cpattn_check_verdict_destroy(handle)
        if self._given:
            self._warn(verdict)
        return verdict

    @staticmethod
    def _warn(verdict: Verdict) -> None:
        loose = {f.tensor: f for f in verdict.figures if f.remark == "zeros_pass"}
        for tensor, f in loose.items():
            warnings.warn(
                f"{tensor} passes, as zeros would: with the inputs of give() rounding errors of an honest "
                f"kernel are as large as the values (limit: {f.rmse_limit:.3g} times them). Where q and k "
                "are very large, smaller ones can be judged",
                stacklevel=3,
            )

    def map(self, tensor: str, value: Any, tile: Optional[int] = None) -> str:
        """Where out, lse, dq, dk or dv is wrong: a text with the error by head and by `tile` positions,
        at least 64 by default. Needs numpy.

            print(check.map("out", out, tile=128))
        """
        _known(tensor, MAPPED, "result with tokens")
        if tile is not None and tile < 1:
            raise ValueError(f"tile is {tile}; it is at least 1")
        verdict = self.verify(**{tensor: value})
        limits = [f.rmse_limit for f in verdict.figures if math.isfinite(f.rmse_limit)]
        expected = self.expected(tensor, "torch" if hasattr(value, "detach") else "numpy")
        return _map.drawn(
            tensor,
            (value, expected),
            self._dtype(tensor),
            self._layout(tensor),
            self.tokens("k" if tensor in KEY_SIDE else "q"),
            max(limits, default=1.0),
            tile,
        )

    def insist(self, **results: Any) -> Verdict:
        """As verify(), but raises VerdictError if the verdict is a fail."""
        verdict = self.verify(**results)
        if not verdict:
            raise VerdictError(verdict)
        return verdict
