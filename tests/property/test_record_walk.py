"""The broker's check of records beside the full decoder: what one takes, the other takes, and they read the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oncelog.protocol.batch_header import BatchHeader, CorruptBatch
from oncelog.protocol.plain_records import MOST_PLAIN, visit_plain
from oncelog.protocol.record_walk import RecordLimits, RecordWalk
from oncelog.protocol.records import HEADER_SIZE, Record, decode_batch, encode_record, read_batch_header
from support.crooked_batches import NOW, raw_batch

blobs = st.none() | st.binary(max_size=12) | st.integers(0, 9_000).map(lambda size: b"z" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
deltas = st.integers(-3, 3) | st.integers(-10_000, 10_000) | st.integers(-(1 << 60), 1 << 60)
rows = st.tuples(deltas, blobs, blobs, headers)
runs = st.lists(st.tuples(rows, st.integers(1, 6) | st.integers(1, 300)), min_size=1, max_size=5)
"""Records and how often each is repeated: neighbours of one shape are checked together."""


def payload_of(parts: list[Any], step: int = 0) -> tuple[bytes, int]:
    pieces: list[bytes] = []
    for (delta, key, value, fields), times in parts:
        for _ in range(times):
            pieces.append(encode_record(delta + step * len(pieces), len(pieces), key, value, fields))
    return b"".join(pieces), len(pieces)


def walked(batch: bytes, steps: int = 1 << 30, limits: RecordLimits = RecordLimits()) -> RecordWalk:  # noqa: B008
    walk = RecordWalk(batch[HEADER_SIZE:], read_batch_header(batch), limits)
    while not walk.advance(steps):
        pass
    return walk


def decoded(batch: bytes) -> list[Record] | None:
    """What the full decoder makes of a batch; None where a client must not send it."""
    header: BatchHeader = read_batch_header(batch)
    try:
        records = decode_batch(batch, 0, header)
    except CorruptBatch:
        return None
    sound = [record.offset for record in records] == list(range(len(records)))
    fits = all(-(1 << 63) <= record.timestamp < 1 << 63 for record in records)
    return records if sound and fits and records else None


def agree(batch: bytes, steps: int) -> None:
    records = decoded(batch)
    if records is None:
        with pytest.raises(CorruptBatch):
            walked(batch, steps)
        return
    walk = walked(batch, steps)
    timestamps = [record.timestamp for record in records]
    assert (walk.min_timestamp, walk.max_timestamp) == (min(timestamps), max(timestamps))
    assert walk.null_keys == [index for index, record in enumerate(records) if record.key is None][:100]


@given(runs, st.integers(-2, 2), st.integers(1, 200))
@settings(deadline=None)
@example([((0, b"k", b"v", []), 20_000)], 0, 1 << 30)
@example([((0, None, b"v", [("n", b"v")]), 9_000), ((0, b"k", b"v", []), 9_000)], 1, 100)
def test_every_sound_batch_is_taken(parts: list[Any], step: int, steps: int) -> None:
    payload, count = payload_of(parts, step)
    batch = raw_batch(payload, count)
    assert decoded(batch) is not None
    agree(batch, steps)


@given(runs, st.integers(-1, 1), st.integers(1, 200), st.data())
@settings(max_examples=300, deadline=None)
def test_every_changed_byte_is_judged_as_the_decoder_judges_it(
    parts: list[Any], step: int, steps: int, data: st.DataObject
) -> None:
    payload, count = payload_of(parts, step)
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, min(len(payload), 400) - 1) | st.integers(0, len(payload) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    agree(raw_batch(bytes(changed), count), steps)


@given(runs, st.integers(-2, 2), st.data())
@settings(deadline=None)
def test_every_cut_and_every_wrong_count_is_refused(parts: list[Any], wrong: int, data: st.DataObject) -> None:
    payload, count = payload_of(parts)
    cut = data.draw(st.integers(0, len(payload)))
    agree(raw_batch(payload[:cut], count), 50)
    if count + wrong > 0:
        agree(raw_batch(payload, count + wrong), 50)


@given(st.binary(max_size=300), st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_judged_as_the_decoder_judges_them(payload: bytes, count: int) -> None:
    agree(raw_batch(payload, count, base_timestamp=NOW), 3)


@given(runs, st.integers(1, 400), st.integers(0, 3))
@settings(deadline=None)
def test_limits_count_records_and_headers(parts: list[Any], objects: int, fields: int) -> None:
    payload, count = payload_of(parts)
    batch = raw_batch(payload, count)
    total = count + sum(len(row[3]) * times for row, times in parts)
    most = max(len(row[3]) for row, _ in parts)
    try:
        walked(batch, limits=RecordLimits(objects, fields))
    except CorruptBatch:
        assert total > objects or most > fields
    else:
        assert total <= objects
        assert most <= fields


few_rows = st.tuples(st.integers(-3, 300) | deltas, blobs, blobs, headers)
few = st.lists(st.tuples(few_rows, st.integers(1, 8)), min_size=1, max_size=4)


@given(few, st.integers(0, 2), st.data())
@settings(max_examples=300, deadline=None)
def test_the_short_loop_over_few_records_agrees_with_the_walk(parts: list[Any], step: int, data: st.DataObject) -> None:
    payload, count = payload_of(parts, step)
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 2))):
        changed[data.draw(st.integers(0, min(len(payload), 400) - 1))] = data.draw(st.integers(0, 255))
    if count > MOST_PLAIN:
        return
    plain = visit_plain(bytes(changed), count)
    if plain is None:
        return
    walk = walked(raw_batch(bytes(changed), count))
    lowest, highest, null_keys = plain
    assert (walk.min_timestamp, walk.max_timestamp, walk.null_keys) == (NOW + lowest, NOW + highest, null_keys)


@pytest.mark.parametrize("count", [1, 5, 6, MOST_PLAIN])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("size", [0, 10, 63, 64, 8_000])
def test_plain_records_are_visited_in_the_short_loop(count: int, key: bytes | None, size: int) -> None:
    payload, _ = payload_of([((7, key, b"v" * size, []), count)])
    assert visit_plain(payload, count) == (7, 7, list(range(count)) if key is None else [])
    assert visit_plain(payload, count - 1) is None
    assert visit_plain(payload[:-1], count) is None
