"""Flushes of many logs with one sync of the journal: when it is used, how its files follow each other, what fails."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from oncelog.broker.log import LogConfig, LogManager, PartitionLog
from oncelog.broker.log.flushed_mark import read_flushed_offset
from oncelog.broker.log.journal import MAX_LOG_BYTES
from oncelog.broker.log.results import storage_error
from oncelog.broker.system.ports import Lane
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads
from support.journals import (
    CONFIG,
    SIZE,
    TURNS,
    after_power_failed,
    all_of,
    batches_in,
    failing,
    journal_files,
    journaled,
    log_of,
    power_fails,
    reopened,
    round_of,
    syncs,
    turns,
    written,
)
from support.logs import batch, new_manager, values

# --- what is journaled -----------------------------------------------------------------------------------------------


T = TypeVar("T")


async def test_a_round_of_many_logs_takes_one_sync(fs: FaultyFileSystem) -> None:
    topics = [f"t{number}" for number in range(10)]
    async with journaled(fs, *topics) as manager:
        with syncs(fs) as counted:
            await round_of(manager, *topics)
        assert counted == {"journal": 1}
        assert all(log.high_watermark == 2 for log in manager.logs())
        manager = after_power_failed(fs, manager)
        assert [values(log.batches()) for log in manager.logs()] == [["first", "value"]] * 10
        manager.abandon()


async def test_there_is_no_journal_before_it_saves_a_sync(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs, threads=InlineThreads(), journal_bytes=SIZE)
    await manager.start()
    for topic in "ab":
        manager.create(topic, 0, CONFIG)
        await written(log_of(manager, topic), "first")
        await written(log_of(manager, topic), "second")
    manager._look()
    await turns()
    assert journal_files(fs) == []
    await round_of(manager, "a", "b")
    await turns()
    assert len(journal_files(fs)) == 2
    with syncs(fs) as counted:
        await round_of(manager, "a", "b")
    assert counted == {"journal": 1}
    await manager.stop()


async def test_the_journal_of_a_small_disk_is_small(fs: FaultyFileSystem) -> None:
    sizes: list[int] = []
    for fs.capacity in (None, 16 << 20):
        manager = new_manager(fs, threads=InlineThreads(), journal_bytes=1 << 20, reserve_bytes=0)
        await manager.start()
        assert manager._journal is not None
        manager._journal.want()
        await turns()
        sizes += {fs.file_size(f"/data/{name}") for name in journal_files(fs)}
        await manager.stop()
    assert sizes == [1 << 20, (16 << 20) // 64]


async def test_a_log_that_is_alone_syncs_its_own_file(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        with syncs(fs) as counted:
            await written(log_of(manager, "a"), "value")
        assert counted == {"a-0": 1}


async def test_what_is_appended_while_the_journal_is_written_is_the_next_round(fs: FaultyFileSystem) -> None:
    topics = ["a", "b", "c", "d"]
    async with journaled(fs, *topics) as manager:
        with syncs(fs) as counted:
            first = asyncio.ensure_future(round_of(manager, "a", "b"))
            while not manager._journal or not manager._journal.is_writing():
                await asyncio.sleep(0)
            second = [asyncio.ensure_future(round_of(manager, topic)) for topic in (*topics, *topics)]
            await asyncio.gather(first, *second)
        assert counted == {"journal": 2}


async def test_a_log_with_much_to_sync_syncs_its_own_file_beside_the_journal(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "large", size=1 << 20) as manager:
        with syncs(fs) as counted:
            large = written(log_of(manager, "large"), "." * (MAX_LOG_BYTES + 1))
            await asyncio.gather(round_of(manager, "a", "b"), large)
        assert counted == {"journal": 1, "large-0": 1}


async def test_a_round_takes_no_more_than_fits(fs: FaultyFileSystem) -> None:
    topics = [f"t{number}" for number in range(8)]
    async with journaled(fs, *topics) as manager:
        with syncs(fs) as counted:
            await round_of(manager, *topics, value="." * (SIZE // 10))
        assert counted["journal"] == 1
        assert 0 < sum(count for name, count in counted.items() if name != "journal") < len(topics)
        manager = after_power_failed(fs, manager)
        assert all(log.log_end_offset == 2 for log in manager.logs())
        manager.abandon()


async def test_a_file_has_entries_of_a_limited_number_of_logs(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after a crash has to sync the files of each of them."""
    monkeypatch.setattr("oncelog.broker.log.journal.MOST_LOGS", 4)
    known, others = ["a", "b", "c", "d"], ["e", "f"]
    async with journaled(fs, *known, *others) as manager:
        await round_of(manager, *known)
        with syncs(fs) as counted:
            await round_of(manager, *known, *others)
        assert counted == {"journal": 1, "e-0": 1, "f-0": 1}
        manager = after_power_failed(fs, manager)
        assert [values(log.batches()) for log in manager.logs()] == [["first", "value", "value"]] * 4 + [
            ["first", "value"]
        ] * 2
        manager.abandon()


