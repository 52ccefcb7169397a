"""The data directory as a whole: lock, format level, clean stops, group commit, failures, the disk reserve."""

from __future__ import annotations

import asyncio
import errno
import gc
import random
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from oncelog.broker.log import AppendOrigin, DataDirectoryError, LogConfig, LogManager, PartitionLog
from oncelog.broker.log.cleaner import Cleaner, CleaningPlan
from oncelog.broker.log.log_files import LogFiles
from oncelog.broker.log.results import CorruptLog
from oncelog.broker.system.ports import RealFileSystem, SystemClock, SystemRandomIds
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, StandingClock, at_once, batch, checkpointed, new_manager, settle, values
from support.turns import turns_during

CONFIG = LogConfig()
META = "/data/meta.properties"


def replace(fs: FaultyFileSystem, path: str, content: bytes) -> None:
    file = fs.open(path, create=True)
    file.truncate(0)
    file.write_at([content], 0)
    file.close()


# --- whose directory it is -------------------------------------------------------------------------------------------


def test_a_directory_keeps_its_ids(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    manager.open()
    ids = manager.cluster_id, manager.directory_id
    assert len(ids[0]) == len(ids[1]) == 22
    assert ids[0] != ids[1]
    manager.abandon()
    manager = new_manager(fs)
    manager.open()
    assert (manager.cluster_id, manager.directory_id) == ids
    manager.abandon()


def test_a_second_process_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    def make() -> LogManager:
        return LogManager(str(tmp_path / "data"), fs=RealFileSystem(), clock=SystemClock(), ids=SystemRandomIds())

    first = make()
    first.open()
    with pytest.raises(DataDirectoryError, match="in use by another process"):
        make().open()
    first.abandon()
    second = make()
    second.open()
    second.abandon()


def test_a_newer_format_is_refused_with_the_remedy_and_left_alone(fs: FaultyFileSystem) -> None:
    new_manager(fs).open()
    fs.kill()
    content = fs.read_file(META).replace(b"format.level=1", b"format.level=99")
    replace(fs, META, content)
    with pytest.raises(DataDirectoryError, match=r"format level 99, but .* levels up to 2: .*newer release") as caught:
        new_manager(fs).open()
    assert "Run that newer release" in str(caught.value)
    assert fs.read_file(META) == content
    assert not fs.locks, "the lock is free again"


async def test_a_journal_raises_the_format_level(fs: FaultyFileSystem) -> None:
    """A release that does not know journals would ignore the records in one."""
    for journal_bytes, level in ((0, 1), (16 << 10, 2), (0, 2)):
        manager = new_manager(fs, journal_bytes=journal_bytes)
        await manager.start()
        await manager.stop()
        assert f"oncelog.format.level={level}\n" in fs.read_file(META).decode()


async def test_without_the_format_level_there_is_no_journal(
    fs: FaultyFileSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    new_manager(fs).open()
    fs.kill()
    manager = new_manager(fs, journal_bytes=16 << 10)
    manager.open()
    fs.fail("rename", errno.ENOSPC)
    await manager.start()
    assert "journal not used in this run" in capsys.readouterr().out
    assert manager._flusher is not None
    assert manager._flusher.journal is None
    await manager.stop()
    assert b"format.level=1\n" in fs.read_file(META)


def test_foreign_directories_are_refused(fs: FaultyFileSystem) -> None:
    fs.make_directory("/data")
    replace(fs, "/data/holiday.jpg", b"x")
    with pytest.raises(DataDirectoryError, match="not a data directory"):
        new_manager(fs).open()
    replace(fs, META, b"version=1\ncluster.id=abc\nnode.id=1\n")
    with pytest.raises(DataDirectoryError, match="not created by oncelog"):
        new_manager(fs).open()


def test_unknown_properties_are_kept(fs: FaultyFileSystem) -> None:
    new_manager(fs).open()
    fs.kill()
    replace(fs, META, fs.read_file(META).replace(b"directory.id", b"# lost") + b"future.key=7\n")
    manager = new_manager(fs)
    manager.open()
    assert len(manager.directory_id) == 22
    assert b"future.key=7" in fs.read_file(META)
    manager.abandon()


# --- stops and starts ------------------------------------------------------------------------------------------------


async def test_a_clean_stop_is_recognised_once(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    await manager.stop()
    assert fs.open_files == 0
    manager = new_manager(fs)
    await manager.start()
    assert manager.clean_start
    manager.abandon()
    fs.kill()
    manager = new_manager(fs)
    await manager.start()
    assert not manager.clean_start
    log_again = manager.get("t", 0)
    assert log_again is not None
    assert values(log_again.batches()) == ["a"]
    await manager.stop()


async def test_a_stop_without_a_start_does_nothing(fs: FaultyFileSystem) -> None:
    await new_manager(fs).stop()


async def test_a_deleted_partition_is_gone_and_its_writers_are_told(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    waiting = log.flushed(1)
    assert waiting is not None
    await manager.delete([("t", 0)])
    with pytest.raises(KafkaError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert manager.get("t", 0) is None
    again = manager.create("t", 0, CONFIG)
    assert again.append(batch("b")).base_offset == 0
    await asyncio.shield(again.flushed(1) or asyncio.sleep(0))
    assert values(again.batches()) == ["b"]


async def test_a_crash_while_a_partition_is_deleted_does_not_bring_it_back(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    manager.open()
    name = "a" * 249
    manager.create(name, 12345, CONFIG).append(batch("a"))
    fs.fail("unlink")
    with pytest.raises(OSError, match="Input/output"):
        await manager.delete([(name, 12345)])
    manager.abandon()
    fs.kill()
    manager = new_manager(fs)
    await manager.start()
    assert list(manager.logs()) == []
    await settle(manager)
    assert not [entry for entry in fs.list("/data") if "a" * 20 in entry]
    manager.abandon()


async def test_files_of_a_partition_made_anew_survive_the_retention_of_the_old_one(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig(durability="os", segment_bytes=200))
    fill(log)
    await settle(manager)
    log.delete_records_before(-1)
    await manager.delete([("t", 0)])
    again = manager.create("t", 0, LogConfig(durability="os", segment_bytes=200))
    fill(again)
    await settle(manager)
    assert len(values(again.batches())) == 20
    assert fs.exists("/data/t-0/00000000000000000000.log")
    await manager.stop()


# --- group commit ----------------------------------------------------------------------------------------------------


async def test_writers_share_a_flush(fs: FaultyFileSystem, manager: LogManager) -> None:
    syncs: list[str] = []
    logs = [manager.create("t", partition, CONFIG) for partition in range(3)]
    await settle(manager)
    fs.before = lambda operation, path: syncs.append(path) if operation == "fdatasync" else None
    waiting = []
    for _ in range(20):
        for log in logs:
            log.append(batch("a"))
            waiting.append(log.flushed(log.log_end_offset))
    assert all(future is not None for future in waiting)
    await asyncio.gather(*(future for future in waiting if future is not None))
    assert sorted(syncs) == [f"/data/t-{partition}/00000000000000000000.log" for partition in range(3)]
    assert [log.high_watermark for log in logs] == [20, 20, 20]
    assert logs[0].flushed(20) is None


async def test_who_appends_during_a_flush_waits_for_the_next_one(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    entered, leave = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(operation: str, path: str) -> None:
        if operation == "fdatasync" and threading.current_thread().name == "oncelog-flush":
            loop.call_soon_threadsafe(entered.set)
            assert leave.wait(10)

    fs.before = hold
    log.append(batch("a"))
    first = log.flushed(1)
    await entered.wait()
    log.append(batch("b"))
    second = log.flushed(2)
    assert first is not None
    assert second is not None
    assert log.flushed(1) is first, "it is under way"
    assert first is not second
    assert log.high_watermark == 0
    leave.set()
    await first
    assert not second.done()
    assert log.high_watermark == 1
    await second
    assert log.high_watermark == 2


async def test_under_durability_os_nobody_waits(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, LogConfig(durability="os"))
    log.append(batch("a"))
    assert log.flushed(1) is None
    assert log.high_watermark == 1


async def test_the_recovery_point_follows_the_flushes(fs: FaultyFileSystem, manager: LogManager) -> None:
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a", "b"))
    await asyncio.shield(log.flushed(2) or asyncio.sleep(0))
    manager._checkpoint()
    await settle(manager)
    assert manager.checkpoints.read("recovery-point-offset-checkpoint") == {("t", 0): 2}


# --- the disk reserve ------------------------------------------------------------------------------------------------


async def test_the_reserve_is_kept_for_markers_and_internal_topics(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs, reserve_bytes=10_000)
    await manager.start()
    user = manager.create("t", 0, LogConfig(durability="os"))
    internal = manager.create("__transaction_state", 0, LogConfig(durability="os", internal=True))
    user.append(batch("a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    fs.capacity = fs.used() + 9_000
    manager._disk_space.refresh()
    with pytest.raises(KafkaError) as caught:
        user.append(batch("b", producer_id=1, producer_epoch=0, base_sequence=1, transactional=True))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "log.reserve.bytes" in caught.value.message
    internal.append(batch("state"), origin=AppendOrigin.COORDINATOR)
    user.append(bytearray(control_batch(True, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    assert user.last_stable_offset == 2
    assert at_once(user.read(0, 1000)).records
    fs.capacity = None
    manager._disk_space.refresh()
    user.append(batch("b", producer_id=1, producer_epoch=0, base_sequence=1, transactional=True))
    await manager.stop()


# --- maintenance -----------------------------------------------------------------------------------------------------


async def with_records_to_compact(fs: FaultyFileSystem) -> tuple[LogManager, PartitionLog]:
    """Start a manager, and fill the segments of a log that its next compaction makes smaller."""
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    fill(log)
    await settle(manager)
    return manager, log


async def test_compaction_in_the_background(fs: FaultyFileSystem) -> None:
    manager, log = await with_records_to_compact(fs)
    await manager._clean_all()
    assert values(log.batches())[-3:] == ["value 17", "value 18", "value 19"]
    assert len(list(log.batches())) < 20
    cleaned = manager.checkpoints.read("cleaner-offset-checkpoint")
    assert cleaned is not None
    assert cleaned["t", 0] > 0
    before = len(list(log.batches()))
    await manager._clean_all()
    assert len(list(log.batches())) == before, "nothing is dirty"
    await manager.stop()


def fill(log: PartitionLog) -> None:
    for number in range(20):
        log.append(batch(f"value {number}", key=b"k%d" % (number % 3)))


async def test_compaction_unlinks_what_it_replaced_beside_the_loop_once_the_new_names_are_on_disk(
    fs: FaultyFileSystem,
) -> None:
    manager, _ = await with_records_to_compact(fs)
    unlinked: list[str] = []
    blocking: list[str] = []
    unsynced: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "rename":
            unsynced.append(path)
        elif operation == "sync_directory":
            unsynced.clear()
        elif operation == "unlink" and ".log" in path:
            assert path.removesuffix(".deleted") not in unsynced
            unlinked.append(path)
            if threading.current_thread() is threading.main_thread():
                blocking.append(path)

    fs.before = note
    await manager._clean_all()
    await settle(manager)
    fs.before = None
    assert len(unlinked) > 1
    assert blocking == []
    assert manager.failed is None
    assert not [name for name in fs.list("/data/t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
    await manager.stop()


async def test_the_event_loop_syncs_nothing_for_a_compaction(fs: FaultyFileSystem) -> None:
    manager, log = await with_records_to_compact(fs)
    before = log.size
    blocking: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation in ("fdatasync", "sync_directory") and threading.current_thread() is threading.main_thread():
            blocking.append(path)

    fs.before = note
    await manager._clean_all()
    await settle(manager)
    fs.before = None
    assert log.size < before
    assert blocking == []
    await manager.stop()


async def test_a_partition_deleted_while_a_compacted_segment_gets_its_name_is_left_alone(fs: FaultyFileSystem) -> None:
    manager, _ = await with_records_to_compact(fs)
    renaming, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(".log.cleaned") and not renaming.is_set():
            renaming.set()
            assert go_on.wait(10)

    fs.before = hold
    cleaning = asyncio.ensure_future(manager._clean_all())
    async with asyncio.timeout(60):
        while not renaming.is_set():
            await asyncio.sleep(0)
    deleting = asyncio.ensure_future(manager.delete([("t", 0)]))
    await asyncio.sleep(0)
    go_on.set()
    await deleting
    manager.create("t", 0, LogConfig()).append(batch("of another topic"))
    names = fs.list("/data/t-0")
    await cleaning
    await settle(manager)
    assert set(names) <= set(fs.list("/data/t-0"))
    assert not [name for name in fs.list("/data/t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
    await manager.stop()


async def test_a_compaction_that_fails_does_not_keep_others_from_theirs(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = new_manager(fs)
    await manager.start()
    logs = [manager.create(topic, 0, LogConfig(cleanup_policy=("compact",), segment_bytes=200)) for topic in "abc"]
    for log in logs:
        fill(log)
    await settle(manager)
    map_keys = Cleaner.map_keys

    def scarce(cleaner: Cleaner, plan: CleaningPlan) -> None:
        if plan.name == "b-0":
            raise MemoryError
        map_keys(cleaner, plan)

    monkeypatch.setattr(Cleaner, "map_keys", scarce)
    await manager._clean_all()
    assert [len(list(log.batches())) < 20 for log in logs] == [True, False, True]
    assert all(log.failure is None for log in logs)
    await manager.stop()


async def test_a_stop_does_not_wait_for_the_rest_of_a_compaction(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction is held up at its first batch until the stop has begun."""
    manager, _ = await with_records_to_compact(fs)
    begun, stopping = threading.Event(), threading.Event()
    waits: list[bool] = []
    map_keys, stop = Cleaner.map_keys, Cleaner.stop

    def held(cleaner: Cleaner, plan: CleaningPlan) -> None:
        begun.set()
        waits.append(stopping.wait(20))  # an assertion in this thread would only end the compaction
        map_keys(cleaner, plan)

    def note(cleaner: Cleaner) -> None:
        stop(cleaner)
        stopping.set()

    monkeypatch.setattr(Cleaner, "map_keys", held)
    monkeypatch.setattr(Cleaner, "stop", note)
    manager._clean()
    await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
    await manager.stop()
    assert waits == [True], "the stop waits for the compaction without stopping it"
    reopened = new_manager(fs)
    await reopened.start()
    assert reopened.clean_start
    again = reopened.get("t", 0)
    assert again is not None
    assert len(list(again.batches())) == 20, "the compaction ended before its first batch"
    await reopened.stop()


async def test_a_compaction_that_is_cancelled_leaves_no_failure_that_nobody_reads(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction waits until the newest record is synced. Before that, the log is closed."""
    manager, log = await with_records_to_compact(fs)
    waits, released = asyncio.Event(), threading.Event()
    synced = PartitionLog.synced

    def note(log: PartitionLog, offset: int) -> asyncio.Future[None] | None:
        waits.set()
        return synced(log, offset)

    monkeypatch.setattr(PartitionLog, "synced", note)

    def held(operation: str, path: str) -> None:
        if operation == "fdatasync":
            released.wait(20)

    fs.before = held
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    before = asyncio.all_tasks()
    log.append(batch("not synced yet", key=b"k"))
    compaction = asyncio.ensure_future(manager._clean_all())
    await waits.wait()
    compaction.cancel()
    manager.abandon()
    with pytest.raises(asyncio.CancelledError):
        await compaction
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before
    released.set()
    gc.collect()
    assert reported == []
    assert not left, "the compaction's tasks outlive it"


async def test_others_come_in_between_the_logs_that_a_round_of_compaction_looks_at(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    for index in range(500):
        manager.create("t", index, LogConfig())
    assert await turns_during(manager._clean_all) >= 5
    await manager.stop()


async def test_a_partition_deleted_during_its_compaction_is_left_alone(fs: FaultyFileSystem) -> None:
    manager, _ = await with_records_to_compact(fs)
    cleaning = asyncio.ensure_future(manager._clean_all())
    await asyncio.sleep(0)
    await manager.delete([("t", 0)])
    await cleaning
    assert manager.failed is None
    await settle(manager)
    assert not [name for name in fs.list("/data") if name.startswith("t-0")]
    await manager.stop()


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_compaction_whose_segments_are_deleted_meanwhile_has_not_failed(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damaged: bool
) -> None:
    """It was reported as failed housekeeping, because a file that it wanted to read was gone."""
    manager, log = await with_records_to_compact(fs)
    begun, go_on = threading.Event(), threading.Event()
    map_keys = Cleaner.map_keys

    def held(cleaner: Cleaner, plan: CleaningPlan) -> None:
        begun.set()
        go_on.wait(20)  # an assertion in this thread would only end the compaction
        if damaged:
            raise CorruptLog(f"{plan.directory}/{0:020}.log", 0, 0, "read before it was deleted")
        map_keys(cleaner, plan)

    monkeypatch.setattr(Cleaner, "map_keys", held)
    cleaning = asyncio.ensure_future(manager._clean_all())
    await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
    log.delete_records_before(10)
    await settle(manager)
    go_on.set()
    await cleaning
    said = capsys.readouterr().out
    assert "housekeeping failed" not in said
    assert "partition taken offline" not in said
    assert values(log.batches())[0] == "value 10"
    damaged = False
    await manager._clean_all()
    assert len(list(log.batches())) < 10, "the next round compacts what is left"
    assert values(log.batches())[-3:] == ["value 17", "value 18", "value 19"]
    await manager.stop()


async def test_retention_runs_over_all_logs(fs: FaultyFileSystem) -> None:
    clock = StandingClock()
    manager = new_manager(fs, clock)
    await manager.start()
    log = manager.create("t", 0, LogConfig(retention_ms=1000, durability="os"))
    log.append(batch("a"))
    clock.now += 2000
    await manager._retain_all()
    assert log.log_start_offset == 1
    await manager.stop()
    manager = new_manager(fs, clock)
    manager.open()
    reopened = manager.get("t", 0)
    assert reopened is not None
    assert (reopened.log_start_offset, reopened.log_end_offset) == (1, 1)
    manager.abandon()


async def test_logs_found_at_a_start_lose_nothing_before_their_settings_are_known(fs: FaultyFileSystem) -> None:
    clock = StandingClock()
    manager = new_manager(fs, clock)
    await manager.start()
    manager.create("t", 0, CONFIG).append(batch("a"))
    await manager.stop()
    clock.now += 365 * 24 * 3_600_000
    manager = new_manager(fs, clock)
    await manager.start()
    await manager._retain_all()
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["a"]
    await manager.stop()


async def test_a_file_that_cannot_be_opened_for_its_flush_is_flushed_later(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    await settle(manager)

    def exhausted(_: LogFiles) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(LogFiles, "begin_flush", exhausted)
    log.append(batch("a"))
    waiting = log.flushed(1)
    assert waiting is not None
    await settle(manager)
    assert not waiting.done()
    monkeypatch.undo()
    async with asyncio.timeout(60):
        await waiting
    assert log.failure is None
    await manager.stop()


async def test_jobs_that_a_failed_directory_will_never_do_are_told_so(fs: FaultyFileSystem) -> None:
    """A compaction that waits for one would keep the broker from stopping."""
    manager = new_manager(fs)
    await manager.start()
    go_on = threading.Event()

    def until_set() -> None:
        assert go_on.wait(10)

    def fail(operation: str, path: str) -> None:
        if operation == "sync_directory" and path == "/data":
            raise OSError(5, "failed on purpose")

    fs.before = fail
    assert manager._flusher is not None
    jobs = [manager._flusher.submit(until_set) for _ in range(2)]
    manager.create("t", 0, CONFIG).append(batch("a"))
    for job in jobs:
        with pytest.raises(OSError, match="failed"):
            async with asyncio.timeout(60):
                await job
    go_on.set()
    await manager.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_a_partition_made_just_before_a_kill_survives_the_power_failure_after_it(
    fs: FaultyFileSystem, seed: int
) -> None:
    """Its directory is in the page cache only; who finds it there has to put its name on disk."""
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig())
    log.append(batch("early"), origin=AppendOrigin.CLIENT)
    fs.kill()
    manager.abandon()

    manager = new_manager(fs)
    await manager.start()
    again = manager.get("t", 0)
    assert again is not None
    again.append(batch("late"), origin=AppendOrigin.CLIENT)
    flushed = again.flushed(again.log_end_offset)
    assert flushed is not None
    await flushed
    fs.crash(random.Random(seed))
    manager.abandon()

    manager = new_manager(fs)
    manager.open()
    found = manager.get("t", 0)
    assert found is not None, "acknowledged records are gone, directory and all"
    assert values(found.batches()) == ["early", "late"]
    manager.abandon()


@pytest.mark.parametrize("seed", range(4))
async def test_a_new_data_directory_survives_a_power_failure(seed: int) -> None:
    fs = FaultyFileSystem()
    manager = LogManager("/deep/down/data", fs=fs, clock=StandingClock(), ids=SystemRandomIds())
    manager.open()
    cluster_id = manager.cluster_id
    fs.crash(random.Random(seed))
    manager.abandon()
    manager = LogManager("/deep/down/data", fs=fs, clock=StandingClock(), ids=SystemRandomIds())
    manager.open()
    assert manager.cluster_id == cluster_id
    manager.abandon()


async def test_a_stop_and_a_start_write_nothing_for_a_partition_that_never_had_a_record(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    manager.open()
    manager.create("t", 0, CONFIG)
    written: list[tuple[str, str]] = []

    def note(operation: str, path: str) -> None:
        if path.startswith("/data/t-0/") and operation in ("write", "truncate", "fdatasync", "rename"):
            written.append((operation, path))

    fs.before = note
    await manager.stop()
    restarted = new_manager(fs)
    restarted.open()
    assert written == []
    log = restarted.get("t", 0)
    assert log is not None
    log.append(batch("first"))
    await restarted.stop()
    again = new_manager(fs)
    again.open()
    log = again.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["first"]
    await again.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_a_partition_that_was_stopped_before_its_first_record_survives_a_power_failure(seed: int) -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    manager.open()
    manager.create("t", 0, LogConfig())
    await manager.stop()

    manager = new_manager(fs)
    await manager.start()
    log = manager.get("t", 0)
    assert log is not None
    log.append(batch("acknowledged"), origin=AppendOrigin.CLIENT)
    flushed = log.flushed(log.log_end_offset)
    assert flushed is not None
    await flushed
    fs.crash(random.Random(seed))
    manager.abandon()

    manager = new_manager(fs)
    manager.open()
    recovered = manager.get("t", 0)
    assert recovered is not None, "acknowledged records are gone, directory and all"
    assert values(recovered.batches()) == ["acknowledged"]
    manager.abandon()


@pytest.mark.parametrize("compacted", [False, True])
async def test_deletions_at_the_same_time_share_the_writes_of_checkpoints(
    fs: FaultyFileSystem, compacted: bool
) -> None:
    manager = new_manager(fs)
    await manager.start()
    keys = [("t", index) for index in range(50)]
    for key in keys:
        manager.create(*key, CONFIG).append(batch("a"))
    await settle(manager)
    manager._checkpoint()
    await settle(manager)
    name = "recovery-point-offset-checkpoint"
    if compacted:
        name = "cleaner-offset-checkpoint"
        manager._cleaner_offsets = dict.fromkeys(keys, 1)
        manager._write_cleaner_offsets()
    assert set(manager.checkpoints.read(name) or ()) == set(keys)
    written: list[str] = []
    write = manager.checkpoints.write

    def noted(name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        write(name, offsets)
        written.append(name)

    manager.checkpoints.write = noted  # type: ignore[method-assign]

    async def delete(key: tuple[str, int]) -> None:
        await manager.delete([key])
        assert key not in (manager.checkpoints.read(name) or ()), "it is on disk when the deletion is answered"

    await asyncio.gather(*map(delete, keys))
    assert written.count(name) <= 5
    await settle(manager)
    await manager.stop()


async def test_a_deletion_whose_checkpoint_cannot_be_written_does_not_hide_it_from_the_next(
    fs: FaultyFileSystem,
) -> None:
    manager = await checkpointed(fs, 2, CONFIG)
    write = manager.checkpoints.write

    def full(name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        raise OSError(errno.ENOSPC, "no space")

    manager.checkpoints.write = full  # type: ignore[method-assign]
    await manager.delete([("t", 0)])
    manager.checkpoints.write = write  # type: ignore[method-assign]
    await manager.delete([("t", 1)])
    assert manager.checkpoints.read("recovery-point-offset-checkpoint") == {}
    await manager.stop()
