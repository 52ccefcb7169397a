"""Zigzag varints of record batches, many at a time: numpy instead of a Python object per field.

`read` takes the positions of one field in all records of a buffer and gives the values and where they end; `write`
gives the bytes of many numbers, end to end. Both cost a few array operations per byte of the longest varint.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..protocol.records import CorruptBatch

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]

_LONGEST: Final = 10


def read(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers that begin at these positions, and the positions behind them.

    Raises CorruptBatch for a varint that goes beyond the data or is longer than ten bytes.
    """
    try:
        byte = data[at]
        raw = (byte & 0x7F).astype(np.uint64)
        end = at + 1
        unfinished = np.flatnonzero(byte & 0x80)
        shift = 7
        while unfinished.size:
            if shift == 7 * _LONGEST:
                raise CorruptBatch("a varint in a record is longer than ten bytes")
            byte = data[end[unfinished]]
            end[unfinished] += 1
            raw[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            unfinished = unfinished[(byte & 0x80) != 0]
            shift += 7
    except IndexError:
        raise CorruptBatch("a record is cut off") from None
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), end


def write(numbers: Numbers) -> tuple[Bytes, Numbers]:
    """Return the varints of these numbers end to end, and the length of each in bytes."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = sizes(numbers)
    longest = int(lengths.max(initial=1))
    if longest == 1:
        return zigzag.astype(np.uint8), lengths
    table = np.empty((len(numbers), longest), np.uint8)
    for column in range(longest):
        table[:, column] = (zigzag >> np.uint64(7 * column)).astype(np.uint8) & 0x7F
    columns = np.arange(longest)
    table[columns < lengths[:, None] - 1] |= 0x80
    return table[columns < lengths[:, None]], lengths


def sizes(numbers: Numbers) -> Numbers:
    """Return how many bytes the varint of each number takes."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.ones(len(numbers), np.int64)
    limit = 1 << 7
    while (longer := zigzag >= np.uint64(limit)).any():
        lengths += longer
        limit <<= 7
        if limit >= 1 << 63:
            lengths += zigzag >= np.uint64(1 << 63)
            break
    return lengths