async def test_a_file_that_has_no_room_for_other_logs_is_followed_by_another_one(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise logs that were written once would keep busy ones out of the journal for good."""
    monkeypatch.setattr("oncelog.broker.log.journal.MOST_LOGS", 4)
    idle, busy = ["a", "b", "c", "d"], ["e", "f"]
    async with journaled(fs, *idle, *busy) as manager:
        await round_of(manager, *idle)
        await round_of(manager, *busy)
        manager._look()
        await turns()
        with syncs(fs) as counted:
            await round_of(manager, *busy)
        assert counted == {"journal": 1}


async def test_bytes_that_the_system_has_dropped_are_not_acknowledged(fs: FaultyFileSystem) -> None:
    """A file system may drop a page that it could not write, and only the next sync of the file says so."""
    async with journaled(fs, "a", "b") as manager:
        log = log_of(manager, "a")
        other = log_of(manager, "b")
        end, other_end = (one.append(batch("value")).last_offset + 1 for one in (log, other))
        file = fs._get(log.segments.active.path())
        on_disk = len(file.disk)
        file.data[on_disk:] = bytes(len(file.data) - on_disk)
        fs.before = failing("fdatasync", "/a-0/", errno.EIO)
        flushes = [log.synced(end), other.synced(other_end)]
        outcomes = await asyncio.gather(*(flush for flush in flushes if flush is not None), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [KafkaError, type(None)]
        assert log.failure is not None


async def test_new_names_are_synced_as_without_a_journal(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        log_of(manager, "b").roll()
        manager.create("new", 0, CONFIG)
        for log in manager.logs():
            log.append(batch("value"))
        with syncs(fs) as counted:
            await round_of(manager, "a", "b", "new")
        assert counted["b-0"]
        assert counted["new-0"]
        assert counted["/data"]
        power_fails(fs, manager)
        manager = reopened(fs)
        assert [log.log_end_offset for log in manager.logs()] == [3, 3, 2]
        manager.abandon()


async def test_a_log_that_waits_for_no_disk_is_not_journaled(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        for log in manager.logs():
            log.update_config(LogConfig(durability="os"))
        with syncs(fs) as counted:
            for log in manager.logs():
                log.append(batch("value"))
            await turns()
        assert counted == {}


async def test_records_that_nobody_waits_for_become_visible(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        for log in manager.logs():
            log.append(batch("value"))
        await turns()
        assert [log.high_watermark for log in manager.logs()] == [2, 2]


# --- files -----------------------------------------------------------------------------------------------------------


async def test_files_follow_each_other_and_the_logs_of_a_removed_one_are_synced(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        seen, most = set(journal_files(fs)), 0
        for number in range(100):
            await round_of(manager, "a", "b", "c", value=f"value {number}".ljust(200))
            if number % 5 == 0:
                await turns(50)
            most = max(most, len(journal_files(fs)))
            seen |= set(journal_files(fs))
        assert len(seen) > 5
        assert most <= 3
        manager = after_power_failed(fs, manager)
        assert all(log.log_end_offset == 101 for log in manager.logs())
        assert journal_files(fs) == []
        manager.abandon()


async def test_a_file_is_not_used_before_its_name_is_on_disk(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await full_journal(manager, "a", "b")
        await turns()  # the first file is removed, and the third one is created
        fs.before = failing("fdatasync", "-0/", errno.EMFILE, times=1000)  # the second one is not removed
        await full_journal(manager, "a", "b")
        await round_of(manager, "a", "b")
        ends = [log.log_end_offset for log in manager.logs()]
        power_fails(fs, manager)
        manager = reopened(fs)
        assert [log.log_end_offset for log in manager.logs()] == ends
        manager.abandon()


async def test_a_log_is_flushed_while_its_file_is_synced_for_the_journal(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b")
        log = log_of(manager, "a")
        settling = log.files.begin_settling()
        assert settling is not None
        await round_of(manager, "a", "b")
        assert log.high_watermark == 3
        alone = asyncio.ensure_future(written(log, "alone"))
        await turns()
        assert not alone.done(), "two syncs of a file at a time: only one of them would learn of a lost write"
        settling.run(fs)
        log.files.end_settling(settling, None)
        await alone
        assert log.files.synced_offset == log.log_end_offset == 4


async def test_a_clean_stop_leaves_no_journal_and_loses_nothing(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        await round_of(manager, "a", "b", "c")
        assert journal_files(fs)
    assert journal_files(fs) == []
    fs.crash(random.Random(1))
    manager = reopened(fs)
    assert manager.clean_start
    assert [log.log_end_offset for log in manager.logs()] == [2, 2, 2]
    manager.abandon()


async def test_a_journal_is_redone_where_it_is_off(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b")
        manager = after_power_failed(fs, manager, 3)
        await manager.start()
        assert journal_files(fs) == []
        with syncs(fs) as counted:
            await round_of(manager, "a", "b")
        assert counted == {"a-0": 1, "b-0": 1}
        assert [log.log_end_offset for log in manager.logs()] == [3, 3]
        await manager.stop()


# --- failures --------------------------------------------------------------------------------------------------------


async def test_where_the_first_write_to_the_journal_fails_the_logs_sync_their_own_files(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        fail = failing("fdatasync", ".journal", errno.EIO)
        synced: list[str] = []

        def look(name: str, path: str) -> None:
            if name == "fdatasync":
                synced.append(path.split("/")[2])
            fail(name, path)

        fs.before = look
        await round_of(manager, "a", "b")
        assert synced[:3] == ["00000000000000000001.journal", "a-0", "b-0"]
        assert [log.files.synced_offset for log in manager.logs()] == [2, 2]


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
async def test_where_the_journal_fails_nothing_is_lost_and_another_file_is_used(
    fs: FaultyFileSystem, operation: str, number: int
) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b")
        (first, *_) = journal_files(fs)
        later: list[str] = []
        fail = failing(operation, first, number)

        def look(name: str, path: str) -> None:
            fail(name, path)
            if name in ("write", "fdatasync"):
                later.append(path)

        fs.before = look
        await round_of(manager, "a", "b")
        await turns()
        await round_of(manager, "a", "b")
        assert [path for path in later if first in path] == ([f"/data/{first}"] if operation == "fdatasync" else [])
        with syncs(fs) as counted:
            await round_of(manager, "a", "b")
        assert counted == {"journal": 1}, "another file is in use"
        assert all(log.failure is None for log in manager.logs())
        manager = after_power_failed(fs, manager)
        assert all(log.log_end_offset == 5 for log in manager.logs())
        manager.abandon()


async def test_a_log_whose_own_file_fails_behind_the_journal_fails_alone(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        fs.before = all_of(failing("fdatasync", ".journal", errno.EIO), failing("fdatasync", "/a-0/", errno.EIO))
        results = await asyncio.gather(
            *(written(log_of(manager, topic), "value") for topic in "abc"), return_exceptions=True
        )
        assert [type(result) for result in results] == [KafkaError, type(None), type(None)]
        assert log_of(manager, "a").failure is not None
        assert manager.failed is None


async def test_without_space_there_is_no_journal_until_there_is_some(fs: FaultyFileSystem) -> None:
    fs.capacity = 100_000
    manager = new_manager(fs, threads=InlineThreads(), journal_bytes=SIZE, reserve_bytes=95_000)
    await manager.start()
    logs = [manager.create(topic, 0, LogConfig(internal=True)) for topic in "ab"]
    await asyncio.gather(*(written(log, "first") for log in logs))
    await turns()
    assert journal_files(fs) == [], "it would use the reserve"
    fs.capacity = None
    manager._look()
    await turns()
    with syncs(fs) as counted:
        await round_of(manager, "a", "b")
    assert counted == {"journal": 1}
    await manager.stop()


async def full_journal(manager: LogManager, *topics: str) -> None:
    """Write to the journal until a second file is in use."""
    assert manager._journal is not None
    first = manager._journal._current
    while manager._journal._current is first:
        await round_of(manager, *topics, value="." * 300)
        first = first or manager._journal._current


async def test_a_log_that_cannot_be_synced_for_the_journal_keeps_its_records_in_it(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        fs.before = failing("fdatasync", "/a-0/", errno.EIO, times=1000)
        await full_journal(manager, "a", "b")
        await turns()
        a, b = log_of(manager, "a"), log_of(manager, "b")
        assert a.failure is not None
        assert b.failure is None
        end = a.files.flushed_offset
        for _ in range(100):
            await round_of(manager, "b", value="." * 300)
        await turns()
        assert "00000000000000000001.journal" not in journal_files(fs), "its records were copied out of it"
        fs.before = None
        await manager.stop()
        (kept,) = journal_files(fs)
        assert names_in(fs, kept) == {"a-0"}
        fs.crash(random.Random(2))
        manager = reopened(fs)
        assert manager.offline == {}
        assert log_of(manager, "a").log_end_offset >= end
        assert log_of(manager, "b").log_end_offset == b.files.flushed_offset
        assert journal_files(fs) == []
        manager.abandon()


async def test_a_log_that_has_failed_costs_the_others_no_syncs(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c", size=256 << 10) as manager:
        fs.before = failing("fdatasync", "/a-0/", errno.EIO, times=1000)
        await round_of(manager, "a", "b", "c")
        await full_journal(manager, "a", "b", "c")
        await turns()
        assert log_of(manager, "a").failure is not None
        with syncs(fs) as counted:
            for _ in range(50):
                await round_of(manager, "b", "c")
        assert counted == {"journal": 50}


async def test_a_log_without_space_for_its_own_file_is_written_again(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        fs.before = failing("fdatasync", "/a-0/", errno.ENOSPC)
        await full_journal(manager, "a", "b")
        await turns()
        await round_of(manager, "a", "b")
        await turns()
        a = log_of(manager, "a")
        assert a.failure is None
        assert a.files.synced_offset > 2
        manager._look()
        await turns()
        assert "00000000000000000001.journal" not in journal_files(fs)
        manager = after_power_failed(fs, manager)
        assert log_of(manager, "a").log_end_offset == a.files.flushed_offset
        manager.abandon()


async def test_files_are_removed_in_the_order_in_which_they_were_written(fs: FaultyFileSystem) -> None:
    """Otherwise a void could be removed before the entries that it concerns."""
    async with journaled(fs, "a", "b", "c", "d") as manager:
        await round_of(manager, "a", "b", "c", "d")
        no_descriptor = failing("fdatasync", "/a-0/", errno.EMFILE, times=100)
        fs.before = no_descriptor
        await full_journal(manager, "a", "c", "d")
        await manager.delete([("b", 0)])
        await written(manager.create("b", 0, CONFIG), "anew, and longer than it was")
        await full_journal(manager, "c", "d")
        await turns()
        assert len(journal_files(fs)) > 2
        fs.before = None
        await written(log_of(manager, "b"), "more")
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "b").batches()) == ["anew, and longer than it was", "more"]
        manager.abandon()


async def test_a_failed_log_and_deletions_do_not_end_the_use_of_the_journal(fs: FaultyFileSystem) -> None:
    topics = [f"t{number}" for number in range(8)]
    async with journaled(fs, "a", "b", "c", *topics) as manager:
        await round_of(manager, "a", "b", *topics)
        fs.before = failing("fdatasync", "/a-0/", errno.EIO, times=1000)
        await full_journal(manager, "a", "b")
        await turns()
        assert log_of(manager, "a").failure is not None
        for topic in topics:
            await round_of(manager, *topics[topics.index(topic) :])
            await manager.delete([(topic, 0)])
            await full_journal(manager, "b", "c")
            await turns()
        assert len(journal_files(fs)) <= 3
        with syncs(fs) as counted:
            await round_of(manager, "b", "c")
        assert counted == {"journal": 1}
        end = log_of(manager, "a").files.flushed_offset
        manager = after_power_failed(fs, manager)
        assert (manager.offline, log_of(manager, "a").log_end_offset) == ({}, end)
        manager.abandon()


async def test_a_copy_out_of_the_journal_that_fails_is_made_later(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        fail_copy = failing("read", ".journal", errno.EMFILE)
        fs.before = all_of(failing("fdatasync", "/a-0/", errno.EIO, times=1000), fail_copy)
        await full_journal(manager, "a", "b")
        await turns()
        assert log_of(manager, "a").failure is not None
        assert "00000000000000000001.journal" in journal_files(fs)
        manager._look()
        await turns()
        assert "00000000000000000001.journal" not in journal_files(fs)
        await manager.delete([("a", 0)])
        assert all(name != "a-0" for file in journal_files(fs) for name in names_in(fs, file)), "it goes with it"


async def test_a_block_that_cannot_be_read_is_not_copied_as_nothing(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        for value in ("second", "third"):
            await round_of(manager, "a", "b", value=value)
        fail_read = failing("read", "1.journal", errno.EIO, times=2)
        fs.before = all_of(failing("fdatasync", "/a-0/", errno.EIO, times=1000), fail_read)
        await full_journal(manager, "b", "c")
        await turns()
        assert log_of(manager, "a").failure is not None
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "a").batches()) == ["first", "second", "third"]
        manager.abandon()


async def test_a_copy_has_nothing_of_a_former_partition(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        for value in ("old", "older " + "x" * 200):
            await round_of(manager, "a", "b", value=value)
        await manager.delete([("a", 0)])
        log = manager.create("a", 0, CONFIG)
        await written(log, "first")  # the same first batch
        await written(log, "own file 1")
        await written(log, "own file 2")
        await round_of(manager, "a", "b", value="anew")
        fs.before = failing("fdatasync", "/a-0/", errno.EIO, times=1000)
        await full_journal(manager, "b", "c")
        await turns()
        assert log.failure is not None
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "a").batches()) == ["first", "own file 1", "own file 2", "anew"]
        manager.abandon()


class _LateRemovals(InlineThreads):
    """Threads in which jobs of the removal lane begin much later than others."""

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        if lane is not Lane.REMOVAL:
            return super().run(lane, job)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def later(left: int) -> None:
            if left:
                asyncio.get_running_loop().call_soon(later, left - 1)
            else:
                self._do(job, future)

        later(TURNS)
        return future


async def test_a_deletion_waits_for_a_copy(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c", threads=_LateRemovals()) as manager:
        journal = manager._journal
        assert journal is not None
        await round_of(manager, "a", "b")
        fs.before = failing("fdatasync", "/a-0/", errno.EIO, times=1000)
        await full_journal(manager, "b", "c")
        while journal._copying is None:
            await asyncio.sleep(0)
        await manager.delete([("a", 0)])
        assert journal._copying is None
        assert all(names_in(fs, file) != {"a-0"} for file in journal_files(fs))


async def test_a_log_that_fails_otherwise_is_copied_out_too(fs: FaultyFileSystem) -> None:
    """Damage that a reader or a compaction finds takes a log offline, which then syncs nothing any more."""
    async with journaled(fs, "a", "b", "c") as manager:
        await round_of(manager, "a", "b")
        log_of(manager, "a").fail(storage_error("damaged"))
        await full_journal(manager, "b", "c")
        await turns()
        assert "00000000000000000001.journal" not in journal_files(fs)
        assert any(names_in(fs, file) == {"a-0"} for file in journal_files(fs))


def fail_round_and_settling(fs: FaultyFileSystem, log: PartitionLog, number: int) -> list[str]:
    """In the next round, let the files of `log` fail to be synced for the journal, and then the round itself.

    The list that is returned gets the log's files that are synced after that.
    """
    settling = log.files.begin_settling()
    assert settling is not None
    again: list[str] = []

    def fail(name: str, path: str) -> None:
        if name != "fdatasync" or not path.endswith(".journal"):
            return
        fs.before = failing("fdatasync", f"/{log.name}/", number)
        with pytest.raises(OSError, match="failed on purpose") as raised:
            settling.run(fs)
        log.files.end_settling(settling, raised.value)
        fs.before = lambda name, path: again.append(path) if name == "fdatasync" and log.name in path else None
        raise OSError(errno.EIO, "failed on purpose", path)

    fs.before = fail
    return again


async def test_a_log_that_has_failed_is_not_synced_when_the_journal_fails(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b", value="second")
        again = fail_round_and_settling(fs, log_of(manager, "a"), errno.EIO)
        results = await asyncio.gather(
            *(written(log_of(manager, topic), "third") for topic in "ab"), return_exceptions=True
        )
        assert [type(result) for result in results] == [KafkaError, type(None)]
        await turns()
        assert again == []
        assert read_flushed_offset(fs, "/data/a-0") == 1, "of its first flush"


async def test_a_compaction_keeps_what_was_copied_for_a_log_that_failed_meanwhile(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        journal = manager._journal
        assert journal is not None
        await round_of(manager, "a", "b")
        fs.before = failing("fdatasync", "/a-0/", errno.EIO, times=1000)
        await full_journal(manager, "b", "c")
        await turns()
        assert log_of(manager, "a").failure is not None
        assert await journal.forget_below(log_of(manager, "a").files, 0)
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "a").batches()) == ["first", "value"]
        manager.abandon()


async def test_a_deleted_log_waits_for_no_flush(fs: FaultyFileSystem) -> None:
    """Otherwise the health check would find a flush that never ends."""
    async with journaled(fs, "a", "b", threads=_LateRemovals()) as manager:
        assert manager._flusher is not None
        await round_of(manager, "a", "b")
        log = log_of(manager, "a")
        settling = log.files.begin_settling()
        assert settling is not None
        waiting = asyncio.ensure_future(written(log, "alone"))
        await turns(20)
        await manager.delete([("a", 0)])
        with pytest.raises(KafkaError):
            await waiting
        log.files.end_settling(settling, None)
        await turns()
        assert manager._flusher.oldest_flush_s == 0


class _HangingThreads(InlineThreads):
    """Threads in which no job begins while `hangs` is set."""

    hangs = False

    def _do(self, job: Callable[[], T], future: asyncio.Future[T]) -> None:
        if self.hangs:
            asyncio.get_running_loop().call_soon(self._do, job, future)
        else:
            super()._do(job, future)


async def test_the_age_of_a_sync_for_the_journal_is_measured(fs: FaultyFileSystem) -> None:
    """A flush of the same log may wait for it, so the health check must notice a sync that hangs."""
    threads = _HangingThreads()
    async with journaled(fs, "a", "b", threads=threads) as manager:
        assert manager._journal is not None
        await round_of(manager, "a", "b")
        assert manager.oldest_flush_s == 0
        threads.hangs = True
        settled = asyncio.ensure_future(manager._journal.settle(log_of(manager, "a").files))
        async with asyncio.timeout(60):
            while not manager.oldest_flush_s:
                await asyncio.sleep(0)
        threads.hangs = False
        assert await settled
        assert manager.oldest_flush_s == 0


async def test_a_deletion_waits_for_a_file_while_all_are_being_settled(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        journal = manager._journal
        assert journal is not None
        fs.before = failing("fdatasync", "/a-0/", errno.EMFILE, times=100_000)
        await round_of(manager, "a", "b", "c")
        for _ in range(100):
            await round_of(manager, "b", "c", value="." * 300)
        await turns()
        assert journal._current is None, "no file is free"
        deletion = asyncio.ensure_future(manager.delete([("c", 0)]))
        await turns()
        assert not deletion.done()
        fs.before = None
        for _ in range(5):
            manager._look()
            await turns()
        await deletion


async def test_logs_are_settled_though_one_cannot_be(fs: FaultyFileSystem) -> None:
    topics = [f"t{number}" for number in range(300)]
    async with journaled(fs, *topics, size=1 << 20) as manager:
        await round_of(manager, *topics)
        fs.before = failing("fdatasync", "/t0-0/", errno.EMFILE, times=100_000)
        await full_journal(manager, *topics)
        for _ in range(5):
            manager._look()
            await turns(500)
        assert manager._journal is not None
        assert [log.name for log in manager._journal._files[0].ends] == ["t0-0"]


def names_in(fs: FaultyFileSystem, file: str) -> set[str]:
    """The partitions with entries in a file of the journal."""
    return {entry.name for batch in batches_in(fs, file) for entry in batch.entries}


async def test_what_compaction_replaces_is_not_redone(fs: FaultyFileSystem) -> None:
    """A segment has the same name before and after its compaction, but other bytes."""
    async with journaled(fs, "a", "b") as manager:
        log = log_of(manager, "b")
        log.update_config(LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0))
        for value in ("x" * 300, "y" * 100, "z" * 20):
            await round_of(manager, "a", "b", value=value)
        log.roll()
        await round_of(manager, "a", "b", value="active")
        before = log.size
        manager._clean()
        assert manager._cleaning is not None
        await manager._cleaning
        assert log.size < before
        manager = after_power_failed(fs, manager)
        assert values(log_of(manager, "b").batches()) == ["z" * 20, "active"]
        assert log_of(manager, "b").size == log.size
        manager.abandon()


class CompactsSlowly(InlineThreads):
    """The first job of a compaction reads what it needs, but its end is noticed only later."""

    def __init__(self) -> None:
        self.noticed = asyncio.Event()

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        done = super().run(lane, job)
        if lane is not Lane.COMPACTION or self.noticed.is_set():
            return done

        async def later() -> T:
            result = await done
            await self.noticed.wait()
            return result

        return asyncio.ensure_future(later())


async def test_the_compaction_of_a_deleted_partition_takes_nothing_from_its_successor(fs: FaultyFileSystem) -> None:
    threads = CompactsSlowly()
    compact = LogConfig(cleanup_policy=("compact",), segment_bytes=200, min_cleanable_dirty_ratio=0)
    async with journaled(fs, "a", "b", threads=threads) as manager:
        deleted = manager.create("t", 0, compact)
        for number in range(4):
            await written(deleted, f"old {number}")
        manager._clean()
        compaction = manager._cleaning
        assert compaction is not None
        await turns()
        await manager.delete([("t", 0)])
        successor = manager.create("t", 0, CONFIG)
        await written(successor, "first")
        for number in range(3):
            await round_of(manager, "a", "b", "t", value=f"new {number}")
        assert successor.files.synced_offset == 1, "the others are on disk in the journal only"
        threads.noticed.set()
        await compaction
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "t").batches()) == ["first", "new 0", "new 1", "new 2"]
        manager.abandon()


async def test_compaction_takes_nothing_out_of_the_journal_that_is_not_on_disk(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        log = log_of(manager, "b")
        log.update_config(LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0))
        for value in ("x" * 300, "y" * 100):
            await round_of(manager, "a", "b", value=value)
        fs.before = failing("fdatasync", "/b-0/", errno.EMFILE, times=1000)
        log.roll()
        manager._clean()
        assert manager._cleaning is not None
        await manager._cleaning
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "b").batches()) == ["first", "x" * 300, "y" * 100]
        manager.abandon()


async def test_what_only_the_journal_has_is_written_again_after_a_lack_of_space(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        for _ in range(3):
            await round_of(manager, "a", "b")
        log = log_of(manager, "a")
        settling = log.files.begin_settling()
        assert settling is not None
        written_again: list[str] = []
        fs.before = lambda name, path: written_again.append(path) if name == "write" and path.endswith(".log") else None
        log.files.end_settling(settling, OSError(errno.ENOSPC, "no space"))
        assert log.files.begin_settling() is None, "a sync could succeed although bytes are lost"
        await turns()
        assert written_again == ["/data/a-0/00000000000000000000.log"], "all batches at once"
        assert log.files.synced_offset == log.log_end_offset == 4


async def test_a_sync_that_lacked_space_is_not_repeated_when_the_journal_fails(fs: FaultyFileSystem) -> None:
    """A second sync of the same bytes would succeed without writing them."""
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b")
        fail_round_and_settling(fs, log_of(manager, "a"), errno.ENOSPC)
        await round_of(manager, "a", "b", value="second")
        power_fails(fs, manager)
        manager = reopened(fs)
        assert values(log_of(manager, "a").batches()) == ["first", "value", "second"]
        manager.abandon()


async def test_deleted_records_stay_durable_until_the_new_start_is_on_disk(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b", "c") as manager:
        log = log_of(manager, "a")
        await round_of(manager, "a", "b", value="second")
        fs.before = failing("open", "log-start-offset-checkpoint", errno.ENOSPC, times=1000)
        log.roll()
        log.delete_records_before(2)
        await full_journal(manager, "b", "c")
        await full_journal(manager, "b", "c")
        await turns()
        power_fails(fs, manager)
        manager = reopened(fs)
        assert manager.offline == {}
        assert values(log_of(manager, "a").batches()) == ["first", "second"]
        manager.abandon()


async def test_many_partitions_are_deleted_with_few_syncs_of_the_journal(fs: FaultyFileSystem) -> None:
    topics = [f"t{number}" for number in range(20)]
    async with journaled(fs, *topics) as manager:
        await round_of(manager, *topics)
        with syncs(fs) as counted:
            await manager.delete([(topic, 0) for topic in topics])
        assert counted["journal"] == 1


async def test_a_deletion_that_cannot_be_put_into_the_journal_is_repeated(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b")
        for name in journal_files(fs)[1:]:
            fs.unlink(f"/data/{name}")

        def fail(name: str, path: str) -> None:
            if path.endswith(".journal") and name in ("fdatasync", "open"):
                raise OSError(errno.EIO, "failed on purpose", path)
            if "/b-0/" in path and name == "fdatasync":  # so the file is still needed
                raise OSError(errno.EMFILE, "failed on purpose", path)

        fs.before = fail
        with pytest.raises(KafkaError) as raised:
            await manager.delete([("a", 0)])
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.holds("a", 0)
        fs.before = None
        manager._look()
        await manager.delete([("a", 0)])
        assert not manager.holds("a", 0)
        await written(manager.create("a", 0, CONFIG), "anew")
        manager = after_power_failed(fs, manager)
        assert values(log_of(manager, "a").batches()) == ["anew"]
        manager.abandon()


@pytest.mark.parametrize("doomed", ["a", "b"])
async def test_a_partition_is_deleted_while_all_files_are_full(fs: FaultyFileSystem, doomed: str) -> None:
    """A closed log never syncs its own files, so no file may wait for it."""
    async with journaled(fs, "a", "b", "c") as manager:
        fs.before = failing("fdatasync", "/a-0/", errno.EMFILE, times=100_000)  # its files are synced much later
        await round_of(manager, "a", "b", "c")
        journal = manager._journal
        assert journal is not None
        while journal.is_open():
            await round_of(manager, "b", "c", value="." * 300)
            await turns()
        deletion = asyncio.ensure_future(manager.delete([(doomed, 0)]))
        await turns()
        fs.before = None
        manager._look()
        await turns(1000)
        await asyncio.wait_for(deletion, 1)
        manager._look()
        await turns()
        assert journal.is_open()
        manager = after_power_failed(fs, manager)
        assert {log.topic for log in manager.logs()} == {"a", "b", "c"} - {doomed}
        manager.abandon()
