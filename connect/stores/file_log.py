"""`FileLog`: the offsets of a standalone worker, in a file (offset.storage.file.filename).

The file has one JSON line `[key, value]` per record, both as text. Each write replaces the whole file: after a crash,
the file has either the old or the new content. Kafka Connect's standalone worker uses another file format: serialized
Java objects.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConnectError
from .memory_log import MemoryLog
from .topic_log import Apply


class FileLog(MemoryLog):
    """A `TopicLog` that keeps the latest value of each key in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._values: dict[str, str] = {}
        self._writing = asyncio.Lock()

    async def start(self, apply: Apply) -> None:
        """Read the file; raise ConnectError if the file cannot be read or has another format."""
        await super().start(apply)
        try:
            text = await asyncio.to_thread(self._path.read_text, encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines()]
            self._values = {str(key): str(value) for key, value in lines}
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConnectError(f"offset.storage.file.filename {self._path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ConnectError(
                f"offset.storage.file.filename {self._path} is not a file of offsets that this worker wrote ({error}): "
                "name another file, or move this file away to start without offsets"
            ) from error
        await MemoryLog.append(self, [(key.encode(), value.encode()) for key, value in self._values.items()])

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write the file with these pairs, then apply them.

        A cancellation ends the wait for the write, not the write itself.
        """
        await asyncio.shield(self._append(records))

    async def stop(self) -> None:
        """Wait for a write that is under way, then close the log."""
        async with self._writing:
            await super().stop()

    async def _append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        async with self._writing:
            values = dict(self._values)
            for key, value in records:
                if value is None:
                    values.pop(key.decode(), None)
                else:
                    values[key.decode()] = value.decode()
            await asyncio.to_thread(self._replace, values)
            self._values = values
            await super().append(records)

    def _replace(self, values: dict[str, str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps([key, value])}\n" for key, value in values.items())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
