"""What a log saves of its active segment, at a stop or before: a start reads it, and scans what comes behind."""

from __future__ import annotations

import asyncio
import errno
import random
import struct
from contextlib import closing
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, CorruptLog, LoadPoint, LogConfig, LogManager, PartitionLog
from oncelog.broker.log.flusher import sync_path
from oncelog.broker.log.log_files import LogFiles
from oncelog.protocol.control_records import control_batch
from structlog.testing import capture_logs
from support.faulty_filesystem import FaultyFileSystem
from support.journals import failing
from support.logs import NOW, batch, flip, new_manager, open_log, settle, values

DIRECTORY = "/data/t-0"
FIRST = f"{DIRECTORY}/{0:020}.log"
CLEAN = LoadPoint(clean=True)
KILLED = LoadPoint(same_boot=True)
LATER = NOW + 10_000


def fill(log: PartitionLog, count: int, begin: int = NOW) -> None:
    """Batches of producer 1, each with a timestamp of its own, every third one of an aborted transaction."""
    for _ in range(count):
        now = begin + log.log_end_offset
        entry = log.producers.entry(1)
        if entry is not None and entry.current_txn_first_offset >= 0:
            log.append(bytearray(control_batch(False, 0, 1, 0, now)), origin=AppendOrigin.COORDINATOR)
            continue
        sequence = entry.last_sequence + 1 if entry is not None else 0
        options: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
        log.append(batch(f"value {sequence:04}", timestamp=now, transactional=sequence % 3 == 0, **options))


def everything(log: PartitionLog) -> object:
    """All that a log says of its records."""
    end = log.log_end_offset
    # The snapshot's format has one timestamp per producer, so those of batches are left out.
    entries = [
        (entry.producer_id, entry.producer_epoch, [batch[:3] for batch in entry.batches])
        for entry in log.producers.entries()
    ]
    return (
        end,
        values(log.batches()),
        [next(log.batches(offset))[0].base_offset for offset in range(end)],
        [log.offset_for_timestamp(NOW + offset)[1] for offset in range(end)],
        [log.offset_for_timestamp(LATER + offset)[1] for offset in range(end)],
        log.offset_for_timestamp(-3),
        log.reader.aborted.between(0, end),
        entries,
        log.end_offset_for_epoch(0),
    )


# --- stops -----------------------------------------------------------------------------------------------------------


def test_a_clean_stop_makes_no_files_for_a_small_log(fs: FaultyFileSystem) -> None:
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 20)
    log.flush()
    before, names = everything(log), set(fs.list(DIRECTORY))
    log.close()
    assert set(fs.list(DIRECTORY)) == names
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=log.log_end_offset), index_interval_bytes=100)
    assert everything(log) == before
    log.close()


def test_a_clean_start_syncs_nothing_that_it_scans(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    fill(log, 20)
    log.close()
    fs.unlink(f"{DIRECTORY}/flushed-offset")
    calls: list[tuple[str, str]] = []
    fs.before = lambda operation, path: calls.append((operation, path))
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=log.log_end_offset))
    fs.before = None
    assert not [path for operation, path in calls if "sync" in operation and path.startswith(DIRECTORY)]
    log.close()


def test_a_clean_stop_leaves_no_more_to_scan_than_a_bounded_part(fs: FaultyFileSystem) -> None:
    for _ in range(30):
        log = open_log(fs, point=CLEAN, unsaved_bytes=500)
        fill(log, 2)
        end, size = log.log_end_offset, log.size
        log.close()
        assert log.saved_state.unsaved_bytes <= 500
    assert log.saved_state.unsaved_bytes < size / 2
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=end), unsaved_bytes=500)
    assert log.log_end_offset == end
    log.close()


