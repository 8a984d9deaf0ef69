# SPDX-License-Identifier: Apache-2.0
"""The judge of attention: inputs of a case, and verdicts on results computed from them."""
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
from cpattn._values import whole
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
    2: "rmse",
    4: "row",
    8: "nonfinite",
    16: "padding",
    32: "slope",
    64: "zero",
}
REMARKS = {1: "long_sum", 2: "zeros_pass"}


def _known(tensor: str, names: tuple, what: str) -> int:
    """Returns the library's number of a tensor. Raises TypeError if `names` does not have it."""
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

    tensor: "out", "lse", "dq", "dk", "dv", "dbias", "dsink", "max_logit", or a tensor of a job.
    chunk: 0 or 1, or PADDING (2). dbias, dsink and max_logit have chunk 0 only.
    broken: the names of the broken rules: "element", "rmse", "row", "nonfinite", "padding", "slope",
        "zero". Empty: a pass.
    elements: number of elements.
    mismatches: number of elements that break the element rule.
    nonfinite: number of elements that are NaN or infinite where the reference is finite.
    rmse: RMS of the error / RMS of the reference; of lse and max_logit the RMS of the error itself.
        rmse_limit: its limit.
    times_twin: rmse in units of the twin's, or None. The twin is an honest kernel: it rounds only
        where every kernel on matrix units must.
    slope: <error, reference> / <reference, reference>: 0.01 is 1 % too large. 0 of lse and
        max_logit. slope_limit: the limit of its absolute value.
    worst_row: RMS of the error of the worst row (one token and head) / RMS of the twin's error.
        worst_row_limit: its limit. worst_row_at: its place.
    worst_element: the largest error of an element / its limit.
    max_error: the largest absolute error.
    first_bad: the place of the first element that breaks the element rule, or None.
        first_bad_got, first_bad_expected: its values.
    te_mismatches: number of elements that break TransformerEngine's own rule, for information.
    remark: "long_sum": within the limit only because of the allowance for long sums. "zeros_pass":
        zeros would pass, too. "": none.

    A place is a dict with "sequence", "position", "head" and "dim"; for dbias "dim" is the key.
    Figures of padding have only elements, mismatches (not zero), nonfinite, max_error and
    first_bad.
    """

    tensor: str
    chunk: int
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
    remark: str = ""

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
            times_twin=f.rmse_rel / f.twin_rel if 0 < f.twin_rel < math.inf else None,
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
    """The mistake that explains a fail.

    text: one sentence. tensor: the tensor of the diagnosis, or "". explained: the explained share
    of that tensor's squared error, 0 to 1.
    """

    text: str
    tensor: str
    explained: float

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, repr=False)
class Verdict:
    """The verdict on the judged tensors. True if all of them passed.

    figures: a tuple of Figures: one for each tensor and chunk, and one for the padding of a tensor.
    text: a few lines for people: the error of each tensor, and the diagnosis.
    command: the command line that runs the case.
    diagnosis: None if the verdict is a pass, or if no known mistake explains the fail.
    digest: of the results of a linear layer that must have the same bits on all ranks.
    rank: None for a case of attention with one rank.
    unjudged: a tuple with the names of the results that the case has and that were not given.
    """

    passed: bool
    figures: tuple
    text: str
    command: str
    diagnosis: Optional[Diagnosis] = None
    digest: int = 0
    rank: Optional[int] = None
    unjudged: tuple = ()

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        of_rank = "" if self.rank is None else f" on rank {self.rank}"
        word = "pass" if self.passed else "FAIL"
        rest = f"not judged: {', '.join(self.unjudged)}\n" if self.unjudged else ""
        return f"{word}{of_rank}: {self.command}\n{rest}{self.text.rstrip()}"

    def __repr__(self) -> str:
        return str(self)


class VerdictError(AssertionError):
    """A verdict is a fail. `verdict` is the Verdict; the message is its text."""

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
    library: Any, handle: ctypes.c_void_p, command: str, rank: Optional[int], unjudged: Iterable[str]
) -> Verdict:
    """Returns a copy of the library's verdict. The caller destroys the original."""
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
        unjudged=tuple(unjudged),
    )


