"""Find where records begin and end in record batches: `record_bounds`.

Each record's length says where the next record begins, so a plain loop takes one step per record. Two guesses find many
records at once. Each guess is verified before it is used:

- Several records of equal size in a row are followed by more records of that size.
- A zero byte, one or two bytes that can be a length, and another zero byte mark the boundary between two records. The
first zero is a record's header count, which is its last field. The other zero is the attributes field of the next
record, which follows its length. Such positions are found by comparing whole arrays. They are verified by following the
chain of lengths from each one to the next.

Where neither guess is right, the loop continues record by record.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...protocol.record_varint import read_varint
from ...protocol.records import CorruptBatch
from . import varints
from .varints import Numbers

ALIKE: Final = 8
AHEAD: Final = 64
"""After `ALIKE` records of equal size in a row, the next `AHEAD` are checked for this size in one array operation.

Each time that all of them have this size, the next check covers four times as many.
"""

_MIXED: Final = 32
"""Boundaries are guessed after this number of records among which there was no run of equal sizes."""

_WINDOW: Final = 128 * 1024
"""The number of bytes that are searched at a time, so that they fit into the processor's cache."""

_LARGE: Final = 512
"""The mean record size in bytes above which searching every byte takes longer than one step per record."""

_LEAST_BODY: Final = 6
"""The smallest body: attributes, timestamp delta, offset delta, key length, value length and header count."""


def record_bounds(data: memoryview, batches: list[tuple[int, int, int]]) -> tuple[Numbers, Numbers, Numbers]:
    """Return where each record begins, where its body begins (after the length field), and where it ends.

    `batches` contains (begin, end, count) for each batch: where its records lie in `data`, and how many there are.
    Raises CorruptBatch unless the lengths fill each batch exactly.
    """
    raw = np.frombuffer(data, np.uint8)
    try:
        begins = [_begins(data, raw, begin, end, count) for begin, end, count in batches]
    except IndexError:
        raise CorruptBatch("a record is cut off") from None
    ends = [np.append(part[1:], end) for part, (_, end, _) in zip(begins, batches, strict=True)]
    begin, end = np.concatenate(begins), np.concatenate(ends)
    length, body = varints.read(raw, begin)
    if (length < 0).any():
        raise CorruptBatch("a record has a negative length")
    if (length != end - body).any():
        raise CorruptBatch("the lengths of the records do not add up to the size of their batch")
    return begin, body, end


def _begins(data: memoryview, raw: varints.Bytes, at: int, end: int, count: int) -> Numbers:
    """Return where `count` records begin, assuming that all lengths are valid. The caller must verify this."""
    pieces: list[Numbers] = []
    singles: list[int] = []
    size = alike = 0
    ahead = AHEAD
    small = end - at < count * _LARGE
    while count:
        singles.append(at)
        count -= 1
        length = data[at]
        if length < 0x80:
            behind = at + 1 + (length >> 1)
        elif (more := data[at + 1]) < 0x80:
            behind = at + 2 + (more << 6) + ((length & 0x7F) >> 1)
        else:
            length, behind = read_varint(data, at)
            behind += length >> 1
        alike = alike + 1 if behind - at == size else 0
        size = behind - at
        if alike >= ALIKE and count and size > 0:
            run = _run(raw, at, size, min(ahead, count))
            pieces += (np.array(singles, np.int64), run)
            singles = []
            count -= len(run)
            behind += len(run) * size
            alike, ahead = (ALIKE, ahead * 4) if len(run) == ahead else (0, AHEAD)
        elif small and count and len(singles) >= _MIXED:
            guessed, behind = _guessed(raw, behind, min(behind + _WINDOW, end), count)
            pieces += (np.array(singles, np.int64), guessed)
            singles = []
            count -= len(guessed)
            small = len(guessed) >= _MIXED
        at = behind
    return np.concatenate([*pieces, np.array(singles, np.int64)])


def _run(raw: varints.Bytes, at: int, size: int, most: int) -> Numbers:
    """Return where the records after the one at `at` begin, while their length fields equal that record's.

    Return at most `most` positions.
    """
    begins = at + size * np.arange(1, min(most, (len(raw) - at - 1) // size) + 1)
    same = raw[begins] == raw[at]
    byte = at
    while raw[byte] & 0x80:
        byte += 1
        begins = begins[: np.searchsorted(begins, len(raw) - (byte - at))]
        same = same[: len(begins)] & (raw[begins + (byte - at)] == raw[byte])
    return begins if same.all() else begins[: int(same.argmin())]


def _guessed(raw: varints.Bytes, at: int, stop: int, most: int) -> tuple[Numbers, int]:
    """Guess where records begin, from `at` up to `stop`. The first record begins at `at`.

    Return the positions of at most `most` records, and the position after the last of them. Return no records if the
    record at `at` does not have the expected form.
    """
    nothing = np.empty(0, np.int64)
    window = raw[at:stop]
    if len(window) < _LEAST_BODY:
        return nothing, at
    zero = window == 0
    begins = np.flatnonzero(zero[:-3] & (zero[2:-1] | zero[3:])) + 1
    begins = np.concatenate([np.zeros(1, np.int64), begins])
    low, high = window[begins].astype(np.int64), window[begins + 1].astype(np.int64)
    is_long = low >= 0x80
    length = np.where(is_long, (low & 0x7F | high << 7) >> 1, low >> 1)
    bodies = begins + 1 + is_long
    likely = (low & 1 == 0) & (length >= _LEAST_BODY) & zero[bodies] & ~(is_long & (high >= 0x80))
    if not likely[0]:
        return nothing, at
    begins, behind = begins[likely], (bodies + length)[likely]
    pieces: list[Numbers] = []
    first = 0
    gaps = np.flatnonzero(behind[:-1] != begins[1:])
    if gaps.size > len(begins) // 4 + 1:
        gaps = gaps[: len(begins) // 4 + 1]  # too many positions look like boundaries but are not
        begins, behind = begins[: gaps[-1] + 1], behind[: gaps[-1] + 1]
    for gap in gaps.tolist():
        if gap < first:
            continue
        pieces.append(begins[first : gap + 1])
        first = int(np.searchsorted(begins, behind[gap]))
        if first == len(begins) or begins[first] != behind[gap]:
            next_at = int(behind[gap])
            break
    else:
        pieces.append(begins[first:])
        next_at = int(behind[-1])
    found = np.concatenate(pieces)
    if len(found) > most:
        return found[:most] + at, at + int(found[most])
    return found + at, at + next_at
