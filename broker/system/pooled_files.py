"""Provide a `FileSystem` on top of another one, with any number of open files and a limited number of descriptors.

A `PooledFile` is a handle that stays valid while its descriptor is closed and opened again. The pool keeps at most
`capacity` descriptors. It closes the least recently used descriptor, and opens its file again when a call needs it.

Rules:

* A descriptor is never closed during a call on its file. Calls may come from any thread. Bookkeeping, opening and
  renaming are done under the lock, so that a name always means the same file. Reads, writes, syncs and unlinks run
  outside of the lock.
* A file with unsynced bytes is synced before its descriptor is closed. Linux reports a failed writeback to every
  descriptor that was open at the time. A descriptor that is opened later reports the failure only if no other
  descriptor has reported it and the inode was not dropped from memory in between (see errseq in the kernel's
  documentation). A later fdatasync on another descriptor could therefore succeed although bytes were lost. Files
  without unsynced bytes are closed first.
* If the sync before a close fails, the error belongs to the file: every later write or sync of the file raises the
  error, so that only the file's log fails. The sync is never tried again. Only the error of a full disk is forgotten,
  once an fdatasync has raised it. The log then writes its bytes again (`LogFiles.take_back`).
* `rename` through this file system also updates the handles of a renamed file, or of the files directly in a renamed
  directory. A file that is unlinked or replaced keeps an open descriptor until the file is closed. If its descriptor
  was already closed, a read raises FileNotFoundError; another file with that name is never opened instead.
* If the system has no descriptor left (EMFILE, ENFILE), the pool closes one of its descriptors and tries once more.
* A few small files that are overwritten again and again (`overwrite`) also stay open in the pool. They are never
  synced, so the pool may close their descriptors as early as those of files without unsynced bytes.

The pool opens one descriptor more than `capacity`, instead of waiting, if it can close none: if each of its descriptors
is used by a running call, belongs to a removed file or to a file whose sync has failed, or needs a sync for which the
event loop does not wait.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, ParamSpec, TypeVar

from .descriptor_relief import Crowding, DescriptorRelief
from .descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from .ports import Buffer, File, FileLock, FileSystem, Threads

P = ParamSpec("P")
T = TypeVar("T")

_SYNCED_AT_ONCE: Final = 8
"""The number of files that are synced together when no descriptor can be closed without a sync."""

_OVERWRITTEN: Final = 64
"""How many of the most recently overwritten files are remembered.

