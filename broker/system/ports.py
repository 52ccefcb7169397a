"""Define the ports, that is, the interfaces to the nondeterministic parts of the system: files, time, ids and threads.

The network has no port. The module also contains the real implementations, except for `Threads` (`threads.py`). No
other part of the broker calls `os`, `time`, `uuid` or `threading` for these purposes, except to write log lines, to
read the files that settings name, and to verify OAUTHBEARER tokens. Tests can therefore replace the ports with a file
system that loses power, a clock that stands still, ids that repeat, and threads that a seed schedules. Ports make no
decisions: they have no retries, no paths and no policy.

Rules for a `FileSystem`:

* Writes have a position and go to the page cache. Only `File.fdatasync` makes the bytes of a file durable. Only
  `sync_directory` makes the creation, renaming and removal of names in a directory durable.
* Every method raises the OSError that the operating system reports (ENOSPC, EIO, ...). After a failed write, the bytes
  at and after its position are unknown. After a failed fdatasync, the state on disk is unknown, and the fdatasync must
  never be tried again.
* Calls block, and they may come from any thread.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview

T = TypeVar("T")


class File(Protocol):
    """An open file; the object stays usable when the file is renamed or removed."""

    def write_at(self, pieces: Sequence[Buffer], position: int) -> None:
        """Write all pieces in sequence at byte `position`. If this raises OSError, some bytes may have been written."""

    def read_at(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position` on; return fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Return the size of the file in bytes."""

    def fdatasync(self) -> None:
        """Wait until all bytes of the file and its size are on disk."""

    def close(self) -> None:
        """Close the file's descriptor; further calls do nothing. Never raises: only a sync reports failed writes."""


class FileLock(Protocol):
    """A lock that this process holds on a directory."""

    def release(self) -> None:
        """Release the lock."""

    def in_place(self) -> bool:
        """Return whether the locked directory is still at its path and was neither removed nor replaced."""


class FileSystem(Protocol):
    """The file operations that the broker uses. Paths are plain strings."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing.

        If the file does not exist, it is created if `create` is set; otherwise FileNotFoundError is raised.
        """

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a small file."""

    def overwrite(self, path: str, content: bytes) -> None:
        """Write `content` at the beginning of the file at `path`, which is created if it is missing; sync nothing.

        This is for small files that are written often. Their descriptors may stay open until `close_overwritten`.
        """

    def close_overwritten(self, directory: str) -> None:
        """Close the files in `directory` that `overwrite` has kept open."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file, directory or symbolic link at `path`; raise OSError if this is unknown."""

    def is_directory(self, path: str) -> bool:
        """Return whether `path` is a directory; a symbolic link to a directory does not count."""

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Return the time at which the file was last written, in ms since the epoch."""

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, in no particular order."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; do nothing if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically; a file with the target's name is replaced."""

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Wait until the names in the directory are on disk."""

    def free_space(self, path: str) -> int:
        """Return the number of bytes that this process may still write on the file system of `path`."""

    def total_space(self, path: str) -> int:
        """Return the total size in bytes of the file system of `path`."""

    def lock(self, directory: str, name: str) -> FileLock | None:
        """Lock `directory` and its file `name` exclusively; return None while another process holds a lock on either.

        The file is created if it is missing. The directory is locked too, so that removing the file does not let
        another process in.
        """

    def boot_id(self) -> str:
        """Return the id of the operating system's current boot, or "" if it is unknown.

        While the id is the same, the page cache still has all bytes that were written.
        """


class Clock(Protocol):
    """The two clocks that the broker uses."""

    def now_ms(self) -> int:
        """Return the wall clock's time in ms since the epoch; it may jump."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; the value never decreases."""


class RandomIds(Protocol):
    """A source of unique ids."""

    def uuid(self) -> bytes:
        """Return 16 random bytes (a version 4 UUID)."""


class Lane(Enum):
    """The purpose of a job in a thread. Each lane has separate threads, so no job waits for jobs of another lane."""

    __hash__ = object.__hash__  # faster than the hash of Enum, which is written in Python

    FLUSH = "flush"
    """Flushes appended records to disk, for several logs at a time, in no particular order."""

    REWRITE = "rewrite"
    """Repeats writes whose bytes may be lost because a sync found no disk space, for one log at a time.

    This executes much Python code for each batch, so several threads at a time would delay the event loop.
    """

    HOUSEKEEPING = "housekeeping"
    """Writes checkpoints, one job at a time, in order."""

    REMOVAL = "removal"
    """Removes segments and journal files, which may take seconds, one job at a time, in order."""

    DELETION = "deletion"
    """Removes the directories of deleted partitions, which may take minutes. No response waits for these jobs."""

    COMPACTION = "compaction"
    """Reads segments and writes the records that compaction keeps."""

    DECOMPRESSION = "decompression"
    """Decompresses large batches before they are appended."""

    READ = "read"
    """Reads indexes and large ranges of segments."""

    SEARCH = "search"
    """Decompresses large batches when an offset is looked up by timestamp."""

    OUTSIDE = "outside"
    """Fetches the keys of tokens from other servers, which may take seconds."""

    LOGIN = "login"
    """Verifies passwords against salted hashes, one at a time, because each check takes milliseconds of CPU time."""


