"""`FileStreamSourceTask`: reads the lines of a file, starting at the last committed position.

The source partition is {"filename": path}. The offset is {"position": bytes}, the position after the last complete line
that was read. A line ends with \\n, \\r\\n or \\r. The task waits for the end of an incomplete line.

The file is read in a daemon thread: a read of standard input may never end, but must not keep the worker from ending.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from io import BufferedReader, FileIO
from typing import Final

from ...api.records import SourceRecord
from ...api.task import SourceTask
from ...calls import Calls
from ...data.schema import STRING
from ...errors import ConnectError
from ..line_splitter import BATCH_BYTES, LineSplitter, LongLineError
from .settings import SETTINGS

_IDLE_S: Final = 0.1
"""The wait, in seconds, before a file without new lines or a missing file is checked again."""

_CHUNK: Final = 1 << 18


class FileStreamSourceTask(SourceTask):
    """The only task of the connector."""

    def __init__(self) -> None:
        self._file: BufferedReader | FileIO | None = None
        self._calls = Calls("FileStreamSource")

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings and the committed position. The file itself may appear later. Raises ConnectError."""
        values = SETTINGS.parse(config)
        self._path: str | None = values["file"] or None
        self._topic: str = values["topic"]
        self._batch_size: int = max(1, values["batch.size"])
        self._max_line_bytes: int = values["max.line.bytes"]
        self._splitter = LineSplitter(self._max_line_bytes)
        self._partition = None if self._path is None else {"filename": self._path}
        self._position = 0
        if self._partition is not None:
            offset = await self.context.offsets.offset(self._partition)
            position = 0 if offset is None else offset.get("position", 0)
            if not isinstance(position, int) or isinstance(position, bool) or position < 0:
                raise ConnectError(
                    f"the offset position of {self._path} must be an integer of at least 0, not {position!r}"
                )
            self._position = position

    async def poll(self) -> list[SourceRecord] | None:
        """Return up to batch.size lines, or None after a short wait without lines.

        Raises ConnectError for a line that is longer than max.line.bytes.
        """
        lines = await self._calls.call(self._read)
        if not lines:
            await asyncio.sleep(_IDLE_S)
            return None
        partition, topic, now = self._partition, self._topic, int(time.time() * 1000)
        position, records = self._position, []
        for line in lines:
            position += len(line)
            records.append(
                SourceRecord(
                    source_partition=partition,
                    source_offset=None if partition is None else {"position": position},
                    topic=topic,
                    value_schema=STRING,
                    value=line.rstrip(b"\r\n").decode("utf-8", "replace"),
                    timestamp_ms=now,
                )
            )
        self._position = position
        return records

    async def stop(self) -> None:
        """Close the file once a read that is still under way has ended."""
        self._calls.close(self._close)

    def _read(self) -> list[bytes]:
        """Return the next complete lines; none if the file is missing or has no further complete line."""
        if self._file is None:
            self._open()
        lines: list[bytes] = []
        size = 0
        while self._file is not None and len(lines) < self._batch_size and size < BATCH_BYTES:
            try:
                line = self._splitter.next()
            except LongLineError:
                if lines:
                    break
                raise ConnectError(
                    f"{self._path or 'standard input'}: the line at byte {self._position} is longer than "
                    f"{self._max_line_bytes} bytes: raise max.line.bytes"
                ) from None
            if line is not None:
                lines.append(line)
                size += len(line)
            elif not lines and (data := _next_bytes(self._file)):
                self._splitter.feed(data)
            else:
                break
        return lines

    def _open(self) -> None:
        if self._path is None:
            # Without a buffer: Python aborts if it ends while a thread holds the lock of the buffer.
            self._file = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
            return
        try:
            file = open(self._path, "rb", opener=_without_waiting)  # noqa: SIM115
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConnectError(f"cannot read {self._path}: {error.strerror}") from error
        if not file.seekable():
            file.close()
            raise ConnectError(
                f"cannot read {self._path}: it is a pipe or another file without positions. Write its content to the "
                "standard input of the worker, and remove the setting 'file'"
            )
        file.seek(self._position)
        self._file = file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, even a pipe that has no writer yet."""
    return os.open(path, flags | os.O_NONBLOCK)


def _next_bytes(file: BufferedReader | FileIO) -> bytes:
    return file.read1(_CHUNK) if isinstance(file, BufferedReader) else file.read(_CHUNK)
