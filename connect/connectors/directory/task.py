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
from .lines import IncompleteFileError, UnreadableFileError
from .scanning import listed
from .settings import SETTINGS

NUMBER, COUNT = "task.number", "task.count"


class DirectorySourceTask(SourceTask):
    """Reads this task's files. The first line of a file determines to which task the file belongs."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._files: Files | None = None
        self._plain: deque[File] = deque()
        """The plain files that may have new lines. They are read in turn."""
        self._compressed: deque[File] = deque()
        """The gz files that may have new lines. Each is read to its end before the next.

        A gz file that is closed before its end must be decompressed again from its start.
        """
        self._turns = deque([self._plain, self._compressed])
        """Both queues, in the order of their turns."""
        self._scan_at = 0.0
        self._was_listed = False
        """Whether the directory has been listed."""

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings and the list of committed source partitions. The first poll looks for files."""
        values = SETTINGS.parse(config)
        self._directory: str = values["directory"].rstrip("/") or "/"
        self._patterns = values["include"], values["exclude"], values["recursive"]
        self._topic, self._batch_size = values["topic"], values["batch.size"]
        self._interval_s, self._max_open = values["poll.interval.ms"] / 1000, values["max.open.files"]
        number, count = int(config[NUMBER]), int(config[COUNT])
        reader, loop = self.context.offsets, asyncio.get_running_loop()

        def offsets(partitions: list[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
            return asyncio.run_coroutine_threadsafe(reader.offsets(partitions), loop).result()

        # In a thread, because there may be very many source partitions.
        self._files = await asyncio.to_thread(
            Files,
            self._directory,
            values["max.line.bytes"],
            await reader.partitions(),
            offsets,
            lambda fingerprint: int(hashlib.sha256(fingerprint.encode()).hexdigest(), 16) % count == number,
        )

    def poll(self) -> list[SourceRecord] | None:
        """Return new lines of one file, or None if there are none. May wait until the next scan is due."""
        assert self._files is not None
        wait_s = self._scan_at - time.monotonic()
        if wait_s <= 0:  # also while files are ready: they may change, and others may get new lines
            listing = listed(self._directory, *self._patterns, is_first=not self._was_listed)
            self._was_listed |= self._directory not in listing.unlisted
            ready = self._files.update(listing)
            _renew(self._plain, [file for file in ready if not file.compressed])
            _renew(self._compressed, [file for file in ready if file.compressed])
            self._scan_at = time.monotonic() + self._interval_s
        elif not any(self._turns):
            self._stopped.wait(wait_s)
            return None
        while any(self._turns):
            queue = self._turns[0]
            self._turns.rotate()
            if queue and (records := self._read(queue.popleft())):
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
        try:
            stamp = opened.stamp()
            lines = opened.lines(entry.position, self._batch_size)
            # This check follows the read, so that it notices data that was cut off or replaced during the read.
            intact = opened.stamp() == file.stamp or (
                entry.is_before(opened) and opened.still_has(entry.position, lines)
            )
            file.unreadable, file.incomplete = False, None
        except UnreadableFileError as error:
            self._files.unreadable(file, str(error))
            file.more = False
            if file.gone and error.is_stale:
                file.close()
            return []
        except IncompleteFileError as error:
            self._files.incomplete(file, stamp, error)
            intact = False
        if intact:
            file.stamp = file.seen = stamp
        else:  # read again after the next scan, as the same file or as a new one
            lines = []
            file.close()
        file.more = intact and not opened.ended
        if file.more and opened.compressed:
            self._compressed.appendleft(file)
        elif file.more:
            self._plain.append(file)
        elif opened.compressed and not file.gone:
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

    def _close_some(self, recent: File) -> None:
        """Close files until at most max.open.files are open; `recent` is the last to be closed.

        Deleted files are not counted, nor is the gz file that is being read.
        """
        assert self._files is not None
        files = [file for file in self._files.known.values() if file.handle and not file.gone]
        files = [file for file in files if not (file.more and file.compressed)]
        files.sort(key=lambda file: file is recent)
        for file in files[: max(0, len(files) - self._max_open)]:
            file.close()


def _renew(queue: deque[File], ready: list[File]) -> None:
    """Replace a queue's files with the ready files. Ready files that were in the queue before stay in front."""
    files = dict.fromkeys(ready)
    waiting = [file for file in queue if file in files]
    queue.clear()
    queue.extend(dict.fromkeys([*waiting, *files]))
