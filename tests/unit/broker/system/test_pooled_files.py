"""Files whose descriptors come and go: which one is closed, what is synced first, and whose error is whose."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.broker.system.pooled_files import PooledFile, PooledFileSystem
from oncelog.broker.system.ports import RealFileSystem
from oncelog.broker.system.threads import RealThreads
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.faulty_filesystem import FaultyFileSystem
from support.raw_connection import RawConnection, batch


def syncs_of_this_thread(disk: FaultyFileSystem) -> list[str]:
    """The files that this thread syncs from now on, while any number of others do, too."""
    seen: list[str] = []
    here = threading.current_thread()

    def note(operation: str, path: str) -> None:
        if operation == "fdatasync" and threading.current_thread() is here:
            seen.append(path)

    disk.before = note
    return seen


@pytest.fixture
def disk() -> FaultyFileSystem:
    disk = FaultyFileSystem()
    disk.make_directory("/d")
    return disk


def operations(disk: FaultyFileSystem) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    disk.before = lambda operation, path: seen.append((operation, path))
    return seen


def test_the_descriptor_used_longest_ago_is_closed(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 2)
    a, b = (fs.open(f"/d/{name}", create=True) for name in "ab")
    a.size()
    fs.open("/d/c", create=True)
    seen = operations(disk)
    a.size()
    assert seen == []
    b.size()
    assert seen == [("open", "/d/b")]
    assert disk.open_files == 2


def test_a_file_without_unsynced_bytes_is_closed_before_one_with_some(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 2)
    a, b = (fs.open(f"/d/{name}", create=True) for name in "ab")
    a.write_at([b"x"], 0)
    b.size()
    seen = operations(disk)
    fs.open("/d/c", create=True)
    assert ("fdatasync", "/d/a") not in seen
    a.fdatasync()
    assert seen == [("open", "/d/c"), ("fdatasync", "/d/a")]


def test_unsynced_bytes_are_synced_before_the_descriptor_is_closed(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    a.write_at([b"x"], 0)
    seen = operations(disk)
    fs.open("/d/b", create=True)
    assert seen == [("fdatasync", "/d/a"), ("open", "/d/b")]
    a.fdatasync()
    assert seen == [("fdatasync", "/d/a"), ("open", "/d/b")], "nothing was left to sync"
    assert a.read_at(1, 0) == b"x"


def test_a_sync_of_a_file_that_this_handle_never_synced_reaches_the_disk(disk: FaultyFileSystem) -> None:
    disk.open("/d/a", create=True).write_at([b"left by a process that was killed"], 0)
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a")
    fs.open("/d/b", create=True)
    seen = operations(disk)
    a.fdatasync()
    assert seen == [("open", "/d/a"), ("fdatasync", "/d/a")]


def test_a_sync_covers_what_another_handle_of_the_file_wrote(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 2)
    a = fs.open("/d/a", create=True)
    a.write_at([b"x"], 0)
    a.fdatasync()
    other = fs.open("/d/a")
    fs.open("/d/b", create=True)  # takes the descriptor of `a`, which has nothing to sync
    other.write_at([b"y"], 1)
    seen = operations(disk)
    a.fdatasync()
    assert ("fdatasync", "/d/a") in seen


def test_a_write_during_a_sync_is_not_counted_as_synced(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    a.write_at([b"x"], 0)

    def write_meanwhile(operation: str, _: str) -> None:
        if operation == "fdatasync":
            disk.before = None
            a.write_at([b"y"], 1)

    disk.before = write_meanwhile
    a.fdatasync()
    seen = operations(disk)
    fs.open("/d/b", create=True)
    assert seen[0] == ("fdatasync", "/d/a")


def test_a_failed_sync_of_another_file_fails_that_file_alone_and_is_not_tried_again(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    a.write_at([b"x"], 0)
    disk.fail("fdatasync")
    b = fs.open("/d/b", create=True)
    b.write_at([b"y"], 0)
    b.fdatasync()
    seen = operations(disk)
    for call in (a.fdatasync, lambda: a.write_at([b"z"], 1), lambda: a.truncate(0)):
        with pytest.raises(OSError, match="an earlier sync failed") as raised:
            call()
        assert (raised.value.errno, raised.value.filename) == (errno.EIO, "/d/a")
    assert seen == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(
    "call",
    [
        lambda fs: fs.open("/d/b", create=True),
        lambda fs: fs.read_file("/d/a"),
        lambda fs: fs.overwrite("/d/c", b"x"),
        lambda fs: fs.sync_directory("/d"),
    ],
)
def test_where_the_system_has_no_descriptor_left_one_is_closed_for_another(
    disk: FaultyFileSystem, number: int, call: Callable[[PooledFileSystem], object]
) -> None:
    fs = PooledFileSystem(disk, 10)
    fs.open("/d/a", create=True)
    for operation in ("open", "read", "sync_directory"):
        disk.fail(operation, number)
    call(fs)


def test_a_file_that_is_overwritten_again_stays_open_and_is_never_synced(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    fs.overwrite("/d/note", b"1")
    assert disk.open_files == 0
    fs.overwrite("/d/note", b"2")
    seen = operations(disk)
    fs.overwrite("/d/note", b"3")
    assert seen == [("write", "/d/note")]
    fs.open("/d/a", create=True)
    assert disk.open_files == 1, "the descriptor of the note was closed"
    assert seen == [("write", "/d/note"), ("open", "/d/a")]
    fs.overwrite("/d/note", b"4")
    assert disk.read_file("/d/note") == b"4"


def test_files_that_are_overwritten_in_turns_share_few_descriptors(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1_000)
    for content in (b"1", b"2", b"3"):
        for number in range(65):
            fs.overwrite(f"/d/{number}", content)
    assert disk.open_files == 0, "each was forgotten before its turn came again"
    for number in range(64):
        fs.overwrite("/d/one", b"x")
        fs.overwrite(f"/d/{number}", b"4")
    assert disk.open_files == 1
    assert [disk.read_file(f"/d/{number}") for number in (0, 63, 64)] == [b"4", b"4", b"3"]


@pytest.mark.parametrize("change", ["unlinked", "renamed", "replaced", "in a renamed directory"])
def test_a_file_whose_name_changes_is_not_overwritten_in_its_place(disk: FaultyFileSystem, change: str) -> None:
    fs = PooledFileSystem(disk, 10)
    for content in (b"1", b"2", b"3"):
        fs.overwrite("/d/note", content)
    assert disk.open_files == 1
    if change == "unlinked":
        fs.unlink("/d/note")
    elif change == "renamed":
        fs.rename("/d/note", "/d/old")
    elif change == "replaced":
        disk.open("/d/new", create=True).write_at([b"new"], 0)
        fs.rename("/d/new", "/d/note")
    else:
        fs.rename("/d", "/e")
        fs.make_directory("/d")
    assert disk.open_files <= (change == "replaced"), "no descriptor is left of the file without a name"
    for content in (b"4", b"5", b"6"):
        fs.overwrite("/d/note", content)
    assert disk.read_file("/d/note") == (b"6ew" if change == "replaced" else b"6")
    if change in ("renamed", "in a renamed directory"):
        assert disk.read_file("/d/old" if change == "renamed" else "/e/note") == b"3"


def test_a_file_is_overwritten_though_its_descriptor_is_closed_at_that_moment(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 10)
    fs.overwrite("/d/note", b"1")
    fs.overwrite("/d/note", b"2")
    (file,) = fs.pool.clean

    def close_meanwhile() -> PooledFile:
        file.close()  # as another thread does that overwrites other files
        return file

    fs._often_overwritten = lambda path: close_meanwhile()  # type: ignore[method-assign]
    fs.overwrite("/d/note", b"3")
    assert disk.read_file("/d/note") == b"3"


def test_without_any_descriptor_to_close_the_error_reaches_the_caller(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 10)
    disk.fail("open", errno.EMFILE)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        fs.open("/d/a", create=True)
    fs.open("/d/a", create=True)


def test_an_unlinked_open_file_can_be_read_until_it_is_closed(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    a.write_at([b"old"], 0)
    fs.unlink("/d/a")
    new = fs.open("/d/a", create=True)
    new.write_at([b"new"], 0)
    assert (a.read_at(3, 0), new.read_at(3, 0)) == (b"old", b"new")
    a.close()
    new.close()
    assert disk.open_files == 0


def test_an_unlinked_file_without_a_descriptor_is_never_confused_with_a_new_one(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    fs.open("/d/b", create=True)
    fs.unlink("/d/a")
    fs.open("/d/a", create=True).write_at([b"new"], 0)
    with pytest.raises(FileNotFoundError):
        a.read_at(3, 0)
    a.fdatasync()  # nothing of it is left to sync


def test_a_closed_file_is_refused(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    a.close()
    a.close()
    for call in (a.size, a.fdatasync, lambda: a.write_at([b"x"], 0)):
        with pytest.raises(OSError, match="closed"):
            call()
    assert disk.open_files == 0


def test_a_file_is_not_closed_while_another_thread_reads_it(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    reading, go_on = threading.Event(), threading.Event()

    def wait_in_the_read(operation: str, _: str) -> None:
        if operation == "read":
            reading.set()
            assert go_on.wait(10)

    disk.before = wait_in_the_read
    reader = threading.Thread(target=a.read_at, args=(1, 0))
    reader.start()
    assert reading.wait(10)
    fs.open("/d/b", create=True)
    assert disk.open_files == 2, "one more than allowed, for the time of the read"
    a.close()
    assert disk.open_files == 2
    go_on.set()
    reader.join()
    assert disk.open_files == 1


def test_threads_that_share_two_descriptors_read_and_write_the_right_files(tmp_path: object) -> None:
    fs = PooledFileSystem(RealFileSystem(), 2)
    files = [fs.open(f"{tmp_path}/{number}", create=True) for number in range(8)]
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(300):
                file = files[(number + turn) % 8]
                place = 8 * (number + 4 * turn)
                stamp = b"%03d-%04d" % (number, turn)
                file.write_at([stamp], place)
                if file.read_at(8, place) != stamp:
                    wrong.append((number, turn))
                if turn % 50 == 0:
                    file.fdatasync()
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(fs.pool) <= 2


@pytest.mark.parametrize("evicted", [True, False])
def test_a_sync_that_found_no_space_is_raised_by_one_sync_and_the_next_one_may_succeed(evicted: bool) -> None:
    """Its log writes the bytes again: unlike others, this error passes."""
    below = FaultyFileSystem()
    below.make_directory("/data")
    fs = PooledFileSystem(below, 1)
    file = fs.open("/data/a", create=True)
    file.write_at([b"lost"], 0)
    below.fail("fdatasync", errno.ENOSPC)
    if evicted:
        fs.open("/data/b", create=True).close()
    with pytest.raises(OSError, match="space"):
        file.fdatasync()
    file.write_at([b"kept"], 0)
    file.fdatasync()
    assert below._get("/data/a").disk == b"kept"


class ObservedLock:
    """Calls `after_release` after each release, as if another thread took the lock then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self.after_release()

    @staticmethod
    def after_release() -> None:
        """Do nothing; a test replaces this method."""


