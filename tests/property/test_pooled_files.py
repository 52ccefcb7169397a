"""Files of a pool with two descriptors behave as files that stay open; a model of names and contents says how."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oncelog.broker.system.pooled_files import PooledFile, PooledFileSystem
from support.faulty_filesystem import FaultyFileSystem

CAPACITY = 2
DIRECTORIES = ("/d/a", "/d/b", "/d/c")
NAMES = ("0.log", "0.log.swap", "1.log")
PATHS = st.sampled_from([f"{directory}/{name}" for directory in DIRECTORIES for name in NAMES])


class Content:
    """One file of the model: what it holds, and whether all of that must survive a loss of power."""

    def __init__(self) -> None:
        self.data = b""
        self.is_synced = True


class PooledFiles(RuleBasedStateMachine):
    """Every operation is done through the pool and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyFileSystem()
        self.files: dict[str, Content] = {}
        self.open: list[tuple[PooledFile, Content]] = []

    @initialize()
    def begin(self) -> None:
        for directory in DIRECTORIES:
            self.disk.make_directory(directory)
        self.fs = PooledFileSystem(self.disk, CAPACITY)

    @rule(path=PATHS)
    def open_file(self, path: str) -> None:
        content = self.files.setdefault(path, Content()) if self.disk.exists(path.rpartition("/")[0]) else None
        if content is not None:
            self.open.append((self.fs.open(path, create=True), content))

    def pick(self, data: st.DataObject) -> tuple[PooledFile, Content]:
        return data.draw(st.sampled_from(self.open))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), piece=st.binary(min_size=1, max_size=5))
    def write(self, data: st.DataObject, piece: bytes) -> None:
        file, content = self.pick(data)
        try:
            file.write_at([piece], len(content.data))
        except FileNotFoundError:
            assert content not in self.files.values(), "only a file without a name cannot be opened again"
        else:
            content.data += piece
            content.is_synced = False

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        file, content = self.pick(data)
        try:
            assert file.read_at(100, 0) == content.data
            assert file.size() == len(content.data)
        except FileNotFoundError:
            assert content not in self.files.values(), "only a file without a name cannot be opened again"

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        file, content = self.pick(data)
        file.fdatasync()
        content.is_synced = True

    @precondition(lambda self: self.open)
    @rule(data=st.data(), size=st.integers(0, 5))
    def truncate(self, data: st.DataObject, size: int) -> None:
        file, content = self.pick(data)
        if size <= len(content.data):
            try:
                file.truncate(size)
            except FileNotFoundError:
                assert content not in self.files.values()
            else:
                content.data = content.data[:size]
                content.is_synced = False

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        entry = self.pick(data)
        entry[0].close()
        self.open.remove(entry)

    @rule(
        directory=st.sampled_from(DIRECTORIES),
        name=st.sampled_from(("note", "other note")),
        piece=st.binary(max_size=3),
    )
    def overwrite(self, directory: str, name: str, piece: bytes) -> None:
        path = f"{directory}/{name}"
        if self.disk.exists(directory):
            self.fs.overwrite(path, piece)
            content = self.files.setdefault(path, Content())
            content.data = piece + content.data[len(piece) :]
            content.is_synced = False

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.files)))
        self.fs.unlink(path)
        del self.files[path]

    @precondition(lambda self: self.files)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def rename_file(self, data: st.DataObject, name: str) -> None:
        source = data.draw(st.sampled_from(sorted(self.files)))
        target = f"{source.rpartition('/')[0]}/{name}"
        if source != target:
            self.fs.rename(source, target)
            self.files[target] = self.files.pop(source)

    @rule(before=st.sampled_from(DIRECTORIES), after=st.sampled_from(DIRECTORIES))
    def rename_directory(self, before: str, after: str) -> None:
        if self.disk.exists(before) and not self.disk.exists(after):
            self.fs.rename(before, after)
            moved = {path: content for path, content in self.files.items() if path.startswith(before + "/")}
            for path, content in moved.items():
                del self.files[path]
                self.files[after + path[len(before) :]] = content
            self.disk.make_directory(before)

    @rule(directory=st.sampled_from(DIRECTORIES))
    def delete_directory(self, directory: str) -> None:
        for path in [path for path in self.files if path.startswith(directory + "/")]:
            self.fs.unlink(path)
            del self.files[path]
        if self.disk.exists(directory):
            self.fs.remove_directory(directory)

    @invariant()
    def few_descriptors_are_open(self) -> None:
        nameless = sum(content not in self.files.values() for _, content in self.open)
        assert self.disk.open_files <= CAPACITY + nameless

    def teardown(self) -> None:
        for path, content in self.files.items():
            assert bytes(self.disk._get(path).data) == content.data
        for directory in DIRECTORIES:
            if self.disk.exists(directory):
                self.disk.sync_directory(directory)
        self.disk.sync_directory("/d")
        self.disk.sync_directory("/")
        for file, _ in self.open:
            file.close()
        for directory in DIRECTORIES:
            self.fs.close_overwritten(directory)
        assert self.disk.open_files == 0
        self.disk.crash(random.Random(0))
        # What was synced as the last thing that happened to a file is there, whichever descriptor synced it.
        for path, content in self.files.items():
            if content.is_synced:
                assert bytes(self.disk._get(path).data) == content.data


TestPooledFiles = PooledFiles.TestCase
TestPooledFiles.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