class Threads(Protocol):
    """Threads that run blocking work outside of the event loop.

    Rules:

    * A lane starts its jobs in the order in which they were given to it, and runs as many at a time as it has threads.
      With more than one thread, jobs overlap and end in any order. Jobs of different lanes have no order at all.
    * The event loop continues meanwhile. A job and the event loop may share only data that a `lock` guards or that does
      not change.
    * A job runs to its end even if its future is cancelled. If the process ends, the job may stop between any two file
      operations.
    """

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run `job` in a thread of `lane`; return a future that gets the job's result or exception.

        Called on the event loop's thread. The future belongs to the running loop. Cancelling the future does not stop
        the job.
        """

    def start(self, lane: Lane, job: Callable[[], Any], ended: Callable[[BaseException | None], None]) -> None:
        """Run `job` in a thread of `lane`, then call `ended` on the event loop with the job's exception or None.

        `RealThreads` calls `ended` one turn of the event loop earlier than a callback of a future would be called.
        """
        self.run(lane, job).add_done_callback(lambda run: ended(run.exception()))

    def lock(self) -> AbstractContextManager[Any]:
        """Return a lock for data that jobs and the event loop share. The lock is not reentrant."""

    def close(self) -> None:
        """End the threads when they have run the jobs given to them."""


class RealFile:
    """A `File` backed by an operating system file descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, pieces: Sequence[Buffer], position: int) -> None:
        remaining = os.pwritev(self._fd, pieces, position) - sum(map(len, pieces))
        if remaining:
            self._write_rest(pieces, position, remaining)

    def _write_rest(self, pieces: Sequence[Buffer], position: int, remaining: int) -> None:
        """Write the rest after a short write, which a signal or a full disk causes. A full disk then raises ENOSPC."""
        whole = b"".join(pieces)
        written = len(whole) + remaining
        while written < len(whole):
            count = os.pwrite(self._fd, memoryview(whole)[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "the file accepts no more bytes")
            written += count

    def read_at(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and data:
            data = os.pread(self._fd, missing, position + size - missing)
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fdatasync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # The descriptor is closed even if there is an error, for example on NFS, which reports failed writes. Such
            # errors concern bytes that nobody has synced.
            with suppress(OSError):
                os.close(fd)


class RealFileLock:
    """An flock on a directory and on a file in it, which the operating system releases when the process ends."""

    __slots__ = ("_directory", "_fds")

    def __init__(self, directory: str, fds: list[int]) -> None:
        self._directory = directory
        self._fds = fds

    def release(self) -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def in_place(self) -> bool:
        try:
            there = os.stat(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # the error does not say whether the directory was removed or replaced
            return True
        return os.path.samestat(there, os.fstat(self._fds[0]))


class RealFileSystem:
    """The `FileSystem` of the operating system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def read_file(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def overwrite(self, path: str, content: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while content:
                content = content[os.write(fd, content) :]
        finally:
            os.close(fd)

    def close_overwritten(self, directory: str) -> None:
        """Do nothing, because `overwrite` closes each file that it writes."""

    def exists(self, path: str) -> bool:
        # Not os.path.lexists: it also returns False if the disk cannot read the name (EIO), and the caller would
        # treat the directory as a new one.
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return False
        return True

    def is_directory(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_space(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_space(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, directory: str, name: str) -> RealFileLock | None:
        fds: list[int] = []
        try:
            fds.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fds.append(os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            for fd in fds:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise
                except OSError:  # some network file systems can lock files but not directories
                    if fd == fds[-1]:
                        raise
        except BlockingIOError:
            RealFileLock(directory, fds).release()
            return None
        except BaseException:
            RealFileLock(directory, fds).release()
            raise
        return RealFileLock(directory, fds)

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SystemRandomIds:
    """Ids from the operating system's random source."""

    __slots__ = ()

    def uuid(self) -> bytes:
        return uuid.uuid4().bytes
