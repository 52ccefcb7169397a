"""The file system in memory answers as the real one: the same results, the same errors, the same names afterwards."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.system.ports import FileSystem, RealFileSystem
from support.faulty_filesystem import FaultyFileSystem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it answers as Linux does; others have other errors")

PATHS = ["file", "other", "empty", "full", "full/inner", "full/missing", "missing", "missing/x", "file/x", "file/x/y"]
PATHS.append("n" * 256)


def lay_out(fs: FileSystem, root: str) -> None:
    """Two files, an empty directory and one that holds a file."""
    for directory in ("empty", "full"):
        fs.make_directory(f"{root}/{directory}")
    for path in ("file", "other", "full/inner"):
        file = fs.open(f"{root}/{path}", create=True)
        file.write_at([path.encode()], 0)
        file.close()


def tree(fs: FileSystem, path: str) -> Any:
    if fs.is_directory(path):
        return {name: tree(fs, f"{path}/{name}") for name in sorted(fs.list(path))}
    return fs.read_file(path)


def read(fs: FileSystem, path: str, *, create: bool) -> bytes:
    file = fs.open(path, create=create)
    try:
        return file.read_at(100, 0)
    finally:
        file.close()


def lock(fs: FileSystem, directory: str, name: str) -> tuple[bool, bool]:
    """Whether the lock could be taken, and by a second one."""
    held = fs.lock(directory, name)
    second = fs.lock(directory, name)
    for taken in (held, second):
        if taken is not None:
            taken.release()
    return held is not None, second is not None


OPERATIONS: dict[str, Callable[[FileSystem, str], Any]] = {
    "open": lambda fs, path: read(fs, path, create=False),
    "create": lambda fs, path: read(fs, path, create=True),
    "read_file": lambda fs, path: fs.read_file(path),
    "overwrite": lambda fs, path: fs.overwrite(path, b"new"),
    "exists": lambda fs, path: fs.exists(path),
    "is_directory": lambda fs, path: fs.is_directory(path),
    "file_size": lambda fs, path: fs.is_directory(path) or fs.file_size(path),
    "modified_ms": lambda fs, path: fs.modified_ms(path) > 0,
    "list": lambda fs, path: sorted(fs.list(path)),
    "make_directory": lambda fs, path: fs.make_directory(path),
    "unlink": lambda fs, path: fs.unlink(path),
    "remove_directory": lambda fs, path: fs.remove_directory(path),
    "sync_directory": lambda fs, path: fs.sync_directory(path),
    "free_space": lambda fs, path: fs.free_space(path) > 0,
    "total_space": lambda fs, path: fs.total_space(path) > 0,
    "lock": lambda fs, path: lock(fs, path, ".lock"),
    "lock of a directory": lambda fs, path: lock(fs, path.rpartition("/")[0], path.rpartition("/")[2]),
}


def outcome(fs: FileSystem, root: str, operation: Callable[[FileSystem], Any]) -> tuple[Any, Any]:
    """What the operation returns, or the name of its error; and the tree that it leaves."""
    lay_out(fs, root)
    try:
        result = operation(fs)
    except OSError as error:
        result = errno.errorcode[error.errno or 0]
    return result, tree(fs, root)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_answers_as_that_of_the_real_file_system(tmp_path: Path, name: str, path: str) -> None:
    operation = OPERATIONS[name]
    real = outcome(RealFileSystem(), str(tmp_path), lambda fs: operation(fs, f"{tmp_path}/{path}"))
    fake = outcome(FaultyFileSystem(), "/data", lambda fs: operation(fs, f"/data/{path}"))
    assert fake == real


@pytest.mark.parametrize("target", ["file", "other", "empty", "full", "missing", "n" * 256])
@pytest.mark.parametrize("source", ["file", "empty", "full", "missing"])
def test_a_rename_answers_as_that_of_the_real_file_system(tmp_path: Path, source: str, target: str) -> None:
    real = outcome(
        RealFileSystem(), str(tmp_path), lambda fs: fs.rename(f"{tmp_path}/{source}", f"{tmp_path}/{target}")
    )
    fake = outcome(FaultyFileSystem(), "/data", lambda fs: fs.rename(f"/data/{source}", f"/data/{target}"))
    assert fake == real


@pytest.mark.parametrize("gone", ["unlink", "rename over it"])
def test_an_open_file_is_used_on_when_its_name_is_gone(tmp_path: Path, gone: str) -> None:
    def use(fs: FileSystem, root: str) -> bytes:
        file = fs.open(f"{root}/file")
        if gone == "unlink":
            fs.unlink(f"{root}/file")
        else:
            fs.rename(f"{root}/other", f"{root}/file")
        file.write_at([b" and", b" more"], 4)
        file.truncate(8)
        file.fdatasync()
        content = file.read_at(100, 0) + bytes([file.size()])
        file.close()
        return content

    real = outcome(RealFileSystem(), str(tmp_path), lambda fs: use(fs, str(tmp_path)))
    fake = outcome(FaultyFileSystem(), "/data", lambda fs: use(fs, "/data"))
    assert fake == real


def test_a_change_within_a_file_beyond_its_end_answers_as_in_the_real_file_system(tmp_path: Path) -> None:
    def use(fs: FileSystem, root: str) -> list[bytes]:
        file = fs.open(f"{root}/file")
        try:
            file.write_at([b"x"], 10)
            contents = [file.read_at(100, 0), file.read_at(5, 20)]
            file.truncate(14)
            contents.append(file.read_at(100, 0))
            return contents
        finally:
            file.close()

    real = outcome(RealFileSystem(), str(tmp_path), lambda fs: use(fs, str(tmp_path)))
    fake = outcome(FaultyFileSystem(), "/data", lambda fs: use(fs, "/data"))
    assert fake == real
