"""Zigzag varints as records use them: signed numbers in groups of seven bits, small magnitudes in few bytes.

Reading gives the number before zigzag decoding, because callers want to tell its sign by its lowest bit; undo it with
`(n >> 1) ^ -(n & 1)`. (Messages use unsigned varints: `protocol/primitives.py`.)
"""

from __future__ import annotations

from typing import Final

from .batch_header import CorruptBatch
from .schema import Buffer


def write_varint(target: bytearray, value: int) -> None:
    """Append `value` (int32 or int64) to `target`."""
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    while value > 0x7F:
        target.append(value & 0x7F | 0x80)
        value >>= 7
    target.append(value)


def read_varint(data: Buffer, at: int, max_bytes: int = 5) -> tuple[int, int]:
    """(number before zigzag decoding, position behind it); IndexError at the end of data, CorruptBatch if too long."""
    value = data[at]
    if value < 0x80:  # most are so small
        return value, at + 1
    value = shift = 0
    for position in range(at, at + max_bytes):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise CorruptBatch(f"a number in a record is longer than {max_bytes} bytes")


def _encode(value: int) -> bytes:
    target = bytearray()
    write_varint(target, value)
    return bytes(target)


SMALL_VARINTS: Final = [_encode(value) for value in range(8192)]
"""The encodings of 0 to 8191, all that take one or two bytes: most lengths and deltas of most records."""


def encode_varint(value: int) -> bytes:
    """`value` (int32 or int64) as bytes."""
    return SMALL_VARINTS[value] if 0 <= value < 8192 else _encode(value)
