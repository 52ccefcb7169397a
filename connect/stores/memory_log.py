"""`MemoryLog`: an internal topic of a standalone worker, kept in memory and lost when the worker ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .topic_log import Apply, LogRecord


class MemoryLog:
    """A `TopicLog` in memory."""

    def __init__(self) -> None:
        self._apply: Apply | None = None
        self._offset = 0

    async def start(self, apply: Apply) -> None:
        """Set the callback that applies records; an empty log has nothing to read."""
        self._apply = apply

    async def stop(self) -> None:
        """Close the log: no more records can be appended."""
        self._apply = None

    async def read_to_end(self, timeout_s: float | None = None) -> None:
        """Do nothing, because records are applied as they are appended."""

    def places(self, key: bytes) -> Mapping[int, int]:
        """Return no partitions, because the log has only one."""
        return {}

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Apply the (key, value) pairs as records."""
        assert self._apply is not None, "not started"
        for key, value in records:
            self._offset += 1
            self._apply(LogRecord(key, value, 0, self._offset - 1))

    async def append_fenced(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Apply the (key, value) pairs as records."""
        await self.append(records)

    async def claim(self) -> None:
        """Do nothing, because a log in memory has no other writer to fence."""
