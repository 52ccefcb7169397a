"""Check the few records of a small batch in one short loop: `visit_plain`.

The loop knows only the usual form of a record: a key of at most 63 bytes or none, a value, no headers, varints of one
or two bytes, and a timestamp that is not earlier than the first record's. All other records, and all invalid ones, are
left to `record_walk.RecordWalk`, which gives the same result more slowly and names the error.
"""

from __future__ import annotations

from typing import Final

MOST_PLAIN: Final = 24
"""Maximum number of records of a batch that `visit_plain` checks. For larger batches, `RecordWalk` is faster."""

MAX_PLAIN_BYTES: Final = 8193
"""The size in bytes, including the size field, of the largest record whose size is a varint of at most two bytes."""

_FEWEST_ALIKE: Final = 6

_OFFSET_DELTAS: Final = bytes(range(0, 2 * MOST_PLAIN, 2))
"""The encoded offset deltas of successive records."""

_PLAIN_DELTAS: Final = frozenset(range(0, 0x80, 2))
"""The encoded timestamp deltas that have one byte and are not negative."""


def visit_plain(data: bytes | bytearray, count: int) -> tuple[int, int, list[int]] | None:
    """Check that `data`, decompressed, holds exactly `count` records; `count` must be at most `MOST_PLAIN`.

    Return the smallest and the largest timestamp delta in ms, and the indexes of the records without a key. Return None
    if a record is not plain, whether it is valid or not.
    """
    # The value of a varint of two bytes is low + (high << 7) - 0x80; it is zigzag encoded. `at` only moves forward, and
    # the last byte of each record is read, so a record that ends where its size says lies within `data`.
    at = 0
    lowest, highest = 0x4000, 0
    null_keys: list[int] = []
    try:
        for offset_delta in _OFFSET_DELTAS[:count]:
            size = data[at]
            if size < 0x80:
                at += 1
            else:
                high = data[at + 1]
                if high >= 0x80:
                    return None
                size += (high << 7) - 0x80
                at += 2
            if size & 1:
                return None
            end = at + (size >> 1)
            delta = data[at + 1]  # skip the attributes
            if delta < 0x80:
                at += 2
            else:
                high = data[at + 2]
                if high >= 0x80:
                    return None
                delta += (high << 7) - 0x80
                at += 3
            if delta & 1 or data[at] != offset_delta:
                return None
            if delta > highest:
                highest = delta
            if delta < lowest:
                lowest = delta
            length = data[at + 1]
            at += 2
            if length == 1:
                null_keys.append(offset_delta >> 1)
            elif length & 0x81:
                return None
            else:
                at += length >> 1
            length = data[at]
            if length < 0x80:
                at += 1
            else:
                high = data[at + 1]
                if high >= 0x80:
                    return None
                length += (high << 7) - 0x80
                at += 2
            # An odd encoded length stands for null (1) or for a negative length, which is invalid.
            if length & 1 or at + (length >> 1) + 1 != end or data[end - 1]:
                return None
            at = end
            if not offset_delta and count >= _FEWEST_ALIKE and end * count == len(data):
                deltas = _deltas_of_alike(data, end, count)
                if deltas is not None:
                    return min(deltas) >> 1, max(deltas) >> 1, list(range(count)) if null_keys else null_keys
    except IndexError:
        return None
    if at != len(data) or not count:
        return None
    return lowest >> 1, highest >> 1, null_keys


def _deltas_of_alike(data: bytes | bytearray, size: int, count: int) -> bytes | bytearray | None:
    """Return the encoded timestamp deltas of `count` records if all of them have the first record's form, else None.

    Records have the same form if their sizes, and the lengths of their keys and values, are equal. The first record has
    `size` bytes and is plain. None is also returned if a timestamp delta has more than one byte.
    """
    at = 1 if data[0] < 0x80 else 2
    deltas = data[at + 1 :: size]
    if not _PLAIN_DELTAS.issuperset(deltas) or data[at + 2 :: size] != _OFFSET_DELTAS[:count]:
        return None
    key = at + 3
    value = key + 1 if data[key] == 1 else key + 1 + (data[key] >> 1)
    for position in (0, 1, key, value, value + 1, size - 1) if at == 2 else (0, key, value, size - 1):
        column = data[position::size]
        if column != column[:1] * count:
            return None
    return deltas
