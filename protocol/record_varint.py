"""Read and write the zigzag varints of records: signed numbers in groups of seven bits, small ones in few bytes.

Reading returns the number before zigzag decoding, because callers read its sign from the lowest bit. Decode it with `(n
>> 1) ^ -(n & 1)`. Messages use unsigned varints instead: `protocol/primitives.py`.
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
    """Return (number before zigzag decoding, position after it).

    Raises IndexError at the end of the data, CorruptBatch if the varint is longer than `max_bytes`.
    """
    value = data[at]
    if value < 0x80:  # most numbers are this small
        return value, at + 1
    value = shift = 0
    for position in range(at, at + max_bytes):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise CorruptBatch(f"a number in a record is longer than {max_bytes} bytes")


# Built without `write_varint`, with which Python may get memory from the system and return it for each number. This
# takes up to 60 ms in all.
SMALL_VARINTS: Final = [
    *(bytes((value << 1,)) for value in range(64)),
    *(bytes((value << 1 & 0x7F | 0x80, value >> 6)) for value in range(64, 8192)),
]
"""The encodings of 0 to 8191, which take one or two bytes. Most lengths and deltas of records are in this range."""


def encode_varint(value: int) -> bytes:
    """Return `value` (int32 or int64) as a zigzag varint."""
    if 0 <= value < 8192:
        return SMALL_VARINTS[value]
    target = bytearray()
    write_varint(target, value)
    return bytes(target)
