"""Searching a log by time: which record is found, what it costs, and what happens when the log changes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog.broker.log import AppendOrigin, IsolationLevel, PartitionLog
from oncelog.broker.log.batch_inspection import AT_ONCE_COMPRESSED_BYTES
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.scheduling.steps import Steps, run_in_slices
from oncelog.broker.system.ports import Lane
from oncelog.protocol.compression import Compression
from oncelog.protocol.records import Record, decode_batch, encode_batch, encode_record
from support.crooked_batches import many_empty_blocks, many_records, packed_batch, raw_batch, with_many_headers
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads
from support.logs import NOW, StandingClock, batch, open_log

NEWEST = -3

T = TypeVar("T")


def append_as_before(log: PartitionLog, data: bytes) -> None:
    """Put a batch into the log that no client may send, as a release without these checks did."""
    log.append(bytearray(data), origin=AppendOrigin.COORDINATOR)
    log.flush()


def steps_of(search: Steps[Any]) -> tuple[Any, int]:
    """The result, and in how many steps it came."""
    count = 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            return end.value, count
        count += 1


def stamped(*timestamps: int, codec: Compression = Compression.NONE) -> bytearray:
    return bytearray(
        encode_batch([Record(i, NOW + at, b"k", b"v") for i, at in enumerate(timestamps)], compression=codec)
    )


def test_the_newest_record_is_found_behind_a_log_start_within_a_batch() -> None:
    log = open_log(FaultyFileSystem())
    log.append(stamped(90, 10, 30, 20))
    log.flush()
    log.delete_records_before(1)
    assert log.offset_for_timestamp(NEWEST) == (NOW + 30, 2, 0)


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=8),
    st.sampled_from([Compression.NONE, Compression.ZSTD]),
    st.integers(0, 40),
    st.data(),
)
@settings(deadline=None, max_examples=200)
def test_what_is_found_is_what_looking_at_every_record_finds(
    batches: list[list[int]], codec: Compression, timestamp: int, data: st.DataObject
) -> None:
    log = open_log(FaultyFileSystem(), segment_bytes=300, index_interval_bytes=data.draw(st.sampled_from([0, 4096])))
    for timestamps in batches:
        log.append(stamped(*timestamps, codec=codec))
    log.flush()
    start = log.delete_records_before(data.draw(st.integers(0, log.log_end_offset)))
    records = [
        record for header, held in log.batches() for record in decode_batch(held, 0, header) if record.offset >= start
    ]
    later = [(record.timestamp, record.offset, 0) for record in records if record.timestamp >= NOW + timestamp]
    assert log.offset_for_timestamp(NOW + timestamp) == (later[0] if later else (-1, -1, -1))
    newest = max(((record.timestamp, -record.offset) for record in records), default=None)
    assert log.offset_for_timestamp(NEWEST) == ((newest[0], -newest[1], 0) if newest else (-1, -1, -1))


@pytest.mark.parametrize(
    "crooked",
    [raw_batch(many_records(2), 5), raw_batch(b"\xff" * 50, 3), raw_batch(b"\xff" * 50, 3, compression=4)],
    ids=["fewer records than claimed", "random records", "garbage as zstd"],
)
def test_a_batch_that_cannot_be_read_is_found_at_its_first_offset(crooked: bytes) -> None:
    log = open_log(FaultyFileSystem())
    log.append(batch("a", timestamp=NOW - 10))
    append_as_before(log, crooked)
    assert log.offset_for_timestamp(NOW - 5)[1] == 1
    assert log.offset_for_timestamp(NEWEST)[1] == 1
    assert log.failure is None


def test_headers_cost_a_search_nothing() -> None:
    log = open_log(FaultyFileSystem(), max_message_bytes=1 << 24)
    bomb = encode_record(0, 0, b"k", b"v") + with_many_headers(50_000).replace(b"\0\0\0\1\1", b"\0\0\2\1\1", 1)
    append_as_before(log, packed_batch(bomb, 2))
    found, steps = steps_of(log.find_offset_for_timestamp(NOW - 5))
    assert found[1] == 0
    assert steps < 10


def test_a_search_through_many_batches_is_done_in_steps() -> None:
    log = open_log(FaultyFileSystem())
    for _ in range(3_000):
        log.append(batch("v"))
    log.append(batch("last", timestamp=NOW + 1))
    log.flush()
    found, steps = steps_of(log.find_offset_for_timestamp(NOW + 1))
    assert found == (NOW + 1, 3_000, 0)
    assert steps >= 10


@pytest.mark.parametrize("size", [40_000, 300_000])
def test_a_search_in_a_large_batch_is_done_in_steps(size: int) -> None:
    log = open_log(FaultyFileSystem(), max_message_bytes=1 << 24)
    log.append(bytearray(packed_batch(many_records(size, step=1), size)))
    log.flush()
    found, steps = steps_of(log.find_offset_for_timestamp(NOW + size - 1))
    assert found == (NOW + size - 1, size - 1, 0)
    assert steps >= size // 1000


def test_a_search_begins_anew_when_segments_were_replaced() -> None:
    fs = FaultyFileSystem()
    log = open_log(fs, segment_bytes=4096, cleanup_policy=("compact",))
    for number in range(1_000):
        log.append(batch(f"v{number}", timestamp=NOW + number // 999))
    log.flush()
    search = log.find_offset_for_timestamp(NOW + 1)
    next(search)
    Cleaner(fs).clean(log, 0, NOW)
    found, _ = steps_of(search)
    assert found == (NOW + 1, 999, 0)


def test_a_search_ends_when_the_partition_is_deleted() -> None:
    log = open_log(FaultyFileSystem(), segment_bytes=4096)
    for _ in range(1_000):
        log.append(batch("v"))
    log.flush()
    search = log.find_offset_for_timestamp(NOW)
    next(search)
    log.discard()
    with pytest.raises(Exception, match="was deleted"):
        steps_of(search)


def test_no_record_of_an_open_transaction_at_the_log_start_is_found() -> None:
    log = open_log(FaultyFileSystem())
    log.append(batch("deleted", "open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.flush()
    log.delete_records_before(1)
    assert (log.log_start_offset, log.last_stable_offset) == (1, 1)
    assert log.offset_for_timestamp(NEWEST, IsolationLevel.READ_COMMITTED) == (-1, -1, -1)


def test_the_newest_record_is_found_although_compaction_has_removed_the_records_of_a_batch_behind_the_start() -> None:
    fs = FaultyFileSystem()
    clock = StandingClock()
    log = open_log(fs, clock=clock, cleanup_policy=("compact", "delete"), message_timestamp_type="LogAppendTime")
    log.append(bytearray(encode_batch([Record(0, NOW, b"kept", b"1"), Record(1, NOW, b"k", b"1")])))
    clock.now -= 10
    log.append(batch("2"))
    log.roll()
    log.append(batch("3", key=b"other"))
    log.flush()
    assert Cleaner(fs).clean(log, 0, NOW)
    log.delete_records_before(1)
    assert log.offset_for_timestamp(NEWEST) == (NOW - 10, 2, 0)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
async def test_a_search_in_many_blocks_that_hold_almost_nothing_decompresses_in_a_thread(codec: Compression) -> None:
    lanes: list[Lane] = []

    class CountedThreads(InlineThreads):
        def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
            lanes.append(lane)
            return super().run(lane, job)

    log = open_log(FaultyFileSystem(), threads=CountedThreads())
    records = many_records(2, step=1)
    blocks = many_empty_blocks(codec, records, AT_ONCE_COMPRESSED_BYTES + 1)
    append_as_before(log, raw_batch(blocks, 2, compression=codec, max_timestamp=NOW + 1))
    lanes.clear()
    for _ in range(2):
        assert await run_in_slices(log.find_offset_for_timestamp(NOW + 1)) == (NOW + 1, 1, 0)
    assert lanes == [Lane.SEARCH] * 2
