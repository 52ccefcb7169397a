"""A start with a journal: what is redone, what a failing disk or damage takes, and what an operator can do then."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random

import pytest
from oncelog.broker.log import DataDirectoryError, LogConfig, LogManager
from oncelog.broker.log.file_names import RECOVERY_POINTS
from oncelog.broker.log.flusher import sync_path
from oncelog.broker.log.journal_format import HEADER_SIZE, Batch
from oncelog.broker.log.repair import inspect, repair
from oncelog.broker.system.ports import SystemClock
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads, PowerCut
from support.journals import (
    CONFIG,
    SIZE,
    LosesAll,
    batches_in,
    failing,
    full_for,
    journal_files,
    journaled,
    log_of,
    power_fails,
    reopened,
    round_of,
    turns,
    written,
)
from support.logs import at_once, batch, flip, new_manager, values, values_of

JOURNAL = "/data/00000000000000000001.journal"
A = "/data/a-0/00000000000000000000.log"


def batches_of(fs: FaultyFileSystem) -> tuple[Batch, ...]:
    return batches_in(fs, JOURNAL.rpartition("/")[2])


def contents(manager: LogManager) -> dict[str, list[str]]:
    return {log.topic: values(log.batches()) for log in manager.logs()}


async def left(fs: FaultyFileSystem, *rounds: str, topics: str = "abc") -> None:
    """A data directory whose power failed after some rounds, of which only the journal has the records."""
    async with journaled(fs, *topics) as manager:
        for value in rounds:
            await round_of(manager, *topics, value=value)
        power_fails(fs, manager)


async def test_what_only_the_journal_has_is_redone(fs: FaultyFileSystem) -> None:
    await left(fs, "second", "third")
    before = fs.file_size(A)
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second", "third"] for topic in "abc"}
    assert fs.file_size(A) > before
    assert journal_files(fs) == []
    manager.abandon()
    fs.crash(random.Random(1))
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second", "third"] for topic in "abc"}
    manager.abandon()


async def test_what_the_disk_has_refused_is_written_although_the_page_cache_has_it(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b")
        settling = log_of(manager, "a").files.begin_settling()
        assert settling is not None
        fs.before = failing("fdatasync", "/a-0/", errno.EIO)
        with pytest.raises(OSError, match="failed on purpose"):
            settling.run(fs)
        manager.abandon()
        fs.kill()
    fs.before = None
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "value"], "b": ["first", "value"]}
    assert journal_files(fs) == []
    power_fails(fs, manager)
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "value"], "b": ["first", "value"]}, "it was synced before it was shown"
    manager.abandon()


@pytest.mark.parametrize("lost", ["a torn write", "damage"])
@pytest.mark.parametrize("ends", ["kill", "power"])
async def test_without_its_void_a_deleted_partition_is_not_written_into_a_new_one(
    fs: FaultyFileSystem, lost: str, ends: str
) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        for value in ("second", "third", "fourth"):
            await round_of(manager, "a", "b", "c", value=value)
        await manager.delete([("a", 0)])
        void = len(batches_of(fs)) - 1
        if lost == "damage":
            await round_of(manager, "b", "c", value="fifth")
        await written(manager.create("a", 0, CONFIG), "anew")
        manager.abandon()
        fs.kill() if ends == "kill" else fs.crash(LosesAll())
    assert batches_of(fs)[void].voids
    flip(fs, JOURNAL, HEADER_SIZE + sum(batch.size for batch in batches_of(fs)[:void]) + 30)
    if (lost, ends) == ("damage", "power"):
        assert [damage.file for damage in inspect("/data", fs)] == [JOURNAL]
        with pytest.raises(DataDirectoryError, match="damaged at byte"):
            reopened(fs)
        repair("/data", fs)
    manager = reopened(fs)
    rest = ["first", "second", "third", "fourth", *(["fifth"] if lost == "damage" else [])]
    assert contents(manager) == {"a": ["anew"], "b": rest, "c": rest}
    manager.abandon()


async def test_what_is_on_disk_in_a_partition_is_not_redone(fs: FaultyFileSystem) -> None:
    """After a compaction the bytes of a segment are others, and a void could be damaged."""
    async with journaled(fs, "a") as manager:
        log = manager.create("b", 0, LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0))
        log.append(batch("stays", key=b"another"))
        await written(log, "first")
        for value in ("x" * 300, "y" * 100, "z" * 20):
            await round_of(manager, "a", "b", value=value)
        log.roll()
        await written(log, "active")
        manager._clean()
        assert manager._cleaning is not None
        await manager._cleaning
        assert batches_of(fs)[-1].voids
        power_fails(fs, manager)
    flip(fs, JOURNAL, HEADER_SIZE + sum(batch.size for batch in batches_of(fs)[:-1]) + 30)
    manager = reopened(fs)
    assert contents(manager)["b"] == ["stays", "z" * 20, "active"]
    manager.abandon()


async def test_a_recovery_point_is_not_above_what_the_files_have(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b", value="second")
        manager._checkpoint()
        await turns()
        power_fails(fs, manager)
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "second"], "b": ["first", "second"]}
    manager.abandon()


async def test_a_segment_or_a_directory_that_is_gone_is_not_made_again(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    fs.unlink(A)
    for name in fs.list("/data/b-0"):
        fs.unlink(f"/data/b-0/{name}")
    fs.remove_directory("/data/b-0")
    manager = reopened(fs)
    assert not fs.exists(A)
    assert not fs.exists("/data/b-0")
    assert list(manager.offline) == [("a", 0)], "its records were acknowledged"
    assert contents(manager) == {"c": ["first", "second"]}
    manager.abandon()


# --- a disk that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "read", "write", "fdatasync"])
async def test_a_partition_that_cannot_be_redone_is_offline_alone_and_keeps_its_records(
    fs: FaultyFileSystem, operation: str
) -> None:
    await left(fs, "second", "third")
    fs.before = failing(operation, "/a-0/", errno.EIO, times=100)
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    assert manager.offline["a", 0].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert contents(manager) == {"b": ["first", "second", "third"], "c": ["first", "second", "third"]}
    fs.before = None
    await manager.start()
    await written(log_of(manager, "b"), "fourth")
    await manager.stop()
    assert len(journal_files(fs)) == 1
    fs.crash(random.Random(1))
    manager = reopened(fs)
    assert contents(manager) == {
        "a": ["first", "second", "third"],
        "b": ["first", "second", "third", "fourth"],
        "c": ["first", "second", "third"],
    }
    assert journal_files(fs) == []
    manager.abandon()


async def test_what_is_kept_of_a_partition_goes_with_it(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    fs.before = failing("write", "/a-0/0", errno.EIO)
    manager = reopened(fs)
    fs.before = None
    await manager.start()
    await manager.delete([("a", 0)])
    await written(manager.create("a", 0, CONFIG), "anew")
    power_fails(fs, manager)
    assert journal_files(fs) == []
    manager = reopened(fs)
    assert contents(manager)["a"] == ["anew"]
    manager.abandon()


@pytest.mark.parametrize("size", [0, SIZE])
async def test_on_a_full_disk_the_journal_stays_and_no_other_one_is_written(fs: FaultyFileSystem, size: int) -> None:
    await left(fs, "second")
    fs.before = full_for(A)
    manager = new_manager(fs, threads=InlineThreads(), journal_bytes=size)
    manager.open()
    assert list(manager.offline) == [("a", 0)]
    assert contents(manager) == {topic: ["first", "second"] for topic in "bc"}
    assert journal_files(fs) == ["00000000000000000001.journal"], "the second one was empty"
    fs.before = None
    await manager.start()
    await round_of(manager, "b", "c", value="third")
    await turns()
    assert journal_files(fs) == ["00000000000000000001.journal"]
    with pytest.raises(KafkaError, match="could not be redone; restart the broker"):
        await manager.delete([("c", 0)])
    power_fails(fs, manager)
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "second"], "b": ["first", "second", "third"]}, "c was renamed"
    assert journal_files(fs) == []
    manager.abandon()


async def test_a_name_in_a_journal_that_stays_is_not_used_again(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    fs.rename("/data/c-0", "/data/c-0.0-delete")
    fs.before = full_for(A)
    manager = new_manager(fs, threads=InlineThreads(), journal_bytes=SIZE)
    manager.open()
    fs.before = None
    await manager.start()
    with pytest.raises(KafkaError, match="journal has records of a deleted partition"):
        manager.create("c", 0, CONFIG)
    await manager.stop()
    manager = new_manager(fs, threads=InlineThreads(), journal_bytes=SIZE)
    await manager.start()
    await written(manager.create("c", 0, CONFIG), "anew")
    power_fails(fs, manager)
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "second"], "b": ["first", "second"], "c": ["anew"]}
    manager.abandon()


async def test_without_a_descriptor_the_start_fails_and_changes_nothing(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    fs.before = failing("open", "/a-0/0", errno.EMFILE)
    with pytest.raises(DataDirectoryError):
        reopened(fs)
    fs.before = None
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second"] for topic in "abc"}
    manager.abandon()


# --- damage ----------------------------------------------------------------------------------------------------------


async def test_a_damaged_entry_is_not_missed_where_the_file_has_its_bytes(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b", value="second")
        await round_of(manager, "a", "b", value="third")
        file = fs.open(A)
        file.fdatasync()
        file.close()
        power_fails(fs, manager)
    flip(fs, JOURNAL, position_of_bytes(fs, 0, "a-0") + 20)
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "second", "third"], "b": ["first", "second", "third"]}
    manager.abandon()


def position_of_bytes(fs: FaultyFileSystem, number: int, name: str) -> int:
    """The position in the journal of the bytes of a partition's entry in a batch."""
    batches = batches_of(fs)
    position = HEADER_SIZE + sum(batch.size for batch in batches[: number + 1])
    for entry in reversed(batches[number].entries):
        position -= entry.size
        if entry.name == name:
            return position
    raise AssertionError(name)


