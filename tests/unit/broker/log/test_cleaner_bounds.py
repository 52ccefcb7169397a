"""Compaction of batches that it cannot read or that are too large for it, with little memory, and its end at a stop."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, CorruptLog, PartitionLog
from oncelog.broker.log import cleaner as cleaner_module
from oncelog.broker.log.cleaner import Cleaner, CleaningStopped
from oncelog.broker.log.disk_space import DiskSpace
from oncelog.broker.log.producer_state_manager import ProducerStateManager
from oncelog.broker.log.replay import replay
from oncelog.protocol.batch_header import BatchHeader, read_batch_header
from oncelog.protocol.compression import Compression, expand
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.record_varint import encode_varint
from oncelog.protocol.record_walk import RecordLimits
from oncelog.protocol.records import Record, decode_batch, encode_batch, iter_batches
from support.crooked_batches import many_records, packed_batch, raw_batch, record_body, with_many_headers
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, NOW, batch, open_log

DAY_MS = 24 * 3600 * 1000
INT64_MAX = (1 << 63) - 1


def compacted_log(fs: FaultyFileSystem, **config: Any) -> PartitionLog:
    return open_log(fs, cleanup_policy=("compact",), segment_bytes=1 << 20, **config)


def keyed(key: str, value: str | None) -> bytearray:
    return batch(value, key=key.encode())


def append_as_before(log: PartitionLog, data: bytes) -> bytes:
    """Put a batch into the log that no client may send, as a release without checks did; returns it as stored."""
    stored = bytearray(data)
    log.append(stored, origin=AppendOrigin.COORDINATOR)
    return bytes(stored)


def clean_all(fs: FaultyFileSystem, log: PartitionLog, cleaner: Cleaner | None = None, now_ms: int = NOW) -> int:
    log.flush()
    log.roll()
    log.flush()
    return (cleaner or Cleaner(fs)).clean(log, 0, now_ms)


def stored_batches(log: PartitionLog) -> list[bytes]:
    return [bytes(held) for _, held in log.batches()]


def pairs(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for header, held in log.batches() for record in decode_batch(held, 0, header)]


UNREADABLE = {
    "fewer records than claimed": raw_batch(many_records(2), 5),
    "random records": raw_batch(b"\xff" * 50, 3),
    "garbage as zstd": raw_batch(b"\xff" * 50, 3, compression=4),
    "too many records": packed_batch(many_records(1_001), 1_001),
    "too many bytes": packed_batch(record_body(b"\0\0\0\2k" + encode_varint(200_000) + bytes(200_000) + b"\0")),
}


@pytest.mark.parametrize("kind", list(UNREADABLE))
def test_a_batch_that_cannot_be_compacted_is_kept_as_it_is(kind: str) -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs, record_limits=RecordLimits(1_000, 100, 100_000))
    for value in "abc":
        log.append(keyed("one", value))
    kept = append_as_before(log, UNREADABLE[kind])
    for value in "de":
        log.append(keyed("one", value))
    assert clean_all(fs, log) == log.log_end_offset
    batches = stored_batches(log)
    assert kept in batches
    assert [len(batches), log.failure] == [2, None]


def test_a_batch_with_a_wrong_checksum_is_kept_and_the_rest_compacted() -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    for value in "abcd":
        log.append(keyed("one", value))
    log.flush()
    size = len(keyed("one", "a"))
    path = next(f"{DATA}/t-0/{name}" for name in fs.list(f"{DATA}/t-0") if name.endswith(".log"))
    file = fs.open(path)
    file.write_at([b"X"], size - 2)
    file.close()
    clean_all(fs, log)
    assert log.failure is None
    headers = [header.base_offset for segment in log.segments for _, header in segment.headers()]
    assert headers == [0, 3]


def test_headers_of_any_number_and_name_are_copied_as_they_are() -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    fields = encode_varint(1) + b"\x06\xff\xfe\x80" + b"\x02v"  # a name that is not UTF-8
    record = record_body(b"\0\0\0\x06one\x02v" + fields)
    second = record_body(b"\0\0\2\x06two\x02w" + fields)
    log.append(bytearray(packed_batch(record + second, 2, Compression.GZIP)))
    many = append_as_before(log, packed_batch(with_many_headers(50_000)))
    log.append(keyed("one", "x"))
    clean_all(fs, log)
    first, bomb, _ = log.batches()
    assert fields in bytes(expand(1, first[1][61:]))
    assert bytes(bomb[1]) == many


def test_memory_that_does_not_suffice_for_a_batch_costs_that_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    for value in ("a", "large", "b"):
        log.append(keyed("one", value))

    def scarce(code: int, data: memoryview, max_bytes: int) -> bytes | bytearray:
        if b"large" in bytes(data):
            raise MemoryError
        return expand(code, data, max_bytes)

    monkeypatch.setattr(cleaner_module, "expand", scarce)
    clean_all(fs, log)
    assert pairs(log) == [(b"one", b"large"), (b"one", b"b")]


def test_a_tombstone_stays_behind_a_batch_that_could_hold_its_key() -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    append_as_before(log, UNREADABLE["random records"])
    log.append(keyed("one", None))
    clean_all(fs, log)
    assert clean_all(fs, log, now_ms=NOW + 2 * DAY_MS) == log.log_end_offset
    readable = [header for header, _ in log.batches() if header.record_count == 1]
    assert len(readable) == 1


def test_keys_beyond_the_memory_for_them_wait_for_the_next_compaction() -> None:
    """Also within one segment, and no value comes back whose tombstone was met only later."""
    fs = FaultyFileSystem()
    log = compacted_log(fs, delete_retention_ms=0)
    for number in range(100):
        log.append(keyed(f"key-{number}", "old"))
    for number in range(100):
        log.append(keyed(f"key-{number}", None if number % 2 else "new"))
    log.flush()
    log.roll()
    log.flush()
    clean_up_to = 0
    cleaner = Cleaner(fs, max_key_bytes=2_000)
    ends = []
    for round_ in range(40):
        clean_up_to = cleaner.clean(log, clean_up_to, NOW + round_)
        ends.append(clean_up_to)
        values = dict(pairs(log))
        assert all(values.get(f"key-{number}".encode(), b"") != b"old" for number in range(100) if clean_up_to >= 200)
    assert ends[0] < 50, "the memory was full within the segment"
    assert clean_up_to == 200
    values = dict(pairs(log))
    assert {key for key, value in values.items() if value is not None} == {
        f"key-{number}".encode() for number in range(0, 100, 2)
    }


@pytest.mark.parametrize("after", ["map_keys", "nothing"])
def test_a_stop_ends_a_compaction_between_two_batches(after: str) -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    for value in "abc":
        log.append(keyed("one", value))
    log.flush()
    log.roll()
    log.flush()
    cleaner = Cleaner(fs)
    plan = cleaner.plan(log, 0, NOW, force=True)
    assert plan is not None
    if after == "map_keys":
        cleaner.map_keys(plan)
    cleaner.stop()
    with pytest.raises(CleaningStopped):
        cleaner.clean_group(plan, plan.groups[0]) if plan.groups else cleaner.map_keys(plan)
    assert [name for name in fs.list(f"{DATA}/t-0") if "cleaned" in Path(name).suffix] == []
    assert len(pairs(log)) == 3


def test_a_compacted_batch_reads_as_before() -> None:
    """Timestamps, offsets and headers of what is kept, whatever the codec and with a delete horizon or without."""
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    records = [
        Record(0, NOW + 5, b"a", b"1", [("h", b"x"), ("n", None)]),
        Record(1, NOW - 9, b"b", b"2", []),
        Record(2, NOW + 70_000, b"c", None, [("t", b"")]),
        Record(3, NOW, b"d", b"4" * 300, []),
    ]
    for codec in Compression:
        log.append(bytearray(encode_batch(records, compression=codec)))
    clean_all(fs, log)
    stored = b"".join(stored_batches(log)[-1:])
    ((position, header),) = iter_batches(stored)
    assert header.has_delete_horizon
    base = header.base_offset
    assert [
        (record.offset - base, record.timestamp, record.key, record.value, record.headers)
        for record in decode_batch(stored, position, header)
    ] == [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in records]
    assert read_batch_header(stored).max_timestamp == NOW + 70_000


def test_nothing_is_compacted_before_a_replacement_has_ended() -> None:
    """Its new segment still has another name, and the next one would be put in the place of its files."""
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    for key, value in [("one", "a"), ("one", "b"), ("two", "c"), ("three", "d")]:
        log.append(keyed(key, value))
        log.flush()
        log.roll()
    log.append(keyed("four", "e"))
    log.flush()
    cleaner = Cleaner(fs)

    def refuse(operation: str, path: str) -> None:
        if operation in ("rename", "unlink") and path.endswith(f"{0:020}.log"):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)

    fs.before = refuse
    clean_up_to = cleaner.clean(log, 0, NOW)
    expected = [(b"one", b"b"), (b"two", b"c"), (b"three", b"d"), (b"four", b"e")]
    assert pairs(log) == expected
    log.roll()
    log.append(keyed("one", "f"))
    log.flush()
    log.roll()
    log.flush()
    expected.append((b"one", b"f"))
    assert cleaner.clean(log, clean_up_to, NOW) == clean_up_to
    assert pairs(log) == expected
    fs.before = None
    cleaner.try_again()
    assert cleaner.clean(log, clean_up_to, NOW) == 6
    assert pairs(log) == expected[1:]
    fs.kill()
    assert pairs(compacted_log(fs)) == expected[1:]


def test_a_limited_number_of_segments_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "_MOST_SEGMENTS", 4)
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    for number in range(10):
        log.append(keyed(f"{number}", "value"))
        log.flush()
        log.roll()
    log.flush()
    cleaner = Cleaner(fs)
    replaced = []
    replace = cleaner.replace

    def counted(log: PartitionLog, group: cleaner_module.SegmentGroup, *cleaned: Any) -> bool:
        replaced.append(len(group.segments))
        return replace(log, group, *cleaned)

    monkeypatch.setattr(cleaner, "replace", counted)
    assert cleaner.clean(log, 0, NOW) == 10
    assert replaced == [4, 4, 2]
    assert len(pairs(log)) == 10


@pytest.mark.parametrize("number", [0, 1, 7])
def test_damage_that_compaction_finds_is_reported_with_its_own_offset(number: int) -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs)
    for value in range(10):
        log.append(keyed("one", f"{value}"))
    log.flush()
    first = log.segments.active
    position = first.position_of(number)
    log.roll()
    log.flush()
    fs._get(first.path()).data[position + 16] ^= 0x80  # the magic byte
    with pytest.raises(CorruptLog) as compaction:
        Cleaner(fs).clean(log, 0, NOW)
    with pytest.raises(CorruptLog) as rebuild:
        list(replay([first.reopened()], ProducerStateManager(fs, f"{DATA}/t-0", "t-0"), 0))
    for found in (compaction.value, rebuild.value):
        assert (found.position, found.offset) == (position, number)


@pytest.mark.parametrize("passed", [1, 2, 5])
def test_a_replay_goes_on_in_the_segments_that_compaction_has_put_in_place(passed: int) -> None:
    """A start replays the internal topics in slices, and may take longer than the pause before the first compaction."""
    fs = FaultyFileSystem()
    log = open_log(fs, cleanup_policy=("compact",), segment_bytes=150_000)
    for number in range(40):
        log.append(batch(f"{number}".zfill(20_000), key=b"k%d" % (number % 30)))
    log.flush()
    windows = log.windows()
    offsets = [header.base_offset for _ in range(passed) for _, header in iter_batches(next(windows))]
    before = log.size
    assert Cleaner(fs).clean(log, 0, NOW)
    assert log.size < before
    offsets += [header.base_offset for window in windows for _, header in iter_batches(window)]
    assert offsets == sorted(set(offsets))
    assert set(offsets) >= set(range(10, 40)), "the newest record of each key is passed"


def test_a_replay_of_a_log_that_is_deleted_meanwhile_ends_with_an_error() -> None:
    fs = FaultyFileSystem()
    log = open_log(fs)
    for _ in range(10):
        log.append(batch("x" * 20_000))
    windows = log.windows()
    next(windows)
    log.discard()
    with pytest.raises(KafkaError) as caught:
        next(windows)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_tombstones_and_markers_may_be_kept_for_ever() -> None:
    fs = FaultyFileSystem()
    log = compacted_log(fs, delete_retention_ms=INT64_MAX)
    log.append(keyed("one", "a"))
    log.append(keyed("one", None))
    log.append(batch("b", key=b"two", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    for _ in range(2):
        assert clean_all(fs, log, now_ms=NOW + 100 * DAY_MS) == log.log_end_offset
    kept = [(header.base_offset, record.timestamp) for header, record in records(log)]
    assert kept == [(1, NOW), (3, NOW)]
    log.append(batch("c", key=b"three"))
    assert clean_all(fs, log, now_ms=NOW + 100 * DAY_MS) == log.log_end_offset


def records(log: PartitionLog) -> Iterator[tuple[BatchHeader, Record]]:
    for header, held in log.batches():
        for record in decode_batch(held, 0, header):
            yield header, record


@pytest.mark.parametrize("internal", [False, True])
def test_a_compaction_leaves_a_part_of_the_reserve_of_the_disk_alone(internal: bool) -> None:
    fs = FaultyFileSystem()
    log = open_log(fs, cleanup_policy=("compact",), segment_bytes=1 << 30, max_message_bytes=1 << 23, internal=internal)
    for number in range(6):
        log.append(keyed(f"key-{number}", "x" * (6 << 20)))
    log.flush()
    log.roll()
    log.flush()
    used = fs.used()
    cleaner = Cleaner(fs, disk_space=DiskSpace(fs, DATA, reserve_bytes=64 << 20, decision_bytes=16 << 20))
    kept = (4 if internal else 32) << 20
    fs.capacity = used + kept + (30 << 20)
    with pytest.raises(OSError, match=r"log\.reserve\.bytes") as raised:
        cleaner.clean(log, 0, NOW)
    assert raised.value.errno == errno.ENOSPC
    assert (fs.used(), log.failure) == (used, None)
    fs.capacity = used + kept + (37 << 20)
    assert cleaner.clean(log, 0, NOW) == log.log_end_offset