def test_damage_in_the_part_that_a_clean_start_scans_takes_the_partition_offline(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    fill(log, 5)
    position = log.segments.active.position_of(3)
    log.close()
    flip(fs, FIRST, position + 70)
    with pytest.raises(CorruptLog) as caught:
        open_log(fs, point=CLEAN)
    assert (caught.value.file, caught.value.position, caught.value.offset) == (FIRST, position, 3)


def test_producers_whose_batches_are_in_deleted_segments_alone_are_saved_at_a_stop(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    log.append(batch("of producer 1", producer_id=1, producer_epoch=0, base_sequence=0))
    log.roll()
    log.append(batch("plain"))
    log.flush()
    fs.kill()
    fs.unlink(f"{DIRECTORY}/{1:020}.snapshot")
    log = open_log(fs)
    log.delete_records_before(1)
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=2, log_start_offset=1))
    assert log.append(batch("of producer 1", producer_id=1, producer_epoch=0, base_sequence=0)).duplicate
    log.close()


# --- kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", ["there", "lost"])
def test_a_start_after_a_kill_scans_what_came_behind_the_saved_state_alone(fs: FaultyFileSystem, snapshot: str) -> None:
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 30)
    log.saved_state.save()
    saved = log.size
    fill(log, 3)
    log.flush()
    before, size, end = everything(log), log.size, log.log_end_offset
    fs.kill()
    if snapshot == "lost":
        fs.unlink(f"{DIRECTORY}/{30:020}.snapshot")
    log = open_log(fs, point=KILLED, index_interval_bytes=100)
    assert log.saved_state.unsaved_bytes == size - saved
    assert everything(log) == before
    fs.kill()
    flip(fs, FIRST, saved + 70)
    with pytest.raises(CorruptLog):
        open_log(fs, point=LoadPoint(same_boot=True, recovery_point=end))
    flip(fs, FIRST, saved + 70)
    flip(fs, FIRST, 70)
    assert open_log(fs, point=LoadPoint(same_boot=True, recovery_point=end)).log_end_offset == end, "not scanned"


def test_a_kill_while_state_is_saved_leaves_what_was_saved_before(fs: FaultyFileSystem) -> None:
    class Killed(BaseException):
        pass

    for operations in range(100):
        fs = FaultyFileSystem()
        log = open_log(fs, index_interval_bytes=100)
        fill(log, 20)
        log.saved_state.save()
        saved = log.size
        fill(log, 20)
        log.flush()
        before, size = everything(log), log.size
        left = operations

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        fs.before = count
        try:
            log.saved_state.save()
            finished = True
        except Killed:
            finished = False
        fs.before = None
        fs.kill()
        log = open_log(fs, point=KILLED, index_interval_bytes=100)
        assert log.saved_state.unsaved_bytes in (0, size - saved), operations
        assert everything(log) == before
        if finished:
            assert log.saved_state.unsaved_bytes == 0
            assert operations > 10
            return
    raise AssertionError("it was never saved")


@pytest.mark.parametrize("lost", [0, 1, 5, 12, 19])
def test_what_was_saved_of_records_that_a_loss_of_power_took_is_not_believed_later(
    fs: FaultyFileSystem, lost: int
) -> None:
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 1)
    log.flush()
    fill(log, 20)
    for path in log.saved_state.save():
        sync_path(fs, path)
    file = fs.open(FIRST)
    file.truncate(log.segments.active.position_of(log.log_end_offset - lost))
    file.close()
    fs.kill()
    log = open_log(fs, point=LoadPoint(recovery_point=1), index_interval_bytes=100)
    fill(log, 30, LATER)
    log.flush()
    before = everything(log)
    fs.kill()
    point = LoadPoint(recovery_point=log.log_end_offset, same_boot=True)
    assert everything(open_log(fs, point=point, index_interval_bytes=100)) == before


class _LosesNames(random.Random):
    """A loss of power that takes every change of a directory that was not synced, and no byte of a file."""

    def randint(self, a: int, b: int) -> int:
        return a

    def choice(self, seq: Any) -> Any:
        return "whole"


