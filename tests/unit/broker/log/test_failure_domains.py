"""What a fault of the disk concerns: one write, one partition, or the whole directory; and what is tried again."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.log import (
    AppendOrigin,
    DataDirectoryError,
    IsolationLevel,
    LogConfig,
    LogManager,
    flusher,
    log_manager,
)
from oncelog.broker.log.data_directory import DataDirectory
from oncelog.broker.log.journal import MIN_FILE_BYTES
from oncelog.broker.system.pooled_files import PooledFileSystem
from oncelog.broker.system.ports import RealFileSystem, SystemClock, SystemRandomIds
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.journals import after_power_failed, all_of, failing
from support.logs import NOW, CountingIds, at_once, batch, checkpointed, flip, new_manager, settle, values, values_of

CONFIG = LogConfig()
FIRST = "/data/t-0/00000000000000000000.log"


def real_manager(data: Path) -> LogManager:
    return LogManager(str(data), fs=RealFileSystem(), clock=SystemClock(), ids=SystemRandomIds())


def deleted_directories(fs: FaultyFileSystem) -> list[str]:
    return [name for name in fs.list("/data") if name.endswith("-delete")]


# --- one partition, or all of them -----------------------------------------------------------------------------------


async def test_a_drain_waits_for_the_round_behind_a_failure(fs: FaultyFileSystem, manager: LogManager) -> None:
    log, other = manager.create("t", 0, CONFIG), manager.create("u", 0, CONFIG)
    await settle(manager)
    loop = asyncio.get_running_loop()

    def meanwhile(operation: str, path: str) -> None:
        if operation == "fdatasync" and path == FIRST:
            loop.call_soon_threadsafe(other.append, batch("b"))
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = meanwhile
    log.append(batch("a"))
    await settle(manager)
    assert log.failure is not None
    assert other.files.flushed_offset == 1


async def test_a_failed_sync_takes_writes_from_its_partition_alone(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log, other = manager.create("t", 0, CONFIG), manager.create("u", 0, CONFIG)
    await settle(manager)
    attempts: list[str] = []
    fs.before = lambda operation, path: attempts.append(path) if operation == "fdatasync" else None
    fs.fail("fdatasync")
    log.append(batch("a"))
    waiting = log.flushed(1)
    assert waiting is not None
    with pytest.raises(KafkaError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.high_watermark == 0, "nobody has seen what may be lost"
    assert manager.failed is None
    with pytest.raises(KafkaError):
        log.append(batch("b"))
    other.append(batch("b"))
    await asyncio.shield(other.flushed(1) or asyncio.sleep(0))
    assert values_of(at_once(other.read(0, 1000)).records) == ["b"]
    manager.create("v", 0, CONFIG).append(batch("c"))
    await manager.stop()
    assert len([path for path in attempts if path == FIRST]) == 1, "never tried again, not at the stop either"
    manager = new_manager(fs)
    manager.open()
    assert manager.clean_start
    assert manager.offline == {}
    manager.abandon()


async def test_what_is_on_disk_of_a_partition_that_takes_no_writes_is_read(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, LogConfig(durability="os"))
    log.append(batch("a"))
    log.files.sync_later()
    await settle(manager)
    log.append(batch("b"))
    fs.fail("fdatasync")
    log.files.sync_later()
    await settle(manager)
    assert log.failure is not None
    assert values_of(at_once(log.read(0, 1000)).records) == ["a"], "what may be lost is not shown"
    for isolation in IsolationLevel:
        with pytest.raises(KafkaError) as caught:
            log.read(1, 1000, isolation)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR, "a reader that waits there would wait for ever"
    assert log.offset_for_timestamp(NOW)[1] == 0
    log.discard()
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_who_waits_for_the_end_of_a_transaction_learns_that_the_partition_takes_no_marker(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    """No marker can be written until a restart: an empty answer would have the reader ask for ever."""
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    log.append(batch("open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    await asyncio.shield(log.flushed(2) or asyncio.sleep(0))
    assert at_once(log.read(1, 1000, IsolationLevel.READ_COMMITTED)).records == b""
    fs.fail("fdatasync")
    log.append(batch("b"))
    await settle(manager)
    assert log.failure is not None
    assert values_of(at_once(log.read(0, 1000, IsolationLevel.READ_COMMITTED)).records) == ["a"]
    assert values_of(at_once(log.read(1, 1000)).records) == ["open"]
    with pytest.raises(KafkaError) as caught:
        log.read(1, 1000, IsolationLevel.READ_COMMITTED)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
async def test_a_sync_of_the_data_directory_that_lacks_space_or_descriptors_is_repeated(
    fs: FaultyFileSystem, manager: LogManager, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "RETRY_S", 0.01)
    log = manager.create("t", 0, CONFIG)
    left = [2]

    def refuse(operation: str, path: str) -> None:
        if operation == "sync_directory" and path == "/data" and left[0]:
            left[0] -= 1
            raise OSError(number, "failed on purpose", path)

    fs.before = refuse
    flush = log.synced(log.append(batch("a")).last_offset + 1)
    assert flush is not None
    await flush
    assert left == [0]
    assert manager.failed is None
    fs.before = None
    manager.abandon()
    fs.crash(random.Random(1))
    again = new_manager(fs)
    again.open()
    log_again = again.get("t", 0)
    assert log_again is not None
    assert values(log_again.batches()) == ["a"]
    again.abandon()


async def test_a_failed_sync_of_the_metadata_log_gives_the_directory_up(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    reported: list[KafkaError] = []
    manager.on_failure(reported.append)
    log, other = manager.create("__cluster_metadata", 0, CONFIG), manager.create("u", 0, CONFIG)
    await settle(manager)
    fs.fail("fdatasync")
    log.append(batch("a"))
    with pytest.raises(KafkaError):
        await (log.flushed(1) or asyncio.sleep(0))
    assert manager.failed is not None
    assert reported == [manager.failed]
    for refusing in (log, other):
        with pytest.raises(KafkaError):
            refusing.append(batch("b"))
    with pytest.raises(KafkaError):
        manager.create("v", 0, CONFIG)
    await manager.stop()
    assert not fs.exists("/data/.kafka_cleanshutdown")


async def test_a_failed_sync_of_the_data_directory_gives_it_up(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()

    def fail(operation: str, path: str) -> None:
        if operation == "sync_directory" and path == "/data":
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = fail
    manager.create("t", 0, CONFIG)
    await settle(manager)
    assert manager.failed is not None
    await manager.stop()


async def test_a_disk_that_takes_no_writes_at_all_gives_the_directory_up(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    await settle(manager)

    def read_only(operation: str, path: str) -> None:
        if operation not in ("read", "open"):
            raise OSError(errno.EROFS, "Read-only file system")

    fs.before = read_only
    with pytest.raises(KafkaError, match="Read-only"):
        log.append(batch("a"))
    await settle(manager)
    assert manager.failed is not None
    await manager.stop()


async def test_a_failing_logger_does_not_keep_a_failed_directory_open(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)

    class DeadSink:
        def error(self, *_: object, **__: Any) -> None:
            raise BrokenPipeError

    with monkeypatch.context() as patched:
        patched.setattr(log_manager, "logger", DeadSink())
        with pytest.raises(BrokenPipeError):
            manager._fail_directory(OSError(5, "failed on purpose"))
    with pytest.raises(KafkaError):
        log.append(batch("a"))
    await manager.stop()


async def test_a_replaced_data_directory_gives_itself_up(tmp_path: Path) -> None:
    manager = real_manager(tmp_path / "data")
    await manager.start()
    manager._look()
    assert manager.failed is None
    (tmp_path / "data").rename(tmp_path / "other")
    (tmp_path / "data").mkdir()
    manager._look()
    assert manager.failed is not None
    assert "removed, or replaced" in manager.failed.message
    await manager.stop()
    assert list((tmp_path / "data").iterdir()) == [], "nothing is written into the other directory"


# --- what is tried again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
async def test_a_checkpoint_that_fails_is_written_later(
    fs: FaultyFileSystem, manager: LogManager, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    await settle(manager)

    def refuse(operation: str, path: str) -> None:
        if "checkpoint" in path:
            raise OSError(number, "failed on purpose")

    fs.before = refuse
    manager._checkpoint()
    for _ in range(3):
        await settle(manager)
        manager._look()
    assert capsys.readouterr().out.count("housekeeping failed") == 1, "once, not each time"
    fs.before = None
    manager._look()
    await settle(manager)
    assert manager.failed is None
    assert manager.checkpoints.read("recovery-point-offset-checkpoint") == {("t", 0): 1}
    log.append(batch("b"))
    await asyncio.shield(log.flushed(2) or asyncio.sleep(0))


async def test_a_job_that_is_being_repeated_is_not_repeated_again(manager: LogManager) -> None:
    assert manager._flusher is not None
    runs = 0

    def fail() -> None:
        nonlocal runs
        runs += 1
        raise OSError(errno.EIO, "failed on purpose")

    manager._flusher.submit(fail)
    for run in range(1, 4):
        await settle(manager)
        assert runs == run
        for _ in range(3):
            manager._look()  # before the thread can report the end of the job


async def test_checkpoints_do_not_queue_up_behind_a_slow_disk(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    assert manager._flusher is not None
    go_on = threading.Event()
    tries = 0

    def until_set() -> None:
        assert go_on.wait(60)

    slow = manager._flusher.submit(until_set)

    def refuse(operation: str, path: str) -> None:
        nonlocal tries
        if operation == "open" and "recovery-point-offset-checkpoint" in path:
            tries += 1
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = refuse
    for number in range(4):
        log.append(batch("a"))
        await asyncio.shield(log.flushed(number + 1) or asyncio.sleep(0))
        manager._checkpoint()
    go_on.set()
    await slow
    await settle(manager)
    assert tries == 1
    fs.before = None
    manager._checkpoint()
    await settle(manager)
    assert manager.checkpoints.read("recovery-point-offset-checkpoint") == {("t", 0): 4}


async def test_a_job_is_not_repeated_while_another_one_with_its_name_waits(manager: LogManager) -> None:
    flushes = manager._flusher
    assert flushes is not None
    go_on = threading.Event()
    runs = 0

    def until_set() -> None:
        assert go_on.wait(60)

    def fail() -> None:
        nonlocal runs
        runs += 1
        raise OSError(errno.EIO, "failed on purpose")

    first = flushes.submit(fail, "job")
    flushes.submit(until_set, "slow job")
    flushes.submit(fail, "job")
    with pytest.raises(OSError, match="on purpose"):
        await first
    manager._look()
    go_on.set()
    await settle(manager)
    assert runs == 2
    manager._look()
    await settle(manager)
    assert runs == 3


async def test_a_checkpoint_is_not_written_while_a_failed_one_is_repeated(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    assert manager._flusher is not None
    go_on = threading.Event()
    tries = 0

    def until_set() -> None:
        assert go_on.wait(60)

    def refuse(operation: str, path: str) -> None:
        nonlocal tries
        if operation == "open" and "recovery-point-offset-checkpoint" in path:
            tries += 1
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = refuse
    log.append(batch("a"))
    await asyncio.shield(log.flushed(1) or asyncio.sleep(0))
    manager._checkpoint()
    await settle(manager)
    assert tries == 1
    slow = manager._flusher.submit(until_set)
    manager._look()
    manager._checkpoint()
    go_on.set()
    await slow
    await settle(manager)
    assert tries == 2


async def test_a_deletion_that_fails_is_finished_later(fs: FaultyFileSystem, manager: LogManager) -> None:
    manager.create("t", 0, CONFIG).append(batch("a"))
    await settle(manager)
    fs.fail("unlink")
    await manager.delete([("t", 0)])
    await settle(manager)
    assert deleted_directories(fs)
    manager._look()
    await settle(manager)
    assert not deleted_directories(fs)
    assert manager.failed is None


@pytest.mark.parametrize("killed", [False, True])
async def test_deletion_makes_room_on_a_disk_that_is_full_to_the_last_byte(fs: FaultyFileSystem, killed: bool) -> None:
    """The checkpoint had to be written before the files went, and there was no space for it."""
    manager = new_manager(fs)
    await manager.start()
    manager.create("t", 0, CONFIG).append(batch("a" * 1000))
    manager.create("kept", 0, CONFIG).append(batch("a"))
    await settle(manager)
    manager._checkpoint()
    await settle(manager)
    fs.capacity = fs.used()
    if killed:
        fs.before = failing("unlink", "-delete/", errno.EIO, times=1000)
    await manager.delete([("t", 0)])
    await settle(manager)
    if killed:
        manager.abandon()
        fs.kill()
        fs.before, fs.capacity = None, fs.used()
        manager = new_manager(fs)
        await manager.start()
        await settle(manager)
    assert not deleted_directories(fs)
    assert set(manager.checkpoints.read("recovery-point-offset-checkpoint") or ()) == {("kept", 0)}
    assert manager.lost == {}
    assert fs.used() < fs.capacity
    manager.abandon()


async def test_directories_inside_a_partition_hinder_neither_its_deletion_nor_a_start(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    for topic in ("t", "u"):
        manager.create(topic, 0, CONFIG).append(batch("a"))
        for name in ("20260101-000000.removed", "x.tmp", "y.deleted"):
            fs.make_directory(f"/data/{topic}-0/{name}/deep")
    await settle(manager)
    await manager.delete([("t", 0)])
    await settle(manager)
    assert not [name for name in fs.list("/data") if name.startswith("t-0")]
    await manager.stop()
    manager = new_manager(fs)
    manager.open()
    assert manager.offline == {}
    manager.abandon()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_sync_without_space_is_done_when_there_is_space(fs: FaultyFileSystem, number: int) -> None:
    """A file system that finds out at the sync only, and drops what it could not write."""
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    fs.before = failing("fdatasync", FIRST, number, times=1000)
    log.append(batch("a"))
    log.append(batch("b"))
    waiting = log.flushed(2)
    assert waiting is not None
    await settle(manager)
    assert not waiting.done()
    assert log.append(batch("c")).base_offset == 2
    fs.before = None
    async with asyncio.timeout(60):
        await waiting
        await (log.flushed(3) or asyncio.sleep(0))
    manager = after_power_failed(fs, manager)
    again = manager.get("t", 0)
    assert again is not None
    assert values(again.batches()) == ["a", "b", "c"]
    manager.abandon()


async def test_what_a_sync_without_space_has_dropped_is_written_again_beside_the_event_loop(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, LogConfig(durability="os", segment_bytes=1000))
    await settle(manager)
    beside = set()

    def note(operation: str, path: str) -> None:
        if operation in ("read", "write") and path.endswith(".log"):
            beside.add((operation, threading.current_thread() is threading.main_thread()))

    fs.before = failing("fdatasync", "/t-0/", errno.ENOSPC, times=1000)
    for _ in range(30):
        log.append(batch("x" * 100))
    assert len(log.segments) > 2
    waiting = log.synced(30)
    assert waiting is not None
    await settle(manager)
    fs.before = note
    async with asyncio.timeout(60):
        await asyncio.shield(waiting)
    fs.before = None
    assert ("write", False) in beside
    assert ("write", True) not in beside
    manager = after_power_failed(fs, manager)
    assert [log.log_end_offset for log in manager.logs()] == [30]
    manager.abandon()


async def test_one_thread_at_a_time_writes_again_many_batches_at_once(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    """Threads that work through many small batches share the interpreter with the event loop."""
    logs = [manager.create("t", index, LogConfig(durability="os")) for index in range(8)]
    await settle(manager)
    writes: list[int] = []

    def note(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            writes.append(threading.get_ident())

    fs.before = failing("fdatasync", ".log", errno.ENOSPC, times=1000)
    for log in logs:
        for _ in range(50):
            log.append(batch("x"))
    waiting = [log.synced(50) for log in logs]
    await settle(manager)
    fs.before = note
    async with asyncio.timeout(60):
        await asyncio.gather(*[asyncio.shield(flush) for flush in waiting if flush is not None])
    fs.before = None
    assert len(set(writes)) == 1
    assert len(writes) == len(logs)
    manager = after_power_failed(fs, manager)
    assert [log.log_end_offset for log in manager.logs()] == [50] * len(logs)
    manager.abandon()


async def test_a_sync_by_the_pool_that_finds_no_space_keeps_no_partition_from_writing_again(
    fs: FaultyFileSystem,
) -> None:
    """The flush and then the pool, which needs descriptors, sync a file without space."""
    files = PooledFileSystem(fs, 100)
    manager = new_manager(files)  # type: ignore[arg-type]
    await manager.start()
    log = manager.create("t", 0, LogConfig(durability="os"))
    await settle(manager)
    fs.before = failing("fdatasync", FIRST, errno.ENOSPC, times=1000)
    log.append(batch("a"))
    waiting = log.synced(1)
    assert waiting is not None
    await settle(manager)
    assert log.files.writes_again
    for _ in range(files.pool.unsynced()):
        files.pool.sync_oldest()
    fs.before = None
    async with asyncio.timeout(60):
        await asyncio.shield(waiting)
    assert log.append(batch("b")).base_offset == 1
    manager = after_power_failed(fs, manager)
    assert [values(log.batches())[:1] for log in manager.logs()] == [["a"]]
    manager.abandon()


@pytest.mark.parametrize(
    ("by_the_pool", "segments", "durability"), [(False, 1, "os"), (True, 1, "os"), (True, 3, "os"), (True, 3, "flush")]
)
async def test_a_stop_saves_all_records_if_there_is_space_again(
    fs: FaultyFileSystem, by_the_pool: bool, segments: int, durability: str
) -> None:
    """For each file, the pool keeps the error of its sync until the next one, although there is space by then."""
    files = PooledFileSystem(fs, 100)
    manager = new_manager(files)  # type: ignore[arg-type]
    await manager.start()
    log = manager.create("t", 0, LogConfig(durability=durability))
    await settle(manager)
    fs.before = failing("fdatasync", "/t-0/", errno.ENOSPC, times=1000)
    for number in range(segments):
        if number:
            log.roll()
        log.append(batch(f"v{number}"))
    waiting = log.synced(segments)
    assert waiting is not None
    await settle(manager)
    assert log.files.writes_again
    for _ in range(files.pool.unsynced() if by_the_pool else 0):
        files.pool.sync_oldest()
    fs.before = None
    await manager.stop()
    await waiting
    fs.crash(random.Random(1))
    manager = new_manager(fs)
    manager.open()
    assert [values(log.batches()) for log in manager.logs()] == [[f"v{number}" for number in range(segments)]]
    manager.abandon()


async def test_a_lack_of_descriptors_does_not_hide_that_a_sync_found_no_space(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    """The system reports a failed sync only once, so its bytes must be written again."""
    log = manager.create("t", 0, LogConfig(durability="os"))
    await settle(manager)
    fs.before = all_of(
        failing("fdatasync", "/t-0/00000000000000000000.log", errno.ENOSPC),
        failing("fdatasync", "/t-0/00000000000000000001.log", errno.EMFILE),
    )
    log.append(batch("a"))
    log.roll()
    log.append(batch("b"))
    waiting = log.synced(2)
    assert waiting is not None
    async with asyncio.timeout(60):
        await asyncio.shield(waiting)
    manager = after_power_failed(fs, manager)
    assert [values(log.batches()) for log in manager.logs()] == [["a", "b"]]
    manager.abandon()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_a_flush_that_waits_for_the_system_is_repeated_by_the_timer_alone(
    fs: FaultyFileSystem, manager: LogManager, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Neither its own failure nor an append requests it earlier, so a full disk costs no processor time."""
    monkeypatch.setattr(flusher, "RETRY_S", 3600)
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    tries = 0

    def before(operation: str, path: str) -> None:
        nonlocal tries
        if operation == "fdatasync" and path == FIRST:
            tries += 1
            raise OSError(number, "failed on purpose", path)

    fs.before = before
    log.append(batch("a"))
    waiting = log.flushed(1)
    assert waiting is not None
    await settle(manager)
    log.append(batch("b"))
    await settle(manager)
    assert tries == 1
    assert manager._flusher is not None
    for again in (2, 3):
        manager._flusher._flush_postponed()  # as the timer does
        await settle(manager)
        assert tries == again
    fs.before = None
    manager._flusher._flush_postponed()
    await asyncio.shield(waiting)
    await (log.flushed(2) or asyncio.sleep(0))
    assert values(log.batches()) == ["a", "b"]


