"""Records of one shape, read many at a time, against the reader of single records: the same, whatever the bytes are."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog.protocol import records as records_module
from oncelog.protocol.batch_builder import BatchBuilder
from oncelog.protocol.record_runs import read_run
from oncelog.protocol.records import (
    HEADER_SIZE,
    CorruptBatch,
    Record,
    TimestampType,
    decode_batch,
    encode_batch,
    read_batch_header,
)

sizes = st.none() | st.sampled_from([0, 1, 50, 57, 58, 63, 64, 200])
stretches = st.tuples(st.integers(1, 90), sizes, sizes, st.sampled_from([0, 0, 1, 40, 9_000]), st.integers(0, 2))
"""How many records, the lengths of key and value, the milliseconds between two records, how many headers."""


def written(stretch: list[tuple[int, int | None, int | None, int, int]], gaps: list[int]) -> bytes:
    records: list[Record] = []
    timestamp = 1_000
    for count, key, value, step, headers in stretch:
        for number in range(count):
            content = bytes([number % 256])
            records.append(
                Record(
                    len(records),
                    timestamp,
                    None if key is None else content * key,
                    None if value is None else content * value,
                    [("h", b"1")] * headers,
                )
            )
            timestamp += step
    for gap in gaps:
        for record in records[gap % len(records) :]:
            record.offset += 1
    return encode_batch(records)


def outcome(batch: bytes) -> list[Record] | str:
    try:
        return decode_batch(batch, 0, read_batch_header(batch))
    except CorruptBatch as error:
        return str(error)


@given(
    st.lists(stretches, min_size=1, max_size=4),
    st.lists(st.integers(0, 1 << 16), max_size=2),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    st.booleans(),
)
@settings(max_examples=400)
def test_runs_and_single_records_are_read_alike(
    stretch: list[tuple[int, int | None, int | None, int, int]],
    gaps: list[int],
    damage: list[tuple[int, int]],
    appended: bool,
) -> None:
    batch = bytearray(written(stretch, gaps))
    if appended:
        batch[22] |= TimestampType.LOG_APPEND_TIME << 3
    for position, byte in damage:
        batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = byte
    together = outcome(bytes(batch))
    with mock.patch.object(records_module, "read_run", return_value=None):
        one_by_one = outcome(bytes(batch))
    assert together == one_by_one


@pytest.mark.parametrize(("key", "value"), [(None, b"x" * 100), (b"k" * 10, b"x" * 1000), (b"", None)])
def test_records_of_one_shape_are_runs_up_to_the_next_width_of_their_offsets(
    key: bytes | None, value: bytes | None
) -> None:
    builder = BatchBuilder(max_bytes=1 << 24)
    count = 9_000
    for _ in range(count):
        assert builder.append(1_000, key, value)
    data = builder.build()[HEADER_SIZE:]
    at, delta, found = 0, 0, []
    while delta < count:
        run = read_run(data, at, count - delta, delta, 1_000)
        if run is None:
            pytest.fail(f"no run at offset delta {delta}")
        found.append(run.record_count)
        at += run.record_count * run.size
        delta += run.record_count
    assert found == [64, 8192 - 64, count - 8192]
    assert at == len(data)