def test_a_snapshot_of_producers_whose_batches_were_lost_does_not_come_back(fs: FaultyFileSystem) -> None:
    """Its removal is on disk before the log is shown: a second loss of power would have a batch that is sent again
    answered as the repetition of one that is not there."""

    def numbered(sequence: int) -> bytearray:
        return batch(*"abcde", producer_id=1, producer_epoch=0, base_sequence=sequence)

    log = open_log(fs)
    log.append(batch("first"))
    log.flush()
    size = log.size
    log.append(numbered(0))
    log.append(numbered(5))
    snapshot = log.producers.take_snapshot()
    assert snapshot is not None
    sync_path(fs, snapshot)
    fs.sync_directory(DIRECTORY)
    with closing(fs.open(FIRST)) as file:
        file.truncate(size)
        file.fdatasync()
    fs.crash(_LosesNames())

    log = open_log(fs, point=LoadPoint(recovery_point=1))
    assert log.log_end_offset == 1
    log.append(numbered(0))
    log.append(batch(*"0123456789"))
    log.flush()
    fs.crash(_LosesNames())

    log = open_log(fs, point=LoadPoint(recovery_point=1))
    assert log.log_end_offset == 16
    result = log.append(numbered(5))
    assert not result.duplicate
    assert result.base_offset == 16


def test_records_that_were_not_on_disk_are_scanned_after_a_loss_of_power_whatever_was_saved(
    fs: FaultyFileSystem,
) -> None:
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 1)
    log.flush()
    fill(log, 20)
    log.saved_state.save()
    position = log.segments.active.position_of(7)
    fs.kill()
    flip(fs, FIRST, position + 70)
    log = open_log(fs, point=LoadPoint(recovery_point=1), index_interval_bytes=100)
    assert log.log_end_offset == 7
    assert log.size == position


def test_what_was_saved_of_a_segment_that_is_cut_is_not_believed_later(fs: FaultyFileSystem) -> None:
    """The indexes of a segment that was finished reach beyond the place where a loss of power cut it."""
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 10)
    log.roll()
    fill(log, 10)
    file = fs.open(FIRST)
    file.truncate(log.segments.first.position_of(5))
    file.close()
    fs.kill()
    log = open_log(fs, index_interval_bytes=100)
    assert log.log_end_offset == 5
    fill(log, 30, LATER)
    log.flush()
    before = everything(log)
    fs.kill()
    assert everything(open_log(fs, point=KILLED, index_interval_bytes=100)) == before


@pytest.mark.parametrize("checksums", ["without their reach", "missing"])
def test_index_files_that_do_not_say_how_far_they_reach_are_made_again(fs: FaultyFileSystem, checksums: str) -> None:
    """Those of older releases and of Kafka, and those of which a loss of power has left some."""
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 20)
    log.saved_state.save()
    fill(log, 20)
    log.close()
    before = everything(open_log(fs, point=CLEAN, index_interval_bytes=100))
    path = FIRST.replace(".log", ".checksums")
    if checksums == "missing":
        fs.unlink(path)
        fs.unlink(FIRST.replace(".log", ".txnindex"))
    else:
        node = fs._get(path)
        node.data = node.data[: struct.calcsize(">III")]
    for point in (CLEAN, KILLED):
        log = open_log(fs, point=point, index_interval_bytes=100)
        assert log.saved_state.unsaved_bytes == log.size
        assert everything(log) == before
        log.close()


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n"])
def test_leader_epochs_are_known_without_their_file(fs: FaultyFileSystem, content: bytes | None) -> None:
    """It is not synced: a loss of power may leave the indexes and take it. Consumers are told by it that nothing of
    what they have read was cut off."""
    log = open_log(fs)
    for epoch in (3, 3, 5, 5):
        log.append(batch("a"), leader_epoch=epoch)
        log.roll()
    log.append(batch("b"), leader_epoch=5)
    log.saved_state.save()
    log.close()
    before = [log.end_offset_for_epoch(epoch) for epoch in range(7)]
    assert before[3] == (3, 2)
    assert before[5] == (5, 5)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if content is None:
        fs.unlink(path)
    else:
        fs._get(path).data = bytearray(content)
    for point in (LoadPoint(clean=True, recovery_point=5), LoadPoint(recovery_point=5, same_boot=True)):
        log = open_log(fs, point=point)
        assert [log.end_offset_for_epoch(epoch) for epoch in range(7)] == before
        fs.kill()


