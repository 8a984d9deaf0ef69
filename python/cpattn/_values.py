# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments before they go to C. ctypes truncates large numbers, and its errors do not
name the argument."""
from __future__ import annotations

import numbers
import operator
from typing import Any, Iterable

SECOND = 10**9
DAY = 24 * 3600


def whole(name: str, value: Any) -> int:
    """Returns a number that fits in an `int` of C. Raises TypeError or ValueError with the name."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it should be a whole number") from None
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name} is {number}; it should be from {-(2**31)} to {2**31 - 1}")
    return number


def nanoseconds(name: str, seconds: Any, most: float = DAY) -> int:
    """Returns seconds in ns. Raises TypeError or ValueError unless they are from 0 to `most`."""
    if not isinstance(seconds, numbers.Real):
        raise TypeError(f"{name} is {seconds!r}; it should be a number of seconds")
    length = float(seconds)
    if not 0 <= length <= most:
        limit = "0 or more" if most == float("inf") else f"from 0 to {most}"
        raise ValueError(f"{name} is {seconds!r}; it should be {limit} seconds")
    return int(length * SECOND)


def word(name: str, value: Any, what: str) -> bytes:
    """Returns the bytes of a text. Raises TypeError for another type."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; it should be {what}, as text")
    return value.encode()


def one_of(name: str, value: Any, accepted: Iterable[str]) -> None:
    """Raises ValueError if the value is not accepted."""
    if value not in accepted:
        raise ValueError(f"{name} is {value!r}; it should be one of {', '.join(accepted)}")
