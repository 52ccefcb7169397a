"""The log start offsets are recorded beside the event loop, for many partitions at a time, before any file goes."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest
from oncelog.broker.log import LogConfig, LogManager
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import StandingClock, batch, new_manager, settle, values

CHECKPOINT = "log-start-offset-checkpoint"
ROLLING = LogConfig(segment_bytes=100, retention_ms=1000)


async def filled(manager: LogManager, partitions: int) -> None:
    """Five records, a segment each, in every partition."""
    await manager.start()
    for number in range(partitions):
        log = manager.create("t", number, ROLLING)
        for value in range(5):
            log.append(batch(str(value)))
    await settle(manager)


def segments(fs: FaultyFileSystem, partition: int) -> list[str]:
    return [name for name in fs.list(f"/data/t-{partition}") if name.endswith(".log")]


async def test_retention_records_the_start_offsets_of_many_partitions_in_few_writes_beside_the_loop(
    fs: FaultyFileSystem,
) -> None:
    clock = StandingClock()
    manager = new_manager(fs, clock)
    await filled(manager, 100)
    writes: list[str] = []
    blocking: list[str] = []
    all_moved = threading.Event()

    def note(operation: str, path: str) -> None:
        if operation == "rename" and CHECKPOINT in path:
            writes.append(path)
            assert all_moved.wait(10), "a disk is slower than the retention of 100 partitions"
        if operation in ("fdatasync", "sync_directory") and threading.current_thread() is threading.main_thread():
            blocking.append(path)

    fs.before = note
    clock.now += 5000
    await manager._retain_all()
    all_moved.set()
    await manager.start_offsets_on_disk()
    await settle(manager)
    assert all(log.log_start_offset == 5 for log in manager.logs())
    assert len(writes) == 2, "what moved during the first write is in the second one"
    assert blocking == []
    await settle(manager)
    assert len(manager.checkpoints.read(CHECKPOINT) or ()) == 100
    assert [len(segments(fs, number)) for number in range(100)] == [1] * 100
    await manager.stop()


async def test_a_start_offset_that_moves_during_a_failing_write_is_recorded_by_the_next_one(
    fs: FaultyFileSystem,
) -> None:
    manager = new_manager(fs)
    await filled(manager, 2)
    begun, go_on = threading.Event(), threading.Event()

    def fail_once(operation: str, path: str) -> None:
        if CHECKPOINT in path and not begun.is_set():
            begun.set()
            assert go_on.wait(10)
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = fail_once
    log, other = manager.get("t", 0), manager.get("t", 1)
    assert log is not None
    assert other is not None
    log.delete_records_before(-1)
    async with asyncio.timeout(60):
        while not begun.is_set():
            await asyncio.sleep(0)
    first = asyncio.ensure_future(manager.start_offsets_on_disk())
    await asyncio.sleep(0)
    other.delete_records_before(-1)
    second = asyncio.ensure_future(manager.start_offsets_on_disk())
    go_on.set()
    with pytest.raises(KafkaError, match="failed on purpose"):
        await first
    await second
    await settle(manager)
    assert manager.checkpoints.read(CHECKPOINT) == {("t", 0): 5, ("t", 1): 5}
    assert [len(segments(fs, number)) for number in range(2)] == [1, 1]
    await manager.stop()


async def test_a_stop_records_what_moved_during_a_write(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 2)
    begun, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "rename" and CHECKPOINT in path and not begun.is_set():
            begun.set()
            assert go_on.wait(10)

    fs.before = hold
    logs = list(manager.logs())
    logs[0].delete_records_before(-1)
    async with asyncio.timeout(60):
        while not begun.is_set():
            await asyncio.sleep(0)
    logs[1].delete_records_before(-1)
    stopping = asyncio.ensure_future(manager.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    manager = new_manager(fs)
    manager.open()
    assert [log.log_start_offset for log in manager.logs()] == [5, 5]
    assert [len(segments(fs, number)) for number in range(2)] == [1, 1]
    manager.abandon()


async def test_no_segment_goes_before_the_new_start_is_recorded(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 1)

    def refuse(operation: str, path: str) -> None:
        if CHECKPOINT in path:
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = refuse
    log = manager.get("t", 0)
    assert log is not None
    assert log.delete_records_before(-1) == 5
    with pytest.raises(KafkaError) as caught:
        await manager.start_offsets_on_disk()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await settle(manager)
    assert len(segments(fs, 0)) == 5
    fs.before = None
    manager._look()
    await settle(manager)
    await settle(manager)
    assert manager.checkpoints.read(CHECKPOINT) == {("t", 0): 5}
    assert len(segments(fs, 0)) == 1
    await manager.stop()


async def test_who_deletes_records_waits_for_a_write_that_began_before(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 1)
    begun, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "rename" and CHECKPOINT in path:
            begun.set()
            assert go_on.wait(10)

    fs.before = hold
    log = manager.get("t", 0)
    assert log is not None
    log.delete_records_before(3)
    async with asyncio.timeout(60):
        while not begun.is_set():
            await asyncio.sleep(0)
    waiting = asyncio.ensure_future(manager.start_offsets_on_disk())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set()
    await waiting
    assert manager.checkpoints.read(CHECKPOINT) == {("t", 0): 3}
    await manager.stop()


async def test_a_write_under_way_does_not_give_a_partition_made_anew_the_old_start(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 2)
    begun, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "write" and CHECKPOINT in path and not begun.is_set():
            begun.set()
            assert go_on.wait(10)

    fs.before = hold
    log, other = manager.get("t", 0), manager.get("t", 1)
    assert log is not None
    assert other is not None
    log.delete_records_before(4)
    async with asyncio.timeout(60):
        while not begun.is_set():
            await asyncio.sleep(0)
    deletion = asyncio.ensure_future(manager.delete([("t", 0)]))
    await asyncio.sleep(0)
    other.delete_records_before(2)
    go_on.set()
    await deletion
    again = manager.create("t", 0, ROLLING)
    again.append(batch("new"))
    again.flushed(1)
    manager.abandon()
    fs.kill()
    manager = new_manager(fs)
    manager.open()
    reopened = manager.get("t", 0)
    assert reopened is not None
    assert values(reopened.batches()) == ["new"]
    manager.abandon()


async def test_a_flush_does_not_wait_for_segments_that_are_being_unlinked(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 1)
    begun, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "unlink" and ".log" in path and not begun.is_set():
            begun.set()
            assert go_on.wait(10)

    fs.before = hold
    log = manager.get("t", 0)
    assert log is not None
    log.delete_records_before(-1)
    async with asyncio.timeout(60):
        while not begun.is_set():
            await asyncio.sleep(0)
    log.append(batch("behind"))
    flush = log.flushed(6)
    assert flush is not None
    try:
        async with asyncio.timeout(60):
            await flush
    finally:
        go_on.set()
    await settle(manager)
    assert fs.list("/data/t-0").count("00000000000000000005.log") == 1
    assert len(segments(fs, 0)) == 2
    await manager.stop()


async def test_a_deletion_syncs_nothing_on_the_loop_and_the_data_directory_once(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 100)
    for log in manager.logs():
        log.delete_records_before(-1)
    await manager.start_offsets_on_disk()
    manager._checkpoint()
    await settle(manager)
    syncs: list[str] = []
    blocking: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "sync_directory" and path == "/data":
            syncs.append(path)
        on_loop = threading.current_thread() is threading.main_thread()
        if on_loop and operation in ("fdatasync", "sync_directory", "rename", "unlink"):
            blocking.append(path)

    fs.before = note
    await manager.delete([("t", number) for number in range(100)])
    assert len(syncs) == 3, "for the renamed directories and two checkpoints"
    manager.create("t", 0, ROLLING)
    assert blocking == []
    await settle(manager)
    assert [name for name in fs.list("/data") if name.startswith("t-")] == ["t-0"]
    await manager.stop()


async def test_a_deletion_that_failed_can_be_repeated(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await filled(manager, 2)
    fs.fail("rename")
    with pytest.raises(KafkaError) as caught:
        await manager.delete([("t", 0), ("t", 1)])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.holds("t", 0)
    assert manager.get("t", 0) is None
    await manager.delete([("t", 0), ("t", 1)])
    assert not manager.holds("t", 0)
    await settle(manager)
    assert [name for name in fs.list("/data") if name.startswith("t-")] == []
    await manager.stop()