A file that is overwritten again while it is remembered keeps a descriptor.
"""


class PooledFile:
    """A `File` whose descriptor the pool may close between two calls.

    `order` is the list of the pool that contains the file while the file has a descriptor. `pins` counts the running
    calls. `written` counts the beginnings and ends of writes. `synced` is the value of `written` when the latest
    successful sync began, -1 before the first sync. `pool_sync` is locked while the pool syncs the file. All attributes
    are changed under the pool's lock. `is_unsynced`: the file is never synced, so its bytes need no sync before its
    descriptor is closed. `is_shared`: the file has had another handle, whose writes `written` does not count.
    """

    __slots__ = (
        "_pool",
        "closed",
        "failure",
        "inner",
        "is_shared",
        "is_unsynced",
        "order",
        "path",
        "pins",
        "pool_sync",
        "removed",
        "synced",
        "written",
    )

    def __init__(self, pool: DescriptorPool, path: str, *, is_unsynced: bool = False) -> None:
        self._pool = pool
        self.path = path
        self.is_unsynced = is_unsynced
        self.is_shared = False
        self.inner: File | None = None
        self.order = pool.clean
        self.pins = 0
        self.written = 0
        self.synced = -1
        self.closed = False
        self.removed = False
        self.failure: OSError | None = None
        self.pool_sync: AbstractContextManager[Any] | None = None

    def write_at(self, pieces: Sequence[Buffer], position: int) -> None:
        inner = self._begin_write()
        try:
            inner.write_at(pieces, position)
        finally:
            self._end_write()

    def read_at(self, size: int, position: int) -> bytes:
        inner = self._pin()
        try:
            return inner.read_at(size, position)
        finally:
            self.unpin()

    def truncate(self, size: int) -> None:
        inner = self._begin_write()
        try:
            inner.truncate(size)
        finally:
            self._end_write()

    def size(self) -> int:
        inner = self._pin()
        try:
            return inner.size()
        finally:
            self.unpin()

    def fdatasync(self) -> None:
        inner = self._begin_sync()
        if inner is None:
            return
        try:
            self.sync_pinned(inner)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self.keep_failure(error)
            raise
        finally:
            self.unpin()

    def _begin_sync(self) -> File | None:
        """Wait until the pool is not syncing the file, then pin the file; return None if nothing is left to sync.

        Raises the error of an earlier sync.
        """
        pool = self._pool
        while True:
            with pool.lock:
                pool_sync = self.pool_sync
                if pool_sync is None:
                    if self.failure is not None and self.failure.errno in NO_SPACE:
                        error, self.failure = self.failure, None
                        pool.move(self, pool.dirty)
                        raise OSError(error.errno, error.strerror, self.path)
                    self._check_failure()
                    inner = self.inner
                    if inner is not None and not self.closed:
                        self.pins += 1
                        self.order.move_to_end(self)
                        return inner
                    is_synced = self.synced == self.written and not self.is_shared
                    if not self.closed and (self.removed or is_synced):
                        return None  # the file was synced before its descriptor was closed, or needs no sync
            if pool_sync is not None:
                with pool_sync:
                    pass
            else:
                pool.acquire(self)
                self.unpin()

    def sync_pinned(self, inner: File) -> None:
        """Sync the pinned file and record which writes the sync covers; raise OSError if it fails."""
        pool = self._pool
        covered = self.written
        inner.fdatasync()
        with pool.lock:
            self.synced = max(self.synced, covered)
            if self.synced == self.written and self.order is pool.dirty:
                pool.move(self, pool.clean)

    def keep_failure(self, error: OSError) -> None:
        """Remember `error`: every later write or sync raises it, but a lack of space only until the next fdatasync."""
        with self._pool.lock:
            self.failure = error
            self._pool.move(self, self._pool.kept)

    def close(self) -> None:
        self._pool.close(self)

    # A call usually takes the lock twice: once before and once after the operation.

    def _pin(self) -> File:
        """Return the file's descriptor, which stays open until `unpin` is called."""
        with self._pool.lock:
            inner = self.inner
            if inner is not None and not self.closed:
                self.pins += 1
                self.order.move_to_end(self)
                return inner
        return self._pool.acquire(self)

    def unpin(self) -> None:
        """End one use of the descriptor. If the file is closed, the end of its last use gives the descriptor back."""
        with self._pool.lock:
            self.pins -= 1
            if not self.closed or self.pins:
                return
        self._pool.give_back(self)

    def _begin_write(self) -> File:
        with self._pool.lock:
            inner = self.inner
            if inner is not None and self.failure is None and not self.closed:
                self.pins += 1
                self.order.move_to_end(self)
                self._count_write()
                return inner
        return self._begin_write_anew()

    def _begin_write_anew(self) -> File:
        """Open the file again if its descriptor is closed, and begin a write. Raises the error of an earlier sync."""
        inner = self._pin()
        with self._pool.lock:
            if self.failure is None:
                self._count_write()
                return inner
            failure = self._earlier(self.failure)  # a sync in another thread may reset the failure meanwhile
        self.unpin()
        raise failure

    def _count_write(self) -> None:
        """Record the beginning of a write, whose bytes need a sync. Called under the lock."""
        self.written += 1
        if self.order is self._pool.clean and not self.is_unsynced:
            self._pool.move(self, self._pool.dirty)

    def _end_write(self) -> None:
        with self._pool.lock:
            self.written += 1
            self.pins -= 1
            if not self.closed or self.pins:
                return
        self._pool.give_back(self)

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise self._earlier(self.failure)

    def _earlier(self, failure: OSError) -> OSError:
        return OSError(failure.errno, f"an earlier sync failed: {failure.strerror}", self.path)


