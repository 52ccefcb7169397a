"""`LineSplitter`: splits data that arrives in parts into lines."""

from __future__ import annotations

from collections import deque
from typing import Final

BATCH_BYTES: Final = 4 << 20
"""A batch of lines ends once it has this many bytes."""


class LongLineError(Exception):
    """Raised for a line that is longer than the limit, even before its end is known."""


class LineSplitter:
    """Splits data into lines, which end with \\n, \\r\\n or \\r. A line's parts are joined once it is complete."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._lines: deque[bytes] = deque()
        """The complete lines."""
        self._parts: list[bytes] = []
        """The parts of the incomplete last line."""
        self._rest_bytes = 0
        self.size = 0
        """The number of bytes that have been fed but not returned yet."""

    def feed(self, data: bytes) -> None:
        """Add the next part of the data."""
        follows_return = bool(self._parts) and self._parts[-1].endswith(b"\r")
        self._parts.append(data)
        self.size += len(data)
        self._rest_bytes += len(data)
        if not follows_return and b"\n" not in data and b"\r" not in data:
            return
        lines = b"".join(self._parts).splitlines(keepends=True)
        # A \n may follow a \r at the end.
        self._parts = [] if not lines or lines[-1].endswith(b"\n") else [lines.pop()]
        self._rest_bytes = sum(map(len, self._parts))
        self._lines.extend(lines)

    def next(self) -> bytes | None:
        """Return the next line with its end, or None if the line is not complete yet. Raises LongLineError."""
        if (len(self._lines[0]) if self._lines else self._rest_bytes) > self._max:
            raise LongLineError
        if not self._lines:
            return None
        line = self._lines.popleft()
        self.size -= len(line)
        return line

    def peek(self) -> bytes:
        """Return the data that `next` has not returned yet."""
        return b"".join([*self._lines, *self._parts])

    def take(self) -> bytes:
        """Return the data that `next` has not returned yet, and forget it."""
        data = self.peek()
        self._lines.clear()
        self._parts, self._rest_bytes, self.size = [], 0, 0
        return data
