"""The file of offsets of a worker alone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from oncelog.connect.stores.file_log import FileLog


async def test_a_write_whose_task_is_cancelled_ends_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, goes_on, writes = threading.Event(), threading.Event(), []
    replace = FileLog._replace

    def slow(log: FileLog, values: dict[str, str]) -> None:
        writes.append(sorted(values))
        if len(writes) == 1:
            writing.set()
            goes_on.wait()
        replace(log, values)

    monkeypatch.setattr(FileLog, "_replace", slow)
    log = FileLog(tmp_path / "offsets")
    await log.start(lambda record: None)
    first = asyncio.create_task(log.append([(b"a", b"1")]))
    await asyncio.to_thread(writing.wait)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(log.append([(b"b", b"2")]))
    done, _ = await asyncio.wait({second}, timeout=0.2)
    goes_on.set()
    assert (done, writes) == (set(), [["a"]])
    await second
    assert writes == [["a"], ["a", "b"]]
    await log.stop()
    assert (tmp_path / "offsets").read_text() == '["a", "1"]\n["b", "2"]\n'
