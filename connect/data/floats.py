"""Converts numbers to 32-bit floating point numbers, like Java's float.

Python has no such type: the value of a FLOAT32 is a Python float, which has more digits than Java would print.
"""

from __future__ import annotations

import math
import struct
from typing import Final

_FLOAT32: Final = struct.Struct("<f")
_MAX_DIGITS: Final = 9
"""The number of digits that is enough to distinguish any two 32-bit floats."""


def as_float32(number: float) -> float:
    """Return the nearest 32-bit number. As in Java, a number that is too large becomes infinity."""
    try:
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return nearest


def shortest_float32(number: float) -> float:
    """Return the number with the fewest digits that has the same 32-bit value: 0.1 for 0.10000000149011612."""
    nearest = as_float32(number)
    if not math.isfinite(nearest):
        return nearest
    shorter = (float(f"{nearest:.{digits}g}") for digits in range(1, _MAX_DIGITS + 1))
    return next((each for each in shorter if as_float32(each) == nearest), nearest)