async def test_a_flush_without_threads_writes_again_what_a_sync_may_have_dropped(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    fs.before = failing("fdatasync", FIRST, errno.ENOSPC)
    log.append(batch("a"))
    await settle(manager)
    assert log.files.writes_again
    log.files.flush()
    assert log.files.flushed_offset == 1
    manager = after_power_failed(fs, manager)
    assert [values(log.batches()) for log in manager.logs()] == [["a"]]
    manager.abandon()


@pytest.mark.parametrize("when", ["during the flush", "before the next one"])
async def test_records_that_are_deleted_because_a_sync_found_no_space_are_not_missed(
    fs: FaultyFileSystem, when: str
) -> None:
    """Without waiting for syncs, records may be deleted before they are on disk."""
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig(durability="os"))
    await settle(manager)
    loop = asyncio.get_running_loop()
    full = [True]

    def refuse(operation: str, path: str) -> None:
        if full and operation == "fdatasync" and path == FIRST:
            if when == "during the flush":
                loop.call_soon_threadsafe(log.delete_records_before, 1)
            raise OSError(errno.ENOSPC, "no space")

    fs.before = refuse
    log.append(batch("a"))
    log.roll()
    log.append(batch("b"))
    waiting = log.synced(2)
    assert waiting is not None
    await settle(manager)
    assert not waiting.done()
    log.delete_records_before(1)
    full.clear()
    async with asyncio.timeout(60):
        await waiting
    assert log.failure is None
    assert log.append(batch("c")).base_offset == 2
    await manager.stop()


