# SPDX-License-Identifier: Apache-2.0
"""Maps of errors as text: the error of a result by head and tile of positions."""
from __future__ import annotations

import math
from typing import Any, Optional

COLUMNS_MAX = 24
_LEGEND = "'.': about within the limit of rmse; a digit: that many powers of ten above; '#': not finite; ' ': no tokens"


def _numbers(value: Any, dtype: str) -> Any:
    """Returns the values as a numpy array in fp32."""
    import numpy

    if hasattr(value, "detach"):
        return value.detach().float().cpu().numpy()
    array = numpy.asarray(value)
    if dtype == "bf16" and array.dtype == numpy.uint16:
        return (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return array.astype(numpy.float32)


def _rows(array: Any, lse_of: Optional[str]) -> Any:
    """Returns the array as [rows, heads, dim]. `lse_of`: the layout if it is LSE, else None."""
    if lse_of is not None:
        array = array.swapaxes(-1, -2)[..., None]
    if lse_of == "sbhd":
        array = array.swapaxes(0, 1)
    return array.reshape(-1, *array.shape[-2:])


def _rms(values: Any) -> float:
    """Returns the RMS of the finite values; 0 if there are none."""
    import numpy

    finite = values[numpy.isfinite(values)].astype(numpy.float64)
    return math.sqrt(float((finite**2).mean())) if finite.size else 0.0


def _sign(wrong: Any, size: float, limit: float) -> str:
    import numpy

    if wrong.size == 0:
        return " "
    if not numpy.isfinite(wrong).all():
        return "#"
    above = _rms(wrong) / max(size * limit, 1e-300)
    return "." if above <= 1 else str(min(9, int(math.log10(above))))


def drawn(
    tensor: str,
    arrays: tuple,
    dtype: str,
    layout: str,
    places: list,
    limit: float,
    tile: Optional[int],
) -> str:
    """Returns the map of a result. `arrays` are the result and its expected values, of the same
    shape. `places` has the sequence and position of each row. `limit` is the limit of the relative
    RMS error. `tile` is a number of positions; None: a multiple of 64 that gives at most 24
    columns."""
    import numpy

    lse_of = layout if tensor == "lse" else None
    got, expected = (_rows(_numbers(x, dtype), lse_of) for x in arrays)
    whole = _rms(expected)
    limit *= math.sqrt(2)  # the expected values are rounded, too
    with numpy.errstate(invalid="ignore"):
        wrong = numpy.where(got == expected, 0, got - expected)  # infinities may agree
    at = numpy.array(places, dtype=numpy.int64).reshape(-1, 2)
    last = int(at[:, 1].max(initial=0))
    if tile is None:
        tile = 64 * max(1, -(-(last + 1) // (64 * COLUMNS_MAX)))
    lines = [f"{tensor}: error by head (rows) and {tile} positions (columns)"]
    for sequence in sorted(set(at[:, 0].tolist())):
        here = at[:, 0] == sequence
        firsts = range(0, int(at[here, 1].max()) + 1, tile)
        lines.append(f"sequence {sequence:<4}" + "".join(f"{first:>7}" for first in firsts))
        for head in range(got.shape[1]):
            tiles = (here & (at[:, 1] // tile == first // tile) for first in firsts)
            # Rounding errors are in proportion to the values, and tiles have values of different
            # size: with a causal mask the first rows of out are the largest.
            signs = (
                _sign(wrong[rows, head], max(whole, _rms(expected[rows, head])), limit)
                for rows in tiles
            )
            lines.append(f"    head {head:<4}" + "".join(f"{sign:>7}" for sign in signs))
    return "\n".join([*lines, _LEGEND])
