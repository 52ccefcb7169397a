"""Reads of a log against a list of its batches: every limit, size and place, over segments, after flushes and alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog.broker.log import PartitionLog
from oncelog.protocol.records import iter_batches
from support.faulty_filesystem import FaultyFile, FaultyFileSystem
from support.logs import at_once, batch, open_log

SIZES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 40, 400, 5_000])), min_size=1, max_size=40)


def filled(
    sizes: list[tuple[int, int]], flushed: int, **config: int
) -> tuple[PartitionLog, list[tuple[int, int, int]]]:
    """A log of batches of (records, bytes of each), the first `flushed` of them on disk; (base, end, size) of each."""
    options: dict[str, Any] = config
    log = open_log(FaultyFileSystem(), **options)
    batches = []
    for number, (count, size) in enumerate(sizes):
        data = batch(*["x" * size] * count)
        base = log.append(data).base_offset
        batches.append((base, base + count, len(data)))
        if number + 1 == flushed:
            log.flush()
    return log, batches


CONTENTS = SIZES.flatmap(lambda sizes: st.tuples(st.just(sizes), st.integers(1, len(sizes))))


@settings(max_examples=400)
@given(
    CONTENTS,
    st.sampled_from([20_200, 30_000, 1 << 20]),
    st.sampled_from([0, 0, 300, 4096]),
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from([0, 1, 200, 700, 4_096, 6_000, 20_000, 1 << 20]), st.booleans()),
        min_size=1,
        max_size=15,
    ),
)
def test_a_read_gives_the_whole_batches_that_fit(
    contents: tuple[list[tuple[int, int]], int], segment: int, interval: int, reads: list[tuple[int, int, bool]]
) -> None:
    log, batches = filled(*contents, segment_bytes=segment, index_interval_bytes=interval)
    visible = [each for each in batches if each[1] <= log.high_watermark]
    bases = {each.base_offset for each in log.segments}
    for place, max_bytes, min_one in reads:
        offset = place % (log.log_end_offset + 1)
        expected: list[tuple[int, int, int]] = []
        for base, end, size in visible:
            if end <= offset:
                continue
            fits = sum(each[2] for each in expected) + size <= max_bytes
            new_segment = bool(expected) and base in bases
            if new_segment or not (fits or (min_one and not expected)):
                break
            expected.append((base, end, size))
        read = at_once(log.read(offset, max_bytes, min_one=min_one))
        found = [(header.base_offset, header.next_offset, header.size) for _, header in iter_batches(read.records)]
        assert found == expected
        assert len(read.records) == sum(each[2] for each in expected)
        assert at_once(read).next_offset == (expected[-1][1] if expected else offset)


@given(CONTENTS, st.sampled_from([20_200, 1 << 20]), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50_000))))
def test_readable_bytes_are_those_of_the_batches_up_to_the_limit(
    contents: tuple[list[tuple[int, int]], int], segment: int, counts: list[tuple[int, int]]
) -> None:
    log, batches = filled(*contents, segment_bytes=segment, index_interval_bytes=300)
    for place, wanted in counts:
        offset = place % (log.log_end_offset + 1)
        there = sum(size for _, end, size in batches if offset < end <= log.high_watermark)
        assert log.readable_bytes(offset, wanted) == min(there, wanted)


def test_a_read_that_ends_at_an_indexed_batch_says_where_it_ends() -> None:
    log, _ = filled([(1, 1)] * 5, flushed=3, index_interval_bytes=0)
    assert at_once(log.read(0, 10_000)).next_offset == 3


@pytest.mark.parametrize("flushed", [200, 150])
def test_reading_on_costs_one_read_of_the_file_each(flushed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = filled([(1, 100)] * 200, flushed)
    asked: list[int] = []
    read_at = FaultyFile.read_at

    def counted(file: FaultyFile, size: int, position: int) -> bytes:
        asked.append(size)
        return read_at(file, size, position)

    offset = at_once(log.read(0, 5_000)).next_offset
    monkeypatch.setattr(FaultyFile, "read_at", counted)
    reads = 0
    while offset < log.high_watermark:
        offset = at_once(log.read(offset, 5_000)).next_offset
        reads += 1
    assert offset == flushed
    assert reads > 3
    assert len(asked) == reads
    assert max(asked) < 5_000 + 100
