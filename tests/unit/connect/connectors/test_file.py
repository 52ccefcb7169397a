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
