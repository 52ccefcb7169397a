"""`DirectorySourceTask`: returns the new lines of all files in turn; its poll runs in a thread.

The header `file` has the name of the file at the time the line was read. The lines of one file are in order.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from ...api.records import Header, SourceRecord
from ...api.task import SourceTask
from ...data.schema import STRING
from .files import File, Files
from .lines import IncompleteFileError
from .scanning import listed
from .settings import SETTINGS

NUMBER, COUNT = "task.number", "task.count"


class DirectorySourceTask(SourceTask):
    """Reads this task's files. The first line of a file determines to which task the file belongs."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._files: Files | None = None
        self._ready: deque[File] = deque()
        """The files that may have new lines, in the order in which they are read."""
        self._scan_at = 0.0

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings and the numbers of known files; the first poll looks for files."""
        values = SETTINGS.parse(config)
        self._directory: str = values["directory"].rstrip("/") or "/"
        self._patterns = values["include"], values["exclude"], values["recursive"]
        self._topic, self._batch_size = values["topic"], values["batch.size"]
        self._interval_s, self._max_open = values["poll.interval.ms"] / 1000, values["max.open.files"]
        number, count = int(config[NUMBER]), int(config[COUNT])
        reader, loop = self.context.offsets, asyncio.get_running_loop()

        def offsets(partitions: list[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
            return asyncio.run_coroutine_threadsafe(reader.offsets(partitions), loop).result()

        self._files = Files(
            self._directory,
            values["max.line.bytes"],
            await reader.partitions(),
            offsets,
            lambda fingerprint: int(hashlib.sha256(fingerprint.encode()).hexdigest(), 16) % count == number,
        )

    def poll(self) -> list[SourceRecord] | None:
        """Return lines of one file, or None after a wait."""
        assert self._files is not None
        wait_s = self._scan_at - time.monotonic()
        if wait_s <= 0:  # also while files are ready: they may change, and others may get new lines
            ready = dict.fromkeys(self._files.update(listed(self._directory, *self._patterns)))
            waiting = [file for file in self._ready if file in ready]
            self._ready = deque(dict.fromkeys([*waiting, *ready]))
            self._scan_at = time.monotonic() + self._interval_s
        elif not self._ready:
            self._stopped.wait(wait_s)
            return None
        while self._ready:
            file = self._ready.popleft()
            if records := self._read(file):
                return records
        return None

    def stop(self) -> None:
        """Wake a waiting poll, and close all files."""
        self._stopped.set()
        if self._files is not None:
            self._files.close()

    def _read(self, file: File) -> list[SourceRecord]:
        assert self._files is not None
        opened, entry = self._files.open(file), file.entry
        if opened is None or entry is None:
            return []
        stamp = opened.stamp()
        try:
            lines = opened.lines(entry.position, self._batch_size)
            # After the read, so that a truncation during the read is noticed.
            intact = opened.stamp() == file.stamp or entry.is_before(opened)
        except IncompleteFileError:
            self._files.cut_off(file, stamp)
            intact = False
        if intact:
            file.stamp = stamp
        else:  # read again after the next scan, as the same file or as a new one
            lines = []
            file.close()
        file.more = intact and not opened.ended
        if file.more:
            self._enqueue(file)
        elif file.gone:
            self._files.drop(file)
        elif opened.compressed:
            file.close()
        self._close_some(file)
        headers, now = (Header("file", file.name, STRING),), int(time.time() * 1000)
        return [
            SourceRecord(
                source_partition=entry.partition,
                source_offset=entry.advance(line),
                topic=self._topic,
                value_schema=STRING,
                value=line.rstrip(b"\r\n").decode("utf-8", "replace"),
                timestamp_ms=now,
                headers=headers,
            )
            for line in lines
        ]

    def _enqueue(self, file: File) -> None:
        """Read a file again after the others, or before them if the others would make a gz file close before its end.

        A gz file that is opened again must be decompressed from its start.
        """
        assert self._files is not None
        begun = sum(map(_is_begun, self._files.known.values()))
        if _is_begun(file) and begun >= self._max_open:
            self._ready.appendleft(file)
        else:
            self._ready.append(file)

    def _close_some(self, recent: File) -> None:
        assert self._files is not None
        others = [file for file in self._files.known.values() if file.handle and not file.gone and file is not recent]
        others.sort(key=_is_begun)
        for file in others[: max(0, len(others) + 1 - self._max_open)]:
            file.close()


def _is_begun(file: File) -> bool:
    """Return whether a file is an open gz file that has more lines."""
    return file.more and file.handle is not None and file.handle.compressed