async def test_a_damaged_entry_that_is_needed_concerns_its_partition_alone(fs: FaultyFileSystem) -> None:
    await left(fs, "second", "third", "fourth")
    flip(fs, JOURNAL, position_of_bytes(fs, 1, "a-0") + 20)
    for _ in range(2):
        manager = reopened(fs)
        assert list(manager.offline) == [("a", 0)]
        assert values_of(at_once(manager.read_only["a", 0].read(0, 1 << 20)).records) == ["first", "second"]
        assert contents(manager) == {topic: ["first", "second", "third", "fourth"] for topic in "bc"}
        assert journal_files(fs) == []
        manager.abandon()
        fs.crash(random.Random(1))
    (damage,) = inspect("/data", fs)
    assert (damage.topic, damage.lost_from_offset, damage.whole_records) == ("a", 2, 1)
    repair("/data", fs)
    manager = reopened(fs)
    assert contents(manager)["a"] == ["first", "second"]
    manager.abandon()


async def left_with_saved_indexes(fs: FaultyFileSystem) -> None:
    """What `left` leaves, with the indexes of a, and without the third of its four records."""
    async with journaled(fs, "a", "b") as manager:
        for value in ("second", "third", "fourth"):
            await round_of(manager, "a", "b", value=value)
        for path in log_of(manager, "a").saved_state.save():
            sync_path(fs, path)
        fs.sync_directory("/data/a-0")
        power_fails(fs, manager)
    flip(fs, JOURNAL, position_of_bytes(fs, 1, "a-0") + 20)


