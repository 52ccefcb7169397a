"""Appending batches and reading them back: what is refused, what readers see, where time look-ups land."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, IsolationLevel, PartitionLog
from oncelog.broker.log.partition_log import EARLIEST, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from oncelog.protocol.batch_header import DELETE_HORIZON, LOG_APPEND_TIME
from oncelog.protocol.compression import Compression
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import TimestampType, decode_batch, iter_batches, read_batch_header, verify_crc
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, StandingClock, at_once, batch, compressed, open_log, values, values_of, with_attributes

HOUR = 3_600_000


@pytest.fixture
def log(fs: FaultyFileSystem) -> PartitionLog:
    return open_log(fs, durability="os", segment_bytes=1000, index_interval_bytes=200)


def refused(code: ErrorCode, log: PartitionLog, data: bytes | bytearray | memoryview) -> str:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append(data)
    assert caught.value.code is code
    assert log.log_end_offset == end
    return caught.value.message


# --- append ----------------------------------------------------------------------------------------------------------


def test_offsets_are_given_one_after_the_other(log: PartitionLog) -> None:
    assert log.append(batch("a", "b"))[:2] == (0, 1)
    assert log.append(batch("c"))[:2] == (2, 2)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (3, 3, 3)


def test_a_marker_is_appended_whatever_size_batches_may_have(fs: FaultyFileSystem) -> None:
    """A topic that takes no more batches, because max.message.bytes was lowered, keeps no transaction open."""
    log = open_log(fs)
    log.append(batch("a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.update_config(replace(log.config, max_message_bytes=0))
    refused(ErrorCode.MESSAGE_TOO_LARGE, log, batch("b"))
    marker = bytearray(control_batch(True, 0, 1, 0, NOW))
    log.append(marker, origin=AppendOrigin.COORDINATOR)
    log.flush()
    assert log.last_stable_offset == log.log_end_offset == 2


@pytest.mark.parametrize("codec", Compression)
def test_compressed_batches_are_stored_as_they_are(log: PartitionLog, codec: Compression) -> None:
    log.append(batch("first"))
    sent = compressed(codec)
    before = bytes(sent)
    log.append(sent)
    stored = at_once(log.read(1, 10_000)).records
    assert stored[21:] == before[21:]
    header = read_batch_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 0)
    assert verify_crc(stored, 0, header)


def test_a_writable_view_is_stamped_in_place_and_a_constant_is_not_touched(log: PartitionLog) -> None:
    log.append(batch("a"))
    frame = bytearray(b"....") + batch("b")
    log.append(memoryview(frame)[4:], leader_epoch=3)
    header = read_batch_header(frame, 4)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 3)
    constant = bytes(batch("c"))
    for data in (constant, memoryview(constant)):
        log.append(data)
    assert read_batch_header(constant).base_offset == 0
    assert values(log.batches()) == ["a", "b", "c", "c"]


def test_the_leader_epoch_is_remembered(log: PartitionLog) -> None:
    assert log.leader_epoch == -1
    log.append(batch("a"), leader_epoch=0)
    log.append(batch("b", "c"), leader_epoch=2)
    assert log.leader_epoch == 2
    assert log.end_offset_for_epoch(0) == (0, 1)
    assert log.end_offset_for_epoch(1) == (0, 1)
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(3) == (-1, -1)


def test_damaged_batches_are_refused(log: PartitionLog) -> None:
    data = batch("a")
    data[-1] ^= 1
    assert "checksum" in refused(ErrorCode.CORRUPT_MESSAGE, log, data)
    refused(ErrorCode.CORRUPT_MESSAGE, log, batch("a")[:-1])
    refused(ErrorCode.CORRUPT_MESSAGE, log, b"")
    old = batch("a")
    old[16] = 1
    assert "format (magic) 1" in refused(ErrorCode.INVALID_RECORD, log, old)


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("bits", [DELETE_HORIZON, 0x80, 0x4000])
def test_attribute_bits_that_are_not_a_clients_are_not_kept(
    fs: FaultyFileSystem, log_append_time: bool, bits: int
) -> None:
    log = open_log(fs, durability="os", message_timestamp_type="LogAppendTime" if log_append_time else "CreateTime")
    sent = batch("a", None, compression=Compression.LZ4)
    log.append(with_attributes(sent, bits))
    (stored, _) = next(log.batches())
    assert stored.attributes == Compression.LZ4 | (LOG_APPEND_TIME if log_append_time else 0)
    data = at_once(log.read(0, 10_000)).records
    assert verify_crc(data, 0, stored)
    assert values_of(data) == ["a", ""]


def test_a_coordinator_and_the_log_itself_keep_theirs(log: PartitionLog) -> None:
    log.append(with_attributes(batch("a"), DELETE_HORIZON), origin=AppendOrigin.COORDINATOR)
    assert next(log.batches())[0].has_delete_horizon


def test_only_the_log_says_that_the_log_has_set_the_timestamps(fs: FaultyFileSystem, log: PartitionLog) -> None:
    log.append(with_attributes(batch("a", "b", step=5), LOG_APPEND_TIME))
    header, data = next(log.batches())
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp for record in decode_batch(data, 0, header)] == [NOW, NOW + 5]
    refused(ErrorCode.INVALID_TIMESTAMP, log, with_attributes(batch("a", timestamp=-1), LOG_APPEND_TIME))
    other = open_log(fs, topic="other", message_timestamp_type="LogAppendTime")
    refused(ErrorCode.INVALID_TIMESTAMP, other, with_attributes(batch("a"), LOG_APPEND_TIME))


def test_a_client_sends_one_batch_and_no_markers(log: PartitionLog) -> None:
    refused(ErrorCode.INVALID_RECORD, log, batch("a") + batch("b"))
    refused(ErrorCode.INVALID_RECORD, log, bytearray(control_batch(True, 0, 1, 0, NOW)))
    refused(ErrorCode.INVALID_RECORD, log, batch("a", last_offset_delta=3))
    refused(ErrorCode.INVALID_RECORD, log, batch("a", producer_id=3, producer_epoch=0, base_sequence=-1))
    refused(ErrorCode.INVALID_RECORD, log, batch("a", transactional=True))


def test_sizes_are_limited(fs: FaultyFileSystem) -> None:
    log = open_log(fs, max_message_bytes=100, segment_bytes=5000)
    assert "max.message.bytes = 100" in refused(ErrorCode.MESSAGE_TOO_LARGE, log, batch("a" * 100))
    log.close()
    log = open_log(fs, segment_bytes=100)
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, log, batch("a" * 100))


def test_unknown_compression_is_refused(log: PartitionLog) -> None:
    data = batch("a")
    data[22] |= 7
    refused(ErrorCode.CORRUPT_MESSAGE, log, data)


def test_timestamps_are_limited(fs: FaultyFileSystem) -> None:
    log = open_log(fs, message_timestamp_after_max_ms=HOUR, message_timestamp_before_max_ms=HOUR)
    refused(ErrorCode.INVALID_TIMESTAMP, log, batch("a", timestamp=NOW + HOUR + 1))
    refused(ErrorCode.INVALID_TIMESTAMP, log, batch("a", timestamp=NOW - HOUR - 1))
    log.append(batch("a", timestamp=NOW + HOUR))
    log.append(batch("a", timestamp=NOW - HOUR))


def test_log_append_time_replaces_the_timestamps(fs: FaultyFileSystem) -> None:
    log = open_log(fs, message_timestamp_type="LogAppendTime", durability="os")
    result = log.append(batch("a", timestamp=5))
    assert result.log_append_time == NOW
    header = read_batch_header(at_once(log.read(0, 1000)).records)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW
    assert verify_crc(at_once(log.read(0, 1000)).records, 0, header)


def test_compacted_topics_need_keys(fs: FaultyFileSystem) -> None:
    log = open_log(fs, cleanup_policy=("compact",))
    refused(ErrorCode.INVALID_RECORD, log, batch("a", key=None))
    log.append(batch("a"))


def test_segments_are_rolled_by_size_and_by_age(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=300, segment_ms=HOUR)
    for number in range(4):
        log.append(batch(str(number) * 50))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.close()
    log = open_log(fs, topic="aged", segment_ms=HOUR, message_timestamp_after_max_ms=10 * HOUR)
    log.append(batch("a", timestamp=NOW))
    log.append(batch("b", timestamp=NOW + HOUR))
    log.append(batch("c", timestamp=NOW + HOUR + 1))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


# --- read ------------------------------------------------------------------------------------------------------------


def fill(log: PartitionLog, count: int = 60) -> list[str]:
    sent = [f"value {number}" for number in range(count)]
    for start in range(0, count, 3):
        log.append(batch(*sent[start : start + 3], timestamp=NOW + start, step=1))
    assert len(log.segments) > 2
    return sent


def test_every_offset_can_be_read(log: PartitionLog) -> None:
    sent = fill(log)
    for offset in range(60):
        read = log.read(offset, 1)
        header = read_batch_header(at_once(read).records)
        assert header.base_offset <= offset <= header.last_offset, "the batch that holds the offset"
        assert values_of(at_once(read).records) == sent[offset // 3 * 3 : offset // 3 * 3 + 3]


def test_reads_take_whole_batches_up_to_the_limit(log: PartitionLog) -> None:
    fill(log)
    size = len(at_once(log.read(0, 1)).records)
    for limit in (size, size + 1, 2 * size - 1, 2 * size, 3 * size + 3):
        assert len(at_once(log.read(0, limit)).records) == limit // size * size
    assert at_once(log.read(0, size - 1, min_one=False)).records == b""
    assert len(at_once(log.read(0, size - 1)).records) == size


@pytest.mark.parametrize("limit", [1, 250, 1000, 100_000])
def test_reading_on_from_each_answer_gives_everything_once(log: PartitionLog, limit: int) -> None:
    sent = fill(log)
    offset, found = 0, []
    while offset < log.log_end_offset:
        read = log.read(offset, limit)
        found += values_of(at_once(read).records)
        headers = [header for _, header in iter_batches(at_once(read).records)]
        assert headers[0].base_offset == offset
        offset = headers[-1].next_offset
        assert at_once(read).next_offset == offset
    assert found == sent


def test_reading_at_the_end_gives_nothing_and_beyond_it_is_an_error(log: PartitionLog) -> None:
    log.append(batch("a"))
    assert at_once(log.read(1, 1000)).records == b""
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_readers_see_only_what_is_flushed(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    moved: list[int] = []
    log.add_listener(lambda log: moved.append(log.high_watermark))
    log.append(batch("a"))
    log.append(batch("b"))
    assert (log.high_watermark, log.log_end_offset) == (0, 2)
    assert at_once(log.read(0, 1000)).records == b""
    assert at_once(log.read(1, 1000)).records == b"", "between high watermark and log end"
    log.flush()
    assert moved == [2]
    assert values_of(at_once(log.read(0, 1000)).records) == ["a", "b"]
    log.append(batch("c"))
    assert values_of(at_once(log.read(0, 1000)).records) == ["a", "b"]


def test_read_committed_ends_at_the_last_stable_offset_and_names_aborted_transactions(log: PartitionLog) -> None:
    committed = IsolationLevel.READ_COMMITTED
    log.append(batch("a"))
    log.append(batch("b", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(batch("c"))
    read = log.read(0, 10_000, committed)
    assert values_of(at_once(read).records) == ["a"]
    assert (at_once(read).last_stable_offset, at_once(read).high_watermark, at_once(read).aborted) == (1, 3, [])
    assert values_of(at_once(log.read(0, 10_000)).records) == ["a", "b", "c"]
    assert at_once(log.read(0, 10_000)).aborted is None
    log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    read = log.read(0, 10_000, committed)
    assert (at_once(read).last_stable_offset, at_once(read).aborted) == (4, [(1, 1)])
    assert at_once(log.read(2, 10_000, committed)).aborted == [(1, 1)], "the marker has not been passed yet"
    log.append(batch("d"))
    assert at_once(log.read(4, 10_000, committed)).aborted == []


def test_aborted_transactions_are_found_across_segments(log: PartitionLog) -> None:
    log.append(batch("a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.roll()
    log.append(batch("b", producer_id=2, producer_epoch=0, base_sequence=0, transactional=True))
    log.roll()
    for producer_id in (2, 1):
        log.append(bytearray(control_batch(False, 0, producer_id, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.roll()
    read = log.read(0, 10_000, IsolationLevel.READ_COMMITTED)
    assert at_once(read).next_offset == 1
    assert at_once(read).aborted == [(1, 0)]
    assert sorted(at_once(log.read(1, 10_000, IsolationLevel.READ_COMMITTED)).aborted or []) == [(1, 0), (2, 1)]


def test_a_read_up_to_a_batch_that_is_indexed_names_the_aborted_transactions_before_it(fs: FaultyFileSystem) -> None:
    """The last stable offset is where an index entry points: no batch lies between the two."""
    log = open_log(fs, index_interval_bytes=0, durability="os")
    for sequence in range(3):
        log.append(batch("a", producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True))
        log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.append(batch("open", producer_id=2, producer_epoch=0, base_sequence=0, transactional=True))
    read = log.read(0, 10_000, IsolationLevel.READ_COMMITTED)
    assert (at_once(read).last_stable_offset, at_once(read).next_offset) == (6, 6)
    assert at_once(read).aborted == [(1, 0), (1, 2), (1, 4)]


# --- time ------------------------------------------------------------------------------------------------------------


def test_offsets_are_found_by_timestamp(log: PartitionLog) -> None:
    fill(log)
    for number in range(60):
        assert log.offset_for_timestamp(NOW + number) == (NOW + number, number, 0)
    assert log.offset_for_timestamp(0) == (NOW, 0, 0)
    assert log.offset_for_timestamp(NOW + 60) == (-1, -1, -1)


def test_the_first_offset_with_a_timestamp_is_found_though_later_records_are_older(log: PartitionLog) -> None:
    for number, timestamp in enumerate([10, 50, 20, 50, 60, 5]):
        log.append(batch(f"{number}", timestamp=NOW + timestamp))
    assert log.offset_for_timestamp(NOW + 15)[1] == 1
    assert log.offset_for_timestamp(NOW + 50)[1] == 1
    assert log.offset_for_timestamp(NOW + 51)[1] == 4


def test_special_timestamps(log: PartitionLog) -> None:
    for number, timestamp in enumerate([10, 70, 20]):
        log.append(batch(f"{number}", timestamp=NOW + timestamp))
    assert log.offset_for_timestamp(LATEST) == (-1, 3, 0)
    assert log.offset_for_timestamp(EARLIEST) == (-1, 0, 0)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (NOW + 70, 1, 0)
    assert log.offset_for_timestamp(LATEST_TIERED) == (-1, -1, -1)
    log.append(batch("open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, timestamp=NOW + 99))
    assert log.offset_for_timestamp(LATEST, IsolationLevel.READ_COMMITTED)[1] == 3
    assert log.offset_for_timestamp(MAX_TIMESTAMP, IsolationLevel.READ_COMMITTED)[1] == 1
    assert log.offset_for_timestamp(NOW + 99, IsolationLevel.READ_COMMITTED) == (-1, -1, -1)
    assert log.offset_for_timestamp(NOW + 99)[1] == 3


def test_an_empty_log_has_no_timestamps(log: PartitionLog) -> None:
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (-1, -1, -1)
    assert log.offset_for_timestamp(0) == (-1, -1, -1)
    assert log.offset_for_timestamp(LATEST)[1] == 0


# --- retention -------------------------------------------------------------------------------------------------------


def test_retention_by_time_deletes_whole_segments_from_the_old_end(fs: FaultyFileSystem) -> None:
    clock = StandingClock()
    log = open_log(fs, clock=clock, segment_bytes=300, retention_ms=HOUR, durability="os", segment_ms=100 * HOUR)
    for number in range(6):
        clock.now = NOW + number * HOUR // 4
        log.append(batch("x" * 50, timestamp=clock.now))
    assert log.retain(NOW + HOUR) == 0
    assert log.retain(NOW + HOUR + HOUR // 2) == 1
    assert log.log_start_offset == 2
    assert log.retain(NOW + 10 * HOUR) == 2, "the active segment is rolled, so that it can go, too"
    assert (log.log_start_offset, log.log_end_offset, log.size) == (6, 6, 0)
    assert log.append(batch("y", timestamp=NOW)).base_offset == 6
    log.close()


def test_retention_measures_the_age_of_records_without_timestamps_by_their_file(fs: FaultyFileSystem) -> None:
    clock = StandingClock()
    log = open_log(fs, clock=clock, retention_ms=HOUR, durability="os", segment_ms=100 * HOUR)
    for number in range(5):
        fs.now_ms = NOW + number * HOUR // 2
        log.append(batch("x", timestamp=-1))
        assert log.retain(fs.now_ms) == 0
    assert len(log.segments) == 1
    assert log.retain(fs.now_ms + HOUR) == 0
    assert log.retain(fs.now_ms + HOUR + 1) == 1
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    log.close()


def test_retention_by_size_keeps_at_least_that_much(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=300, retention_ms=-1, retention_bytes=500, durability="os")
    for _ in range(10):
        log.append(batch("x" * 50))
    size = log.size
    log.retain(NOW)
    assert 500 <= log.size < size
    assert len([name for name in fs.list("/data/t-0") if name.endswith(".log")]) == len(log.segments)


def test_nothing_is_deleted_that_readers_could_not_see_yet(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=300, retention_ms=HOUR)
    for _ in range(4):
        log.append(batch("x" * 50))
    assert log.retain(NOW + 2 * HOUR) == 0
    log.flush()
    assert log.retain(NOW + 2 * HOUR) == 2


@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
def test_a_segment_whose_records_were_deleted_while_it_was_active_goes_once_it_is_finished(
    fs: FaultyFileSystem, policy: tuple[str, ...]
) -> None:
    log = open_log(fs, segment_bytes=300, durability="os", retention_ms=-1, retention_bytes=-1, cleanup_policy=policy)
    log.append(batch("x" * 50))
    log.append(batch("x" * 50))
    assert log.delete_records_before(2) == 2
    assert log.retain(NOW) == 0, "it is active"
    log.append(batch("x" * 50))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert log.retain(NOW) == 1
    assert [segment.base_offset for segment in log.segments] == [2]
    assert log.log_start_offset == 2
    assert log.retain(NOW) == 0


@pytest.mark.parametrize("kept", [{"retention_ms": HOUR}, {"retention_ms": -1, "retention_bytes": 0}])
def test_retention_keeps_the_records_of_an_open_transaction(fs: FaultyFileSystem, kept: dict[str, Any]) -> None:
    log = open_log(fs, segment_bytes=300, durability="os", **kept)
    log.append(batch("x" * 50))
    log.append(batch("x" * 50))
    for number in range(4):
        log.append(batch("y" * 50, producer_id=1, producer_epoch=0, base_sequence=number, transactional=True))
    log.retain(NOW + 2 * HOUR)
    assert (log.log_start_offset, log.last_stable_offset) == (2, 2), "what is stable has gone, and nothing else"
    log.append(bytearray(control_batch(True, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.retain(NOW + 2 * HOUR)
    assert log.log_start_offset == log.log_end_offset == 7
    log.close()


def test_delete_records_moves_the_start(log: PartitionLog) -> None:
    fill(log)
    segments = len(log.segments)
    assert log.delete_records_before(31) == 31
    assert len(log.segments) < segments
    assert log.delete_records_before(10) == 31
    with pytest.raises(KafkaError) as caught:
        log.read(30, 100)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_batch_header(at_once(log.read(31, 1)).records).base_offset == 30
    assert log.offset_for_timestamp(EARLIEST)[1] == 31
    assert log.offset_for_timestamp(0)[1] == 31
    with pytest.raises(KafkaError):
        log.delete_records_before(61)
    assert log.delete_records_before(-1) == 60
    assert log.append(batch("next")).base_offset == 60


# --- a whole log -----------------------------------------------------------------------------------------------------


def test_windows_are_all_batches_of_all_segments_however_large(fs: FaultyFileSystem) -> None:
    log = open_log(fs, durability="os", segment_bytes=400_000)
    for number in range(300):
        log.append(batch("x" * (number * 37 % 5000)))
        if number % 100 == 50:
            log.append(batch("y" * 200_000))
    assert len(log.segments) > 2
    windows = list(log.windows())
    assert 10 < len(windows) < 60
    assert b"".join(windows) == b"".join(bytes(held) for _, held in log.batches())
    assert sum(1 for window in windows for _ in iter_batches(window)) == 303


@pytest.mark.parametrize("where", ["length", "magic", "checksum", "record"])
@pytest.mark.parametrize("which", [0, 5, 9])
def test_windows_end_at_damage_with_an_error(fs: FaultyFileSystem, where: str, which: int) -> None:
    log = open_log(fs, durability="os", segment_bytes=100_000)
    for number in range(10):
        log.append(batch(f"value {number}"))
    position = [at for at, _ in iter_batches(next(log.windows()))][which]
    byte = position + {"length": 8, "magic": 16, "checksum": 20, "record": 65}[where]
    file = log.segments.active.file
    file.write_at([bytes([file.read_at(1, byte)[0] ^ 0x80])], byte)
    read: list[object] = []
    with pytest.raises(KafkaError) as caught:
        read.extend(log.windows())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert f"byte {position} (from offset {which} on)" in caught.value.message


@pytest.mark.parametrize("which", [0, 5, 9])
@pytest.mark.parametrize(
    ("interval", "use"),
    [
        (4096, lambda log, which: log.read(20, 1)),
        (4096, lambda log, which: log.readable_bytes(20, 1)),
        (4096, lambda log, which: log.offset_for_timestamp(NOW)),
        (4096, lambda log, which: log.offset_for_timestamp(MAX_TIMESTAMP)),
        (0, lambda log, which: log.read(2 * which + 1, 1)),
    ],
    ids=["read", "bytes", "search", "newest", "read in the batch"],
)
def test_damage_is_reported_with_its_own_offset(
    fs: FaultyFileSystem, interval: int, use: Callable[[PartitionLog, int], object], which: int
) -> None:
    """A search may begin at the start of the log, a gigabyte before the damage."""
    log = open_log(fs, index_interval_bytes=interval)
    for number in range(10):
        log.append(batch("one", "two", timestamp=NOW - 100 + 10 * number))
    log.append(batch("last", timestamp=NOW))
    log.flush()
    segment = log.segments.active
    at = segment.position_of(2 * which)
    fs._get(segment.path()).data[at + 16] ^= 0x80  # the magic byte
    log.reader.forget()
    with pytest.raises(KafkaError) as caught:
        use(log, which)
    assert f"is damaged at byte {at} (from offset {2 * which} on)" in caught.value.message


# --- batches with a wrong offset -------------------------------------------------------------------------------------


def with_wrong_offset(fs: FaultyFileSystem, number: int, offset: int) -> PartitionLog:
    """A log of 12 batches, 3 to a segment. Batch `number` has a wrong offset, which its checksum does not cover."""
    log = open_log(fs, segment_bytes=250, index_interval_bytes=0)
    for value in range(12):
        log.append(batch(f"value {value:02}"))
    log.flush()
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    segment = log.segments.floor(number)
    node = fs._get(segment.path())
    at = segment.position_of(number)
    node.data[at : at + 8] = offset.to_bytes(8, "big")
    return log


@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.parametrize("max_bytes", [1, 100, 170])
@pytest.mark.parametrize(("number", "offset"), [(4, 6), (4, 7), (4, 12), (4, 1 << 40), (10, 12), (10, 1 << 40)])
def test_a_batch_with_an_offset_beyond_its_segment_is_damage(
    fs: FaultyFileSystem, number: int, offset: int, max_bytes: int, isolation: IsolationLevel
) -> None:
    """A Fetch skipped the batch and the rest of its segment without an error."""
    log = with_wrong_offset(fs, number, offset)
    for position in range(number):
        assert values_of(at_once(log.read(position, max_bytes, isolation)).records)[0] == f"value {position:02}"
    with pytest.raises(KafkaError) as caught:
        log.read(number, max_bytes, isolation)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert f"offset {offset}" in caught.value.message
    assert log.failure is not None
    if number < 6:
        for position in range(6, 12):
            assert values_of(at_once(log.read(position, max_bytes, isolation)).records)[0] == f"value {position:02}"


def test_a_batch_that_ends_beyond_its_segment_is_damage(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=200, index_interval_bytes=0)
    for _ in range(4):
        log.append(batch("a", "b", "c"))
    log.flush()
    assert [segment.base_offset for segment in log.segments][:2] == [0, 6]
    fs._get(log.segments.first.path()).data[log.segments.first.position_of(3) + 7] = 5
    for max_bytes in (1, 90):
        with pytest.raises(KafkaError, match="offset 7"):
            log.read(3, max_bytes)


@pytest.mark.parametrize("number", [4, 7])
def test_a_replay_ends_with_an_error_at_an_offset_beyond_its_segment(fs: FaultyFileSystem, number: int) -> None:
    """A coordinator that replayed the log missed the rest of the segment."""
    log = with_wrong_offset(fs, number, 1 << 40)
    batches = log.batches()
    assert [next(batches)[0].base_offset for _ in range(number)] == list(range(number))
    with pytest.raises(KafkaError) as caught:
        next(batches)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_open_transaction_that_a_compacted_gap_precedes_is_no_damage(fs: FaultyFileSystem) -> None:
    """Up to the last stable offset there is nothing to read, and the next batch is beyond it."""
    log = open_log(fs, segment_bytes=250, index_interval_bytes=0, cleanup_policy=("compact",))
    for _ in range(3):
        log.append(batch("same key"))
    log.append(batch("open", key=b"o", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.flush()
    assert log.last_stable_offset == 3
    for max_bytes in (1, 1000):
        assert at_once(log.read(3, max_bytes, IsolationLevel.READ_COMMITTED)).records == b""
        assert values_of(at_once(log.read(2, max_bytes, IsolationLevel.READ_COMMITTED)).records) == ["same key"]
