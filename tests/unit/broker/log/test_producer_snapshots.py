"""Snapshots of a log's producers are written in a thread, later than they were begun, or after a crash never."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from oncelog.broker.log import AppendOrigin, LoadPoint, LogConfig, LogManager, PartitionLog, snapshot_writer
from oncelog.broker.log.cleaner import Cleaner, CleaningPlan
from oncelog.broker.log.producer_state import ProducerStateEntry
from oncelog.broker.log.producer_state_manager import ProducerStateManager
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.broker.system.ports import Lane
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads, PowerFailure
from support.journals import failing
from support.logs import NOW, batch, new_manager, open_log, settle
from support.turns import turns_during

DIRECTORY = "/data/t-0"
KILLED = LoadPoint(same_boot=True)

T = TypeVar("T")


def of(producer_id: int, sequence: int = 0, **options: Any) -> bytearray:
    return batch(
        f"{producer_id}: {sequence}", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options
    )


def snapshot_at(fs: FaultyFileSystem, offset: int) -> str:
    return f"{DIRECTORY}/{offset:020}.snapshot"


def state(producers: ProducerStateManager) -> dict[int, object]:
    return {
        entry.producer_id: (
            entry.producer_epoch,
            [batch[:3] for batch in entry.batches],
            entry.current_txn_first_offset,
        )
        for entry in producers.entries()
    }


class HeldSnapshots(InlineThreads):
    """Threads in which housekeeping waits until it is released."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Any], asyncio.Future[Any]]] | None = None

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        if self.held is None or lane is not Lane.HOUSEKEEPING:
            return super().run(lane, job)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.held.append((job, future))
        return future

    def release(self) -> None:
        held, self.held = self.held or [], None
        for job, future in held:
            self._do(job, future)


# --- where and when ---------------------------------------------------------------------------------------------------


async def test_the_event_loop_neither_encodes_nor_writes_a_snapshot(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, LogConfig(unsaved_bytes=0))
    used: list[int] = []

    def note(operation: str, path: str) -> None:
        if ".snapshot" in path and operation != "exists":
            used.append(threading.get_ident())

    fs.before = note
    log.append(of(1))
    log.roll()
    await settle(manager)
    for sequence in range(1, 3):
        log.append(of(1, sequence))
        log.saved_state.save_grown()
        await settle(manager)
    log.append(of(1, 3))
    await manager.stop()
    assert len(used) >= 4 * 3
    assert threading.get_ident() not in used
    assert [name for name in sorted(fs.list(DIRECTORY)) if name.endswith(".snapshot")] == [
        f"{offset:020}.snapshot" for offset in (1, 3, 4)
    ]