async def test_saved_indexes_do_not_hide_that_an_entry_is_missing(fs: FaultyFileSystem) -> None:
    await left_with_saved_indexes(fs)
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    assert contents(manager) == {"b": ["first", "second", "third", "fourth"]}
    manager.abandon()


async def test_an_entry_that_is_missing_at_the_end_of_a_partition_is_not_taken_for_a_torn_write(
    fs: FaultyFileSystem,
) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        await round_of(manager, "a", "b", "c", value="second")
        await round_of(manager, "b", "c", value="third")
        power_fails(fs, manager)
    flip(fs, JOURNAL, position_of_bytes(fs, 0, "a-0") + 20)
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    assert manager.checkpoints.read(RECOVERY_POINTS) == {("a", 0): 2, ("b", 0): 3, ("c", 0): 3}
    manager.abandon()


async def test_a_damaged_list_of_entries_is_refused_after_a_loss_of_power(fs: FaultyFileSystem) -> None:
    await left(fs, "second", "third")
    flip(fs, JOURNAL, HEADER_SIZE + 40)
    before = bytes(fs._get(A).data)
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="oncelog log repair"):
            reopened(fs)
    assert bytes(fs._get(A).data) == before
    damages = inspect("/data", fs)
    assert [damage.topic for damage in damages] == ["", "a", "b", "c"], "their third records show what is missing"
    assert damages[0].file == JOURNAL
    assert journal_files(fs), "nothing is changed by looking"
    assert repair("/data", fs) == damages
    assert journal_files(fs) == []
    kept = [name for name in fs.list("/data/removed") if name.endswith("-repair")]
    assert len(kept) == 1
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first"] for topic in "abc"}
    manager.abandon()


