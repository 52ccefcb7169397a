"""Telling damage from a torn write where the bytes behind it look like batches, with a bound on the work."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from oncelog.broker.log import CorruptLog, LoadPoint, PartitionLog
from oncelog.broker.log.batch_search import CHECKSUMMED, LEAST_CHECKSUMMED, BatchSearch, SearchGivenUp
from oncelog.broker.log.data_directory import DataDirectory
from oncelog.broker.log.repair import inspect
from oncelog.broker.log.segment import MAX_RELATIVE_OFFSET
from oncelog.broker.system.ports import SystemRandomIds
from oncelog.protocol import batch_header
from oncelog.protocol.batch_header import HEADER, HEADER_SIZE, LENGTH_END, stamp
from oncelog.protocol.records import Record, encode_batch
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, batch, open_log

FIRST = "/data/t-0/00000000000000000000.log"
KILLED = LoadPoint(same_boot=True)

CRAFTED = 4 << 20
"""Bytes that look like batches up to their end: to checksum each of these is to checksum 144 GB."""


def two_batches(fs: FaultyFileSystem) -> PartitionLog:
    log = open_log(fs, max_message_bytes=2 * CRAFTED)
    for number in range(2):
        log.append(batch(f"value {number}"))
    log.flush()
    return log


def headers(offset: int, size: int) -> bytes:
    """Bytes of a record that look like batches, one behind another, each of them up to the end of these bytes."""
    lengths = [left * HEADER_SIZE - LENGTH_END for left in range(size // HEADER_SIZE, 0, -1)]
    return b"".join(HEADER.pack(offset, length, 0, 2, 0, 0, 0, NOW, NOW, -1, -1, -1, 1) for length in lengths)


def with_crafted_batch(fs: FaultyFileSystem) -> tuple[int, int]:
    """A log whose third batch, the last one, is damaged and full of headers; returns where it begins and ends."""
    log = two_batches(fs)
    start = log.segments.active.size
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", headers(2, CRAFTED))])))
    end = log.segments.active.size
    fs.kill()
    fs._get(FIRST).data[start + HEADER_SIZE + 20] ^= 1
    return start, end


def test_bytes_that_look_like_many_batches_are_checksummed_a_few_times_only(fs: FaultyFileSystem) -> None:
    start, end = with_crafted_batch(fs)
    file = fs.open(FIRST)
    search = BatchSearch(file, start, end, 2)
    with pytest.raises(SearchGivenUp):
        search.find()
    assert search.checksummed <= max(LEAST_CHECKSUMMED, CHECKSUMMED * (end - start)) + (end - start)
    file.close()


def test_a_repair_checksums_bytes_that_look_like_many_batches_a_few_times_only(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataDirectory("/data", fs, SystemRandomIds(), 1).open()
    start, end = with_crafted_batch(fs)
    checksummed = 0

    def counting(data: bytes, value: int = 0) -> int:
        nonlocal checksummed
        checksummed += len(data)
        return crc32c(data, value)

    monkeypatch.setattr(batch_header, "crc32c", counting)
    (damage,) = inspect("/data", fs)
    assert damage.position == start
    assert checksummed <= max(LEAST_CHECKSUMMED, CHECKSUMMED * (end - start)) + 2 * end


def test_whole_batches_behind_damage_are_found_once_each(fs: FaultyFileSystem) -> None:
    log = two_batches(fs)
    inner = batch("inner")
    stamp(inner, 0, 2, 0)
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", bytes(inner) + b"rubbish")])))
    log.append(batch("last"))
    log.flush()
    second = log.segments.active.position_of(1)
    end = log.segments.active.size
    fs.kill()
    file = fs.open(FIRST)
    assert [header.base_offset for _, header in BatchSearch(file, second, end, 0).whole_batches()] == [1, 2, 3]
    assert [header.base_offset for _, header in BatchSearch(file, second + 1, end, 0).whole_batches()] == [2, 3]
    file.close()


def test_bytes_that_look_like_too_many_batches_count_as_damage_and_are_not_cut(fs: FaultyFileSystem) -> None:
    start, end = with_crafted_batch(fs)
    with pytest.raises(CorruptLog, match="look like more batches than can be checked") as caught:
        open_log(fs, point=KILLED)
    assert (caught.value.position, caught.value.offset) == (start, 2)
    assert fs.file_size(FIRST) == end


def test_the_batch_behind_the_damage_is_found_whatever_the_damaged_one_holds(fs: FaultyFileSystem) -> None:
    log = two_batches(fs)
    start = log.segments.active.size
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", headers(2, CRAFTED))])))
    behind = log.segments.active.size
    log.append(batch("behind"))
    fs.kill()
    fs._get(FIRST).data[start + HEADER_SIZE + 20] ^= 1
    with pytest.raises(CorruptLog, match=f"valid batches follow at byte {behind}"):
        open_log(fs, point=KILLED)


@pytest.mark.parametrize("damage", [b"", bytes(8)])
def test_a_torn_write_of_headers_is_cut(fs: FaultyFileSystem, damage: bytes) -> None:
    """The kill left a prefix of it: its length, which says so, is enough to tell."""
    log = two_batches(fs)
    start = log.segments.active.size
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", headers(2, CRAFTED) + damage)])))
    fs.kill()
    data = fs._get(FIRST).data
    del data[len(data) - 100 :]
    log = open_log(fs, point=KILLED)
    assert (log.log_end_offset, log.segments.active.size) == (2, start)


@pytest.mark.parametrize("ahead", [0, 1, MAX_RELATIVE_OFFSET])
def test_batch_at_any_offset_of_the_segment_shows_damage(fs: FaultyFileSystem, ahead: int) -> None:
    data = bytearray(batch("broken"))
    first = len(data)
    data[HEADER_SIZE] ^= 1
    following = batch("behind")
    stamp(following, 0, 2 + ahead, 0)
    data += b"rubbish" + following
    log = two_batches(fs)
    start = log.segments.active.size
    fs.kill()
    fs._get(FIRST).data += data
    file = fs.open(FIRST)
    assert BatchSearch(file, start, start + len(data), 2).find() == start + first + len(b"rubbish")
    file.close()