def test_state_is_saved_as_a_whole_behind_a_torn_tail(fs: FaultyFileSystem) -> None:
    log = open_log(fs, index_interval_bytes=100)
    fill(log, 30)
    log.saved_state.save()
    fill(log, 3)
    log.flush()
    size = log.size
    fs.kill()
    file = fs.open(FIRST)
    file.write_at([b"torn"], size)
    file.close()
    log = open_log(fs, point=LoadPoint(same_boot=True, recovery_point=33), index_interval_bytes=100)
    assert log.size == size
    log.saved_state.save()
    before = everything(log)
    fs.kill()
    log = open_log(fs, point=KILLED, index_interval_bytes=100)
    assert log.saved_state.unsaved_bytes == 0
    assert everything(log) == before


def test_state_that_is_saved_again_costs_what_is_new_in_it(fs: FaultyFileSystem) -> None:
    log = open_log(fs, index_interval_bytes=0)
    for _ in range(20):
        fill(log, 50)
        log.saved_state.save()
    for suffix in (".index", ".timeindex", ".txnindex"):
        node = fs._get(FIRST.replace(".log", suffix))
        assert sum(len(write[1]) for write in node.writes if isinstance(write, tuple)) == len(node.data) > 500
    log.flush()
    content = everything(log)
    fs.kill()
    log = open_log(fs, point=KILLED, index_interval_bytes=0)
    assert log.saved_state.unsaved_bytes == 0
    assert everything(log) == content
    fill(log, 50)
    log.roll()
    fill(log, 5)
    log.flush()
    content = everything(log)
    log.close()
    assert everything(open_log(fs, point=CLEAN, index_interval_bytes=0)) == content


# --- all logs --------------------------------------------------------------------------------------------------------