async def test_a_repair_keeps_all_bytes_in_one_folder_however_long_it_takes(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(1_000_000_000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: next(seconds) * 1000)
    await left(fs, "second", "third")
    flip(fs, JOURNAL, HEADER_SIZE + 40)
    assert len(repair("/data", fs)) == 4
    (folder,) = fs.list("/data/removed")
    assert sorted(fs.list(f"/data/removed/{folder}")) == ["a-0", "b-0", "c-0", "journal"]


async def test_a_damaged_journal_is_not_needed_where_the_system_ran_on(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b", value="second")
        await round_of(manager, "a", "b", value="third")
        manager.abandon()
        fs.kill()
    flip(fs, JOURNAL, HEADER_SIZE + 40)
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "second", "third"], "b": ["first", "second", "third"]}
    manager.abandon()


async def two_files(fs: FaultyFileSystem) -> None:
    """A data directory whose power failed with two journal files."""
    async with journaled(fs, "a", "b", "c") as manager:
        await fill_two_files(fs, manager)


async def fill_two_files(fs: FaultyFileSystem, manager: LogManager) -> None:
    journal = manager._journal
    assert journal is not None
    fs.before = failing("fdatasync", "-0/", errno.EMFILE, times=1000)  # no file of the journal is removed
    journal._settle_some = lambda: None  # type: ignore[method-assign]
    while len(journal._files) < 2 or not journal._files[1].ends:
        await round_of(manager, "a", "b", value="." * 300)
    power_fails(fs, manager)


@pytest.mark.parametrize("gap", [False, True])
async def test_batches_missing_between_two_files_are_damage(fs: FaultyFileSystem, gap: bool) -> None:
    if gap:
        fs.before = failing("fdatasync", "2.journal", errno.EIO)  # the number is not used again
    await two_files(fs)
    assert [name[-9] for name in journal_files(fs)][:2] == ["1", "3" if gap else "2"]
    end = HEADER_SIZE + sum(batch.size for batch in batches_of(fs))
    flip(fs, JOURNAL, end - batches_of(fs)[-1].size + 30)
    with pytest.raises(DataDirectoryError, match="damaged at its end"):
        reopened(fs)


async def test_a_damaged_entry_at_the_end_of_a_file_concerns_its_partition_alone(fs: FaultyFileSystem) -> None:
    await two_files(fs)
    flip(fs, JOURNAL, position_of_bytes(fs, len(batches_of(fs)) - 1, "a-0") + 20)
    assert [damage.topic for damage in inspect("/data", fs)] == ["a"]
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    assert contents(manager)["b"][-1] == "." * 300
    manager.abandon()


async def test_a_batch_that_was_written_again_to_the_next_file_counts_once(fs: FaultyFileSystem) -> None:
    """What is left of the first attempt was not acknowledged: the disk of one partition fails, too."""
    async with journaled(fs, "a", "b", "c") as manager:
        assert manager._journal is not None
        manager._journal._settle_some = lambda: None  # type: ignore[method-assign]
        await round_of(manager, "a", "b")
        first, second = journal_files(fs)

        def fail(name: str, path: str) -> None:
            if name == "fdatasync" and path.endswith(first):
                fs.open(path).truncate(len(fs.read_file(path).rstrip(b"\0")) - 10)  # of what was written just now
                fs._get(path).disk = bytes(fs._get(path).data)
            if name == "fdatasync" and (path.endswith(first) or path == A):
                raise OSError(errno.EIO, "failed on purpose", path)

        fs.before = fail
        results = await asyncio.gather(
            *(written(log_of(manager, topic), "failed") for topic in "ac"), return_exceptions=True
        )
        assert [type(result) for result in results] == [KafkaError, type(None)]
        await turns()
        await round_of(manager, "b", "c", value="after")
        await round_of(manager, "b", "c", value="last")
        power_fails(fs, manager)
    torn = batches_in(fs, first)[-1]
    assert not torn.is_whole
    assert torn.sequence == batches_in(fs, second)[0].sequence
    manager = reopened(fs)
    assert contents(manager) == {
        "a": ["first", "value"],
        "b": ["first", "value", "after", "last"],
        "c": ["first", "failed", "after", "last"],
    }
    manager.abandon()


