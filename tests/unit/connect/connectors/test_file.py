"""FileStreamSource reads files with positions only, and its reads do not keep a process from ending."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from oncelog.connect import ConnectError
from oncelog.connect.connectors.file.connector import FileStreamSourceConnector
from oncelog.connect.connectors.file.task import FileStreamSourceTask
from support.source_tasks import Offsets, RunningTask, Source


async def test_lines_are_read_after_the_committed_position(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\nc")
    source = Source(FileStreamSourceConnector, {"topic": "t", "file": str(path)})
    assert [record.value for record in await source.read(2, keep=1)] == ["a"]
    path.write_text("a\nb\nc\n")
    assert [record.value for record in await source.read(2)] == ["b", "c"]


async def test_a_line_that_is_too_long_is_refused_before_its_end_is_written(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\n" + "x" * 101)
    source = Source(FileStreamSourceConnector, {"topic": "t", "file": str(path), "max.line.bytes": "100"})
    async with await source.task() as task:
        assert [record.value for record in await task.poll()] == ["a"]
        with pytest.raises(ConnectError, match=r"the line at byte 2 is longer than 100 bytes: raise max\.line\.bytes"):
            await task.poll()


async def test_a_batch_of_long_lines_is_small(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = [f"{number:06}" + "x" * 899_993 for number in range(12)]
    path.write_text("".join(f"{line}\n" for line in lines))
    read: list[str] = []
    async with await Source(FileStreamSourceConnector, {"topic": "t", "file": str(path)}).task() as task:
        while len(read) < len(lines):
            batch = [record.value for record in await task.poll()]
            assert sum(map(len, batch)) < 6_000_000
            read += batch
    assert read == lines


async def test_a_pipe_is_refused_at_once_although_nothing_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    async with RunningTask(FileStreamSourceTask(), Offsets(), {"topic": "t", "file": str(path)}) as running:
        with pytest.raises(ConnectError, match="file without positions"):
            await running.poll()


async def test_a_file_is_read_in_a_daemon_thread(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\n")
    async with RunningTask(FileStreamSourceTask(), Offsets(), {"topic": "t", "file": str(path)}) as running:
        await running.poll()
        (thread,) = [each for each in threading.enumerate() if each.name == "FileStreamSource"]
        assert thread.daemon
