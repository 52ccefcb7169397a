"""Index files: what is written is read again, by look-ups as well; damage is noticed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.log.indexes import CorruptIndex, OffsetIndex, TimeIndex

BASE = 5_000_000_000
STEPS = st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), max_size=40)
OFFSET_ENTRY, TIME_ENTRY = Struct(">ii"), Struct(">qi")


def rising(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    sums = [list(accumulate(column)) for column in zip(*steps, strict=True)] or [[], []]
    return [(first - 1, second - 1) for first, second in zip(*sums, strict=True)]


@given(STEPS, st.integers(0, 1 << 26))
def test_an_offset_index_is_read_as_it_was_written(steps: list[tuple[int, int]], sought: int) -> None:
    entries = rising(steps)
    index = OffsetIndex(BASE)
    for relative, position in entries:
        index.append(BASE + relative, position)
    data = index.encode()
    assert data == b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    again = OffsetIndex.decode(data, BASE, 1 << 31)
    assert (again.encode(), len(again)) == (data, len(entries))
    assert OffsetIndex.decode(data, BASE, 1 << 31, checked=True).encode() == data
    if entries and entries[-1][1]:  # a position of 0 may be preallocated space
        with pytest.raises(CorruptIndex):
            OffsetIndex.decode(data, BASE, entries[-1][1], checked=True)
    slot = bisect_right([relative for relative, _ in entries], sought)
    assert again.lookup(BASE + sought) == (entries[slot - 1][1] if slot else 0)
    slot = bisect_left([relative for relative, _ in entries], sought)
    assert again.ceiling(BASE + sought, 1 << 31) == (entries[slot][1] if slot < len(entries) else 1 << 31)
    slot = bisect_right([position for _, position in entries], sought)
    assert again.floor(sought) == (entries[slot - 1][1] if slot else 0)


@given(STEPS, st.integers(0, 1 << 26))
def test_a_time_index_is_read_as_it_was_written(steps: list[tuple[int, int]], sought: int) -> None:
    entries = rising(steps)
    index = TimeIndex(BASE)
    for timestamp, relative in entries:
        index.append(timestamp, BASE + relative)
    data = index.encode()
    assert data == b"".join(TIME_ENTRY.pack(*entry) for entry in entries)
    again = TimeIndex.decode(data, BASE)
    assert (again.encode(), len(again)) == (data, len(entries))
    assert TimeIndex.decode(data, BASE, checked=True).encode() == data
    slot = bisect_left([timestamp for timestamp, _ in entries], sought)
    assert again.lookup(sought) == BASE + (entries[slot - 1][1] if slot else 0)
    assert again.last_timestamp() == (entries[-1][0] if entries else -1)


@given(STEPS, st.integers(1, 5))
def test_zeros_behind_the_entries_are_not_entries(steps: list[tuple[int, int]], zeros: int) -> None:
    entries = rising([(first + 1, second + 1) for first, second in steps])
    offsets = b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    times = b"".join(TIME_ENTRY.pack(*entry) for entry in entries)
    if entries:
        assert OffsetIndex.decode(offsets + bytes(8 * zeros), BASE, 1 << 31).encode() == offsets
        assert TimeIndex.decode(times + bytes(12 * zeros), BASE).encode() == times


@pytest.mark.parametrize(
    "entries",
    [
        [(5, 10), (5, 20)],
        [(5, 10), (6, 10)],
        [(5, 10), (4, 20)],
        [(5, 10), (6, 1000)],
        [(-1, 0)],
        [(3, 9), (0, 0), (4, 9)],
    ],
)
def test_an_offset_index_that_does_not_rise_is_corrupt(entries: list[tuple[int, int]]) -> None:
    data = b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    if (0, 0) in entries:
        assert len(OffsetIndex.decode(data, BASE, 1000)) == entries.index((0, 0))
    else:
        with pytest.raises(CorruptIndex):
            OffsetIndex.decode(data, BASE, 1000)


@pytest.mark.parametrize("entries", [[(5, 1), (5, 2)], [(5, 3), (6, 2)], [(5, -1)], [(-2, 0)]])
def test_a_time_index_that_does_not_rise_is_corrupt(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex.decode(b"".join(TIME_ENTRY.pack(*entry) for entry in entries), BASE)


def test_an_index_that_is_cut_off_is_corrupt() -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.decode(bytes(9), BASE, 1000)
    with pytest.raises(CorruptIndex):
        TimeIndex.decode(bytes(13), BASE)