@pytest.mark.parametrize("lost", ["first", "middle"])
async def test_batches_missing_at_the_end_of_a_file_are_missed(fs: FaultyFileSystem, lost: str) -> None:
    """The next file was never used, because its first batch failed; or a third file follows."""
    async with journaled(fs, "a", "b", "c", "d") as manager:
        journal = manager._journal
        assert journal is not None
        await round_of(manager, "a", "b", value="second")
        hold = failing("fdatasync", "/a-0/", errno.EMFILE, times=10_000)
        fail_second = failing("fdatasync", "2.journal", errno.EIO)

        def fail(name: str, path: str) -> None:
            hold(name, path)
            if lost == "first" and journal._current is not None and journal._current.path.endswith("2.journal"):
                fail_second(name, path)

        fs.before = fail
        while journal._current is None or journal._current.path == JOURNAL:
            await round_of(manager, "a", "b", value="x" * 200)
        while journal._current is None or journal._current.path.endswith("2.journal"):
            await round_of(manager, "c", "d", value="y" * 300)
        await round_of(manager, "c", "d", value="z")
        power_fails(fs, manager)
    assert JOURNAL.rpartition("/")[2] in journal_files(fs), "it is removed before the others"
    end = HEADER_SIZE + sum(batch.size for batch in batches_of(fs))
    flip(fs, JOURNAL, end - batches_of(fs)[-1].size + 30)
    with pytest.raises(DataDirectoryError, match="damaged at its end"):
        reopened(fs)


async def test_a_torn_batch_of_a_journal_that_stays_is_never_redone(fs: FaultyFileSystem) -> None:
    """Not at the start after the next one either, when it is not the newest batch any more."""
    async with journaled(fs, "a", "b", "c") as manager:
        await round_of(manager, "a", "b", "c", value="second")

        def torn(name: str, path: str) -> None:
            if name == "fdatasync" and path == JOURNAL:
                node = fs._get(path)
                node.disk = bytes(node.data[: len(node.data.rstrip(b"\0")) - 10]).ljust(len(node.data), b"\0")
                raise PowerCut

        fs.before = torn
        waiting = [asyncio.ensure_future(written(log_of(manager, topic), "torn " + topic)) for topic in "abc"]
        await turns()
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        power_fails(fs, manager)
    assert not batches_of(fs)[-1].is_whole

    fs.before = full_for("/c-0/")
    manager = new_manager(fs, threads=InlineThreads(), journal_bytes=SIZE)
    manager.open()
    assert list(manager.offline) == [("c", 0)]
    fs.before = None
    await manager.start()
    await round_of(manager, "a", "b", value="acknowledged")
    await round_of(manager, "a", "b", value="more")
    power_fails(fs, manager)
    manager = reopened(fs)
    assert contents(manager)["a"] == ["first", "second", "acknowledged", "more"]
    assert contents(manager)["c"] == ["first", "second"]
    manager.abandon()


@pytest.mark.parametrize("damaged", ["an entry", "the list of entries"])
async def test_damage_on_the_same_boot_hides_nothing_that_the_disk_has_refused(
    fs: FaultyFileSystem, damaged: str
) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b", value="second")
        await round_of(manager, "a", "b", value="third")
        settling = log_of(manager, "a").files.begin_settling()
        assert settling is not None
        fs.before = failing("fdatasync", "/a-0/", errno.EIO)
        with pytest.raises(OSError, match="failed on purpose"):
            settling.run(fs)
        manager.abandon()
        fs.kill()
    fs.before = None
    flip(fs, JOURNAL, HEADER_SIZE + 40 if damaged == "the list of entries" else position_of_bytes(fs, 0, "a-0") + 20)
    for _ in range(2):
        manager = reopened(fs)
        assert contents(manager) == {"a": ["first", "second", "third"], "b": ["first", "second", "third"]}
        power_fails(fs, manager)