async def test_a_stop_lets_others_in_between_while_it_asks_for_flushes(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = new_manager(fs)
    await manager.start()
    for number in range(100):
        manager.create("t", number, LogConfig(durability="os")).append(batch("a"))
    events: list[str] = []
    monkeypatch.setattr(LogFiles, "sync_later", lambda *_, **__: events.append("log"))
    stopping = asyncio.ensure_future(manager.stop())
    while not stopping.done():
        events.append("other")
        await asyncio.sleep(0)
    await stopping
    assert events.count("log") == 100
    assert max(map(len, "".join(event[0] for event in events).split("o"))) <= 10


GROWING = LogConfig(unsaved_bytes=0, save_interval_bytes=1000, index_interval_bytes=100)


async def saved(manager: LogManager) -> None:
    """Let the manager save what has grown."""
    manager._checkpoint()
    for _ in range(20):
        await asyncio.sleep(0)
    await settle(manager)


async def test_the_state_of_logs_that_have_grown_is_saved_now_and_then(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, GROWING)
    small = manager.create("u", 0, GROWING)
    small.append(batch("a"))
    for _ in range(5):
        while not log.has_grown:
            fill(log, 1)
        await saved(manager)
        assert log.saved_state.unsaved_bytes == 0
        (snapshot,) = [name for name in fs.list(DIRECTORY) if name.endswith(".snapshot")]
        assert snapshot == f"{log.log_end_offset:020}.snapshot"
    assert not [name for name in fs.list("/data/u-0") if name.endswith((".index", ".snapshot"))]
    manager.abandon()
    fs.kill()
    manager = new_manager(fs)
    manager.open()
    reopened = manager.get("t", 0)
    assert reopened is not None
    log = reopened
    assert log.saved_state.unsaved_bytes == 0
    manager.abandon()


async def test_a_log_with_many_producers_is_saved_less_often(fs: FaultyFileSystem) -> None:
    log = open_log(fs, save_interval_bytes=0)
    log.append(batch("a"))
    assert log.has_grown
    log.append(batch("b", producer_id=1, producer_epoch=0, base_sequence=0))
    assert not log.has_grown
    log.append(batch("c" * 4096))
    assert log.has_grown
    log.close()


async def test_state_that_cannot_be_saved_keeps_nobody_from_writing(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, GROWING)
    fill(log, 200)
    assert log.has_grown
    flush = log.flushed(log.log_end_offset)
    assert flush is not None
    await flush
    fs.capacity = fs.used()
    with capture_logs() as lines:
        await saved(manager)
    assert log.saved_state.unsaved_bytes == log.size
    assert [line for line in lines if "saving the state of t-0" in line.values()]
    fs.capacity = None
    fill(log, 1)
    await saved(manager)
    assert log.saved_state.unsaved_bytes == 0
    await manager.stop()


# --- files that the disk cannot read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [CLEAN, KILLED], ids=["clean", "killed"])
@pytest.mark.parametrize("name", [".index", ".timeindex", ".txnindex", ".checksums", "leader-epoch-checkpoint"])
def test_a_derived_file_that_the_disk_cannot_read_is_made_again(
    fs: FaultyFileSystem, name: str, point: LoadPoint
) -> None:
    log = open_log(fs, segment_bytes=2_000, index_interval_bytes=0, unsaved_bytes=0)
    fill(log, 60)
    assert len(log.segments) > 2
    log.flush()
    expected = everything(log)
    log.close()
    fs.before = failing("read", name, errno.EIO, times=1_000)
    log = open_log(fs, point=point, segment_bytes=2_000, index_interval_bytes=0)
    fs.before = None
    assert everything(log) == expected


@pytest.mark.parametrize("deleted", [False, True], ids=["whole", "without its first segments"])
def test_an_older_snapshot_stands_in_for_one_that_the_disk_cannot_read(fs: FaultyFileSystem, deleted: bool) -> None:
    settings: dict[str, Any] = {"segment_bytes": 2_000, "index_interval_bytes": 0, "unsaved_bytes": 0}
    log = open_log(fs, **settings)
    fill(log, 60)
    log.flush()
    start = log.segments[1].base_offset if deleted else 0
    log.delete_records_before(start)
    newest = log.producers.snapshot_path(60)
    entries = [(entry.producer_id, entry.producer_epoch, entry.batches) for entry in log.producers.entries()]
    log.close()
    assert fs.exists(newest)
    fs.before = failing("read", newest, errno.EIO, times=1_000)
    log = open_log(fs, point=LoadPoint(clean=True, log_start_offset=start), **settings)
    assert entries == [(entry.producer_id, entry.producer_epoch, entry.batches) for entry in log.producers.entries()]
    log.close(clean=False)
    fs.before = failing("read", ".snapshot", errno.EIO, times=1_000)
    if deleted:
        with pytest.raises(OSError, match="failed on purpose"):
            open_log(fs, point=LoadPoint(clean=True, log_start_offset=start), **settings)
    else:
        assert open_log(fs, point=CLEAN, **settings).log_end_offset == 60


async def test_an_index_that_the_disk_cannot_read_any_more_does_not_fail_reads(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=2_000)
    fill(log, 60)
    expected = values(log.batches())
    for segment in list(log.segments)[:-1]:
        segment.release()
    fs.before = failing("read", ".index", errno.EIO, times=1_000)
    assert values(log.batches()) == expected


@pytest.mark.parametrize("name", [".boot-id", ".kafka_cleanshutdown"])
async def test_a_directory_whose_last_stop_is_not_known_is_recovered(fs: FaultyFileSystem, name: str) -> None:
    manager = new_manager(fs)
    await manager.start()
    manager.create("t", 0, LogConfig()).append(batch("a"))
    await manager.stop()
    fs.before = failing("read", name, errno.EIO, times=1_000)
    manager = new_manager(fs)
    manager.open()
    fs.before = None
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["a"]
    manager.abandon()