async def test_beginning_a_snapshot_copies_no_producer_and_the_next_batch_copies_its_own_once(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = HeldSnapshots()
    manager = new_manager(fs, threads=threads)
    await manager.start()
    log = manager.create("t", 0, LogConfig())
    for producer_id in range(20):
        log.append(of(producer_id))
    await settle(manager)
    copied: list[int] = []
    copy = ProducerStateEntry.copy

    def counted(entry: ProducerStateEntry) -> ProducerStateEntry:
        copied.append(entry.producer_id)
        return copy(entry)

    monkeypatch.setattr(ProducerStateEntry, "copy", counted)
    threads.held = []
    log.roll()
    assert not copied
    for sequence in range(1, 4):
        log.append(of(7, sequence))
    assert copied == [7]
    threads.release()
    await manager.stop()


async def test_a_snapshot_has_the_state_as_of_its_offset_whatever_happens_before_it_is_written(
    fs: FaultyFileSystem,
) -> None:
    threads = HeldSnapshots()
    manager = new_manager(fs, threads=threads)
    await manager.start()
    log = manager.create("t", 0, LogConfig(unsaved_bytes=0))
    for producer_id in range(4):
        log.append(of(producer_id, transactional=producer_id < 2))
    await settle(manager)
    before = state(log.producers)
    threads.held = []
    log.roll()
    log.append(of(0, 1, transactional=True))
    log.append(bytearray(control_batch(True, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.append(of(2, 1))
    log.append(of(9))
    run_at_once(log.producers.expire(1e9 + NOW, 1))
    after = state(log.producers)
    assert list(after) == [0]
    assert not fs.exists(snapshot_at(fs, 4))
    threads.release()
    await settle(manager)
    found = ProducerStateManager(fs, DIRECTORY, "t-0")
    assert found.load(0, 4, [4]) == 4
    assert state(found) == before
    assert state(log.producers) == after
    assert [entry.producer_id for entry in found.open_transactions()] == [0, 1]
    await manager.stop()


async def test_a_log_with_too_many_unwritten_snapshots_begins_no_segment(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_writer, "_MOST_PENDING", 10_000)
    threads = HeldSnapshots()
    manager = new_manager(fs, threads=threads)
    await manager.start()
    log = manager.create("t", 0, LogConfig(segment_bytes=200, durability="os"))
    threads.held = []
    for sequence in range(30):
        log.append(of(1, sequence))
    assert len(log.segments) == 4
    threads.release()
    await settle(manager)
    log.append(of(1, 30))
    assert len(log.segments) == 5
    await manager.stop()


async def test_a_snapshot_that_cannot_be_written_fails_no_append_and_is_written_later(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, LogConfig())
    log.append(of(1))
    fs.before = failing("write", ".snapshot", errno.EIO, times=1)
    log.roll()
    await settle(manager)
    assert not fs.exists(snapshot_at(fs, 1))
    log.append(of(1, 1))
    assert not log.producers.is_saved_at(1)
    manager._look()
    await settle(manager)
    assert fs.exists(snapshot_at(fs, 1))
    assert log.failure is None
    assert not log.snapshots.are_pending
    assert log.producers.is_saved_at(1)


async def test_a_stop_writes_what_is_not_written(fs: FaultyFileSystem) -> None:
    threads = HeldSnapshots()
    manager = new_manager(fs, threads=threads)
    await manager.start()
    log = manager.create("t", 0, LogConfig())
    log.append(of(1))
    await settle(manager)
    threads.held = []
    log.roll()
    stopping = asyncio.ensure_future(manager.stop())
    for _ in range(20):
        await asyncio.sleep(0)
    threads.release()
    await stopping
    assert fs.exists(snapshot_at(fs, 1))
    manager = new_manager(fs)
    manager.open()
    assert manager.clean_start
    reopened = manager.get("t", 0)
    assert reopened is not None
    assert reopened.append(of(1)).duplicate
    manager.abandon()


async def test_the_snapshot_of_a_deleted_partition_is_not_written_into_a_new_one_of_its_name(
    fs: FaultyFileSystem,
) -> None:
    threads = HeldSnapshots()
    manager = new_manager(fs, threads=threads)
    await manager.start()
    log = manager.create("t", 0, LogConfig())
    log.append(of(1))
    await settle(manager)
    threads.held = []
    log.roll()
    (snapshot,) = threads.held
    threads.held.clear()
    deletion = asyncio.ensure_future(manager.delete([("t", 0)]))
    await asyncio.sleep(0)
    threads.release()
    await deletion
    manager.create("t", 0, LogConfig())
    threads._do(*snapshot)
    assert not [name for name in fs.list(DIRECTORY) if ".snapshot" in name]
    await manager.stop()


# --- segments are deleted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_snapshot_that_a_crash_has_lost_is_made_again_before_its_batches_are_deleted(
    fs: FaultyFileSystem, how: str
) -> None:
    log = open_log(fs)
    log.append(of(1, transactional=True))
    log.append(of(2))
    log.roll()
    log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.append(of(3))
    log.roll()
    log.append(batch("plain"))
    log.flush()
    for offset in (2, 4):
        if how == "missing":
            fs.unlink(snapshot_at(fs, offset))
        else:
            fs._get(snapshot_at(fs, offset)).data[20] ^= 0xFF
    fs.kill()
    log = open_log(fs, point=KILLED)
    expected = state(log.producers)
    log.delete_records_before(4)
    fs.kill()
    log = open_log(fs, point=LoadPoint(same_boot=True, recovery_point=5, log_start_offset=4))
    assert state(log.producers) == expected
    for producer_id in (2, 3):
        assert log.append(of(producer_id)).duplicate
    with pytest.raises(KafkaError, match="sequence 0, which it has used in an earlier transaction"):
        log.append(of(1, transactional=True))  # the transaction with the sequence 0 was aborted
    log.close()


@pytest.mark.parametrize("seed", range(10))
def test_a_start_removes_no_snapshot_that_is_the_only_one_on_disk(fs: FaultyFileSystem, seed: int) -> None:
    log = open_log(fs)
    log.append(of(1))
    log.roll()
    log.append(batch("plain"))
    log.flush()
    for name in fs.list(DIRECTORY):
        if name.endswith(".snapshot"):
            fs.unlink(f"{DIRECTORY}/{name}")
    fs.kill()
    log = open_log(fs, point=LoadPoint(same_boot=True, recovery_point=2, log_start_offset=1))
    assert fs.exists(snapshot_at(fs, 2))  # on disk, because the producer's batch is deleted
    log.append(batch("plain"))
    log.flush()
    log.close()
    log.producers.take_snapshot()  # as a clean stop does, without a sync
    fs.kill()
    open_log(fs, point=LoadPoint(same_boot=True, recovery_point=3, log_start_offset=1))
    fs.sync_directory(DIRECTORY)  # as a later flush does
    fs.crash(random.Random(seed))
    log = open_log(fs, point=LoadPoint(recovery_point=3, log_start_offset=1))
    assert log.append(of(1)).duplicate


async def test_a_snapshot_that_is_not_written_yet_is_written_before_its_batches_are_deleted(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    log = manager.create("t", 0, LogConfig())
    log.append(of(1))
    fs.before = failing("write", ".snapshot", errno.EIO, times=1)
    log.roll()
    log.append(batch("plain"))
    await settle(manager)
    assert not fs.exists(snapshot_at(fs, 1))
    log.delete_records_before(1)
    await manager.start_offsets_on_disk()
    await settle(manager)
    assert not fs.exists(f"{DIRECTORY}/{0:020}.log")
    assert fs.exists(snapshot_at(fs, 1))
    assert not log.snapshots.are_pending


# --- crashes ----------------------------------------------------------------------------------------------------------


class EndingThreads(InlineThreads):
    """The threads of a process that ends."""

    ended = False

    def _do(self, job: Callable[[], T], future: asyncio.Future[T]) -> None:
        if not self.ended:
            super()._do(job, future)


CRASHING = LogConfig(segment_bytes=300, save_interval_bytes=0, index_interval_bytes=100)


async def _life(manager: LogManager, log: PartitionLog, acknowledged: dict[int, int], rng: random.Random) -> None:
    """Append, roll, save and delete. `acknowledged` gets the last sequence of each producer that is on disk."""
    for _ in range(25):
        producer_id = rng.randrange(5)
        entry = log.producers.entry(producer_id)
        sequence = entry.last_sequence + 1 if entry is not None else 0
        log.append(of(producer_id, sequence))
        if rng.random() < 0.7:
            flush = log.flushed(log.log_end_offset)
            if flush is not None:
                await asyncio.shield(flush)
            acknowledged[producer_id] = sequence
        if rng.random() < 0.2:
            log.saved_state.save_grown()
        if rng.random() < 0.2:
            manager._checkpoint()
        if rng.random() < 0.15:
            log.delete_records_before(rng.randint(log.log_start_offset, log.high_watermark))
        if rng.random() < 0.3:
            await settle(manager)


@pytest.mark.parametrize("crash", ["kill", "power"])
@pytest.mark.parametrize("seed", range(6))
async def test_after_any_crash_a_batch_that_was_acknowledged_is_known(seed: int, crash: str) -> None:
    """Two lives end in a crash, each at any operation on a file."""
    for first in range(0, 400, 7):
        fs = FaultyFileSystem()
        fs.make_directory("/data")
        fs.sync_directory("")
        rng = random.Random(f"{seed} {first}")
        acknowledged: dict[int, int] = {}
        for after in (first, rng.randrange(400)):
            threads = EndingThreads()
            manager = new_manager(fs, threads=threads)
            await manager.start()
            existing = manager.get("t", 0)
            log = manager.create("t", 0, CRASHING) if existing is None else existing
            log.update_config(CRASHING)
            power = PowerFailure(fs, after)
            await power.end_of(asyncio.ensure_future(_life(manager, log, acknowledged, rng)))
            fs.before = None
            threads.ended = True
            fs.kill()
            manager.abandon()
            if crash == "power":
                fs.crash(rng)
        manager = new_manager(fs)
        manager.open()
        found = manager.get("t", 0)
        if found is None:
            assert not acknowledged
        for producer_id, sequence in acknowledged.items():
            assert found is not None
            entry = found.producers.entry(producer_id)
            assert entry is not None, (first, producer_id)
            assert entry.last_sequence >= sequence, (first, producer_id)
        manager.abandon()


# --- other work that grows with the producers -------------------------------------------------------------------------


def _many(log: PartitionLog, count: int) -> None:
    log.append(of(0))
    known = log.producers.entry(0)
    assert known is not None
    for producer_id in range(count):
        entry = log.producers._entries[producer_id] = known.copy()
        entry.producer_id = producer_id


async def test_idle_producers_are_forgotten_in_slices(manager: LogManager) -> None:
    log = manager.create("t", 0, LogConfig(producer_id_expiration_ms=0))
    few = await turns_during(manager._retain_all)
    _many(log, 10_000)
    assert await turns_during(manager._retain_all) >= few + 4
    assert not len(log.producers)


async def test_a_producer_that_writes_while_others_are_forgotten_stays_known(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    _many(log, 2_000)
    steps = log.producers.expire(log.clock.monotonic() + 1, 1000)
    next(steps)
    log.clock.now += 1000  # type: ignore[attr-defined]
    log.append(of(1_999, 1))
    log.append(of(5_000))
    expired = run_at_once(steps)
    assert len(expired) == 1_999
    assert {entry.producer_id for entry in log.producers.entries()} == {1_999, 5_000}
    log.close()


async def test_a_compaction_looks_at_the_producers_in_a_thread_as_of_its_plan(
    fs: FaultyFileSystem, manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0))
    for sequence in range(3):
        log.append(of(1, sequence))
    log.roll()
    log.append(of(1, 3))
    await settle(manager)
    used: list[int] = []
    look_up = CleaningPlan.look_up

    def noted(plan: CleaningPlan) -> None:
        used.append(threading.get_ident())
        assert not plan.last_offsets
        look_up(plan)
        assert plan.last_offsets == {1: 3}

    monkeypatch.setattr(CleaningPlan, "look_up", noted)
    await manager._clean_all()
    assert len(used) == 1
    assert threading.get_ident() not in used
    plan = Cleaner(fs).plan(log, 0, NOW, force=True)
    log.append(of(1, 4))
    assert plan is not None
    look_up(plan)
    assert plan.last_offsets == {1: 3}


async def test_the_segments_of_a_log_are_looked_at_in_slices_before_a_compaction(manager: LogManager) -> None:
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",)))
    for _ in range(20):
        log.append(batch("a"))
        log.roll()
    await settle(manager)
    steps = list(Cleaner(log.files.fs).plan_in_steps(log, 0, NOW, force=True))
    assert len(steps) >= 40
