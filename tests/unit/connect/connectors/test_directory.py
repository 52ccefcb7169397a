"""DirectorySource: new files, partial lines, rotation in each of its ways, gz, restarts at every line."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oncelog.connect import ConnectError, RetriableError, SourceRecord
from oncelog.connect.connectors.directory import scanning
from oncelog.connect.connectors.directory.connector import DirectorySourceConnector
from oncelog.connect.connectors.directory.files import File, Files
from oncelog.connect.connectors.directory.lines import LineFile
from oncelog.connect.connectors.directory.scanning import Listing
from support.source_tasks import RunningTask, Source

DIRECTORY = "oncelog.connect.connectors.directory"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds for files that wait, as the only item of a list."""
    now = [0.0]
    monkeypatch.setattr(f"{DIRECTORY}.files.time", SimpleNamespace(monotonic=lambda: now[0]), raising=False)
    return now


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory


def source(logs: Path, **settings: str) -> Source:
    config = {"directory": str(logs), "topic": "t", "poll.interval.ms": "1"}
    return Source(
        DirectorySourceConnector, config | {name.replace("_", "."): value for name, value in settings.items()}
    )


def lines(records: list[SourceRecord]) -> list[str]:
    return [record.value for record in records]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def denying(monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, error: int) -> set[str]:
    """Let a function fail with this error for the paths in the set that is returned, which is empty at first."""
    real, denied = getattr(owner, function), set[str]()

    def call(*arguments: Any) -> Any:
        for path in denied.intersection(arguments):
            raise OSError(error, os.strerror(error), path)
        return real(*arguments)

    monkeypatch.setattr(owner, function, call)
    return denied


def failing_reads(monkeypatch: pytest.MonkeyPatch, function: str, error: int) -> set[str]:
    """Let read, pread or fstat of an open file fail for the paths in the set that is returned, which is empty first."""
    failing, calls = set[str](), SimpleNamespace(**vars(os))

    class File(io.FileIO):
        def read(self, size: int | None = -1, /) -> Any:
            if function == "read" and self.name in failing:
                raise OSError(error, os.strerror(error))
            return super().read(-1 if size is None else size)

    def call(file: int, *arguments: Any) -> Any:
        if os.readlink(f"/proc/self/fd/{file}") in failing:
            raise OSError(error, os.strerror(error))
        return getattr(os, function)(file, *arguments)

    if function != "read":
        setattr(calls, function, call)
    module = "oncelog.connect.connectors.directory.lines"
    monkeypatch.setattr(f"{module}.os", calls)
    monkeypatch.setattr(f"{module}.open", lambda path, *_, **__: File(path), raising=False)
    return failing


async def polled(task: RunningTask, count: int, more: int = 4) -> list[str]:
    """Return the next lines, at least `count`, and those of some more polls."""
    values: list[str] = []
    while len(values) < count:
        values += lines(await task.poll())
    for _ in range(more):
        values += lines(await task.poll())
    return values


async def test_all_files_are_read_and_each_line_says_from_which(logs: Path) -> None:
    (logs / "a.log").write_text("a1\na2\n")
    (logs / "b.log").write_text("b1\r\n")
    (logs / "c.txt").write_text("c1\n")
    (logs / "sub").mkdir()
    (logs / "sub" / "d.log").write_text("d1\n")
    records = await source(logs, include="*.log", exclude="b*").read(2)
    assert lines(records) == ["a1", "a2"]
    assert [(header.key, header.value) for header in records[0].headers] == [("file", "a.log")]
    records = await source(logs, recursive="true").read(5)
    assert sorted(lines(records)) == ["a1", "a2", "b1", "c1", "d1"]
    assert {record.headers[0].value for record in records} == {"a.log", "b.log", "c.txt", "sub/d.log"}


async def test_a_name_that_is_not_utf_8_is_text_that_no_other_file_has(logs: Path) -> None:
    names = [b"caf\xe9.log", rb"caf\xe9.log", rb"caf\x5cxe9.log", rb"a\b.log", "café.log".encode()]
    for name in names:
        with open(os.fsencode(logs) + b"/" + name, "wb") as file:
            file.write(name.hex().encode() + b"\n")
    new = source(logs)
    records = await new.read(len(names))
    files = {bytes.fromhex(record.value): record.headers[0].value for record in records}
    assert files == dict(
        zip(names, [r"caf\xe9.log", r"caf\x5cxe9.log", r"caf\x5cx5cxe9.log", r"a\b.log", "café.log"], strict=True)
    )
    for record in records:
        assert str((record.source_offset or {})["file"]).encode().decode() == record.headers[0].value
    os.rename(os.fsencode(logs) + b"/" + names[0], os.fsencode(logs) + b"/caf\xe9.log.1")
    await new.nothing()
    assert lines(await source(logs, include=r"caf\xe9*").read(1)) == [names[0].hex()]


async def test_files_with_the_same_content_are_different_files(logs: Path) -> None:
    for name in ("a.log", "b.log", "part.1", "part.2"):
        (logs / name).write_text("same\n")
    new = source(logs)
    assert lines(await new.read(4)) == ["same"] * 4
    await new.nothing()
    append(logs / "a.log", "more\n")
    assert lines(await new.read(1)) == ["more"]


async def test_many_files_with_the_same_header_are_read_once(logs: Path) -> None:
    for number in range(40):
        (logs / f"{number}.csv").write_text(f"id,name\n{number},x\n")
        os.utime(logs / f"{number}.csv", ns=(0, (40 - number) * 1_000_000_000))
    for keep in (3, 41, 79):
        new = source(logs, batch_size="1")
        first = await new.read(keep, keep=keep)
        rest = await new.read(80 - keep)
        await new.nothing()
        assert sorted(lines(first + rest)) == sorted([f"{number},x" for number in range(40)] + ["id,name"] * 40)