@pytest.mark.parametrize("moment", range(1, 5))
def test_a_write_beside_the_sync_that_raises_no_space_fails_as_that_one(
    disk: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    fs = PooledFileSystem(disk, 1, ObservedLock)
    file = fs.open("/d/a", create=True)
    file.write_at([b"lost"], 0)
    disk.fail("fdatasync", errno.ENOSPC)
    fs.open("/d/b", create=True).close()
    left = moment
    synced: list[int | None] = []

    def sync_in_between() -> None:
        nonlocal left
        left -= 1
        if not left:
            with pytest.raises(OSError, match="space") as raised:
                file.fdatasync()
            synced.append(raised.value.errno)

    monkeypatch.setattr(ObservedLock, "after_release", staticmethod(sync_in_between))
    if moment < 3:  # the error was taken back before the write looked for it
        file.write_at([b"kept"], 0)
    else:
        with pytest.raises(OSError, match="an earlier sync failed"):
            file.write_at([b"kept"], 0)
    assert synced == [errno.ENOSPC]


async def room(fs: PooledFileSystem) -> None:
    """Wait until the pool is not crowded."""
    async with asyncio.timeout(60):
        while (end := fs.crowding.end) is not None:
            await asyncio.shield(end)


async def test_files_written_on_the_event_loop_are_synced_by_threads_before_their_descriptors_are_closed(
    disk: FaultyFileSystem,
) -> None:
    fs = PooledFileSystem(disk, 4)
    threads = RealThreads()
    fs.relieve_with(threads)
    here = syncs_of_this_thread(disk)
    files = [fs.open(f"/d/{number}", create=True) for number in range(40)]
    for number, file in enumerate(files):
        file.write_at([b"%d" % number], 0)
    await room(fs)
    assert disk.open_files <= 4
    assert here == []
    assert sum(disk._get(f"/d/{number}").disk == b"%d" % number for number in range(40)) >= 36
    threads.close()


async def test_an_error_of_a_sync_in_a_thread_is_raised_by_the_file_that_it_hit(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    threads = RealThreads()
    fs.relieve_with(threads)
    a = fs.open("/d/a", create=True)
    a.write_at([b"x"], 0)
    disk.fail("fdatasync")
    fs.open("/d/b", create=True)
    assert fs.crowding.end is not None
    await room(fs)
    with pytest.raises(OSError, match="an earlier sync failed"):
        a.fdatasync()
    threads.close()


async def test_descriptors_that_cannot_be_closed_hold_nobody_up(disk: FaultyFileSystem) -> None:
    fs = PooledFileSystem(disk, 1)
    threads = RealThreads()
    fs.relieve_with(threads)
    fs.open("/d/a", create=True)
    fs.unlink("/d/a")  # its descriptor stays open until it is closed
    b, c = (fs.open(f"/d/{name}", create=True) for name in "bc")
    for file in (b, c):
        file.write_at([b"x"], 0)
    fs.open("/d/d", create=True)
    assert fs.crowding.end is not None
    await room(fs)
    assert [disk._get(f"/d/{name}").disk for name in "bc"] == [b"x", b"x"]
    threads.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_sync_beside_one_of_the_pool_learns_that_that_one_failed(disk: FaultyFileSystem, number: int) -> None:
    """Linux reports a failed writeback to one sync of a descriptor only: the other one succeeds."""
    fs = PooledFileSystem(disk, 1)
    a = fs.open("/d/a", create=True)
    a.write_at([b"x"], 0)
    syncing, go_on = threading.Event(), threading.Event()
    outcomes: list[object] = []

    def hold_the_sync(operation: str, _: str) -> None:
        if operation == "fdatasync":
            disk.before = None
            syncing.set()
            assert go_on.wait(10)
            disk.fail("fdatasync", number)

    def sync() -> None:
        try:
            a.fdatasync()
        except OSError as error:
            outcomes.append(error.errno)
        else:
            outcomes.append("synced")

    disk.before = hold_the_sync
    evicting = threading.Thread(target=lambda: fs.open("/d/b", create=True))
    evicting.start()
    assert syncing.wait(10)
    beside = threading.Thread(target=sync)
    beside.start()
    beside.join(0.05)  # a sync that does not wait ends by then
    go_on.set()
    evicting.join()
    beside.join()
    assert outcomes == [number]


@pytest.mark.parametrize("durability", ["os", "flush"])
async def test_a_broker_never_syncs_on_its_event_loop_however_many_partitions_are_written(durability: str) -> None:
    disk = FaultyFileSystem()
    config = {"max.open.files": "16", "durability": durability, "logging.level": "error"}
    async with BrokerNode("/data", config=config, fs=disk) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 1_000)
        here = syncs_of_this_thread(disk)
        note, most = disk.before, 0
        assert note is not None

        def count(operation: str, path: str) -> None:
            nonlocal most
            most = max(most, disk.open_files)
            note(operation, path)

        disk.before = count
        for _ in range(3):
            await asyncio.gather(*(produce(broker, range(first, first + 250)) for first in range(0, 1_000, 250)))
        disk.before = None
        assert here == []
        assert most <= 16 + 40, "each request looks before its next ten partitions"


async def produce(broker: BrokerNode, partitions: range) -> None:
    """A record to each partition, acknowledged when it is appended."""
    rows = [PartitionProduceData(index, batch(b"%d" % index)) for index in partitions]
    request = ProduceRequest(None, 1, 30_000, [TopicProduceData("t", partition_data=rows)])
    async with RawConnection(broker.address) as wire:
        (answer,) = (await wire.call(request, 9)).responses
    assert {row.error_code for row in answer.partition_responses} == {0}