@pytest.mark.parametrize(
    ("number", "operations"),
    [(errno.EIO, ("write",)), (errno.ENOSPC, ("write",)), (errno.ENOSPC, ("write", "truncate"))],
)
async def test_a_write_that_fails_leaves_nothing_and_the_next_one_succeeds(
    fs: FaultyFileSystem, number: int, operations: tuple[str, ...]
) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    size = log.size
    await settle(manager)
    for operation in operations:
        fs.fail(operation, number)
    with pytest.raises(KafkaError) as caught:
        log.append(batch("b"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.size == size
    assert log.append(batch("c")).base_offset == 1
    await manager.stop()
    manager = new_manager(fs)
    manager.open()
    again = manager.get("t", 0)
    assert again is not None
    assert values(again.batches()) == ["a", "c"]
    manager.abandon()


# --- one partition's stop is not another's ---------------------------------------------------------------------------


async def test_a_partition_whose_deletion_did_not_end_is_not_closed_cleanly(fs: FaultyFileSystem) -> None:
    """Its log was closed without a flush. If the directory is still there at the next start, it must be recovered."""
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    fs.before = failing("rename", "/t-0", errno.EIO)
    with pytest.raises(KafkaError, match="cannot be deleted"):
        await manager.delete([("t", 0)])
    fs.before = None
    await manager.stop()
    assert DataDirectory("/data", fs, CountingIds(), 1).clean_shutdown() == frozenset({"t-0"})


async def test_an_offline_partition_does_not_make_the_stop_unclean_for_others(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    for topic in ("t", "u"):
        manager.create(topic, 0, CONFIG).append(batch("a"))
    await manager.stop()
    flip(fs, FIRST, 16)  # the magic byte
    for _ in range(3):
        with suppress(FileNotFoundError):
            fs.unlink("/data/u-0/flushed-offset")  # so that only the clean stop says that all of u-0 is on disk
        manager = new_manager(fs)
        synced: list[str] = []
        fs.before = lambda operation, path, to=synced: to.append(path) if "sync" in operation else None
        manager.open()
        fs.before = None
        assert not [path for path in synced if "/u-0" in path], "u-0 is recovered as after a crash"
        await manager.start()
        assert manager.offline.keys() == {("t", 0)}
        assert manager.clean_start
        healthy = manager.get("u", 0)
        assert healthy is not None
        assert values(healthy.batches()) == ["a"]
        await manager.stop()
    checkpoint = manager.checkpoints.read("recovery-point-offset-checkpoint")
    assert checkpoint == {("t", 0): 1, ("u", 0): 1}


@pytest.mark.parametrize("saved", [False, True], ids=["no indexes", "saved indexes"])
@pytest.mark.parametrize("fault", ["cannot be read", "is missing"])
async def test_a_partition_that_was_not_loaded_after_a_loss_of_power_is_still_checked_for_it(
    fs: FaultyFileSystem, fault: str, saved: bool
) -> None:
    manager = new_manager(fs)
    await manager.start()
    logs = [manager.create(topic, 0, CONFIG) for topic in ("t", "u")]
    for log in logs:
        log.append(batch("acknowledged"))
    await settle(manager)
    for log in logs:
        log.files.flusher = None  # the power fails before the next flush
        log.append(batch("x" * 3000))
        log.append(batch("follows"))
        if saved:
            log.saved_state.save()
    manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): 1, ("u", 0): 1})
    manager.abandon()
    fs.kill()
    fs.boots += 1
    for topic in ("t", "u"):
        fs.open(f"/data/{topic}-0/00000000000000000000.log").write_at([bytes(512)], 1024)  # a sector that was lost

    if fault == "is missing":
        fs.rename("/data/t-0", "/data/elsewhere")
    else:
        fs.before = failing("read", FIRST, errno.EIO, times=1000)
    manager = new_manager(fs)
    manager.open()
    assert manager.get("u", 0) is not None
    assert ("t", 0) not in {(log.topic, log.partition) for log in manager.logs()}
    manager.abandon()
    fs.before = None
    fs.kill()
    if fault == "is missing":
        fs.rename("/data/elsewhere", "/data/t-0")

    for _ in range(2):
        manager = new_manager(fs)
        manager.open()
        assert manager.offline == {}
        for log in manager.logs():
            assert values(log.batches()) == ["acknowledged"]
        manager.abandon()
        fs.kill()


