"""A file system in memory that can lose power, fill up and fail, for tests of durability and recovery.

Writes go to a page cache. Only `fdatasync` (the bytes and size of a file) and `sync_directory` (the names in a
directory) make them durable. `crash` forgets unsynced changes as a power failure may. Each directory keeps a random
prefix of its changes since the last sync. Each file keeps any of its changes, in their order, and a write may be kept
only in some sectors. `kill` ends only the process: the cache survives, and open files do not.

Faults on demand are `capacity` (ENOSPC, after part of the write was done) and `fail(operation, error)`. A failed sync
behaves as on Linux: the pages that it could not write are dropped, and count as clean from then on.

Results and errors are those of the real file system (tests/unit/test_faulty_filesystem.py compares the two). Two things
are stricter: using a file after its `close`, and renaming to another directory, raise AssertionError.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence

SECTOR = 512
MAX_NAME_BYTES = 255


def _too_long(name: str) -> bool:
    return len(name) * 4 > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class _Node:
    """A file (bytes) or a directory (names)."""

    def __init__(self, *, directory: bool) -> None:
        self.directory = directory
        self.data = bytearray()
        self.disk = b""
        self.writes: list[tuple[int, bytes] | int] = []  # (position, bytes), or a size to cut to
        self.names: dict[str, _Node] = {}
        self.names_on_disk: dict[str, _Node] = {}
        self.changes: list[tuple[str, ...] | tuple[str, str, _Node]] = []
        self.modified_ms = 0
        self.has_dropped = False  # bytes in `data` that are not on disk and that no sync writes


def _written(node: _Node) -> bytes:
    """What a sync puts on disk: only what was written since the last one."""
    content = bytearray(node.disk)
    for change in node.writes:
        if isinstance(change, int):
            del content[change:]
            content.extend(bytes(change - len(content)))
        else:
            position, data = change
            content.extend(bytes(max(position + len(data) - len(content), 0)))
            content[position : position + len(data)] = data
    return bytes(content)


class FaultyFile:
    """An open file, which implements `oncelog.broker.system.ports.File`."""

    def __init__(self, fs: FaultyFileSystem, node: _Node, path: str) -> None:
        self._fs = fs
        self._node = node
        self._path = path
        self._life = fs.life
        self.closed = False

    def _check(self) -> _Node:
        assert not self.closed, f"{self._path} is closed"
        assert self._life == self._fs.life, f"{self._path} was opened before the crash"
        return self._node

    def write_at(self, pieces: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        node = self._check()
        content = b"".join(pieces)
        self._fs.check("write", self._path)
        growth = max(position + len(content) - len(node.data), 0)
        missing = growth - self._fs.free_bytes()
        if missing > 0:
            self._fs.write(node, position, content[: len(content) - missing])
            raise _error(errno.ENOSPC, self._path)
        self._fs.write(node, position, content)

    def read_at(self, size: int, position: int) -> bytes:
        node = self._check()
        self._fs.check("read", self._path)
        return bytes(node.data[position : position + size])

    def truncate(self, size: int) -> None:
        node = self._check()
        self._fs.check("truncate", self._path)
        if size != len(node.data):
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
            node.writes.append(size)

    def size(self) -> int:
        return len(self._check().data)

    def fdatasync(self) -> None:
        node = self._check()
        try:
            self._fs.check("fdatasync", self._path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):  # then nothing was synced at all
                node.writes.clear()
                node.has_dropped = True
            raise
        node.disk = _written(node) if node.has_dropped else bytes(node.data)
        node.writes.clear()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._life == self._fs.life:
                self._fs.open_files -= 1


class FaultyLock:
    def __init__(self, fs: FaultyFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def release(self) -> None:
        self._fs.locks.discard(self._path)

    def in_place(self) -> bool:
        return self._fs.exists(self._path)


class FaultyFileSystem:
    """The file system that the module describes. It implements `oncelog.broker.system.ports.FileSystem`."""

    def __init__(self) -> None:
        self.root = _Node(directory=True)
        self.capacity: int | None = None
        self.life = 0
        self.boots = 0
        self.open_files = 0
        self.locks: set[str] = set()
        self.now_ms = 1_700_000_000_000
        self.before: Callable[[str, str], None] | None = None
        self._faults: dict[str, OSError] = {}

    # --- faults ------------------------------------------------------------------------------------------------------

    def fail(self, operation: str, number: int = errno.EIO) -> None:
        """Make the next `operation` ("write", "fdatasync", "sync_directory", "rename", ...) fail."""
        self._faults[operation] = OSError(number, os.strerror(number))

    def heal(self) -> None:
        """Remove all faults."""
        self.capacity = None
        self.heal_operations()

    def heal_operations(self) -> None:
        """Remove the faults of operations, but keep the limit of space."""
        self._faults.clear()

    def check(self, operation: str, path: str) -> None:
        if self.before is not None:
            self.before(operation, path)
        fault = self._faults.pop(operation, None)
        if fault is not None:
            raise fault

    def kill(self) -> None:
        """End the process. What it wrote stays in the page cache."""
        self.life += 1
        self.open_files = 0
        self.locks.clear()

    def crash(self, rng: random.Random) -> None:
        """Let the power fail: forget unsynced changes."""
        self.kill()
        self.boots += 1
        self._lose(self.root, rng)

    def _lose(self, node: _Node, rng: random.Random) -> None:
        if not node.directory:
            node.disk = self._torn(node, rng)
            node.data = bytearray(node.disk)
            node.writes.clear()
            node.has_dropped = False
            return
        names = dict(node.names_on_disk)
        for change in node.changes[: rng.randint(0, len(node.changes))]:
            self._replay(names, change)
        node.names = names
        node.names_on_disk = dict(names)
        node.changes.clear()
        for child in names.values():
            self._lose(child, rng)

    def _replay(self, names: dict[str, _Node], change: tuple[object, ...]) -> None:
        kind, name, *rest = change
        assert isinstance(name, str)
        if kind == "add":
            assert isinstance(rest[0], _Node)
            names[name] = rest[0]
        elif kind == "rename":
            assert isinstance(rest[0], str)
            names[rest[0]] = names.pop(name)
        else:
            names.pop(name, None)

    def _torn(self, node: _Node, rng: random.Random) -> bytes:
        content = bytearray(node.disk)
        for change in node.writes:
            fate = rng.choice(("lost", "whole", "torn"))
            if fate == "lost":
                continue
            if isinstance(change, int):
                del content[change:]
                content.extend(bytes(change - len(content)))
                continue
            position, data = change
            content.extend(bytes(max(position + len(data) - len(content), 0)))
            start = 0
            while start < len(data):
                end = min(len(data), (position + start) // SECTOR * SECTOR + SECTOR - position)
                if fate == "whole" or rng.random() < 0.5:
                    content[position + start : position + end] = data[start:end]
                start = end
        return bytes(content)

    def used(self) -> int:
        def size(node: _Node) -> int:
            # Threads may create files meanwhile, but a list is made in one step.
            return sum(map(size, list(node.names.values()))) if node.directory else len(node.data)

        return size(self.root)

    # --- the port ----------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self.root
        for part in path.strip("/").split("/"):
            if part:
                node = node.names.get(part) if node is not None and node.directory else None
        return node

    def _get(self, path: str) -> _Node:
        node = self.root
        for part in path.strip("/").split("/"):
            if part:
                self._require_directory(node, path)
                child = node.names.get(part)
                if child is None:
                    raise _error(errno.ENAMETOOLONG if _too_long(part) else errno.ENOENT, path)
                node = child
        return node

    def _require_directory(self, node: _Node, path: str) -> None:
        if not node.directory:
            raise _error(errno.ENOTDIR, path)

    def _directory(self, path: str) -> _Node:
        node = self._get(path)
        self._require_directory(node, path)
        return node

    def _file(self, path: str) -> _Node:
        node = self._get(path)
        if node.directory:
            raise _error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[_Node, str]:
        """Return the directory of the path's last name, and that name, which need not exist yet."""
        parent, _, name = path.rpartition("/")
        directory = self._get(parent)
        self._require_directory(directory, path)
        if _too_long(name):
            raise _error(errno.ENAMETOOLONG, path)
        return directory, name

    def _add(self, path: str, *, directory: bool) -> _Node:
        parent, name = self._parent(path)
        node = parent.names[name] = _Node(directory=directory)
        node.modified_ms = self.now_ms
        parent.changes.append(("add", name, node))
        return node

    def write(self, node: _Node, position: int, content: bytes) -> None:
        if content:
            node.data.extend(bytes(max(position + len(content) - len(node.data), 0)))
            node.data[position : position + len(content)] = content
            node.writes.append((position, content))
        node.modified_ms = self.now_ms

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        self.check("open", path)
        node = self._add(path, directory=False) if create and self._find(path) is None else self._file(path)
        self.open_files += 1
        return FaultyFile(self, node, path)

    def read_file(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._file(path).data)

    def overwrite(self, path: str, content: bytes) -> None:
        file = self.open(path, create=True)
        try:
            file.write_at([content], 0)
        finally:
            file.close()

    def close_overwritten(self, directory: str) -> None:
        """Do nothing, because no such file is kept open."""

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        try:
            return self._get(path).directory
        except (FileNotFoundError, NotADirectoryError):
            return False

    def file_size(self, path: str) -> int:
        return len(self._get(path).data)

    def modified_ms(self, path: str) -> int:
        return self._get(path).modified_ms

    def list(self, directory: str) -> list[str]:
        return list(self._directory(directory).names)

    def make_directory(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and self._find(parent) is None:
            self.make_directory(parent)
        node = self._find(path)
        if node is None:
            self.check("make_directory", path)
            self._add(path, directory=True)
        elif not node.directory:
            raise _error(errno.EEXIST, path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        node = self._get(source)
        parent, name = self._parent(source)
        target_parent, target_name = self._parent(target)
        replaced = self._find(target)
        assert parent is target_parent, "renames stay within a directory"
        if node is replaced:
            return
        if replaced is not None:
            if node.directory:
                self._require_directory(replaced, target)
            elif replaced.directory:
                raise _error(errno.EISDIR, target)
            if replaced.names:
                raise _error(errno.ENOTEMPTY, target)
        del parent.names[name]
        parent.names[target_name] = node
        parent.changes.append(("rename", name, target_name))

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        self._file(path)
        parent, name = self._parent(path)
        del parent.names[name]
        parent.changes.append(("remove", name))

    def remove_directory(self, path: str) -> None:
        self.check("remove_directory", path)
        if self._directory(path).names:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        del parent.names[name]
        parent.changes.append(("remove", name))

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        node = self._directory(path)
        node.names_on_disk = dict(node.names)
        node.changes.clear()

    def free_bytes(self) -> int:
        return 1 << 40 if self.capacity is None else max(self.capacity - self.used(), 0)

    def free_space(self, path: str) -> int:
        self._get(path)
        return self.free_bytes()

    def total_space(self, path: str) -> int:
        self._get(path)
        return 1 << 40 if self.capacity is None else self.capacity

    def lock(self, directory: str, name: str) -> FaultyLock | None:
        path = f"{directory}/{name}"
        self._directory(directory)
        if self._find(path) is None:
            self._add(path, directory=False)
        self._file(path)
        if directory in self.locks:
            return None
        self.locks.add(directory)
        return FaultyLock(self, directory)

    def boot_id(self) -> str:
        return f"boot {self.boots}"