def csv_files(logs: Path) -> list[Path]:
    """Write 40 files with the same header and one line each; a task reads them in this order."""
    paths = [logs / f"{number}.csv" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_text(f"id,name\n{number},x\n")
        os.utime(path, ns=(0, (number + 1) * 1_000_000_000))
    return paths


@pytest.mark.parametrize("reset", [range(15, 16), range(2, 35), range(39), range(38, 40)], ids=str)
async def test_only_the_files_that_a_user_resets_are_read_again(logs: Path, reset: range) -> None:
    csv_files(logs)
    new = source(logs)
    last = {record.headers[0].value: record for record in await new.read(80)}
    partitions = [last[f"{number}.csv"].source_partition or {} for number in reset]
    assert await DirectorySourceConnector().alter_offsets(new.config, [(partition, None) for partition in partitions])
    new.offsets.reset(partitions)
    async with await new.task() as task:
        again = await polled(task, 2 * len(reset))
    assert sorted(again) == sorted([f"{number},x" for number in reset] + ["id,name"] * len(reset))


async def test_files_that_are_moved_away_before_they_are_read_do_not_repeat_the_others(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, real = csv_files(logs)[4:34], LineFile.lines

    def moving(file: LineFile, position: int, limit: int) -> list[bytes]:
        if limit > 1:  # the task reads its first file
            for path in moved:
                path.unlink(missing_ok=True)
        return real(file, position, limit)

    monkeypatch.setattr(LineFile, "lines", moving)
    new = source(logs)
    assert len(await new.read(20)) == 20
    await new.nothing()


@pytest.mark.parametrize("suffix", ["", ".gz"])
async def test_a_batch_of_long_lines_is_small(logs: Path, suffix: str) -> None:
    written = [f"{number:06}" + "x" * 99_993 for number in range(100)]
    with (gzip.open if suffix else open)(logs / f"a.log{suffix}", "wt") as file:
        file.writelines(f"{line}\n" for line in written)
    read: list[str] = []
    async with await source(logs).task() as task:
        while len(read) < len(written):
            batch = lines(await task.poll())
            assert sum(map(len, batch)) < 5_000_000
            read += batch
    assert read == written


async def test_a_line_may_arrive_in_many_parts(logs: Path) -> None:
    path = logs / "a.log"
    async with await source(logs, max_line_bytes=str(4 << 20)).task() as task:
        append(path, "first\r")
        for _ in range(3):
            append(path, "x" * 700_000)
            assert "".join(await polled(task, 0)) in ("", "first")
        append(path, "end\nnext\n")
        assert [line[-5:] for line in await polled(task, 2)] == ["xxend", "next"]


async def test_a_line_comes_when_its_end_is_written(logs: Path) -> None:
    path = logs / "a.log"
    path.write_text("one\nha")
    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["one"]
        append(path, "lf\nnex")
        assert await polled(task, 1) == ["half"]
        append(path, "t\n")
        assert await polled(task, 1) == ["next"]


@pytest.mark.parametrize("more", ["two\n", "a longer line\n"])
@pytest.mark.parametrize("batch", ["1", "100"])
async def test_an_incomplete_line_that_is_cut_off_and_replaced_does_not_mix_with_the_new_line(
    logs: Path, more: str, batch: str
) -> None:
    path = logs / "a.log"
    path.write_text("one\nhalf of")
    async with await source(logs, batch_size=batch).task() as task:
        assert await polled(task, 1) == ["one"]
        os.truncate(path, len("one\n"))
        append(path, more)
        assert await polled(task, 1) == [more.rstrip()]
        append(path, "last\n")
        assert await polled(task, 1) == ["last"]


async def test_an_incomplete_line_that_is_replaced_during_a_read_does_not_mix_with_the_new_line(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = logs / "a.log", LineFile._read
    path.write_text("one\n")

    def replacing(file: LineFile) -> bytes:
        data = real(file)
        if data.endswith(b"half of"):
            os.truncate(path, len("one\ntwo\n"))
            append(path, "a longer line\n")
        return data

    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["one"]
        monkeypatch.setattr(LineFile, "_read", replacing)
        append(path, "two\nhalf of")
        assert await polled(task, 2) == ["two", "a longer line"]


async def test_a_first_line_that_is_not_complete_waits(logs: Path) -> None:
    path = logs / "a.log"
    path.write_text("hal")
    new = source(logs)
    await new.nothing()
    append(path, "f\n")
    assert lines(await new.read(1)) == ["half"]


@pytest.mark.parametrize("batch", ["1", "2", "100"])
async def test_a_task_goes_on_behind_any_line(logs: Path, batch: str) -> None:
    (logs / "a.log").write_text("a1\na2\né3\n")
    (logs / "b.log").write_text("b1\nb2\n")
    with gzip.open(logs / "c.gz", "wt") as file:
        file.write("c1\nc2\nc3")
    for keep in range(1, 8):
        new = source(logs, batch_size=batch)
        first = await new.read(8, keep=keep)
        assert sorted(lines(first + await new.read(8 - keep))) == ["a1", "a2", "b1", "b2", "c1", "c2", "c3", "é3"]


def renamed(logs: Path) -> None:
    (logs / "app.log").rename(logs / "app.log.1")


def shifted_and_compressed(logs: Path) -> None:
    renamed(logs)
    compress(logs / "app.log.1", logs / "app.log.2.gz")


def copied_and_truncated(logs: Path) -> None:
    shutil.copy(logs / "app.log", logs / "app.log.1")
    os.truncate(logs / "app.log", 0)


def copied_truncated_and_compressed(logs: Path) -> None:
    copied_and_truncated(logs)
    compress(logs / "app.log.1", logs / "app.log-20260102.gz")


def compress(path: Path, target: Path) -> None:
    with path.open("rb") as original, gzip.open(target, "wb") as compressed:
        compressed.write(original.read())
    path.unlink()


@pytest.mark.parametrize(
    "rotate", [renamed, shifted_and_compressed, copied_and_truncated, copied_truncated_and_compressed]
)
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
async def test_rotation_loses_and_repeats_nothing(logs: Path, rotate: Callable[[Path], None], running: bool) -> None:
    path = logs / "app.log"
    path.write_text("started\n1\n2\n")
    new = source(logs)
    if running:
        async with await new.task() as task:
            read = await polled(task, 3)
            append(path, "3\n")
            rotate(logs)
            append(path, "started\n4\n")
            read += await polled(task, 3)
            append(path, "5\n")
            read += await polled(task, 1)
    else:
        read = lines(await new.read(3))
        append(path, "3\n")
        rotate(logs)
        append(path, "started\n4\n")
        read += lines(await new.read(3))
        append(path, "5\n")
        read += lines(await new.read(1))
        await new.nothing()
    assert sorted(read) == ["1", "2", "3", "4", "5", "started", "started"]
    assert read.index("4") < read.index("5")


async def test_compression_while_the_original_is_still_there_repeats_nothing(logs: Path) -> None:
    path, target = logs / "app.log.1", logs / "app.log.1.gz"
    path.write_text("1\n2\n")
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["1", "2"]
        data = gzip.compress(b"1\n2\n3\n")
        target.write_bytes(data[:12])  # gzip is still writing
        append(path, "3\n")
        assert await polled(task, 1) == ["3"]
        target.write_bytes(data)
        assert await polled(task, 0) == []
        path.unlink()
        assert await polled(task, 0) == []


async def test_a_copy_before_the_truncation_repeats_nothing(logs: Path) -> None:
    path = logs / "app.log"
    path.write_text("1\n2\n")
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["1", "2"]
        append(path, "3\n")
        shutil.copy(path, logs / "app.log.1")
        assert await polled(task, 1) == ["3"]
        os.truncate(path, 0)
        assert await polled(task, 0) == []
        append(path, "4\n")
        assert await polled(task, 1) == ["4"]


async def test_a_truncated_file_is_read_from_its_start_with_a_warning(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = logs / "app.log"
    path.write_text("1\n2\n")
    new = source(logs)
    async with await new.task() as task:
        assert await polled(task, 2) == ["1", "2"]
        path.write_text("one\ntwo\nthree\n")  # longer than before, and other content
        assert await polled(task, 3) == ["one", "two", "three"]
        path.write_text("n\n")
        assert await polled(task, 1) == ["n"]
    assert caplog.text.count("was truncated or rewritten") == 2


@pytest.mark.parametrize("grown", [5, 500], ids=["shorter", "longer"])
async def test_a_file_that_is_truncated_while_it_waits_to_be_read_is_read_from_its_start(
    logs: Path, grown: int
) -> None:
    paths = [logs / "a.log", logs / "b.log"]
    for path in paths:
        path.write_text("".join(f"{path.name} old {number}\n" for number in range(100)))
    async with await source(logs).task() as task:
        await polled(task, 200)
        for path in paths:
            append(path, f"{path.name} last\n")
        read = await polled(task, 1, more=0)
        waiting = paths[read == ["a.log last"]]
        shutil.copy(waiting, f"{waiting}.1")
        os.truncate(waiting, 0)
        new = [f"{waiting.name} new entry {number}" for number in range(grown)]
        append(waiting, "\n".join(new) + "\n")
        read += await polled(task, 1 + grown, more=10)
    assert sorted(read) == sorted(["a.log last", "b.log last", *new])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("grown", [0, 5, 500], ids=["empty", "shorter", "longer"])
async def test_a_truncation_during_a_read_loses_and_repeats_nothing(
    logs: Path, monkeypatch: pytest.MonkeyPatch, grown: int, after: bool
) -> None:
    path, real = logs / "app.log", LineFile.lines
    old, new = [f"old {number}" for number in range(100)], [f"new entry {number}" for number in range(grown)]
    path.write_text("old 0\n")
    rotated = False

    def rotate() -> None:
        nonlocal rotated
        rotated = True
        shutil.copy(path, logs / "app.log.1")
        path.write_text("".join(f"{line}\n" for line in new))

    def rotating(file: LineFile, position: int, limit: int) -> list[bytes]:
        due = position > 0 and not rotated
        if due and not after:
            rotate()
        lines = real(file, position, limit)
        if due and after:
            rotate()
        return lines

    reader = source(logs)
    assert lines(await reader.read(1)) == ["old 0"]
    append(path, "".join(f"{line}\n" for line in old[1:]))
    monkeypatch.setattr(LineFile, "lines", rotating)
    assert sorted(lines(await reader.read(99 + grown))) == sorted(old[1:] + new)
    await reader.nothing()


async def test_a_gz_file_that_is_rewritten_while_it_is_read_is_read_from_its_start(logs: Path) -> None:
    path = logs / "a.gz"
    path.write_bytes(gzip.compress(b"old 0\nold 1\nold 2\n"))
    async with await source(logs, batch_size="1").task() as task:
        assert await polled(task, 1, more=0) == ["old 0"]
        new = [f"new {number}" for number in range(100)]
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in new).encode()))
        assert await polled(task, 100, more=10) == new


async def test_a_file_that_is_rewritten_before_its_first_read_is_known_by_its_new_first_line(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = logs / "app.log", LineFile.lines
    path.write_text("old\n")

    def rewriting(file: LineFile, position: int, limit: int) -> list[bytes]:
        if limit > 1 and path.read_text() == "old\n":
            path.write_text("new\nentry\n")
        return real(file, position, limit)

    monkeypatch.setattr(LineFile, "lines", rewriting)
    reader = source(logs)
    assert lines(await reader.read(2)) == ["new", "entry"]
    await reader.nothing()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_is_renamed_before_its_first_read_is_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    path, real = logs / "part.tmp", LineFile.__init__
    path.write_text("1\n2\n")

    def renaming(file: LineFile, name: str, *arguments: Any) -> None:
        if path.exists() and not (logs / "part.csv").exists():
            path.rename(logs / "part.csv")
            if is_replaced:
                path.write_text("")
        real(file, name, *arguments)

    monkeypatch.setattr(LineFile, "__init__", renaming)
    reader = source(logs)
    assert lines(await reader.read(2)) == ["1", "2"]
    await reader.nothing()


async def test_a_truncation_before_the_copy_is_compared_repeats_nothing(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy, real = logs / "app.log", logs / "app.log.1", LineFile.__init__
    path.write_text("started\n1\n2\n")

    def truncating(file: LineFile, name: str, *arguments: Any) -> None:
        if name == str(copy) and path.read_text().endswith("3\n"):
            path.write_text("started\nnew\n")
        real(file, name, *arguments)

    async with await source(logs).task() as task:
        assert await polled(task, 3) == ["started", "1", "2"]
        monkeypatch.setattr(LineFile, "__init__", truncating)
        append(path, "3\n")
        shutil.copy(path, copy)
        assert sorted(await polled(task, 3, more=10)) == ["3", "new", "started"]


@pytest.mark.parametrize("open_files", ["1", "64"])
async def test_a_copy_is_not_read_again_if_its_original_is_deleted_before_they_are_compared(
    logs: Path, monkeypatch: pytest.MonkeyPatch, open_files: str
) -> None:
    path, copy, real = logs / "app.log.1", logs / "app.log.1.gz", LineFile.__init__
    path.write_text("1\n2\n")
    (logs / "other.log").write_text("other\n")

    def deleting(file: LineFile, name: str, *arguments: Any) -> None:
        if name == str(copy):
            path.unlink(missing_ok=True)
        real(file, name, *arguments)

    async with await source(logs, max_open_files=open_files).task() as task:
        assert sorted(await polled(task, 3)) == ["1", "2", "other"]
        monkeypatch.setattr(LineFile, "__init__", deleting)
        copy.write_bytes(gzip.compress(b"1\n2\n3\n"))
        assert await polled(task, 1, more=10) == ["3"]


async def test_a_file_that_may_be_a_copy_waits_until_its_original_can_be_opened_or_is_gone(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, denied = logs / "app.log", denying(monkeypatch, LineFile, "__init__", errno.EMFILE)
    path.write_text("started\n1\n2\n")
    async with await source(logs).task() as task:
        assert await polled(task, 3) == ["started", "1", "2"]
        denied.add(str(path))
        shutil.copy(path, logs / "app.log.1")
        (logs / "app.log.2").write_text("started\nolder\n")
        assert await polled(task, 0, more=10) == []
        denied.clear()
        assert await polled(task, 2) == ["started", "older"]
        denied.add(str(path))
        (logs / "app.log.1").unlink()
        (logs / "app.log.3").write_text("started\noldest\n")
        assert await polled(task, 0, more=10) == []
        path.unlink()
        assert await polled(task, 2) == ["started", "oldest"]


def copies(original: Path, suffix: str) -> Path:
    """Copy or compress a file, with its modification time rounded down to seconds, as some tools do."""
    copy = original.with_name(original.name + suffix)
    copy.write_bytes(gzip.compress(original.read_bytes()) if suffix == ".gz" else original.read_bytes())
    seconds = int(original.stat().st_mtime)
    os.utime(copy, (seconds, seconds))
    return copy


@pytest.mark.parametrize("count", [3, 1000])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "deleted"])
async def test_a_gz_file_that_is_there_before_its_original_is_read_repeats_nothing(
    logs: Path, count: int, kept: bool
) -> None:
    path, wanted = logs / "app.log.1", [f"line {number}" for number in range(count)]
    path.write_text("".join(f"{line}\n" for line in wanted))
    copies(path, ".gz")
    new = source(logs, batch_size="100")
    async with await new.task() as task:
        read = await polled(task, 1, more=0)
        if not kept:
            path.unlink()
        assert read + await polled(task, count - len(read), more=10) == wanted


@pytest.mark.parametrize("keep", [0, 500])
@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "deleted"])
async def test_a_kill_before_or_after_the_first_commit_does_not_repeat_a_gz_file(
    logs: Path, keep: int, deleted: bool
) -> None:
    path, wanted = logs / "app.log.1", [f"line {number}" for number in range(1000)]
    path.write_text("".join(f"{line}\n" for line in wanted))
    copies(path, ".gz")
    new = source(logs, batch_size="100")
    assert lines(await new.read(1000, keep=keep)) == wanted[:keep]
    if deleted:
        path.unlink()
    assert lines(await new.read(1000 - keep)) == wanted[keep:]
    await new.nothing()


