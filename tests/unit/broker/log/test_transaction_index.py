"""The index of aborted transactions while a log is used: without it, consumers would see aborted records."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from oncelog.broker.log import AppendOrigin, IsolationLevel, LoadPoint, PartitionLog
from oncelog.broker.log.aborted import MOST_AT_A_TIME, AbortedTransactions
from oncelog.broker.log.aborted_index import AbortedIndex
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.results import AbortedTxn
from oncelog.protocol.control_records import control_batch
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, at_once, batch, flip, open_log, values, values_of

FIRST = f"/data/t-0/{0:020}"
COMMITTED = IsolationLevel.READ_COMMITTED


def rolled(fs: FaultyFileSystem) -> PartitionLog:
    """A log whose first segment is finished, and has an aborted transaction at offset 1."""
    log = open_log(fs)
    log.append(batch("plain"))
    log.append(batch("aborted", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.append(batch("next"))
    return log


def aborted(log: PartitionLog) -> list[tuple[int, int]] | None:
    return at_once(log.read(0, 1 << 20, COMMITTED)).aborted


class NotWalked(AbortedIndex):
    """A list that nobody may go through from its beginning."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the aborted transactions are searched, and not walked through")


def test_a_read_does_not_walk_through_the_aborted_transactions_before_it(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    count = 50
    for number in range(count):
        log.append(batch("x", producer_id=number, producer_epoch=0, base_sequence=0, transactional=True))
        log.append(bytearray(control_batch(False, 0, number, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.flush()
    aborted = AbortedTransactions(log.segments, log.reader.side_reads, lambda: log.producers)
    walked = NotWalked(aborted.in_segment(log.segments.first))
    with mock.patch.object(AbortedTransactions, "in_segment", return_value=walked):
        assert aborted.between(2 * count - 4, 2 * count) == [(count - 2, 2 * count - 4), (count - 1, 2 * count - 2)]
    log.close()


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_read_ends_before_very_many_aborted_transactions(fs: FaultyFileSystem, overlapping: bool) -> None:
    log = open_log(fs, durability="os")
    transactions, last = 2 * MOST_AT_A_TIME + 100, 999_999
    if overlapping:
        log.append(batch("x", producer_id=last, producer_epoch=0, base_sequence=0, transactional=True))
    for producer_id in range(transactions):
        log.append(batch("x", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))
        log.append(bytearray(control_batch(False, 0, producer_id, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    if overlapping:
        log.append(bytearray(control_batch(False, 0, last, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    named: list[int] = []
    offset, reads = 0, 0
    while offset < log.last_stable_offset:
        read = at_once(log.read(offset, 1 << 30, IsolationLevel.READ_COMMITTED))
        assert len(read.aborted or []) <= MOST_AT_A_TIME + overlapping
        named += [producer_id for producer_id, _ in read.aborted or [] if producer_id != last]
        assert read.records
        assert overlapping <= ((last, 0) in (read.aborted or []))
        offset, reads = read.next_offset, reads + 1
    assert named == list(range(transactions))
    assert reads == 3


def test_no_record_is_passed_over_if_the_batch_before_a_marker_is_not_there(fs: FaultyFileSystem) -> None:
    log = open_log(fs, durability="os")
    log.append(batch("a", "b"))
    entries = (AbortedTxn(1, 0, 0, 0) for _ in range(MOST_AT_A_TIME + 1))
    with mock.patch.object(AbortedTransactions, "in_segment", return_value=AbortedIndex(entries)):
        read = at_once(log.read(0, 10_000, IsolationLevel.READ_COMMITTED))
    assert values_of(read.records) == ["a", "b"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kinds", [(".txnindex",), (".txnindex", ".checksums"), (".index", ".txnindex", ".checksums")])
def test_aborted_transactions_stay_known_when_their_index_cannot_be_synced(
    fs: FaultyFileSystem, kinds: tuple[str, ...], number: int
) -> None:
    def before(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith(kinds):
            raise OSError(number, os.strerror(number), path)

    log = rolled(fs)
    fs.before = before
    log.flush()
    fs.before = None
    log.segments.first.release()
    assert aborted(log) == [(1, 1)]
    assert at_once(log.read(0, 1 << 20)).records, "the other indexes are made again where they have to be"
    log.segments.first.release()
    assert aborted(log) == [(1, 1)]
    end = log.log_end_offset
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=end))
    assert aborted(log) == [(1, 1)]


@pytest.mark.parametrize("damage", ["flipped", "missing", "missing with all indexes", "of a shorter segment"])
@pytest.mark.parametrize("after", ["nothing", "another index", "a compaction"])
def test_a_damaged_index_of_aborted_transactions_is_made_again(fs: FaultyFileSystem, damage: str, after: str) -> None:
    """Nor is it taken for sound when another index has to be made again first."""
    log = rolled(fs)
    log.flush()
    log.segments.first.release()
    if damage == "flipped":
        flip(fs, f"{FIRST}.txnindex", 20)
    else:
        fs.unlink(f"{FIRST}.txnindex")
    if damage == "missing with all indexes":
        for kind in (".index", ".timeindex", ".checksums"):
            fs.unlink(f"{FIRST}{kind}")
    if damage == "of a shorter segment":
        earlier = FaultyFileSystem()
        shorter = open_log(earlier)
        shorter.append(batch("plain"))
        shorter.saved_state.save()
        fs._get(f"{FIRST}.checksums").data = bytearray(earlier.read_file(f"{FIRST}.checksums"))
    if after == "another index":
        if fs.exists(f"{FIRST}.index"):
            fs.unlink(f"{FIRST}.index")
        assert at_once(log.read(0, 1 << 20)).records
    elif after == "a compaction":
        Cleaner(fs).clean(log, 0, NOW)
        assert "aborted" not in values(log.batches())
        return
    assert aborted(log) == [(1, 1)]
    log.segments.first.release()
    assert log.segments.first.aborted == [(1, 1, 2, 3)], "it was written"
    end = log.log_end_offset
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=end))
    assert aborted(log) == [(1, 1)]


@pytest.mark.parametrize("broken", ["missing", "flipped, without checksums"])
@pytest.mark.parametrize("after", ["aborted", "records", "a start"])
@pytest.mark.parametrize("seed", range(30))
def test_aborted_transactions_stay_known_when_power_fails_after_index_files_were_made_again(
    fs: FaultyFileSystem, broken: str, after: str, seed: int
) -> None:
    """What is left of the new files must not look like a segment of Apache Kafka's, which has no checksums."""
    log = rolled(fs)
    log.flush()
    end = log.log_end_offset
    log.segments.first.release()
    fs.unlink(f"{FIRST}.checksums")
    if broken == "missing":
        for kind in (".index", ".timeindex", ".txnindex"):
            fs.unlink(f"{FIRST}{kind}")
    else:
        for kind in (".index", ".txnindex"):
            fs.write(fs._get(f"{FIRST}{kind}"), 0, b"\xff\xff\xff")
    fs.sync_directory("/data/t-0")
    if after == "a start":
        log.close()
        left = iter(range(seed))

        def end_at_last(operation: str, path: str) -> None:
            if operation in ("open", "write", "truncate", "fdatasync", "sync_directory") and next(left, None) is None:
                raise InterruptedError(f"{operation} {path}")

        fs.before = end_at_last
        with contextlib.suppress(InterruptedError):
            open_log(fs, point=LoadPoint(clean=False, recovery_point=end))
        fs.before = None
    elif after == "records":
        assert at_once(log.read(0, 1 << 20)).records
    else:
        assert aborted(log) == [(1, 1)]
    fs.crash(random.Random(seed))
    assert aborted(open_log(fs, point=LoadPoint(clean=False, recovery_point=end))) == [(1, 1)]


def test_an_index_of_aborted_transactions_is_made_again_from_what_lies_before_its_segment(
    fs: FaultyFileSystem,
) -> None:
    log = open_log(fs)
    log.append(batch("open", producer_id=2, producer_epoch=0, base_sequence=0, transactional=True))
    for number in range(3):
        log.append(batch("a", producer_id=1, producer_epoch=0, base_sequence=number, transactional=True))
        log.roll()
        log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.append(bytearray(control_batch(False, 0, 2, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.append(batch("next"))
    log.flush()
    before = [list(log.reader.aborted.in_segment(segment)) for segment in log.segments]
    assert list(map(len, before)) == [0, 1, 1, 2, 0]
    for segment in list(log.segments)[:-1]:
        segment.release()
        if fs.exists(segment.path(".txnindex")):
            fs.unlink(segment.path(".txnindex"))
    assert [list(log.reader.aborted.in_segment(segment)) for segment in log.segments] == before
