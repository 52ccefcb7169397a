"""Files whose descriptors come and go: which one is closed, what is synced first, and whose error is whose."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest
from oncelog.broker.pooled_files import PooledFileSystem
from oncelog.broker.ports import RealFileSystem
from support.faulty_filesystem import FaultyFileSystem


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