@pytest.mark.parametrize(
    "names",
    [
        ("job.log", "job.log.1", "job.log.2"),
        ("app", "app-eu", "app.us"),
        ("app.log", "app.log.1.gz"),
        ("a.gz", "a.gz.1.gz"),
    ],
)
@pytest.mark.parametrize("size", [1, 200], ids=["short", "long"])
async def test_files_that_begin_alike_by_chance_are_all_read(logs: Path, names: tuple[str, ...], size: int) -> None:
    for name in names:
        content = b"started\nstopped\n" * size
        (logs / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    append(logs / names[-1], "") if names[-1].endswith(".gz") else append(logs / names[-1], "started\n")
    wanted = 2 * size * len(names) + (not names[-1].endswith(".gz"))
    new = source(logs)
    async with await new.task() as task:
        assert len(await polled(task, wanted, more=10)) == wanted


async def test_runs_of_a_job_with_equal_output_are_all_read(logs: Path) -> None:
    path, new = logs / "job.log", source(logs)

    def run() -> None:
        for number in (1, 0):
            old = logs / (f"job.log.{number}" if number else "job.log")
            if old.exists():
                old.rename(logs / f"job.log.{number + 1}")
        path.write_text("started\nfinished\n")

    run()
    await new.read(2)
    run()
    run()
    assert sorted(lines(await new.read(4))) == ["finished"] * 2 + ["started"] * 2
    await new.nothing()


@pytest.mark.parametrize("older", [True, False])
async def test_a_gz_file_of_an_earlier_run_with_equal_output_is_read(logs: Path, older: bool) -> None:
    (logs / "job.log").write_text("started\nfinished\n")
    copy = copies(logs / "job.log", ".gz")
    if older:
        os.utime(copy, ns=(0, copy.stat().st_mtime_ns - 5_000_000_000))
    async with await source(logs).task() as task:
        count = 4 if older else 2
        assert len(await polled(task, count, more=10)) == count


@pytest.mark.parametrize(("name", "waits"), [("app.log-w2", False), ("app.log.bak", False), ("app.log.1", True)])
@pytest.mark.parametrize("behind", [0, 3])
async def test_a_live_file_with_the_content_of_another_that_has_been_read_is_read(
    logs: Path, clock: list[float], name: str, waits: bool, behind: int
) -> None:
    path, other = logs / "app.log", logs / name
    path.write_text("heartbeat\n" * (behind + 1))
    async with await source(logs).task() as task:
        assert len(await polled(task, behind + 1)) == behind + 1
        other.write_text("heartbeat\n")
        read = []
        for _ in range(10):
            for each in (path, other):
                append(each, "heartbeat\n")
            read += await polled(task, 0)
            clock[0] += 20
        assert len(read) == (10 if waits else 21)
        clock[0] += 600
        read += await polled(task, 21 - len(read), more=10)
    assert len(read) == 21


def truncated(original: Path) -> None:
    os.truncate(original, 0)


@pytest.mark.parametrize("remove", [truncated, Path.unlink])
@pytest.mark.parametrize("suffix", [".1.gz", "-20260102.gz", ".2026-01-02.gz"])
async def test_a_gz_file_with_a_number_or_date_that_is_made_from_the_live_file_is_not_read_again(
    logs: Path, suffix: str, remove: Callable[[Path], None]
) -> None:
    path, wanted = logs / "app.log", [f"line {number}" for number in range(300)]
    path.write_text("".join(f"{line}\n" for line in wanted))
    async with await source(logs).task() as task:
        assert await polled(task, 300) == wanted
        (logs / f"app.log{suffix}").write_bytes(gzip.compress(path.read_bytes() + b"last\n"))
        append(path, "last\n")
        assert await polled(task, 1) == ["last"]
        remove(path)
        append(path, "new\n")
        assert await polled(task, 1, more=10) == ["new"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
async def test_a_file_whose_name_is_that_of_another_plus_a_number_is_read_after_five_minutes(
    logs: Path, clock: list[float], suffix: str
) -> None:
    path, content = logs / "app.log", b"started\nfinished\n"
    path.write_bytes(content)
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["started", "finished"]
        (logs / f"app.log.1{suffix}").write_bytes(gzip.compress(content) if suffix else content)
        assert await polled(task, 0) == []
        clock[0] += 301
        assert await polled(task, 0, more=10) == ["started", "finished"]


@pytest.mark.parametrize("remove", [truncated, Path.unlink])
@pytest.mark.parametrize("suffix", [".gz", ".1"])
@pytest.mark.parametrize("cut", [0, 3], ids=["whole lines", "part of a line"])
@pytest.mark.parametrize("count", [3, 2000])
async def test_a_copy_is_not_read_if_more_of_its_original_had_been_read(
    logs: Path, suffix: str, remove: Callable[[Path], None], count: int, cut: int
) -> None:
    path, wanted = logs / "app.log", [f"line {number}" for number in range(count)]
    path.write_text("".join(f"{line}\n" for line in wanted))
    async with await source(logs).task() as task:
        read = await polled(task, count)
        content = path.read_bytes()[: -cut or None]
        (logs / f"app.log{suffix}").write_bytes(gzip.compress(content) if suffix == ".gz" else content)
        append(path, "more\n")
        read += await polled(task, 1)
        remove(path)
        assert await polled(task, 0, more=10) == []
        append(path, "new\n")
        read += await polled(task, 1, more=10)
    assert read == [*wanted, "more", "new"]


@pytest.mark.parametrize("count", [3, 2000])
async def test_a_copy_that_ends_within_a_line_does_not_return_its_part_once_it_is_compressed(
    logs: Path, count: int
) -> None:
    path, copy = logs / "app.log", logs / "app.log.1"
    wanted = [f"line {number}" for number in range(count)]
    path.write_text("".join(f"{line}\n" for line in wanted) + "be")
    async with await source(logs).task() as task:
        assert await polled(task, count) == wanted
        shutil.copy(path, copy)
        append(path, "gin and end\n")
        assert await polled(task, 1) == ["begin and end"]
        os.truncate(path, 0)
        assert await polled(task, 0) == []
        append(path, "new\n")
        assert await polled(task, 1) == ["new"]
        compress(copy, logs / "app.log.1.gz")
        assert await polled(task, 0, more=10) == []


@pytest.mark.parametrize("suffix", [".gz", ".1"])
async def test_a_copy_is_not_read_if_its_original_is_renamed(logs: Path, clock: list[float], suffix: str) -> None:
    path, wanted = logs / "app.log", [f"{number}" for number in range(100)]
    path.write_text("".join(f"{line}\n" for line in wanted))
    async with await source(logs).task() as task:
        assert await polled(task, 100) == wanted
        copy = copies(path, suffix)
        assert await polled(task, 0) == []
        path.rename(logs / "app.log.2")
        assert await polled(task, 0) == []
        copy.rename(logs / f"app.log.2{suffix}")
        assert await polled(task, 0) == []
        (logs / "app.log.2").unlink()
        clock[0] += 600
        assert await polled(task, 0) == []


def replaced(path: Path, name: str, content: bytes) -> None:
    """Delete a file, and create another, which has another inode."""
    new = path.with_name(name)
    new.write_bytes(content)
    path.unlink()


async def test_a_new_gz_file_is_decompressed_once_however_many_files_of_its_log_were_deleted(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, real, read = source(logs), LineFile._read, 0

    def counting(file: LineFile) -> bytes:
        nonlocal read
        data = real(file)
        read += len(data)
        return data

    for day in range(10, 30):
        path = logs / f"app.log-202601{day}"
        path.write_text("header\n" + f"{day:4999}\n" * day)
        await new.read(1 + day)
        path.unlink()
    content = b"header\n" + os.urandom(70_000).hex(" ", 50).replace(" ", "\n").encode() + b"\n"
    (logs / "app.log-20260130.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(LineFile, "_read", counting)
    async with await new.task() as task:
        await polled(task, content.count(b"\n"))
    assert read < 5 * len(content)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("case", ["running", "stopped", "stopped, same inode"])
async def test_exports_that_differ_only_between_header_and_footer_are_all_read(
    logs: Path, suffix: str, case: str
) -> None:
    exports = [["ID AMOUNT", *(f"{day}{row:03} 0000" for row in range(200)), "END 000200"] for day in (1, 2)]
    contents = ["".join(f"{line}\n" for line in export).encode() for export in exports]
    path, new = logs / "export-20260101", source(logs)
    path.write_bytes(contents[0])

    def replace() -> None:
        name = f"export-20260102{suffix}"
        if case == "stopped, same inode":
            path.rename(logs / name)
        else:
            replaced(path, name, b"")
        (logs / name).write_bytes(gzip.compress(contents[1]) if suffix else contents[1])

    if case == "running":
        async with await new.task() as task:
            assert await polled(task, 202) == exports[0]
            replace()
            assert await polled(task, 0, more=10) == exports[1]
    else:
        assert lines(await new.read(202)) == exports[0]
        replace()
        async with await new.task() as task:
            assert await polled(task, 0, more=10) == exports[1]


@pytest.mark.parametrize("suffix", ["", ".gz"])
async def test_a_copy_whose_original_was_deleted_while_the_task_was_stopped_is_not_read_again(
    logs: Path, suffix: str
) -> None:
    path, new = logs / "app.log", source(logs)
    wanted = [f"line {number}" for number in range(1000)]
    path.write_text("".join(f"{line}\n" for line in wanted))
    assert lines(await new.read(500, keep=500)) == wanted[:500]
    content = path.read_bytes()
    replaced(path, f"app.log.1{suffix}", gzip.compress(content) if suffix else content)
    assert lines(await new.read(300, keep=300)) == wanted[500:800]
    assert lines(await new.read(200)) == wanted[800:]
    await new.nothing()


@pytest.mark.parametrize("name", ["run-1", "run-2"])
async def test_a_file_that_is_created_again_with_equal_lines_and_the_same_inode_is_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one_inode(monkeypatch, lambda inode: 1)
    (logs / "run-1").write_text("started\nfinished\n")
    os.utime(logs / "run-1", (0, 0))
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["started", "finished"]
        (logs / "run-1").unlink()
        assert await polled(task, 0) == []
        (logs / name).write_text("started\nfinished\n")
        assert await polled(task, 0, more=10) == ["started", "finished"]


async def test_a_file_that_a_listing_does_not_contain_because_it_is_renamed_is_not_read_again(logs: Path) -> None:
    path, away = logs / "app.log", logs.parent / "away"
    path.write_text("1\n")
    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["1"]
        path.rename(away)
        assert await polled(task, 0) == []
        away.rename(logs / "old.log")
        assert await polled(task, 0, more=10) == []
        append(logs / "old.log", "2\n")
        assert await polled(task, 1) == ["2"]


async def test_a_file_that_cannot_be_opened_and_then_is_missing_from_a_listing_is_not_read_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, away, new = logs / "app.log.1", logs.parent / "away", source(logs, batch_size="1")
    path.write_text("1\n2\n3\n")
    read = lines(await new.read(1))
    real = Files.open

    def failing(files: Files, file: File) -> LineFile | None:
        denied.add(str(path))
        return real(files, file)

    monkeypatch.setattr(Files, "open", failing)
    denied = denying(monkeypatch, LineFile, "__init__", errno.EMFILE)
    async with await new.task() as task:
        assert await task.poll() == []  # the file is recognised, and then cannot be opened
        denied.clear()
        monkeypatch.setattr(Files, "open", real)
        path.rename(away)
        assert await polled(task, 0) == []
        away.rename(logs / "app.log.2")
        read += await polled(task, 2)
    assert read == ["1", "2", "3"]


@pytest.mark.parametrize("name", ["app.log-20260102", "a/app.log.1"])
async def test_a_file_that_is_renamed_during_a_listing_and_grows_before_the_next_one_is_not_read_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, real = logs / "app.log", os.stat
    (logs / "a").mkdir()
    path.write_text("1\n")

    def renaming(status_of: str) -> os.stat_result:
        if status_of == str(path) and not (logs / name).exists():
            path.rename(logs / name)
            path.write_text("new\n")
        return real(status_of)

    async with await source(logs, recursive="true").task() as task:
        assert await polled(task, 1) == ["1"]
        monkeypatch.setattr(f"{DIRECTORY}.scanning.os", SimpleNamespace(**{**vars(os), "stat": renaming}))
        read: list[str] = []
        while "new" not in read:
            read += lines(await task.poll())
        append(logs / name, "2\n")
        assert sorted(read + await polled(task, 1, more=10)) == ["2", "new"]


@pytest.mark.parametrize("size", [1, 200], ids=["short", "long"])
async def test_a_file_that_is_truncated_and_gets_equal_lines_is_read(logs: Path, size: int) -> None:
    path = logs / "run.log"
    path.write_text("started\nfinished\n" * size)
    async with await source(logs).task() as task:
        assert len(await polled(task, 2 * size)) == 2 * size
        for _ in range(2):
            os.truncate(path, 0)
            assert await polled(task, 0) == []
            path.write_text("started\nfinished\n" * size)
            assert len(await polled(task, 0, more=10)) == 2 * size


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
async def test_another_file_with_the_inode_of_a_deleted_file_does_not_make_an_equal_file_a_copy(
    logs: Path, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    path, other, new = logs / "run-1", logs / "other.txt", source(logs)
    path.write_text("started\nfinished\n")
    os.link(path, logs.parent / "kept")  # so that its real inode is not reused
    first, reused = path.stat().st_ino, dict[int, int]()
    one_inode(monkeypatch, lambda inode: reused.get(inode, inode))

    def replace() -> None:
        other.write_text("something\n")
        reused[other.stat().st_ino] = first
        (logs / "run-2").write_text("started\nfinished\n")

    assert lines(await new.read(2)) == ["started", "finished"]
    if not running:
        path.unlink()
        replace()
    async with await new.task() as task:
        if running:
            assert await polled(task, 0) == []
            path.unlink()
            assert await polled(task, 0) == []
            replace()
        assert sorted(await polled(task, 0, more=10)) == ["finished", "something", "started"]


async def test_a_file_of_another_log_with_the_inode_of_a_compressed_file_does_not_repeat_the_gz_file(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reused = logs / "app.log.1", dict[int, int]()
    path.write_text("1\n2\n")
    (logs / "other.log").write_text("other\n")
    os.link(path, logs.parent / "kept")  # so that its real inode is not reused
    first = path.stat().st_ino
    one_inode(monkeypatch, lambda inode: reused.get(inode, inode))
    async with await source(logs, max_open_files="1").task() as task:
        assert sorted(await polled(task, 3)) == ["1", "2", "other"]
        append(logs / "other.log", "other\n")
        assert await polled(task, 1) == ["other"]
        compress(path, logs / "app.log.1.gz")
        (logs / "web.log").write_text("new\n")
        reused[(logs / "web.log").stat().st_ino] = first
        assert await polled(task, 1, more=10) == ["new"]


@pytest.mark.parametrize("function", ["open", "stat"])
async def test_a_gz_file_waits_while_the_file_with_the_inode_of_its_original_cannot_be_accessed(
    logs: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path, other, reused = logs / "app.log.1", logs / "other.log", dict[int, int]()
    path.write_text("1\n2\n")
    other.write_text("a\n")
    os.link(path, logs.parent / "kept")  # so that its real inode is not reused
    first = path.stat().st_ino
    one_inode(monkeypatch, lambda inode: reused.get(inode, inode))
    owner, name = (LineFile, "__init__") if function == "open" else (vars(scanning)["os"], "stat")
    failing = denying(monkeypatch, owner, name, errno.EACCES)
    async with await source(logs, max_open_files="1").task() as task:
        assert sorted(await polled(task, 3)) == ["1", "2", "a"]
        append(other, "b\n")
        assert await polled(task, 1) == ["b"]
        compress(path, logs / "app.log.2.gz")
        path.write_text("3\n")
        reused[path.stat().st_ino] = first
        failing.add(str(path))
        assert await polled(task, 0, more=10) == []
        failing.clear()
        assert await polled(task, 1, more=10) == ["3"]


async def test_a_file_that_cannot_be_read_delays_a_new_file_of_its_log_for_a_limited_time(
    logs: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    path, other, denied = logs / "app.csv-1", logs / "other", denying(monkeypatch, LineFile, "__init__", errno.EACCES)
    path.write_text("header\n")
    other.write_text("a\n")
    async with await source(logs, max_open_files="1").task() as task:
        assert sorted(await polled(task, 2)) == ["a", "header"]
        append(other, "b\n")
        assert await polled(task, 1) == ["b"]  # which closes the first file
        denied.add(str(path))
        append(path, "1\n")
        (logs / "app.csv-2").write_text("header\n2\n")
        assert await polled(task, 0, more=10) == []
        clock[0] += 301
        assert await polled(task, 2, more=10) == ["header", "2"]
        denied.clear()
        assert await polled(task, 1, more=10) == ["1"]


async def test_a_gz_file_with_the_inode_of_a_file_of_which_only_the_header_was_read_is_not_read_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, older, new, reused = logs / "app.csv", logs / "app.csv.1", source(logs), dict[int, int]()
    path.write_text("header\n")
    older.write_text("header\n1\n2\n")
    os.link(path, logs.parent / "kept")  # so that its real inode is not reused
    first = path.stat().st_ino
    one_inode(monkeypatch, lambda inode: reused.get(inode, inode))
    assert sorted(lines(await new.read(4))) == ["1", "2", "header", "header"]
    append(path, "3\n")
    compress(older, logs / "app.csv.2.gz")
    compress(path, logs / "app.csv.1.gz")
    reused[(logs / "app.csv.2.gz").stat().st_ino] = first
    async with await new.task() as task:
        assert await polled(task, 1, more=10) == ["3"]


@pytest.mark.parametrize("name", ["app.csv", "app.csv.1"])
async def test_a_gz_file_is_read_although_a_new_file_has_the_inode_and_the_header_of_its_original(
    logs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, other, reused = logs / "app.csv.1", logs / "other.log", dict[int, int]()
    path.write_text("header\n")
    other.write_text("a\n")
    os.utime(path, (1, 1))
    os.link(path, logs.parent / "kept")  # so that its real inode is not reused
    first = path.stat().st_ino
    one_inode(monkeypatch, lambda inode: reused.get(inode, inode))
    async with await source(logs, max_open_files="1").task() as task:
        assert await polled(task, 2) == ["header", "a"]
        append(path, "1\n2\n")
        append(other, "b\n")
        os.utime(other, (1, 1))
        copies(path, ".gz")
        assert await polled(task, 1, more=0) == ["b"]  # after a listing with the gz file and its original
        path.unlink()
        (logs / name).write_text("header\n3\n")
        reused[(logs / name).stat().st_ino] = first
        read = await polled(task, 4, more=10)
    assert sorted(read) == ["1", "2", "3", "header"]


async def test_a_file_with_the_inode_of_a_deleted_gz_file_is_read_from_its_start(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_inode(monkeypatch, lambda inode: 1)
    (logs / "app.csv.1.gz").write_bytes(gzip.compress(b"header\n"))
    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["header"]
        (logs / "app.csv.1.gz").unlink()
        (logs / "app.csv").write_text("header\n1\n")
        assert await polled(task, 2, more=10) == ["header", "1"]


async def test_a_file_that_is_compressed_and_shifted_during_a_listing_is_not_read_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, due = logs / "app.log", os.stat, False

    def rotating(status_of: str) -> os.stat_result:
        nonlocal due
        status = real(status_of)
        if due and status_of == f"{path}.1":
            due = False
            (logs / "app.log.2.gz").rename(logs / "app.log.3.gz")
            compress(logs / "app.log.1", logs / "app.log.2.gz")
            path.rename(logs / "app.log.1")
            path.write_text("c1\n")
        return status

    monkeypatch.setattr(f"{DIRECTORY}.scanning.os", SimpleNamespace(**{**vars(os), "stat": rotating}))
    (logs / "app.log.2.gz").write_bytes(gzip.compress(b"0\n"))
    (logs / "app.log.1").write_text("a1\na2\n")
    path.write_text("b1\n")
    async with await source(logs).task() as task:
        assert sorted(await polled(task, 4)) == ["0", "a1", "a2", "b1"]
        append(path, "b2\n")
        due = True
        assert sorted(await polled(task, 2, more=10)) == ["b2", "c1"]


async def test_a_gz_file_that_is_certainly_a_copy_waits_for_good(logs: Path, clock: list[float]) -> None:
    path = logs / "app.log.1"
    path.write_text("1\n2\n")
    copies(path, ".gz")
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["1", "2"]
        for _ in range(3):
            clock[0] += 600
            assert await polled(task, 0) == []
        append(path, "3\n")
        assert await polled(task, 1) == ["3"]


@pytest.mark.parametrize("unlink_first", [False, True])
async def test_a_gz_file_that_is_a_copy_stays_one_if_it_gets_another_name(logs: Path, unlink_first: bool) -> None:
    path = logs / "app.log.1"
    path.write_text("1\n2\n")
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["1", "2"]
        copies(path, ".gz")
        if unlink_first:
            path.unlink()
            assert await polled(task, 0, more=2) == []  # one listing: the original, which is open, may have more lines
        else:
            assert await polled(task, 0) == []
        (logs / "app.log.1.gz").rename(logs / "app.log.1.gz.bak")
        assert await polled(task, 0, more=10) == []
        path.unlink(missing_ok=True)
        assert await polled(task, 0, more=10) == []
        with gzip.open(logs / "app.log.1.gz.bak", "a") as file:
            file.write(b"3\n")
        assert await polled(task, 1) == ["3"]


@pytest.mark.parametrize("name", ["app.log.1.gz.bak", "app.log.1", "old"])
@pytest.mark.parametrize("keep", [1, 2, 3])
async def test_a_gz_file_that_gets_another_name_while_the_task_is_stopped_is_still_decompressed(
    logs: Path, name: str, keep: int
) -> None:
    path = logs / "app.log.1.gz"
    path.write_bytes(gzip.compress(b"1\n2\n3\n"))
    new = source(logs)
    assert lines(await new.read(3, keep=keep)) == ["1", "2", "3"][:keep]
    path.rename(logs / name)
    if keep < 3:
        assert lines(await new.read(3 - keep)) == ["1", "2", "3"][keep:]
    for _ in range(2):
        await new.nothing()
    with gzip.open(logs / name, "a") as file:
        file.write(b"4\n")
    assert lines(await new.read(1)) == ["4"]
    await new.nothing()


async def test_a_gz_file_that_gets_another_name_is_read_by_no_second_task(logs: Path) -> None:
    for number in range(20):
        (logs / f"{number}.gz").write_bytes(gzip.compress(b"%d\n" % number, mtime=10))  # a newline in the header
    new = source(logs)
    assert len(await new.read(20)) == 20
    for number in range(20):
        (logs / f"{number}.gz").rename(logs / f"{number}.bak")
    for config in await new.task_configs(3):
        async with RunningTask(DirectorySourceConnector.task_class(), new.offsets, config) as task:
            assert await polled(task, 0) == []


async def test_a_gz_file_without_the_ending_that_was_never_decompressed_is_read_as_it_is(logs: Path) -> None:
    (logs / "a.gz").write_bytes(gzip.compress(b"header\n1\n"))
    new = source(logs)
    assert lines(await new.read(2)) == ["header", "1"]
    (logs / "b").write_bytes(gzip.compress(b"header\n2\n") + b"\n")
    assert len(await new.read(1)) == 1
    await new.nothing()


@pytest.mark.parametrize("count", [1, 20])
async def test_files_that_are_ignored_as_copies_are_not_opened_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], count: int
) -> None:
    for number in range(count):
        (logs / f"app.log.{number}").write_text(f"header\n{number}\n")
        copies(logs / f"app.log.{number}", ".gz")
    real, opened = LineFile.__init__, list[str]()

    def recording(file: LineFile, name: str, *arguments: Any) -> None:
        opened.append(name)
        real(file, name, *arguments)

    monkeypatch.setattr(LineFile, "__init__", recording)
    async with await source(logs).task() as task:
        await polled(task, count * 2, more=10)
        opened.clear()
        await polled(task, 0, more=10)
        assert opened == []


@pytest.mark.parametrize("suffix", [".gz", ".1"])
@pytest.mark.parametrize("header", ["id,name\n", "x" * 2000 + "\n"], ids=["short", "long"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "new"])
async def test_a_rotated_file_is_read_although_the_new_file_has_only_the_same_header(
    logs: Path, suffix: str, header: str, running: bool
) -> None:
    path = logs / "app.csv"
    path.write_text(header + "1,old\n")
    rotated = copies(path, suffix)
    path.write_text(header)
    if running:
        rotated = rotated.rename(logs.parent / rotated.name)
    async with await source(logs).task() as task:
        read = await polled(task, 1) if running else []
        if running:
            rotated.rename(logs / rotated.name)
        read += await polled(task, 3 - len(read))
        append(path, "2,new\n")
        read += await polled(task, 1, more=10)
    assert sorted(read) == sorted([header.rstrip()] * 2 + ["1,old", "2,new"])


@pytest.mark.parametrize("suffix", [".gz", ".1"])
async def test_a_file_that_is_the_beginning_of_a_new_file_by_chance_is_read(logs: Path, suffix: str) -> None:
    (logs / "app.log").write_text("started\nstopped\n")
    copies(logs / "app.log", suffix)
    append(logs / "app.log", "started\n")
    async with await source(logs).task() as task:
        assert sorted(await polled(task, 5, more=10)) == ["started"] * 3 + ["stopped"] * 2


async def test_a_file_with_the_name_of_a_copy_is_read_once_it_differs(logs: Path) -> None:
    (logs / "app.log").write_text("header\n")
    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["header"]
        (logs / "app.log-1").write_text("header\n")
        assert await polled(task, 0, more=10) == []
        append(logs / "app.log-1", "1\n")
        assert await polled(task, 2) == ["header", "1"]


@pytest.mark.parametrize("suffix", [".gz", ".1"])
async def test_a_truncation_between_the_comparison_with_a_copy_and_the_first_read_loses_nothing(
    logs: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path, real = logs / "app.log", LineFile.lines
    path.write_text("header\nold\n")
    copies(path, suffix)

    def truncating(file: LineFile, position: int, limit: int) -> list[bytes]:
        if limit > 1 and path.read_text() == "header\nold\n":
            path.write_text("header\nnew\n")
        return real(file, position, limit)

    monkeypatch.setattr(LineFile, "lines", truncating)
    async with await source(logs).task() as task:
        assert sorted(await polled(task, 4, more=10)) == ["header", "header", "new", "old"]


async def test_a_file_with_many_lines_does_not_delay_the_others(logs: Path) -> None:
    (logs / "big.log").write_text("".join(f"big {number}\n" for number in range(5000)))
    (logs / "small.log").write_text("small 0\n")
    os.utime(logs / "big.log", ns=(0, 0))
    read: list[str] = []
    async with await source(logs, batch_size="1").task() as task:
        for number in range(1, 4):
            append(logs / "small.log", f"small {number}\n")
            (logs / f"new{number}.log").write_text(f"new {number}\n")
            while not {f"small {number}", f"new {number}"} <= set(read):
                read += lines(await task.poll())
    assert len(read) < 5000


async def test_a_deleted_file_is_read_to_its_end(logs: Path) -> None:
    path = logs / "app.log"
    path.write_text("1\n")
    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["1"]
        append(path, "2\n3\n")
        path.unlink()
        assert await polled(task, 2) == ["2", "3"]


@pytest.mark.parametrize("function", ["read", "fstat"])
async def test_a_deleted_file_whose_reads_fail_for_a_while_is_read_to_its_end(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    path, failing = logs / "app.log", failing_reads(monkeypatch, function, errno.EIO)
    path.write_text("".join(f"{number:1000}\n" for number in range(1000)))
    async with await source(logs, batch_size="100").task() as task:
        read = await polled(task, 100, more=0)
        path.unlink()
        failing.update((str(path), f"{path} (deleted)"))
        while "Input/output error" not in caplog.text:
            read += lines(await task.poll())
        assert await polled(task, 0) == []
        failing.clear()
        assert read + await polled(task, 1000 - len(read)) == [f"{number:1000}" for number in range(1000)]


async def test_a_file_that_was_deleted_on_a_server_does_not_delay_its_copy(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, failing = logs / "app.log.1", failing_reads(monkeypatch, "fstat", errno.ESTALE)
    path.write_text("1\n")
    async with await source(logs).task() as task:
        assert await polled(task, 1) == ["1"]
        append(path, "2\n")
        compress(path, logs / "app.log.1.gz")
        failing.add(f"{path} (deleted)")
        assert await polled(task, 1) == ["2"]


async def test_a_deleted_file_is_read_to_its_end_while_a_gz_file_is_read(logs: Path) -> None:
    path = logs / "a.log"
    path.write_text("".join(f"a {number}\n" for number in range(20)))
    (logs / "b.gz").write_bytes(gzip.compress(b"b\n" * 20))
    async with await source(logs, max_open_files="1", batch_size="2").task() as task:
        read = await polled(task, 8, more=0)
        assert {"a 0", "b"} <= set(read)
        path.unlink()
        read += await polled(task, 40 - len(read))
    assert [line for line in read if line != "b"] == [f"a {number}" for number in range(20)]


async def test_open_files_are_bounded(logs: Path) -> None:
    for number in range(20):
        (logs / f"{number}.log").write_text(f"{number}\n")
    before = len(os.listdir("/proc/self/fd"))
    async with await source(logs, max_open_files="3").task() as task:
        await polled(task, 20)
        assert len(os.listdir("/proc/self/fd")) <= before + 3
        append(logs / "7.log", "more\n")
        assert await polled(task, 1) == ["more"]


@pytest.mark.parametrize("max_open", [1, 2, 3, 5])
async def test_gz_files_are_decompressed_once_however_few_files_may_be_open(
    logs: Path, monkeypatch: pytest.MonkeyPatch, max_open: int
) -> None:
    real, decompressed = LineFile._read, 0

    def counting(file: LineFile) -> bytes:
        nonlocal decompressed
        data = real(file)
        decompressed += len(data) * file.compressed
        return data

    monkeypatch.setattr(LineFile, "_read", counting)
    wanted = {name: [f"{name} {number}" for number in range(100)] for name in ("a.gz", "b.gz", "c.gz", "d.gz", "e.log")}
    for name, text in wanted.items():
        content = "".join(f"{line}\n" for line in text).encode()
        (logs / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    before = len(os.listdir("/proc/self/fd"))
    read: list[str] = []
    async with await source(logs, max_open_files=str(max_open), batch_size="5").task() as task:
        while len(read) < 500:
            read += lines(await task.poll())
            assert len(os.listdir("/proc/self/fd")) <= before + max_open + 1  # the gz file that is being read
    assert {name: [line for line in read if line.startswith(name)] for name in wanted} == wanted
    size = sum(len(line) + 1 for name in "abcd" for line in wanted[f"{name}.gz"])
    assert decompressed <= 3 * size  # its first line, its entry, and its lines


@pytest.mark.parametrize("max_open", ["1", "2", "3"])
async def test_gz_files_do_not_delay_the_lines_of_plain_files(logs: Path, max_open: str) -> None:
    for number in range(5):
        name = logs / f"old{number}.gz"
        name.write_bytes(gzip.compress(b"".join(b"%d %d\n" % (number, line) for line in range(40))))
        os.utime(name, ns=(number, number))
    (logs / "live.log").write_text("".join(f"live {line}\n" for line in range(20)))
    async with await source(logs, max_open_files=max_open, batch_size="2").task() as task:
        read = await polled(task, 50, more=0)
        assert [line for line in read if line.startswith("live")] == [f"live {line}" for line in range(20)]
        read += await polled(task, 220 - len(read))
    assert [line for line in read if not line.startswith("live")] == [
        f"{number} {line}" for number in range(5) for line in range(40)
    ]


async def test_plain_files_do_not_delay_a_gz_file(logs: Path) -> None:
    for number in range(5):
        (logs / f"{number}.log").write_text("plain\n" * 40)
    (logs / "old.gz").write_bytes(gzip.compress(b"old\n" * 40))
    async with await source(logs, max_open_files="1", batch_size="1").task() as task:
        read = await polled(task, 100, more=0)
    assert read.count("old") == 40


async def test_files_are_divided_among_tasks(logs: Path) -> None:
    for number in range(20):
        (logs / f"{number}.log").write_text(f"{number}\n")
    new = source(logs)
    read: list[list[str]] = []
    for config in await new.task_configs(3):
        async with RunningTask(DirectorySourceConnector().task_class(), new.offsets, config) as task:
            read.append(await polled(task, 1, more=30))
    assert all(read)
    assert sorted(int(line) for part in read for line in part) == list(range(20))


def one_inode(monkeypatch: pytest.MonkeyPatch, devices: Callable[[int], int]) -> None:
    """Give all files the inode 7, and each a device of its own: `devices` of its real inode."""

    def moved(status: os.stat_result) -> os.stat_result:
        values = list(status)
        values[1:3] = 7, devices(status.st_ino)
        return os.stat_result(values, {"st_mtime_ns": status.st_mtime_ns})

    calls = {**vars(os), "stat": lambda path: moved(os.stat(path)), "fstat": lambda file: moved(os.fstat(file))}
    for module in ("scanning", "lines"):
        monkeypatch.setattr(f"oncelog.connect.connectors.directory.{module}.os", SimpleNamespace(**calls))


async def test_files_with_equal_inodes_on_different_devices_are_different_files(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_inode(monkeypatch, lambda inode: inode)
    for name in "abc":
        (logs / f"{name}.log").write_text("same\n")
        append(logs / f"{name}.log", f"{name}1\n")
    new = source(logs)
    assert sorted(lines(await new.read(6))) == ["a1", "b1", "c1", "same", "same", "same"]
    await new.nothing()
    append(logs / "b.log", "b2\n")
    append(logs / "a.log", "a2\n")
    assert sorted(lines(await new.read(2))) == ["a2", "b2"]
    await new.nothing()


async def test_a_file_with_the_inode_of_a_deleted_file_of_another_device_is_new(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_inode(monkeypatch, lambda inode: inode)
    for name in ("a.log", "b.log"):
        (logs / name).write_text("same\n")
    new = source(logs, include="a.log")
    assert lines(await new.read(1)) == ["same"]
    new.config["include"] = "*.log"
    assert lines(await new.read(1)) == ["same"]
    await new.nothing()


async def test_files_are_recognised_when_their_device_has_another_number(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = 1
    one_inode(monkeypatch, lambda inode: inode + offset)
    (logs / "a.log").write_text("1\n")
    new = source(logs)
    assert lines(await new.read(1)) == ["1"]
    offset = 10**6
    append(logs / "a.log", "2\n")
    (logs / "a.log").rename(logs / "other")
    assert lines(await new.read(1)) == ["2"]


async def test_offsets_that_cannot_be_read_at_first_are_read_again(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "a.log").write_text("1\n2\n")
    new = source(logs)
    await new.read(2, keep=1)

    async def failing(partitions: object) -> Any:
        raise RetriableError("no answer")

    async with await new.task() as task:
        with monkeypatch.context() as patch:
            patch.setattr(new.offsets, "offsets", failing)
            with pytest.raises(RetriableError):
                await task.poll()
        assert await polled(task, 1) == ["2"]


@pytest.mark.parametrize("missing", ["device", "content_crc"])
async def test_offsets_of_earlier_releases_are_recognised(logs: Path, missing: str) -> None:
    (logs / "a.log").write_text("1\n")
    new = source(logs)
    (record,) = await new.read(1)
    offset = {name: value for name, value in dict(record.source_offset or {}).items() if name != missing}
    new.offsets.commit([record.replace(source_offset=offset)])
    (logs / "a.log").rename(logs / "other")
    await new.nothing()
    append(logs / "other", "2\n")
    assert lines(await new.read(1)) == ["2"]
    await new.nothing()
    connector, partition = DirectorySourceConnector(), record.source_partition or {}
    assert await connector.alter_offsets(new.config, [(partition, offset), (partition, record.source_offset)])
    with pytest.raises(ConnectError, match="device"):
        await connector.alter_offsets(new.config, [(partition, {**offset, "more": 1})])


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("offset", {"position": "4"}),
        ("offset", {"position": 4.0}),
        ("offset", {"position": -1}),
        ("offset", {"position": True}),
        ("offset", {"line": 5}),
        ("offset", {"crc": None}),
        ("offset", {"content_crc": "x"}),
        ("offset", {"file": None}),
        ("partition", {"number": "0"}),
        ("partition", {"number": True}),
        ("partition", {"fingerprint": 1}),
    ],
    ids=str,
)
async def test_an_offset_with_a_wrong_value_is_refused(logs: Path, part: str, wrong: dict[str, Any]) -> None:
    (logs / "a.log").write_text("1\n2\n")
    new = source(logs)
    *_, record = await new.read(2)
    partition, offset = dict(record.source_partition or {}), dict(record.source_offset or {})
    assert await DirectorySourceConnector().alter_offsets(new.config, [(partition, {**offset, "content_crc": None})])
    (partition if part == "partition" else offset).update(wrong)
    with pytest.raises(ConnectError, match="must"):
        await DirectorySourceConnector().alter_offsets(new.config, [(partition, offset)])


async def test_the_event_loop_does_not_wait_while_the_stored_offsets_are_looked_through(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, real = list[threading.Thread](), Files.__init__

    def recording(files: Files, *arguments: Any) -> None:
        threads.append(threading.current_thread())
        real(files, *arguments)

    monkeypatch.setattr(Files, "__init__", recording)
    await source(logs).nothing()
    assert threads
    assert threading.current_thread() not in threads


async def test_a_copy_of_a_file_with_an_offset_of_an_earlier_release_is_read(logs: Path) -> None:
    path, new = logs / "app.log", source(logs)
    path.write_text("1\n2\n")
    *_, record = await new.read(2)
    offset = {name: value for name, value in dict(record.source_offset or {}).items() if name != "content_crc"}
    new.offsets.commit([record.replace(source_offset=offset)])
    append(path, "3\n")
    assert lines(await new.read(1)) == ["3"]
    replaced(path, "app.log.1.gz", gzip.compress(path.read_bytes()))
    async with await new.task() as task:
        assert await polled(task, 0, more=10) == ["1", "2", "3"]


@pytest.mark.parametrize("size", [12, 2_000_000], ids=["header", "first lines"])
async def test_a_gz_file_that_stays_cut_off_is_named_once(
    logs: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = gzip.compress(os.urandom(3_000_000).hex(" ", 40).replace(" ", "\n").encode())
    path = logs / "a.gz"
    path.write_bytes(data[:size])
    async with await source(logs, batch_size="100000").task() as task:
        await task.poll()
        path.write_bytes(data[: size + 1])  # it grows: no warning
        for _ in range(6):
            await task.poll()
        assert caplog.text.count("a.gz is cut off") == 1
        assert "exclude" in caplog.text
        path.write_bytes(data)
        assert len(await polled(task, 75_000)) == 75_000
    assert caplog.text.count("is cut off") == 1


GZ = gzip.compress(b"a\nb\n")


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (GZ[:1], GZ),
        (GZ + GZ[:1], GZ + GZ),
        (GZ[:12] + bytes(len(GZ) - 12), GZ),
        (b"\0" * 10, GZ),
    ],
    ids=["first byte", "first byte of a second member", "a hole", "a hole at the start"],
)
async def test_a_gz_file_with_invalid_content_is_read_once_it_is_complete(
    logs: Path, part: bytes, whole: bytes
) -> None:
    path = logs / "a.log.gz"
    path.write_bytes(part)
    read: list[str] = []
    async with await source(logs).task() as task:
        for number in range(5):  # each listing finds another modification time
            os.utime(path, (number, number))
            read += lines(await task.poll())
        path.write_bytes(whole)
        while len(read) < len(gzip.decompress(whole)) // 2:
            read += lines(await task.poll())
        assert await polled(task, 0, more=10) == []
    assert "".join(f"{line}\n" for line in read).encode() == gzip.decompress(whole)


@pytest.mark.parametrize(("part", "whole"), [(GZ[:1], GZ), (GZ + GZ[:1], GZ + GZ)], ids=["file", "second member"])
async def test_the_first_byte_of_a_gz_file_or_member_may_stay_alone_for_a_while(
    logs: Path, caplog: pytest.LogCaptureFixture, part: bytes, whole: bytes
) -> None:
    path = logs / "a.log.gz"
    path.write_bytes(part)
    async with await source(logs).task() as task:
        assert await polled(task, 0, more=10) == []
        assert caplog.text.count("a.log.gz is cut off") == 1
        path.write_bytes(whole)
        assert "".join(await polled(task, len(whole) // len(GZ) * 2)).encode() == gzip.decompress(whole).replace(
            b"\n", b""
        )


async def test_a_gz_file_may_consist_of_zeros_until_its_content_is_written(logs: Path, clock: list[float]) -> None:
    path = logs / "a.log.gz"
    path.write_bytes(bytes(len(GZ)))
    async with await source(logs).task() as task:
        for clock[0] in range(0, 20, 2):
            assert await task.poll() == []
        path.write_bytes(GZ[:12] + bytes(len(GZ) - 12))
        for clock[0] in range(20, 40, 2):
            assert await task.poll() == []
        path.write_bytes(GZ)
        assert await polled(task, 2) == ["a", "b"]


async def test_a_gz_file_that_becomes_valid_without_another_modification_time_is_not_damaged(
    logs: Path, clock: list[float]
) -> None:
    path = logs / "a.log.gz"
    path.write_bytes(bytes(len(GZ)))
    os.utime(path, (1, 1))
    async with await source(logs).task() as task:
        assert await polled(task, 0) == []
        path.write_bytes(GZ)  # as a program does that writes into a mapping of the file
        os.utime(path, (1, 1))
        assert await polled(task, 2) == ["a", "b"]
        clock[0] += 60
        assert await polled(task, 0) == []


async def test_a_file_that_is_renamed_to_gz_once_it_is_complete_is_decompressed(logs: Path) -> None:
    path, wanted = logs / "app.log.1.tmp", [os.urandom(8).hex() for _ in range(1000)]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in wanted).encode()))
    async with await source(logs).task() as task:
        await polled(task, 1)  # the compressed data, because the name does not end with .gz
        path.rename(logs / "app.log.1.gz")
        assert await polled(task, 1000) == wanted


async def test_a_gz_file_that_gets_another_name_for_a_while_is_not_read_again(logs: Path) -> None:
    path, renamed_to = logs / "app.log.1.gz", logs / "app.log.1.gz.tmp"
    path.write_bytes(GZ)
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["a", "b"]
        path.rename(renamed_to)
        assert await polled(task, 0, more=10) == []
        renamed_to.rename(path)
        assert await polled(task, 0, more=10) == []


@pytest.mark.parametrize("size", [2, 1000], ids=["no newline in the compressed data", "newlines"])
async def test_a_file_that_is_renamed_to_gz_is_read_by_the_task_of_its_first_decompressed_line(
    logs: Path, size: int
) -> None:
    wanted, new = [[os.urandom(8).hex() for _ in range(size)] for _ in range(8)], source(logs)
    for number, each in enumerate(wanted):
        content = "".join(f"{line}\n" for line in each).encode()
        (logs / f"{number}.tmp").write_bytes(gzip.compress(content, mtime=0))
    configs = await new.task_configs(2)
    one, other = (RunningTask(new.connector_class().task_class(), new.offsets, config) for config in configs)
    async with one, other:
        for task in (one, other):
            await polled(task, 0, more=20)  # the compressed data
        for number in range(8):
            (logs / f"{number}.tmp").rename(logs / f"{number}.gz")
        read = await polled(one, 0, more=20) + await polled(other, 0, more=20)
    assert sorted(read) == sorted(line for each in wanted for line in each)


@pytest.mark.parametrize("restarted", [False, True], ids=["closed", "restarted"])
async def test_a_gz_file_that_gets_another_name_while_it_is_read_is_still_decompressed(
    logs: Path, restarted: bool
) -> None:
    path, wanted, new = logs / "b.gz", [os.urandom(8).hex() for _ in range(1000)], source(logs, batch_size="100")
    content = gzip.compress("".join(f"{line}\n" for line in wanted).encode())
    path.write_bytes(content)
    read = lines(await new.read(100))
    if restarted:
        (logs / "a.gz").write_bytes(gzip.compress(b"first\n" * 101))
        os.utime(logs / "a.gz", (1, 1))
    new.config["max.open.files"] = "1"
    async with await new.task() as task:
        read += lines(await task.poll())  # if the task has been restarted, the lines of the other file
        path.rename(logs / "b.gz.bak")
        for _ in range(6):
            append(logs / "other", "other\n" * 300)
            for _ in range(2):
                batch = await task.poll()
                new.offsets.commit(batch)
                read += lines(batch)
    (logs / "b.gz.bak").rename(path)
    async with await new.task() as task:
        read += await polled(task, 0, more=60)
    assert [line for line in read if line not in ("first", "other")] == wanted


@pytest.mark.parametrize("count", [1, 2], ids=["half read", "read"])
@pytest.mark.parametrize("name", ["a.log.gz", "a.log.gz.tmp"])
async def test_a_gz_file_that_gets_another_name_and_cannot_be_opened_for_a_while_is_not_read_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    path, renamed_to, new = logs / "a.log.gz", logs / "a.log.gz.tmp", source(logs, batch_size="1")
    path.write_bytes(GZ)
    read = lines(await new.read(count))
    async with await new.task() as task:
        with monkeypatch.context() as closed:
            closed.setattr(Files, "open", lambda *_: None)
            await polled(task, 0)
            path.rename(renamed_to)
            await polled(task, 0)
        denied = denying(monkeypatch, LineFile, "__init__", errno.EMFILE)
        denied.add(str(logs / name))
        if name == path.name:
            renamed_to.rename(path)
        read += await polled(task, 0)
        if name != path.name:
            renamed_to.rename(path)
        denied.clear()
        read += await polled(task, 0, more=10)
    assert read == ["a", "b"]


@pytest.mark.parametrize("damage", [b"x" * 30, gzip.compress(b"1\n2\n")[:10] + b"\xff" * 20], ids=["no gz", "data"])
@pytest.mark.parametrize("cut_off", [False, True])
async def test_a_gz_file_that_stays_damaged_is_named(
    logs: Path, clock: list[float], damage: bytes, cut_off: bool
) -> None:
    path = logs / "a.gz"
    path.write_bytes(gzip.compress(b"1\n2\n"))
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["1", "2"]
        if cut_off:
            path.write_bytes(GZ[:10])
            await polled(task, 0)
        path.write_bytes(damage)
        assert await polled(task, 0, more=10) == []
        clock[0] += 60
        with pytest.raises(ConnectError, match=r"a\.gz is damaged: .*exclude"):
            await polled(task, 1)


@pytest.mark.parametrize("recognised", [True, False])
async def test_a_file_that_cannot_be_opened_for_a_while_does_not_stop_the_others(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, recognised: bool
) -> None:
    path, other = logs / "a.log", logs / "b.log"
    denied = denying(monkeypatch, LineFile, "__init__", errno.EACCES)
    if not recognised:
        denied.add(str(path))
    path.write_text("a1\n")
    other.write_text("b1\n")
    async with await source(logs, max_open_files="1").task() as task:
        assert await polled(task, 2 if recognised else 1) == (["a1", "b1"] if recognised else ["b1"])
        denied.add(str(path))
        append(path, "a2\n")
        append(other, "b2\n")
        assert await polled(task, 1) == ["b2"]
        assert caplog.text.count("a.log cannot be read, and is tried again: Permission denied") == 1
        denied.clear()
        assert await polled(task, 1) == (["a2"] if recognised else ["a1", "a2"])


async def test_a_new_file_whose_reads_fail_does_not_stop_the_others(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = logs / "a.log", logs / "b.log"
    path.symlink_to("/proc/self/mem")  # a regular file whose first byte cannot be read
    other.write_text("b1\n")
    async with await source(logs).task() as task:
        assert await polled(task, 1, more=10) == ["b1"]
        path.unlink()
        path.write_text("a1\n")
        append(other, "b2\n")
        assert sorted(await polled(task, 2)) == ["a1", "b2"]
    assert caplog.text.count("a.log cannot be read, and is tried again: Input/output error") == 1


@pytest.mark.parametrize("max_open", ["1", "100"], ids=["closed", "open"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("function", ["read", "pread", "fstat"])
async def test_a_file_whose_reads_fail_for_a_while_does_not_stop_the_others(
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    function: str,
    error: int,
    max_open: str,
) -> None:
    path, other, failing = logs / "a.log", logs / "b.log", failing_reads(monkeypatch, function, error)
    path.write_text("a1\n")
    other.write_text("b1\n")
    async with await source(logs, max_open_files=max_open).task() as task:
        assert sorted(await polled(task, 2)) == ["a1", "b1"]
        for number in (2, 3):
            failing.add(str(path))
            append(path, f"a{number}\n")
            append(other, f"b{number}\n")
            assert await polled(task, 1, more=20) == [f"b{number}"]
            assert caplog.text.count(f"a.log cannot be read, and is tried again: {os.strerror(error)}") == number - 1
            failing.clear()
            assert await polled(task, 1) == [f"a{number}"]


@pytest.mark.parametrize("function", ["read", "fstat"])
@pytest.mark.parametrize("suffix", [".1", ".gz"])
async def test_a_file_that_may_be_a_copy_waits_until_its_original_and_itself_can_be_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: str, suffix: str
) -> None:
    path, copy = logs / "app.log", logs / f"app.log{suffix}"
    failing = failing_reads(monkeypatch, function, errno.EIO)
    path.write_text("1\n2\n")
    async with await source(logs).task() as task:
        assert await polled(task, 2) == ["1", "2"]
        failing.add(str(path))
        copy.write_bytes(gzip.compress(b"1\n2\n") if suffix == ".gz" else b"1\n2\n")
        assert await polled(task, 0, more=10) == []
        failing.add(str(copy))
        failing.remove(str(path))
        assert await polled(task, 0, more=10) == []
        failing.clear()
        assert await polled(task, 0, more=10) == []
        append(path, "3\n")
        assert await polled(task, 1) == ["3"]
    warnings = [record.message for record in caplog.records]
    assert warnings == [f"{each} cannot be read, and is tried again: Input/output error" for each in (path, copy)]


def failing_access(monkeypatch: pytest.MonkeyPatch, function: str) -> set[str]:
    """Let the listing, opening or reading of a file fail for the paths in the set that is returned."""
    if function == "stat":
        calls = SimpleNamespace(**vars(os))
        monkeypatch.setattr(f"{DIRECTORY}.scanning.os", calls)
        return denying(monkeypatch, calls, "stat", errno.ESTALE)
    if function == "open":
        return denying(monkeypatch, LineFile, "__init__", errno.EACCES)
    return failing_reads(monkeypatch, function, errno.EIO)


@pytest.mark.parametrize("function", ["open", "read", "fstat", "stat"])
@pytest.mark.parametrize("suffix", [".1", ".1.gz"])
async def test_a_copy_waits_while_its_original_cannot_be_read_after_a_restart(
    logs: Path, monkeypatch: pytest.MonkeyPatch, function: str, suffix: str
) -> None:
    path, wanted, new = logs / "app.log", [f"line {number}" for number in range(1000)], source(logs)
    failing = failing_access(monkeypatch, function)
    path.write_text("".join(f"{line}\n" for line in wanted))
    assert lines(await new.read(1000)) == wanted
    (logs / f"app.log{suffix}").write_bytes(
        gzip.compress(path.read_bytes()) if suffix == ".1.gz" else path.read_bytes()
    )
    failing.add(str(path))
    async with await new.task() as task:
        assert await polled(task, 0, more=10) == []
        failing.clear()
        assert await polled(task, 0, more=10) == []
        append(path, "last\n")
        assert await polled(task, 1, more=10) == ["last"]


@pytest.mark.parametrize("function", ["open", "read", "fstat", "stat"])
async def test_a_gz_file_waits_while_its_new_original_cannot_be_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path, wanted = logs / "app.log.1", [f"line {number}" for number in range(1000)]
    failing = failing_access(monkeypatch, function)
    path.write_text("".join(f"{line}\n" for line in wanted))
    copies(path, ".gz")
    (logs / "app.log.2.gz").write_bytes(gzip.compress(b"older\n"))
    failing.add(str(path))
    async with await source(logs).task() as task:
        assert await polled(task, 1, more=10) == ["older"]
        failing.clear()
        assert await polled(task, 1000, more=10) == wanted


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOENT, errno.ENOTDIR])
async def test_a_subdirectory_that_cannot_be_listed_does_not_stop_the_others(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    private, denied = logs / "b", denying(monkeypatch, os, "scandir", error)
    for name in "abc":
        (logs / name).mkdir()
        (logs / name / "x.log").write_text(f"{name}1\n")
    async with await source(logs, recursive="true").task() as task:
        assert sorted(await polled(task, 3)) == ["a1", "b1", "c1"]
        denied.add(str(private))
        for name in "abc":
            append(logs / name / "x.log", f"{name}2\n")
        read = await polled(task, 3, more=10)
        denied.clear()
        assert sorted(read) == ["a2", "b2", "c2"]  # b2 from the open file
        assert await polled(task, 0) == []
    warnings = caplog.text.count(f"{private} cannot be accessed, and is tried again: Permission denied")
    assert warnings == (1 if error == errno.EACCES else 0)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOENT, errno.EIO])
async def test_a_directory_that_cannot_be_listed_for_a_while_is_read_afterwards(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    path, denied = logs / "a.log", denying(monkeypatch, os, "scandir", error)
    path.write_text("".join(f"{number}\n" for number in range(6)))
    async with await source(logs, batch_size="2").task() as task:
        assert await polled(task, 2, more=0) == ["0", "1"]
        denied.add(str(logs))
        await polled(task, 0, more=20)
        append(path, "new\n")
        denied.clear()
        assert (await polled(task, 1, more=10))[-1] == "new"
    assert caplog.text.count(f"{logs} cannot be accessed, and is tried again: {os.strerror(error)}") == 1


async def test_open_files_are_read_to_their_end_after_their_directory_was_deleted(logs: Path) -> None:
    for name in ("a.log", "b.log"):
        (logs / name).write_text("".join(f"{name} {number}\n" for number in range(100)))
    async with await source(logs, batch_size="10").task() as task:
        read = await polled(task, 110, more=0)
        append(logs / "a.log", "last\n")
        shutil.rmtree(logs)
        read += await polled(task, 201 - len(read))
    assert len(read) == len(set(read)) == 201


async def test_a_first_listing_without_a_free_descriptor_is_tried_again(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = denying(monkeypatch, os, "scandir", errno.EMFILE)
    (logs / "a.log").write_text("1\n")
    denied.add(str(logs))
    async with await source(logs).task() as task:
        assert await polled(task, 0) == []
        denied.clear()
        assert await polled(task, 1) == ["1"]


async def test_a_file_in_a_subdirectory_that_cannot_be_listed_stays_known(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    private, denied = logs / "b", denying(monkeypatch, os, "scandir", errno.EACCES)
    private.mkdir()
    (private / "x.log").write_text("".join(f"{number}\n" for number in range(6)))
    (private / "y.log").write_text("")
    async with await source(logs, recursive="true", batch_size="2").task() as task:
        assert await polled(task, 2, more=0) == ["0", "1"]
        denied.add(str(private))
        await polled(task, 0, more=20)
        (private / "x.log").write_text("new\n")
        denied.clear()
        assert (await polled(task, 1))[-1] == "new"
    assert "x.log was truncated or rewritten" in caplog.text


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO])
async def test_a_file_whose_status_cannot_be_read_stays_known_with_a_warning(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    path, calls = logs / "app.log", SimpleNamespace(**vars(os))
    monkeypatch.setattr("oncelog.connect.connectors.directory.scanning.os", calls)
    denied = denying(monkeypatch, calls, "stat", error)
    path.write_text("".join(f"{number:1000}\n" for number in range(3)))
    (logs / "other.log").write_text("other\n")
    async with await source(logs, max_open_files="1").task() as task:
        assert len(await polled(task, 4)) == 4
        append(logs / "other.log", "other\n")
        assert await polled(task, 1) == ["other"]
        denied.add(str(path))
        append(path, "new\n")
        shutil.copy(path, logs / "app.log.1")
        append(logs / "other.log", "other\n")
        assert await polled(task, 1, more=10) == ["other"]
        denied.clear()
        assert await polled(task, 1, more=10) == ["new"]
    assert caplog.text.count(f"{path} cannot be accessed, and is tried again: {os.strerror(error)}") == 1


async def test_files_that_cannot_be_accessed_for_the_same_reason_have_one_warning_per_directory(
    logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = SimpleNamespace(**vars(os))
    monkeypatch.setattr("oncelog.connect.connectors.directory.scanning.os", calls)
    denied = denying(monkeypatch, calls, "stat", errno.EACCES)
    for name in "ab":
        (logs / name).mkdir()
        for number in range(20):
            (logs / name / f"{number}.log").write_text(f"{name} {number}\n")
    async with await source(logs, recursive="true").task() as task:
        await polled(task, 40)
        denied.update(str(path) for path in logs.glob("?/*.log"))
        await polled(task, 0, more=10)
    warnings = [record.message for record in caplog.records if "cannot be accessed" in record.message]
    assert warnings == [
        f"{logs / name / '0.log'} and 19 more in {logs / name} cannot be accessed, and are tried again: "
        "Permission denied"
        for name in "ab"
    ]


def test_a_file_is_hidden_by_any_directory_above_it_without_a_search_through_all_hidden_paths() -> None:
    class Unlisted(dict[str, str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("the time would grow with the square of the number of hidden files")

    listing = Listing([], Unlisted({"/logs/a": "", "/logs/b/x.log": "", "top": ""}))
    hidden = ["/logs/a", "/logs/a/x.log", "/logs/a/b/x.log", "/logs/b/x.log", "top/x.log"]
    shown = ["/logs/ab", "/logs/b/y.log", "/logs", "/x.log", "x.log"]
    assert [path for path in [*hidden, *shown] if listing.hides(path)] == hidden


@pytest.mark.parametrize("name", ["a.log", "a.gz"])
async def test_what_cannot_be_read_is_said(logs: Path, clock: list[float], name: str) -> None:
    (logs / name).write_bytes(b"x" * 100 + b"\n")
    async with await source(logs, max_line_bytes="50").task() as task:
        if name == "a.gz":
            assert await polled(task, 0) == []
            clock[0] += 60
        with pytest.raises(ConnectError, match=r"the line at byte 0 is longer than 50 bytes|is damaged: Not a gzipped"):
            await polled(task, 1)
    missing = source(logs / "none")
    async with await missing.task() as task:
        with pytest.raises(ConnectError, match="cannot be listed: No such file or directory"):
            await task.poll()
