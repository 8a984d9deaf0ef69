# SPDX-License-Identifier: Apache-2.0
"""Cases of attention, and jobs of other kinds: what to compute and judge."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Union

from cpattn._library import CASE_FAILS, CpattnError, Status, case_library, insist
from cpattn._structs import Error
from cpattn._values import word

Value = Union[str, int, float, bool, list, tuple]

# Room for any value: a list of 1024 numbers.
_VALUE_BYTES = 1 << 14


def _text(value: Value) -> str:
    if isinstance(value, type):  # numpy.float16
        return value.__name__
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value).removeprefix("torch.")  # torch.bfloat16


def _field(name: Any) -> bytes:
    return word("a field", name, "the name of a field")


class Case:
    """A case of attention: named fields. Fields that are not given have defaults.

    Fields are those of cpattn-submit(1), with underscores: Case(world_size=4, mask="none"). `seqlen`
    sets seqlen_q and seqlen_kv; `head_dim` sets head_dim_qk and head_dim_v. kv_heads equals heads
    until it is set. Values are texts, numbers, bools, lists of numbers (lengths_q=[2794, 3301]), or
    dtypes of numpy and PyTorch. case["heads"] returns a field as text; case["heads"] = 8 sets it.

    Raises CpattnError with the reason: INVALID_ARGUMENT for an unknown field, a value that the
    field does not accept, or a case that cannot run; UNIMPLEMENTED for a case that is not
    supported.
    """

    def __init__(self, **fields: Value) -> None:
        self._library = case_library()
        self._handle = self._library.cpattn_case_create()
        if not self._handle:
            raise MemoryError("no memory for a case")
        for name, value in fields.items():
            self[name] = value
        error = Error()
        insist(self._library.cpattn_case_check(self._handle, ctypes.byref(error)), error)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.cpattn_case_destroy(self._handle)
            self._handle = None

    def __setitem__(self, name: str, value: Value) -> None:
        error = Error()
        status = self._library.cpattn_case_set(
            self._handle, _field(name), _text(value).encode(), ctypes.byref(error)
        )
        insist(status, error)

    def __getitem__(self, name: str) -> str:
        text = ctypes.create_string_buffer(_VALUE_BYTES)
        if self._library.cpattn_case_get(self._handle, _field(name), text, len(text)) < 0:
            raise CpattnError(Status.INVALID_ARGUMENT, self._without(name))
        return text.value.decode()

    def _without(self, name: str) -> str:
        return f"a case has no field {name}"

    def fields(self) -> dict[str, str]:
        """Returns all fields and their values, as text."""
        names, field = [], self._library.cpattn_field_next(None)
        while field:
            names.append(self._library.cpattn_field_name(field).decode())
            field = self._library.cpattn_field_next(field)
        return {name: self[name] for name in names}

    @classmethod
    def _copy_of(cls, handle: Any) -> "Case":
        case = cls.__new__(cls)
        case._library = case_library()
        case._handle = case._library.cpattn_case_copy(handle)
        if not case._handle:
            raise MemoryError("no memory for a case")
        return case

    def smallest(self, fails: Callable[["Case"], bool], tries: int = 500) -> "Case":
        """Returns a small case for which fails(case) is still true.

        Removes ranks, sequences, heads, tokens, dimensions and features step by step, until no
        single step gives a smaller failing case, or `tries` cases were tried. An exception in
        fails() counts as false, for example from a kernel that refuses 0 tokens. KeyboardInterrupt
        and the like end the search and are raised.

        Raises ValueError if fails() is false for this case, TypeError for a Job, and what fails()
        raises for this case.

            small = case.smallest(lambda c: not judge(c))
        """
        raised: list[BaseException] = []

        def still_fails(handle: Any, _context: Any) -> bool:
            try:
                return not raised and bool(fails(Case._copy_of(handle)))
            except Exception:
                return False
            except BaseException as error:  # cannot pass through C; raised after the search
                raised.append(error)
                return False

        if isinstance(self, Job):
            raise TypeError(f"a {self.kind} cannot be made smaller; cases of attention can")
        if not fails(self):
            raise ValueError(f"this case does not fail: {self}")
        small = Case._copy_of(self._handle)
        self._library.cpattn_case_minimize(small._handle, CASE_FAILS(still_fails), None, tries)
        if raised:
            raise raised[0]
        return small

    def command(self) -> str:
        """Returns the command line that runs this case: "cpattn-submit case ..."."""
        text = ctypes.create_string_buffer(1 << 16)
        self._library.cpattn_case_command(self._handle, text, len(text))
        return text.value.decode()

    def __str__(self) -> str:
        text = ctypes.create_string_buffer(1 << 12)
        self._library.cpattn_case_describe(self._handle, text, len(text))
        return text.value.decode()

    def __repr__(self) -> str:
        return f"<cpattn.Case {self}>"


class Job(Case):
    """A job of another kind than attention: "collective" or "linear".

    Job("collective", operation="all_gather", world_size=4, dtype="bf16"). Fields are those of
    `cpattn-submit KIND --help`, with underscores. Fields that are not given have the daemon's
    defaults. Client.run() and Client.submit() accept a job; JobCheck judges your own results of it.
    job["count"] returns a given field as text. Raises CpattnError for a wrong field or value. The
    daemon refuses a kind that it does not know.
    """

    def __init__(self, kind: str, **fields: Value) -> None:
        self._library = case_library()
        self._handle = self._library.cpattn_case_create_kind(word("kind", kind, "a kind of job"))
        if not self._handle:
            raise CpattnError(Status.INVALID_ARGUMENT, f"kind is {kind!r}, which no job can have")
        self.kind, self._given = kind, []
        for name, value in fields.items():
            self[name] = value
        error = Error()
        insist(self._library.cpattn_case_check(self._handle, ctypes.byref(error)), error)

    def __setitem__(self, name: str, value: Value) -> None:
        super().__setitem__(name, value)
        if name not in self._given:
            self._given.append(name)

    def _without(self, name: str) -> str:
        given = ", ".join(self._given) or "no field"
        return f"this {self.kind} was given no {name}; it was given {given}"

    def fields(self) -> dict[str, str]:
        """Returns the given fields and their values, as text."""
        return {name: self[name] for name in self._given}

    def __repr__(self) -> str:
        return f"<cpattn.Job {self}>"