async def test_without_its_void_a_deleted_partition_is_not_written_into_an_empty_one(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        for value in ("second", "third"):
            await round_of(manager, "a", "b", value=value)
        await manager.delete([("a", 0)])
        void = len(batches_of(fs)) - 1
        await round_of(manager, "b", "c", value="later")
        manager.create("a", 0, CONFIG)
        await turns()
        manager.abandon()
        fs.kill()
    flip(fs, JOURNAL, HEADER_SIZE + sum(batch.size for batch in batches_of(fs)[:void]) + 30)
    manager = reopened(fs)
    assert manager.offline == {}
    assert contents(manager)["a"] == []
    manager.abandon()


async def test_an_empty_segment_is_no_new_partition_where_nothing_is_damaged(fs: FaultyFileSystem) -> None:
    """The page cache may be gone although the operating system runs on: the disk was taken away and came back."""
    async with journaled(fs, "a", "b") as manager:
        log = log_of(manager, "a")
        log.roll()
        await turns()
        await round_of(manager, "a", "b", value="second")
        power_fails(fs, manager)
        fs.boots -= 1
    assert fs.file_size("/data/a-0/00000000000000000001.log") == 0
    manager = reopened(fs)
    assert contents(manager) == {"a": ["first", "second"], "b": ["first", "second"]}
    manager.abandon()


async def test_a_repair_leaves_a_damaged_journal_to_the_broker_if_the_system_runs_on(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        for value in ("second", "third"):
            await round_of(manager, "a", "b", value=value)
        manager.abandon()
        fs.kill()
    flip(fs, JOURNAL, HEADER_SIZE + 40)
    with pytest.raises(DataDirectoryError, match="Start the broker"):
        repair("/data", fs)
    manager = reopened(fs)
    power_fails(fs, manager)
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second", "third"] for topic in "ab"}
    manager.abandon()


async def test_a_deletion_that_was_interrupted_is_no_damage(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        manager._checkpoint()
        await turns()
        manager.abandon()
        fs.kill()
    fs.rename("/data/a-0", "/data/a-0.0123-delete")
    assert inspect("/data", fs) == []


async def test_an_unfinished_file_of_what_is_kept_is_removed(fs: FaultyFileSystem) -> None:
    await left(fs, "second")

    def cut(name: str, path: str) -> None:
        if name == "write" and path.startswith(A):
            raise OSError(errno.EIO, "failed on purpose", path)
        if name == "fdatasync" and path.endswith(".journal.tmp"):
            raise PowerCut

    fs.before = cut
    with pytest.raises(PowerCut):
        reopened(fs)
    fs.before = None
    fs.kill()
    assert [name for name in fs.list("/data") if name.endswith(".journal.tmp")]
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second"] for topic in "abc"}
    assert [name for name in fs.list("/data") if ".journal" in name] == []
    manager.abandon()


@pytest.mark.parametrize("block", [0, 1])
async def test_a_block_of_the_journal_that_cannot_be_read_is_damage(fs: FaultyFileSystem, block: int) -> None:
    await left(fs, *("." * 500 for _ in range(4)))
    reads: list[str] = []

    def fail(name: str, path: str) -> None:
        if name == "read" and path == JOURNAL:
            reads.append(path)
            if len(reads) in (1, 2 + block):
                raise OSError(errno.EIO, "failed on purpose", path)

    def begin() -> None:
        reads.clear()
        fs.before = fail

    begin()
    with pytest.raises(DataDirectoryError, match="oncelog log repair"):
        reopened(fs)
    begin()
    assert inspect("/data", fs)[0].file == JOURNAL
    fs.before = None
    assert journal_files(fs)


async def test_a_repair_keeps_what_can_be_read_of_the_journal(fs: FaultyFileSystem) -> None:
    await left(fs, *("." * 500 for _ in range(4)))
    flip(fs, JOURNAL, HEADER_SIZE + 40)
    whole = bytes(fs._get(JOURNAL).data)
    unreadable = failing("read", JOURNAL, errno.EIO, times=2)  # the file as a whole, and its first block
    fs.before = lambda name, path: unreadable(name, path) if fs.is_directory("/data/removed") else None
    repair("/data", fs)
    fs.before = None
    (directory,) = fs.list("/data/removed")
    kept = fs.read_file(f"/data/removed/{directory}/journal/{JOURNAL.rpartition('/')[2]}.from-0")
    assert kept == bytes(4096) + whole[4096:]


async def test_the_oldest_file_goes_first(fs: FaultyFileSystem) -> None:
    """A void in a newer file must outlive the entries that it makes worthless."""
    await two_files(fs)
    removed: list[tuple[str, str]] = []
    fs.before = lambda operation, path: (
        removed.append((operation, path))
        if (operation == "unlink" and path.endswith(".journal")) or (operation, path) == ("sync_directory", "/data")
        else None
    )
    reopened(fs).abandon()
    fs.before = None
    first, second = (number for number, (operation, _) in enumerate(removed) if operation == "unlink")
    assert removed[first][1] < removed[second][1]
    assert ("sync_directory", "/data") in removed[first:second]


async def test_damaged_bytes_that_are_kept_are_still_missed(fs: FaultyFileSystem) -> None:
    """The partition's disk fails at the first start. The second start checks the partition whole."""
    await left_with_saved_indexes(fs)
    fs.before = failing("write", "/a-0/0", errno.EIO)
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    manager.abandon()
    fs.before = None
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    assert values_of(at_once(manager.read_only["a", 0].read(0, 1 << 20)).records) == ["first", "second"]
    manager.abandon()


async def test_damage_of_what_was_redone_is_no_torn_write_at_the_next_start(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    reopened(fs).abandon()
    flip(fs, A, fs.file_size(A) - 1)
    fs.unlink("/data/a-0/flushed-offset")
    fs.crash(random.Random(1))
    manager = reopened(fs)
    assert list(manager.offline) == [("a", 0)]
    manager.abandon()


# --- operators -------------------------------------------------------------------------------------------------------


async def test_an_unredone_journal_is_no_damage(fs: FaultyFileSystem) -> None:
    await left(fs, "second", "third")
    before = {name: bytes(fs._get(f"/data/{name}-0/00000000000000000000.log").data) for name in "abc"}
    files = journal_files(fs)
    assert inspect("/data", fs) == []
    assert repair("/data", fs) == []
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second", "third"] for topic in "abc"}
    assert files
    assert before["a"] != bytes(fs._get(A).data)
    manager.abandon()


async def test_looking_changes_nothing(fs: FaultyFileSystem) -> None:
    await left(fs, "second", "third")
    content = bytes(fs._get(A).data)
    files = journal_files(fs)
    assert inspect("/data", fs) == []
    assert (bytes(fs._get(A).data), journal_files(fs)) == (content, files)


async def test_a_repair_redoes_the_journal_before_it_cuts(fs: FaultyFileSystem) -> None:
    await left(fs, "second", "third")
    flip(fs, A, 40)
    (damage,) = inspect("/data", fs)
    assert (damage.topic, damage.position, damage.whole_records) == ("a", 0, 2)
    repair("/data", fs)
    assert journal_files(fs) == []
    manager = reopened(fs)
    assert contents(manager) == {"a": [], "b": ["first", "second", "third"], "c": ["first", "second", "third"]}
    manager.abandon()


async def test_a_repair_refuses_where_the_journal_cannot_be_redone(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    fs.before = failing("write", "/a-0/0", errno.EIO)
    with pytest.raises(OSError, match="failed on purpose"):
        repair("/data", fs)
    fs.before = None
    assert journal_files(fs)
    manager = reopened(fs)
    assert contents(manager) == {topic: ["first", "second"] for topic in "abc"}
    manager.abandon()


async def test_a_request_for_a_partition_that_was_not_redone_gets_the_reason(fs: FaultyFileSystem) -> None:
    await left(fs, "second")
    fs.before = failing("write", "/a-0/0", errno.EIO)
    manager = reopened(fs)
    with pytest.raises(KafkaError, match="the journal"):
        manager.get("a", 0)
    manager.abandon()
