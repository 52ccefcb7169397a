"""Read and write the zigzag varints of record batches many at a time, with numpy and without a Python object per field.

`read` takes the positions of one field in all records of a buffer, and returns the values and where they end. `write`
returns the bytes of many numbers end to end. Both take a few array operations per byte of the longest varint.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...protocol.records import CorruptBatch

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]

_LONGEST: Final = 10


def read(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers that begin at these positions, and the positions after them.

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
    lengths = _sizes(zigzag)
    longest = int(lengths.max(initial=1))
    if longest == 1:
        return zigzag.astype(np.uint8), lengths
    begin = np.cumsum(lengths)
    data = np.empty(int(begin[-1]), np.uint8)
    begin -= lengths
    for _ in range(longest):
        more = zigzag > 0x7F
        data[begin] = (zigzag & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        unfinished = np.flatnonzero(more)
        begin, zigzag = begin[unfinished] + 1, zigzag[unfinished] >> np.uint64(7)
    return data, lengths


def sizes(numbers: Numbers) -> Numbers:
    """Return the length in bytes of the varint of each number."""
    return _sizes(((numbers << 1) ^ (numbers >> 63)).view(np.uint64))


def _sizes(zigzag: NDArray[np.uint64]) -> Numbers:
    lengths = np.ones(len(zigzag), np.int64)
    limit = 1 << 7
    while (longer := zigzag >= np.uint64(limit)).any():
        lengths += longer
        limit <<= 7
        if limit >= 1 << 63:
            lengths += zigzag >= np.uint64(1 << 63)
            break
    return lengths