async def test_a_partition_that_is_not_loaded_does_not_make_others_count_as_after_a_loss_of_power(
    fs: FaultyFileSystem,
) -> None:
    manager = new_manager(fs)
    await manager.start()
    for topic in ("t", "u"):
        manager.create(topic, 0, CONFIG).append(batch("a"))
    await settle(manager)
    manager.abandon()
    fs.kill()
    fs.boots += 1
    fs.before = failing("read", FIRST, errno.EIO, times=1000)
    manager = new_manager(fs)
    await manager.start()
    assert manager.offline.keys() == {("t", 0)}
    log = manager.get("u", 0)
    assert log is not None
    log.files.flusher = None
    log.append(batch("b"))
    damaged = log.segments.active.size + 70
    for value in "cd":
        log.append(batch(value))
    manager.abandon()
    fs.kill()
    flip(fs, "/data/u-0/00000000000000000000.log", damaged)
    manager = new_manager(fs)
    manager.open()
    assert manager.offline.keys() == {("t", 0), ("u", 0)}, "a killed process cannot have torn a write before others"
    manager.abandon()


async def test_a_failing_start_leaves_the_clean_stop_as_it_was(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    manager.create("t", 0, CONFIG).append(batch("a"))
    await manager.stop()

    def exhausted(operation: str, path: str) -> None:
        if operation in ("open", "read") and "t-0" in path:
            raise OSError(errno.EMFILE, "Too many open files")

    fs.before = exhausted
    with pytest.raises(DataDirectoryError, match="Too many open files"):
        new_manager(fs).open()
    fs.before = None
    manager = new_manager(fs)
    manager.open()
    assert manager.clean_start
    manager.abandon()


# --- what is lost ----------------------------------------------------------------------------------------------------


async def test_a_lost_partition_directory_is_missed(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    manager.create("t", 0, CONFIG).append(batch("a", "b"))
    await manager.stop()
    for name in fs.list("/data/t-0"):
        fs.unlink(f"/data/t-0/{name}")
    fs.remove_directory("/data/t-0")
    for _ in range(2):
        manager = new_manager(fs)
        await manager.start()
        assert manager.lost == {("t", 0): 2}
        manager.miss(("t", 0))
        with pytest.raises(KafkaError, match=r"/data/t-0 is missing, but was on disk up to offset 2"):
            manager.get("t", 0)
        await manager.stop()


@pytest.mark.parametrize("finished", [False, True])
async def test_a_deleted_partition_is_not_missed(fs: FaultyFileSystem, finished: bool) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    await asyncio.shield(log.flushed(1) or asyncio.sleep(0))
    manager._checkpoint()
    await settle(manager)
    await manager.delete([("t", 0)])
    if finished:
        await settle(manager)
    manager.abandon()
    fs.kill()
    manager = new_manager(fs)
    manager.open()
    assert manager.lost == {}
    manager.abandon()


async def killed_while_deleting(fs: FaultyFileSystem, deleted: str, other: str) -> None:
    """Delete one of two topics, and kill the manager before the deletion is finished or in a checkpoint."""
    manager = new_manager(fs)
    await manager.start()
    for topic in (deleted, other):
        manager.create(topic, 0, CONFIG).append(batch("a"))
    await settle(manager)
    manager._checkpoint()
    await settle(manager)

    def refuse(operation: str, path: str) -> None:
        if "checkpoint" in path or (operation == "unlink" and "-delete" in path):
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = refuse
    await manager.delete([(deleted, 0)])
    await settle(manager)
    manager.abandon()
    fs.kill()
    fs.before = None


@pytest.mark.parametrize("is_of_earlier_release", [False, True])
async def test_the_deletion_of_a_partition_with_a_long_name_hides_no_other_loss(
    fs: FaultyFileSystem, is_of_earlier_release: bool
) -> None:
    prefix = "p" * 200
    deleted, lost = f"{prefix}a" + 48 * "b", f"{prefix}c"
    await killed_while_deleting(fs, deleted, lost)
    if is_of_earlier_release:  # the name was cut off after 200 characters
        (name,) = deleted_directories(fs)
        fs.rename(f"/data/{name}", f"/data/{prefix}.{name.rpartition('.')[2]}")
    else:
        fs.rename(f"/data/{lost}-0", "/data/elsewhere")
    manager = new_manager(fs)
    manager.open()
    assert manager.lost == ({} if is_of_earlier_release else {(lost, 0): 1})
    manager.abandon()


async def test_the_deletion_of_a_partition_whose_name_just_fits_hides_no_other_loss(fs: FaultyFileSystem) -> None:
    deleted = "p" * 198
    lost = f"{deleted}-0.c"
    await killed_while_deleting(fs, deleted, lost)
    fs.rename(f"/data/{lost}-0", "/data/elsewhere")
    manager = new_manager(fs)
    manager.open()
    assert manager.lost == {(lost, 0): 1}
    manager.abandon()


async def test_a_stop_and_a_start_do_not_wait_for_the_files_of_many_deleted_partitions(fs: FaultyFileSystem) -> None:
    """A stop behind the deletion of 30,000 partitions took more than a minute, and so did a start after a crash."""
    manager = await checkpointed(fs, 5, CONFIG)
    reached, go_on = threading.Event(), threading.Event()

    def wait(operation: str, path: str) -> None:
        if operation == "unlink" and "-delete" in path:
            reached.set()
            go_on.wait(10)

    fs.before = wait
    await manager.delete([("t", partition) for partition in range(5)])
    await asyncio.to_thread(reached.wait, 10)
    stopping = asyncio.create_task(manager.stop())
    while not manager._stop_begun.is_set():
        await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert len(deleted_directories(fs)) == 4
    reached.clear()
    go_on.clear()
    manager = new_manager(fs)
    await manager.start()
    assert manager.lost == {}
    assert manager.create("t", 0, CONFIG).log_end_offset == 0
    await asyncio.to_thread(reached.wait, 10)
    assert len(deleted_directories(fs)) == 4
    go_on.set()
    await settle(manager)
    assert deleted_directories(fs) == []
    await manager.stop()


async def test_left_directories_need_one_write_of_the_checkpoint_although_their_topic_exists_again(
    fs: FaultyFileSystem,
) -> None:
    """It was written anew for each directory, as soon as it contained a new partition with a deleted one's name."""
    manager = await checkpointed(fs, 5, CONFIG)
    fs.before = all_of(
        failing("open", "recovery-point-offset-checkpoint", errno.EIO, times=1000),
        failing("unlink", "-delete/", errno.EIO, times=1000),
    )
    await manager.delete([("t", partition) for partition in range(5)])
    await settle(manager)
    manager.abandon()
    fs.kill()
    reached, go_on = threading.Event(), threading.Event()
    writes = 0

    def note(operation: str, path: str) -> None:
        nonlocal writes
        if operation == "unlink" and "-delete" in path:
            reached.set()
            go_on.wait(10)
        writes += operation == "open" and "recovery-point-offset-checkpoint" in path

    fs.before = note
    manager = new_manager(fs)
    await manager.start()
    assert manager.lost == {}
    await asyncio.to_thread(reached.wait, 10)
    log = manager.create("t", 0, CONFIG)
    log.append(batch("b"))
    await asyncio.shield(log.flushed(1) or asyncio.sleep(0))
    manager._note_synced([("t", 0)])
    manager._recovery_points.write()
    before = writes
    go_on.set()
    await settle(manager)
    assert deleted_directories(fs) == []
    assert writes - before <= 1
    await manager.stop()


class Gate:
    """A point that a thread reaches, and where it waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        self.open.wait(10)


async def test_a_write_of_recovery_points_under_way_cannot_store_a_deleted_partition_that_exists_again(
    fs: FaultyFileSystem,
) -> None:
    """The write began between the rename of the directory and the removal of the recovery point.

    After a crash, the new partition looked damaged and accepted no writes.
    """
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    for _ in range(3):
        log.append(batch("a"))
    other = manager.create("u", 0, CONFIG)
    await settle(manager)
    manager._note_synced([("t", 0)])  # as by the timer, whose write has to wait for another one
    renaming, writing = Gate(), Gate()
    gates = {"rename": [renaming], "open": [writing]}

    def wait(operation: str, path: str) -> None:
        concerned = "t-0" in path if operation == "rename" else "recovery-point-offset-checkpoint" in path
        if concerned and gates.get(operation):
            gates[operation].pop().wait()

    fs.before = wait
    deleting = asyncio.create_task(manager.delete([("t", 0)]))
    await asyncio.to_thread(renaming.reached.wait, 10)
    other.append(batch("a"))
    await asyncio.shield(other.flushed(1) or asyncio.sleep(0))
    manager._checkpoint()  # as by the timer: the write waits behind the rename
    renaming.open.set()
    assert writing.reached.wait(10), "the event loop waits, too: the deletion goes on when the write has begun"
    for _ in range(20):
        await asyncio.sleep(0)
    is_deleted = deleting.done()
    if not is_deleted:
        writing.open.set()
        await deleting
    log = manager.create("t", 0, CONFIG)
    log.append(batch("b"))
    await asyncio.shield(log.flushed(1) or asyncio.sleep(0))
    writing.open.set()
    await settle(manager)
    manager.abandon()
    fs.kill()
    fs.before = None
    manager = new_manager(fs)
    manager.open()
    anew = manager.get("t", 0)
    assert anew is not None
    assert (manager.read_only, values(anew.batches()), is_deleted) == ({}, ["b"], False)
    manager.abandon()


async def test_a_deletion_does_not_wait_for_the_directories_that_an_earlier_process_has_left(
    fs: FaultyFileSystem,
) -> None:
    """The journal could not remove its files meanwhile, and a deletion needs the journal."""
    manager = new_manager(fs, journal_bytes=MIN_FILE_BYTES)
    await manager.start()
    await manager.stop()
    for number in range(2):
        fs.make_directory(f"/data/left-0.{number:032x}-delete")
        fs.open(f"/data/left-0.{number:032x}-delete/a", create=True).close()
    gate = Gate()
    fs.before = lambda operation, path: gate.wait() if operation == "unlink" and "-delete" in path else None
    manager = new_manager(fs, journal_bytes=MIN_FILE_BYTES)
    await manager.start()
    await asyncio.to_thread(gate.reached.wait, 10)
    journal = manager._journal
    assert journal is not None
    logs = [manager.create("t", partition, CONFIG) for partition in range(4)]
    for _ in range(30):  # more bytes than the files of the journal hold
        for log in logs:
            log.append(batch("a" * 500))
        await asyncio.gather(*(asyncio.shield(log.flushed(log.log_end_offset) or asyncio.sleep(0)) for log in logs))
        journal.maintain()
    deleting = asyncio.create_task(manager.delete([("t", 0)]))
    done, _ = await asyncio.wait([deleting], timeout=5)
    gate.open.set()
    await deleting
    assert done
    await settle(manager)
    assert deleted_directories(fs) == []
    await manager.stop()


async def test_a_start_drops_the_recovery_points_of_deleted_partitions(fs: FaultyFileSystem) -> None:
    """The first creation of a deleted name wrote the whole checkpoint on the event loop."""
    manager = await checkpointed(fs, 2, CONFIG)
    fs.before = all_of(
        failing("open", "recovery-point-offset-checkpoint", errno.EIO, times=1000),
        failing("unlink", "-delete/", errno.EIO, times=1000),
    )
    await manager.delete([("t", 0)])
    await settle(manager)
    manager.abandon()
    fs.kill()
    gate = Gate()
    fs.before = lambda operation, path: gate.wait() if operation == "unlink" and "-delete" in path else None
    manager = new_manager(fs)
    await manager.start()
    assert await asyncio.to_thread(gate.reached.wait, 10)
    fs.before = failing("open", "recovery-point-offset-checkpoint", errno.EIO, times=1000)
    assert manager.create("t", 0, CONFIG).log_end_offset == 0
    fs.before = None
    gate.open.set()
    await settle(manager)
    await manager.stop()


async def test_the_directories_of_deleted_partitions_that_exist_again_are_removed_without_writes_of_the_checkpoint(
    fs: FaultyFileSystem,
) -> None:
    """It was written anew for each directory, once it contained the recovery point of the new partition."""
    manager = await checkpointed(fs, 20, CONFIG)
    gate = Gate()
    writes = 0

    def note(operation: str, path: str) -> None:
        nonlocal writes
        if operation == "unlink" and "-delete/" in path:
            gate.wait()
        writes += operation == "open" and "recovery-point-offset-checkpoint" in path

    fs.before = note
    await manager.delete([("t", partition) for partition in range(20)])
    logs = [manager.create("t", partition, CONFIG) for partition in range(20)]
    for log in logs:
        log.append(batch("b"))
    for log in logs:
        await asyncio.shield(log.flushed(1) or asyncio.sleep(0))
    manager._note_synced([("t", partition) for partition in range(20)])
    await asyncio.to_thread(manager._recovery_points.write)
    before = writes
    gate.open.set()
    await settle(manager)
    assert (deleted_directories(fs), writes) == ([], before)
    await manager.stop()


async def test_a_partition_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    manager = real_manager(data)
    manager.open()
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    log.flush()
    manager.abandon()
    (data / "t-0").rename(elsewhere)
    (data / "t-0").symlink_to(elsewhere)
    manager = real_manager(data)
    manager.open()
    with pytest.raises(KafkaError, match="symbolic link"):
        manager.get("t", 0)
    await manager.delete([("t", 0)])
    assert not (data / "t-0").is_symlink()
    assert list(data.glob("*-delete")) == []
    assert (elsewhere / "00000000000000000000.log").stat().st_size, "nothing outside of the directory is deleted"
    manager.abandon()


def test_removing_the_lock_file_lets_no_second_broker_in(tmp_path: Path) -> None:
    first = real_manager(tmp_path / "data")
    first.open()
    (tmp_path / "data" / ".lock").unlink()
    with pytest.raises(DataDirectoryError, match="in use by another process"):
        real_manager(tmp_path / "data").open()
    first.abandon()


async def test_a_partition_is_not_made_anew_before_its_deletion_has_succeeded(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    """It would have the records of the old one."""
    manager.create("t", 0, CONFIG).append(batch("old"))
    await settle(manager)
    fs.fail("rename")
    with pytest.raises(KafkaError):
        await manager.delete([("t", 0)])
    with pytest.raises(KafkaError, match="still being deleted"):
        manager.create("t", 0, CONFIG)
    await manager.delete([("t", 0)])
    assert manager.create("t", 0, CONFIG).log_end_offset == 0


@pytest.mark.parametrize("operation", ["make_directory", "open"])
async def test_what_a_failed_creation_has_left_goes_with_the_topic(fs: FaultyFileSystem, operation: str) -> None:
    """The next start would take it for a partition of an unknown topic, and refuse a new topic with this name."""
    manager = new_manager(fs)
    await manager.start()
    fs.fail(operation, errno.EMFILE)
    with pytest.raises(KafkaError):
        manager.create("t", 0, CONFIG)
    assert manager.holds("t", 0)
    await manager.delete([("t", 0)])
    assert not manager.holds("t", 0)
    await settle(manager)
    assert not [name for name in fs.list("/data") if name.startswith("t-0")]
    await manager.stop()


def test_a_checkpoint_that_cannot_be_looked_up_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the log start offsets, deleted records would come back, and the checkpoint would be replaced."""
    first = real_manager(tmp_path)
    first.open()
    log = first.create("t", 0, CONFIG)
    for value in ("deleted", "kept"):
        log.append(batch(value))
    log.flush()
    log.delete_records_before(1)
    first.abandon()
    lstat = os.lstat

    def refuse(path: str) -> os.stat_result:
        if path.endswith("log-start-offset-checkpoint"):
            raise OSError(errno.EIO, "failed on purpose", path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", refuse)
    with pytest.raises(DataDirectoryError, match="failed on purpose"):
        real_manager(tmp_path).open()
    monkeypatch.undo()
    again = real_manager(tmp_path)
    again.open()
    assert [log.log_start_offset for log in again.logs()] == [1]
    again.abandon()


# --- compaction ------------------------------------------------------------------------------------------------------


async def test_no_log_is_compacted_while_its_recovery_point_cannot_be_written(fs: FaultyFileSystem) -> None:
    """After a crash, gaps in segments above the recovery point would count as a torn tail."""
    manager = new_manager(fs, cleaner_enable=True)
    await manager.start()
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    for number in range(10):
        log.append(batch(f"v{number}", key=b"k"))
    await settle(manager)
    fs.before = failing("write", "recovery-point-offset-checkpoint", errno.ENOSPC, times=1000)
    await manager._clean_all()
    assert len(values(log.batches())) == 10
    fs.before = None
    await manager._clean_all()
    assert len(values(log.batches())) < 10
    await manager.stop()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["rename", "unlink", "sync_directory"])
async def test_a_compaction_that_cannot_replace_files_takes_nothing_offline(
    fs: FaultyFileSystem, operation: str, number: int
) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    for value in range(20):
        log.append(batch(f"value {value}", key=b"k%d" % (value % 3)))
    await settle(manager)
    for allowed in range(4):
        left = [allowed]

        def refuse(what: str, path: str, left: list[int] = left) -> None:
            if what == operation and "t-0" in path:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(number, "failed on purpose")

        fs.before = refuse
        await manager._clean_all()
        manager._look()
        await settle(manager)
        fs.before = None
    manager._look()
    await settle(manager)
    await manager._clean_all()
    assert log.failure is None
    assert manager.failed is None
    assert values(log.batches())[-3:] == ["value 17", "value 18", "value 19"]
    assert log.append(batch("more")).base_offset == 20
    await manager.stop()
    assert not [name for name in fs.list("/data/t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
    manager = new_manager(fs)
    manager.open()
    again = manager.get("t", 0)
    assert again is not None
    assert values(again.batches())[-4:] == ["value 17", "value 18", "value 19", "more"]
    manager.abandon()


async def test_a_compaction_makes_damaged_indexes_again_beside_the_event_loop(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    for value in range(20):
        aborted = value % 2 == 1
        log.append(
            batch(
                f"{'aborted' if aborted else 'value'} {value}",
                key=b"k%d" % (value % 3),
                producer_id=1,
                producer_epoch=0,
                base_sequence=value,
                transactional=True,
            )
        )
        log.append(bytearray(control_batch(not aborted, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    await settle(manager)
    for segment in list(log.segments)[:-1]:
        segment.release()
        flip(fs, segment.path(".checksums"), 9)
    readers = set()

    def note(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".log"):
            readers.add(threading.get_ident())

    fs.before = note
    await manager._clean_all()
    fs.before = None
    assert threading.get_ident() not in readers
    assert not [value for value in values(log.batches(end=log.segments.active.base_offset)) if "aborted" in value]
    await manager.stop()