class DescriptorPool:
    """The descriptors of the files of one `PooledFileSystem`, and the names of the files."""

    def __init__(self, fs: FileSystem, capacity: int, new_lock: Callable[[], AbstractContextManager[Any]]) -> None:
        assert capacity > 0
        self.capacity = capacity
        self.lock = new_lock()
        self.relief: DescriptorRelief | None = None
        # The files with a descriptor, the least recently used first: files without unsynced bytes, files with unsynced
        # bytes, and files that the pool never closes.
        self.clean: OrderedDict[PooledFile, None] = OrderedDict()
        self.dirty: OrderedDict[PooledFile, None] = OrderedDict()
        self.kept: OrderedDict[PooledFile, None] = OrderedDict()
        self._fs = fs
        self._new_lock = new_lock
        # The files that are not closed: directory → name → handles.
        self._handles: dict[str, dict[str, set[PooledFile]]] = {}

    def __len__(self) -> int:
        """Return the number of open descriptors."""
        return len(self.clean) + len(self.dirty) + len(self.kept)

    def acquire(self, file: PooledFile, *, create: bool = False) -> File:
        """Pin `file` and return its descriptor, opening the file if necessary; raise OSError if that fails."""
        shortage: OSError | None = None
        beyond_capacity = False
        while True:
            with self.lock:
                if file.closed:
                    raise OSError(errno.EBADF, "the file is closed", file.path)
                inner = file.inner
                if inner is not None:
                    file.pins += 1
                    return inner
                if file.removed:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.path)
                if beyond_capacity or len(self) < self.capacity:
                    try:
                        inner = self._fs.open(file.path, create=create)
                    except OSError as error:
                        if error.errno not in OUT_OF_DESCRIPTORS or shortage is not None:
                            raise
                        shortage = error
                    else:
                        file.inner = inner
                        file.order = self.clean
                        file.order[file] = None
                        file.pins += 1
                        self._remember(file)
                        break
            if not self.evict():
                if shortage is not None:
                    raise shortage
                beyond_capacity = True
        if beyond_capacity:
            self._ask_for_relief()
        return inner

    def evict(self) -> bool:
        """Close the least recently used descriptor, after a sync if necessary. Return False if none can be closed.

        If the pool has `relief`, a call on the event loop syncs no file itself, but lets the flush threads sync files.
        """
        while not self._close_clean():
            if self._ask_for_relief() or not self.sync_oldest():
                return False
            for _ in range(_SYNCED_AT_ONCE - 1):
                self.sync_oldest()
        if self.is_short():
            self._ask_for_relief()
        return True

    def _close_clean(self) -> bool:
        """Close a descriptor that needs no sync. Return False if there is none, or if all of them are in use."""
        with self.lock:
            file = next((file for file in self.clean if not file.pins), None)
            inner = None if file is None else self._take(file)
        if inner is None:
            return False
        inner.close()
        return True

    def sync_oldest(self) -> bool:
        """Sync the least recently used file with unsynced bytes; return False if there is none or all are in use.

        The next write or sync of the file raises the error of a failed sync. If more than `capacity` descriptors are
        open, also close a descriptor.
        """
        with self.lock:
            file = next((file for file in self.dirty if not file.pins), None)
            inner = None if file is None else file.inner
            if file is None or inner is None:
                return False
            file.pins += 1
            under_way = file.pool_sync = self._new_lock()
            under_way.__enter__()
        try:
            file.sync_pinned(inner)
        except OSError as error:
            file.keep_failure(error)
        finally:
            with self.lock:
                file.pool_sync = None
            under_way.__exit__(None, None, None)
            file.unpin()
        if self.is_over_capacity():
            self._close_clean()
        return True

    def _ask_for_relief(self) -> bool:
        """If the pool has `relief` and the caller is on the event loop, let threads sync; return whether they do."""
        relief = self.relief
        if relief is None or not relief.is_here:
            return False
        relief.begin()
        return True

    def unsynced(self) -> int:
        """Return the number of files that have unsynced bytes."""
        return len(self.dirty)

    def is_over_capacity(self) -> bool:
        """Return whether more descriptors are open than the capacity."""
        return len(self) > self.capacity

    def is_short(self) -> bool:
        """Return whether few descriptors are left that can be closed without a sync."""
        return len(self) >= self.capacity and len(self.clean) < self.capacity // 4

    def retried(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that needs a descriptor.

        If the system has no descriptor left, close one of the pool's descriptors and call the function again.
        """
        try:
            return call(*args, **kwargs)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not self.evict():
                raise
        return call(*args, **kwargs)

    def close(self, file: PooledFile) -> None:
        """Close `file` permanently. Its descriptor is closed when the last running call on the file ends."""
        with self.lock:
            if file.closed:
                return
            file.closed = True
            self.move(file, self.kept)
            self._forget(file)
            in_use = file.pins > 0
        if not in_use:
            self.give_back(file)

    def give_back(self, file: PooledFile) -> None:
        """Close the descriptor of a closed file."""
        with self.lock:
            inner = self._take(file)
        if inner is not None:
            inner.close()

    def _take(self, file: PooledFile) -> File | None:
        inner, file.inner = file.inner, None
        file.order.pop(file, None)
        return inner

    def move(self, file: PooledFile, order: OrderedDict[PooledFile, None]) -> None:
        """Move `file` to another list. Called under the lock."""
        if file.inner is not None:
            del file.order[file]
            order[file] = None
            file.order = order

    # --- names; these methods are called under the lock
    # ------------------------------------------------------------------

    def _remember(self, file: PooledFile) -> None:
        directory, _, name = file.path.rpartition("/")
        handles = self._handles.setdefault(directory, {}).setdefault(name, set())
        handles.add(file)
        if len(handles) > 1:
            for handle in handles:
                handle.is_shared = True

    def _forget(self, file: PooledFile) -> None:
        directory, _, name = file.path.rpartition("/")
        names = self._handles.get(directory)
        if names is None or (handles := names.get(name)) is None:
            return
        handles.discard(file)
        if not handles:
            del names[name]
            if not names:
                del self._handles[directory]

    def remove_name(self, path: str) -> None:
        """Remove the name of the file at `path`: an open descriptor stays open, and the file is never opened again."""
        directory, _, name = path.rpartition("/")
        for file in list(self._handles.get(directory, {}).get(name, ())):
            self._forget(file)
            file.removed = True
            self.move(file, self.kept)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, and update the handles of that file, or of the files directly in that directory.

        Raises OSError.
        """
        self._fs.rename(source, target)
        self.remove_name(target)
        directory, _, name = source.rpartition("/")
        moved = list(self._handles.get(directory, {}).get(name, ()))
        inside = [file for handles in self._handles.get(source, {}).values() for file in handles]
        for file in (*moved, *inside):
            self._forget(file)
            file.path = target + file.path[len(source) :]
            self._remember(file)


class PooledFileSystem:
    """A `FileSystem` on top of `fs` whose files use at most about `capacity` descriptors.

    `new_lock` creates the locks that guard the bookkeeping, because calls come from any thread.
    """

    def __init__(
        self,
        fs: FileSystem,
        capacity: int,
        new_lock: Callable[[], AbstractContextManager[Any]] = threading.Lock,
    ) -> None:
        self.pool = DescriptorPool(fs, capacity, new_lock)
        self.crowding = Crowding()
        self._fs = fs
        # The most recently overwritten files by path, the latest at the end; None until a file is overwritten again.
        self._overwritten: OrderedDict[str, PooledFile | None] = OrderedDict()

    def relieve_with(self, threads: Threads) -> None:
        """Let `threads` sync the files whose descriptors must be freed, so that the running event loop need not."""
        self.pool.relief = DescriptorRelief(self.pool, threads, self.crowding)

    def open(self, path: str, *, create: bool = False) -> PooledFile:
        file = PooledFile(self.pool, path)
        self.pool.acquire(file, create=create)
        file.unpin()
        return file

    def read_file(self, path: str) -> bytes:
        return self.pool.retried(self._fs.read_file, path)

    def overwrite(self, path: str, content: bytes) -> None:
        file = self._often_overwritten(path)
        if file is not None:
            try:
                file.write_at((content,), 0)
                return
            except OSError:
                if not file.closed:  # else closed by another thread, which overwrites another file
                    raise
        self.pool.retried(self._fs.overwrite, path, content)

    def _often_overwritten(self, path: str) -> PooledFile | None:
        """If the file at `path` was overwritten recently, open and return it; otherwise return None. Raises OSError."""
        known = self._overwritten
        oldest = None
        with self.pool.lock:
            is_new = path not in known
            file = known.setdefault(path)
            known.move_to_end(path)
            if len(known) > _OVERWRITTEN:
                oldest = known.popitem(last=False)[1]
        if oldest is not None:
            oldest.close()
        if is_new or (file is not None and file.path == path and not file.removed):
            return file
        return self._open_overwritten(path)

    def _open_overwritten(self, path: str) -> PooledFile:
        """Open the file at `path`, and keep it open for the next time it is overwritten."""
        file = PooledFile(self.pool, path, is_unsynced=True)
        self.pool.acquire(file, create=True)
        file.unpin()
        with self.pool.lock:
            before, self._overwritten[path] = self._overwritten.get(path), file
        if before is not None:
            before.close()
        return file

    def close_overwritten(self, directory: str) -> None:
        with self.pool.lock:
            files = self._forget_overwritten(directory)
        for file in files:
            file.close()

    def _forget_overwritten(self, path: str) -> list[PooledFile]:
        """Forget the overwritten files at or below `path`. Return those that are open. Called under the lock."""
        known = self._overwritten
        below = f"{path}/"
        files = [known.pop(name) for name in list(known) if name == path or name.startswith(below)]
        return [file for file in files if file is not None]

    def exists(self, path: str) -> bool:
        return self._fs.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._fs.is_directory(path)

    def file_size(self, path: str) -> int:
        return self._fs.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self._fs.modified_ms(path)

    def list(self, directory: str) -> list[str]:
        return self.pool.retried(self._fs.list, directory)

    def make_directory(self, path: str) -> None:
        self._fs.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory. Handles of that file, or of the files directly in that directory, stay valid."""
        with self.pool.lock:
            self.pool.rename(source, target)
            files = self._forget_overwritten(source) + self._forget_overwritten(target)
        for file in files:
            file.close()

    def unlink(self, path: str) -> None:
        with self.pool.lock:
            self.pool.remove_name(path)
            files = self._forget_overwritten(path)
        for file in files:
            file.close()
        self._fs.unlink(path)  # outside of the lock, because unlinking a large file takes a long time

    def remove_directory(self, path: str) -> None:
        self._fs.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.pool.retried(self._fs.sync_directory, path)

    def free_space(self, path: str) -> int:
        return self._fs.free_space(path)

    def total_space(self, path: str) -> int:
        return self._fs.total_space(path)

    def lock(self, directory: str, name: str) -> FileLock | None:
        return self.pool.retried(self._fs.lock, directory, name)

    def boot_id(self) -> str:
        return self._fs.boot_id()
