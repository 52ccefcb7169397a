"""Everything nondeterministic that the broker touches besides the network: files, time, random ids, threads.

Owns the interfaces and their real implementations (that of `Threads` is in `threads.py`). Nothing else in the broker
calls `os`, `time`, `uuid` or `threading` for these purposes, so that tests can put a file system that loses power, a
clock that stands still, ids that repeat and threads that a seed schedules in their place. Decides nothing: no retries,
no paths, no policy.

Rules for a `FileSystem`:

* Writes are positional and land in the page cache; only `File.fdatasync` puts a file's bytes on disk, and only
  `sync_directory` puts the creation, renaming and removal of the names in a directory there.
* Every method raises OSError as the system does (ENOSPC, EIO, ...). After a failed write the caller knows nothing about
  the bytes at and behind its position. After a failed fdatasync nobody knows what is on disk: never try it again.
* Plain blocking calls, from any thread.
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
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview

T = TypeVar("T")


class File(Protocol):
    """An open file; it stays usable under this object when its name is renamed or removed."""

    def write_at(self, pieces: Sequence[Buffer], position: int) -> None:
        """Write all pieces, one behind the other, at byte `position`; an OSError may leave a part of them written."""

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position` on; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Bytes in the file."""

    def fdatasync(self) -> None:
        """Return when every byte and the size are on disk."""

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""


class FileLock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let the next one have it."""

    def in_place(self) -> bool:
        """Whether the locked directory is still at its path, neither removed nor replaced by another."""


class FileSystem(Protocol):
    """Paths are plain strings; directories are made and removed one level at a time."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""

    def read_file(self, path: str) -> bytes:
        """The whole content of a small file."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory itself is there; False for a symbolic link to one."""

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, ms since the epoch."""

    def list(self, directory: str) -> list[str]:
        """The names in a directory, in no order."""

    def make_directory(self, path: str) -> None:
        """Make a directory, parents included; an existing one is fine."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, at once and replacing a file of that name."""

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on disk."""

    def free_space(self, path: str) -> int:
        """Bytes that this process may still write on the file system of `path`."""

    def total_space(self, path: str) -> int:
        """Bytes of the file system of `path`, free or not."""

    def lock(self, directory: str, name: str) -> FileLock | None:
        """An exclusive lock on `directory` and its file `name` (made if missing), or None while another process holds
        one of them: removing the file lets nobody else in."""

    def boot_id(self) -> str:
        """Which run of the operating system this is; while it lasts, the page cache keeps what was written. "" where
        that is not known."""


class Clock(Protocol):
    """Both of the clocks that a broker needs."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch; it may jump."""

    def monotonic(self) -> float:
        """Seconds since some start; it never goes back."""


class RandomIds(Protocol):
    """Ids that nobody else has."""

    def uuid(self) -> bytes:
        """16 random bytes (a version 4 uuid)."""


class Lane(Enum):
    """What a job in a thread is for. Each lane has threads of its own: no job waits for those of another lane."""

    FLUSH = "flush"
    """Puts on disk what was appended: several logs at a time, in no order."""

    HOUSEKEEPING = "housekeeping"
    """Checkpoints: one job at a time, in order."""

    REMOVAL = "removal"
    """Removes files, which may take seconds: one job at a time, in order. Nobody's answer waits for it."""

    COMPACTION = "compaction"
    """Reads segments, and writes what is kept of them."""

    DECOMPRESSION = "decompression"
    """Expands large batches before they are appended."""

    READ = "read"
    """Reads indexes and large ranges of segments."""

    SEARCH = "search"
    """Expands large batches for a look-up by timestamp."""


class Threads(Protocol):
    """Where blocking work runs beside the event loop.

    Rules:

    * A lane starts its jobs in the order in which they were given to it, as many at a time as it has threads. With
      more than one thread they overlap and end in any order; between two lanes there is no order at all.
    * The event loop runs on meanwhile. A job shares with it only what a `lock` guards, or what nobody changes.
    * A job that was given to a lane runs to its end, whatever becomes of its future, unless the process ends. Then it
      may stop between any two operations on files.
    """

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run `job` in a thread of `lane`; a future of its result or exception, which are set on the running loop.

        Called on the event loop's thread. Cancelling the future does not keep the job from running.
        """

    def lock(self) -> AbstractContextManager[Any]:
        """A lock for what jobs and the event loop share. It is not reentrant."""

    def close(self) -> None:
        """End the threads when the jobs that were given to them have ended."""


class RealFile:
    """A `File` over a descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, pieces: Sequence[Buffer], position: int) -> None:
        remaining = os.pwritev(self._fd, pieces, position) - sum(map(len, pieces))
        if remaining:
            self._write_rest(pieces, position, remaining)

    def _write_rest(self, pieces: Sequence[Buffer], position: int, remaining: int) -> None:
        """After a short write: a signal, or a full disk (then the next write raises ENOSPC)."""
        whole = b"".join(pieces)
        written = len(whole) + remaining
        while written < len(whole):
            count = os.pwrite(self._fd, memoryview(whole)[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
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
            os.close(fd)


class RealFileLock:
    """An flock on a directory and on a file in it; the system releases both when the process ends, however it ends."""

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
        except OSError:  # it cannot be looked at: that says nothing about it
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

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

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
                except OSError:  # some network file systems lock files only, no directories
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