class Check:
    """The judge of a case for one rank, or for the tokens of place().

    Shapes have the tokens of the check. q, do, out, dq: `heads`; k, v, dk, dv: `kv_heads`; dim is
    head_dim_qk of q, k, dq, dk and head_dim_v of v, do, out, dv.
    - bshd: [batch, tokens, heads, dim]; LSE [batch, heads, tokens]
    - sbhd: [tokens, batch, heads, dim]; LSE [batch, heads, tokens]
    - thd, and after place() of the side: [tokens, heads, dim]; LSE [heads, tokens]
    - bias and dbias: [batch or 1, heads or 1, rows or 1, seqlen_kv], by the case's bias. The rows
      of 11ss and 1hss are positions of queries: with bshd and sbhd those of the check, each once,
      in the order of their first occurrence; with thd 0 to seqlen_q - 1. The rows of b1ss and bhss
      are the tokens of the check; with thd, and after place("q"), the shape is [heads or 1, tokens,
      seqlen_kv].
    - sink, dsink and max_logit: [heads]
    Strides are arbitrary, except that the last dimension is consecutive. LSE, sink, dsink and
    max_logit may have any strides.

    Elements have the case's dtype; LSE (a natural logarithm), sink, dsink and max_logit are fp32.
    In numpy, bf16 is uint16. Padding is NaN in inputs and must be zero in results.

    dbias, dsink and max_logit cover all queries of the case: they are sums or maxima over all
    ranks. With sums="own" they cover only the queries of this check.

    Raises CpattnError if the case has no such rank, ValueError if `sums` is neither "all" nor
    "own".
    """

    def __init__(self, case: Case, rank: int = 0, sums: str = "all") -> None:
        if not isinstance(case, Case):
            raise TypeError(f"case is {case!r}; it should be a Case")
        self._library = check_library()
        self.case = case
        self.rank = whole("rank", rank)
        self._placed = {"q": False, "k": False}
        self._memory = _arrays.Memory()
        self._handle: Optional[ctypes.c_void_p] = None
        handle, error = ctypes.c_void_p(), Error()
        status = self._library.cpattn_check_create(
            case._handle, self.rank, ctypes.byref(handle), ctypes.byref(error)
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
        """Replaces the tokens of the queries ("q") or the keys ("k").

        Row r is position positions[r] of sequence sequences[r], by default sequence 0. Any order is
        allowed; duplicates are not. Raises CpattnError if a token does not exist or comes twice,
        ValueError for another side or lists of different length.
        """
        wanted = list(positions)
        of_sequences = [0] * len(wanted) if sequences is None else list(sequences)
        if len(of_sequences) != len(wanted):
            raise ValueError(
                f"there are {len(wanted)} positions and {len(of_sequences)} sequences; each position "
                "needs one"
            )
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
        """Returns (sequence, position) of each row of the queries ("q") or the keys ("k").

        Rows are in the order of the format: bshd sequence by sequence, sbhd position by position.
        Raises ValueError for another side.
        """
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
        """Returns True if the case has the tensor: for example "bias" only with a bias."""
        number = _known(tensor, INPUTS + RESULTS, "tensor")
        return self._library.cpattn_check_shape(self._handle, number).heads > 0

    def _insist_on(self, tensor: str) -> None:
        if not self.has(tensor):
            fields = {"dbias": ("bias", "training"), "dsink": ("softmax", "training")}
            fields.update(bias=("bias",), sink=("softmax",), max_logit=("max_logit",))
            why = " and ".join(f"{f} {self.case[f]}" for f in fields.get(tensor, ("training",)))
            raise ValueError(f"the case has {why}, so it has no {tensor}")

    def shape(self, tensor: str) -> tuple:
        """Returns the shape of an input or a result. Raises TypeError for an unknown name."""
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
            raise ValueError(f"{tensor} has a stride of {strides[-1]} in its last dimension, not 1; give a contiguous copy")
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
        """Returns new tensors (q, k, v, do) of the tokens of this check.

        `library` is "torch" or "numpy"; None: "torch" if PyTorch is imported. `device` is a device
        of PyTorch, such as "cuda", where the inputs are drawn. numpy has no bf16: its arrays hold
        the bits as uint16. Padding is filled with NaN.
        """
        fill = self._library.cpattn_check_fill
        return tuple(self._filled(fill, tensor, library, device) for tensor in INPUTS[:4])

    def input(self, tensor: str, library: Optional[str] = None, device: Any = None) -> Any:
        """Returns one new input: "q", "k", "v", "do", or "bias" or "sink" if the case has it.

        `library` and `device` are those of inputs(). Raises TypeError for another name.
        """
        _known(tensor, INPUTS, "input")
        return self._filled(self._library.cpattn_check_fill, tensor, library, device)

    def give(self, **inputs: Any) -> None:
        """Uses these inputs instead of drawn ones: q, k, v and, with training, do.

        Shapes are those of the case's format with all tokens of all sequences, whichever tokens
        this check covers: [batch, seqlen, heads, dim] for bshd, [seqlen, batch, heads, dim] for
        sbhd, [tokens, heads, dim] for thd. The tensors are copied; they are all in host memory or
        all on one CUDA device. inputs() then returns this check's part of them. Every rank's check
        needs the same inputs. Without arguments inputs are drawn again.

        Raises TypeError for another name or dtype, ValueError for a wrong shape or device,
        CpattnError if an input is missing or an element outside of padding is not finite.
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
            raise ValueError(f"{tensor} has a stride of {strides[-1]} in its last dimension, not 1; give a contiguous copy")
        if layout == "thd":
            return Array(view.address, strides[0], strides[1], 0, 0)
        return Array(view.address, strides[1], strides[2], shape[1], strides[0])

    def expected(self, tensor: str, library: Optional[str] = None, device: Any = None) -> Any:
        """Returns a new result with the values of the reference, rounded to its dtype.

        `library` and `device` are those of inputs(). Raises ValueError if the case has no such
        result.
        """
        _known(tensor, RESULTS, "result")
        self._insist_on(tensor)
        made = self._filled(self._library.cpattn_check_expected, tensor, library, None)
        return made if device is None else made.to(device)

    def verify(self, **results: Any) -> Verdict:
        """Judges some or all of out, lse, dq, dk, dv, dbias, dsink and max_logit.

        A result that is not named is not judged; `unjudged` of the verdict has it. A result may be
        None only if the case does not have it.

        All results are in host memory or all on one CUDA device; there the call waits for the work
        on PyTorch's current stream. Issues a UserWarning if a result would pass as zeros, too,
        because of the inputs of give().

        Raises TypeError for another name or dtype, ValueError for a wrong shape, stride or device
        or for a result that the case does not have, CpattnError if there is nothing to judge.
        """
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
            rest = (tensor for tensor in RESULTS if tensor not in results and self.has(tensor))
            verdict = verdict_of(self._library, handle, self.case.command(), rank, rest)
        finally:
            self._library.cpattn_check_verdict_destroy(handle)
        if self._given:
            self._warn(verdict)
        return verdict

    @staticmethod
    def _warn(verdict: Verdict) -> None:
        loose = {f.tensor: f for f in verdict.figures if f.remark == "zeros_pass"}
        strict = {f.tensor for f in verdict.figures if f.chunk != PADDING and f.remark != "zeros_pass"}
        for tensor, f in loose.items():
            where = f" in chunk {f.chunk}" if tensor in strict else ""
            warnings.warn(
                f"{tensor}{where} is judged so loosely that zeros pass: with the inputs of give() rounding errors of "
                f"an honest kernel are as large as the values (limit: {f.rmse_limit:.3g} times them). Where q "
                "and k are very large, smaller ones can be judged",
                stacklevel=3,
            )

    def map(self, tensor: str, value: Any, tile: Optional[int] = None) -> str:
        """Returns a text that shows where out, lse, dq, dk or dv is wrong: the error by head and by
        `tile` positions. By default `tile` is a multiple of 64 that gives at most 24 columns. Needs
        numpy. Raises what verify() raises, and ValueError if `tile` is less than 1.

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
        """Judges as verify() does. Raises VerdictError (an AssertionError) after a fail."""
        verdict = self.verify(**results)
        if not verdict:
            raise VerdictError(verdict)
        return verdict
