"""Errors that are no OSError, as want of memory or a bug: housekeeping is tried again, log data is not acknowledged."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, LogConfig, LogManager, PartitionLog
from oncelog.broker.log.log_files import LogFiles
from oncelog.broker.log.saved_state import SavedState
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import at_once, batch, new_manager, settle, values, values_of

CONFIG = LogConfig()
ENOUGH_S = 10
UNEXPECTED = [MemoryError("no memory"), AssertionError("a bug"), RecursionError("too deep")]


async def flushed(log: PartitionLog, end_offset: int) -> None:
    async with asyncio.timeout(ENOUGH_S):
        await asyncio.shield(log.flushed(end_offset) or asyncio.sleep(0))


def raising(error: Exception, operation: str, part: str, *, once: bool = True) -> Callable[[str, str], None]:
    """A hook of the file system: `error` at the operation on a path that contains `part`."""
    left = [1]

    def hook(name: str, path: str) -> None:
        if name == operation and part in path and left[0]:
            left[0] -= once
            raise error

    return hook


def raising_once(error: Exception, method: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """`method`, whose first call (for the log of that name) raises."""
    left = [1]

    def broken(log: Any, *arguments: Any, **options: Any) -> Any:
        if left[0] and (not name or log.name == name):
            left[0] -= 1
            raise error
        return method(log, *arguments, **options)

    return broken


# --- housekeeping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_a_checkpoint_that_fails_unexpectedly_is_written_later(
    fs: FaultyFileSystem, manager: LogManager, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    await settle(manager)
    fs.before = raising(error, "write", "recovery-point-offset-checkpoint")
    manager._checkpoint()
    await settle(manager)
    assert manager.failed is None
    printed = capsys.readouterr().out
    assert "housekeeping failed" in printed
    assert repr(error)[:8] in printed
    log.append(batch("b"))
    await flushed(log, 2)
    manager._look()
    await settle(manager)
    assert manager.checkpoints.read("recovery-point-offset-checkpoint") == {("t", 0): 1}


async def test_records_are_deleted_although_the_start_offset_could_not_be_written_at_first(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a", "b"))
    await flushed(log, 2)
    fs.before = raising(MemoryError(), "write", "log-start-offset-checkpoint")
    log.delete_records_before(1)
    with pytest.raises(KafkaError) as caught:
        await manager.start_offsets_on_disk()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.failed is None
    manager._look()
    await manager.start_offsets_on_disk()
    assert manager.checkpoints.read("log-start-offset-checkpoint") == {("t", 0): 1}


async def test_a_deletion_that_fails_unexpectedly_is_finished_later(fs: FaultyFileSystem, manager: LogManager) -> None:
    manager.create("t", 0, CONFIG).append(batch("a"))
    await settle(manager)
    fs.before = raising(RecursionError(), "unlink", "t-0")
    await manager.delete([("t", 0)])
    await settle(manager)
    assert manager.failed is None
    assert [name for name in fs.list("/data") if name.endswith("-delete")]
    manager._look()
    await settle(manager)
    assert not [name for name in fs.list("/data") if name.endswith("-delete")]


@pytest.mark.parametrize("part", ["flushed-offset", ".index"])
async def test_a_file_that_recovery_can_do_without_keeps_no_record_from_being_acknowledged(
    fs: FaultyFileSystem, manager: LogManager, part: str
) -> None:
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    await settle(manager)
    log.roll()
    fs.before = raising(MemoryError(), "write" if part == "flushed-offset" else "fdatasync", part, once=False)
    log.append(batch("b"))
    await flushed(log, 2)
    assert log.failure is None
    assert values_of(at_once(log.read(0, 1000)).records) == ["a"]


async def test_the_state_of_other_logs_is_saved_although_that_of_one_cannot_be(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [manager.create(topic, 0, LogConfig(save_interval_bytes=1)) for topic in "tu"]
    for log in logs:
        log.append(batch("a"))
    await settle(manager)
    monkeypatch.setattr(SavedState, "save_grown", raising_once(MemoryError(), SavedState.save_grown))
    await manager._save_all(logs)
    assert [log.has_grown for log in logs] == [True, False]
    await manager._save_all(logs)
    assert [log.has_grown for log in logs] == [False, False]


async def test_retention_goes_on_behind_a_log_in_which_it_fails_unexpectedly(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [manager.create(topic, 0, LogConfig(retention_bytes=0)) for topic in "tu"]
    for log in logs:
        log.append(batch("a"))
        log.roll()
    await settle(manager)
    monkeypatch.setattr(PartitionLog, "retain_in_steps", raising_once(MemoryError(), PartitionLog.retain_in_steps))
    await manager._retain_all()
    assert [log.log_start_offset for log in logs] == [0, 1]


@pytest.mark.parametrize("part", [".index", ".log.cleaned", ".log.swap"])
async def test_a_compaction_that_cannot_replace_files_unexpectedly_is_finished_later(
    fs: FaultyFileSystem, manager: LogManager, part: str
) -> None:
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    for value in range(20):
        log.append(batch(f"value {value}", key=b"k%d" % (value % 3)))
    await settle(manager)
    fs.before = raising(MemoryError(), "rename", part)
    await manager._clean_all()
    await settle(manager)
    fs.before = None
    manager._look()
    await manager._clean_all()
    await settle(manager)
    assert log.failure is None
    assert manager.failed is None
    assert not [name for name in fs.list("/data/t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert values(log.batches())[-3:] == ["value 17", "value 18", "value 19"]


async def test_a_stop_closes_every_log_although_one_cannot_be_closed_cleanly(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = new_manager(fs)
    await manager.start()
    for topic in "tu":
        manager.create(topic, 0, CONFIG).append(batch("a"))

    def broken(_: PartitionLog) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "prepare_close", broken)
        await manager.stop()
    manager = new_manager(fs)
    await manager.start()
    assert manager.clean_start
    for topic in "tu":
        log = manager.get(topic, 0)
        assert log is not None
        assert values_of(at_once(log.read(0, 1000)).records) == ["a"]
    await manager.stop()


async def test_a_disk_that_takes_no_writes_is_found_out_although_the_probe_had_no_memory_at_first(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    left = [1]

    def read_only(operation: str, path: str) -> None:
        if path.endswith("/.probe.tmp") and left[0]:
            left[0] = 0
            raise MemoryError
        if operation in ("write", "fdatasync", "truncate"):
            raise OSError(errno.EROFS, "Read-only file system")

    fs.before = read_only
    with pytest.raises(KafkaError):
        log.append(batch("a"))
    await settle(manager)
    assert manager.failed is None
    manager._look()
    await settle(manager)
    manager._look()
    assert manager.failed is not None
    fs.before = None


# --- log data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_an_unexpected_error_of_a_sync_takes_writes_from_its_partition_alone(
    fs: FaultyFileSystem, manager: LogManager, error: Exception
) -> None:
    log, other = manager.create("t", 0, CONFIG), manager.create("u", 0, CONFIG)
    await settle(manager)
    fs.before = raising(error, "fdatasync", "t-0/00000000000000000000.log")
    log.append(batch("a"))
    with pytest.raises(KafkaError) as caught:
        await flushed(log, 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.high_watermark == 0, "what may not be on disk is not shown"
    assert manager.failed is None
    with pytest.raises(KafkaError):
        log.append(batch("b"))
    other.append(batch("b"))
    await flushed(other, 1)


async def test_an_unexpected_error_of_a_sync_of_the_metadata_log_gives_the_directory_up(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("__cluster_metadata", 0, CONFIG)
    await settle(manager)
    fs.before = raising(AssertionError("a bug"), "fdatasync", "__cluster_metadata-0/00000000000000000000.log")
    log.append(batch("a"))
    with pytest.raises(KafkaError):
        await flushed(log, 1)
    assert manager.failed is not None


@pytest.mark.parametrize("method", ["begin_flush", "finish_flush"])
async def test_an_unexpected_error_before_or_behind_a_sync_fails_its_waiters(
    manager: LogManager, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = manager.create("t", 0, CONFIG), manager.create("u", 0, CONFIG)
    await settle(manager)
    broken = raising_once(AssertionError("a bug"), getattr(LogFiles, method), "t-0")
    monkeypatch.setattr(LogFiles, method, broken)
    log.append(batch("a"))
    other.append(batch("b"))
    first, second = log.flushed(1), other.flushed(1)
    assert first is not None
    assert second is not None
    with pytest.raises(KafkaError):
        async with asyncio.timeout(ENOUGH_S):
            await first
    async with asyncio.timeout(ENOUGH_S):
        await second
    assert log.high_watermark == 0
    with pytest.raises(KafkaError):
        log.append(batch("c"))


async def test_an_unexpected_error_of_a_listener_leaves_no_writer_waiting(manager: LogManager) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)

    def listener(_: PartitionLog) -> None:
        if log.failure is None:
            log.append(batch("b"))
            waiting.append(log.flushed(2))
            raise AssertionError("a bug")

    waiting: list[asyncio.Future[None] | None] = []
    log.add_listener(listener)
    log.append(batch("a"))
    await flushed(log, 1)
    assert waiting[0] is not None
    with pytest.raises(KafkaError):
        async with asyncio.timeout(ENOUGH_S):
            await waiting[0]


async def test_an_append_that_breaks_behind_its_write_is_the_last_one(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has a batch of which the memory does not know: the next one would get the same offset."""
    log = manager.create("t", 0, CONFIG)
    monkeypatch.setattr(PartitionLog, "_take_up", raising_once(MemoryError(), PartitionLog._take_up))
    with pytest.raises(KafkaError) as caught:
        log.append(batch("a"), origin=AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.append(batch("b"))
    assert manager.failed is None


async def test_a_write_without_memory_for_a_new_segment_is_refused_and_a_later_one_succeeds(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, LogConfig(segment_bytes=100))
    log.append(batch("a"))
    await settle(manager)
    fs.before = raising(MemoryError(), "write", ".checksums")
    with pytest.raises(KafkaError) as caught:
        log.append(batch("b"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.append(batch("c")).base_offset == 1
    await flushed(log, 2)


async def test_a_rewrite_without_memory_fails_its_waiters(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    fs.fail("fdatasync", errno.ENOSPC)
    fs.before = raising(MemoryError(), "read", "t-0")
    log.append(batch("a"))
    with pytest.raises(KafkaError):
        await flushed(log, 1)
