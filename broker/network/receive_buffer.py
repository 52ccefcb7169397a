"""Collect the bytes that one connection receives and return its complete frames as memoryviews.

A frame's view refers to the buffer's own memory: the bytes are not copied, and the view is writable (the log patches
offsets in place). The view is valid until the next call to `writable`. While the buffer is `pinned`, nothing is moved,
and new bytes are only added after the existing ones.

The buffer grows to the size of the current frame, but only as bytes really arrive: it doubles when it is full. A peer
cannot make the broker allocate memory by announcing a large frame, and a byte is copied once or twice on average.

This module does no I/O.
"""

from __future__ import annotations

import struct
from typing import Final

INITIAL_BYTES: Final = 16 * 1024
"""The capacity in bytes of a new or drained buffer, enough for the small requests of an idle connection."""

KEPT_BYTES: Final = 2 * 1024 * 1024
"""A drained buffer of at most this size in bytes is kept for the next frame, as long as memory is not short."""

UNCHECKED_GROWTH: Final = 128 * 1024
"""Up to this capacity in bytes, a buffer grows at once to the size that the frame announces."""

SIZE_BYTES: Final = 4
_size = struct.Struct(">i").unpack_from


TLS_HANDSHAKE: Final = b"\x16\x03"
HTTP_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI")


class FrameSizeError(Exception):
    """The error raised for a frame whose announced size is negative or larger than `socket.request.max.bytes`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame announces {size} bytes; the allowed range is 0..{limit}{_guess(size)}")
        self.size = size


def _guess(size: int) -> str:
    """Return a hint if the frame's size field contains the first bytes of TLS or HTTP, else an empty string."""
    start = size.to_bytes(SIZE_BYTES, "big", signed=True)
    if start.startswith(TLS_HANDSHAKE):
        return (
            "; this looks like TLS, but the listener does not use TLS: set the client's security.protocol to that of"
            " the listener, PLAINTEXT or SASL_PLAINTEXT"
        )
    if start in HTTP_METHODS:
        return "; this looks like HTTP, but the listener speaks the Kafka protocol"
    return ""


class ReceiveBuffer:
    """The receive buffer of one connection; `limit` is the largest frame in bytes (`socket.request.max.bytes`)."""

    __slots__ = ("_buffer", "_end", "_needed", "_start", "_view", "limit", "pinned")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._needed = SIZE_BYTES
        self.pinned = False

    def __len__(self) -> int:
        """Return the number of bytes that were received but not yet returned as a frame."""
        return self._end - self._start

    @property
    def capacity(self) -> int:
        """The size of the allocated buffer in bytes."""
        return len(self._buffer)

    @property
    def claim(self) -> int:
        """The buffer's size in bytes, or the size needed for the frame that is arriving if that is larger."""
        return max(len(self._buffer), self._needed)

    @property
    def full(self) -> bool:
        """Whether the buffer has no room for more bytes until a frame is taken or the buffer is unpinned."""
        if self.pinned:
            return self._end == len(self._buffer)
        return self._end - self._start >= max(self._needed, len(self._buffer))

    def writable(self) -> memoryview:
        """Return the memory into which the next bytes are read; it is empty only if the buffer is `full`."""
        if self.pinned:
            return self._view[self._end :]
        start, end, capacity = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = start = end = 0
        held = end - start
        if self._needed > capacity and (capacity < UNCHECKED_GROWTH or end == capacity):
            wanted = min(self._needed, max(2 * held, UNCHECKED_GROWTH))
            if wanted > capacity:
                self._replace(wanted)
                return self._view[self._end :]
        if start and (end == capacity or capacity - start < self._needed <= capacity):
            self._view[:held] = self._view[start:end]
            self._start, self._end = 0, held
        return self._view[self._end :]

    def _replace(self, capacity: int) -> None:
        held = self._end - self._start
        buffer = bytearray(capacity)
        view = memoryview(buffer)
        view[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, held

    def give_back(self) -> None:
        """Shrink the buffer to its initial size; allowed only while it holds no bytes and no frame is in use."""
        assert not self.pinned
        assert self._start == self._end
        if len(self._buffer) > INITIAL_BYTES:
            self._replace(INITIAL_BYTES)

    def shrink(self) -> None:
        """Shrink the buffer to its initial size, or to the number of bytes it holds if that is larger.

        Does nothing while the view of a frame is in use, because the view keeps the memory.
        """
        wanted = max(INITIAL_BYTES, len(self))
        if self.pinned or len(self._buffer) <= wanted:
            return
        self._view.release()
        try:
            self._buffer.append(0)
        except BufferError:  # a view of a frame is still in use
            self._view = memoryview(self._buffer)
            return
        self._view = memoryview(self._buffer)
        self._replace(wanted)

    def received(self, count: int) -> bool:
        """Record that `writable` memory has received `count` bytes; return whether the buffer was empty before."""
        first = self._start == self._end
        self._end += count
        return first

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its size field, or None if none is ready. Raises FrameSizeError."""
        start = self._start
        held = self._end - start
        if held < SIZE_BYTES:
            self._needed = SIZE_BYTES
            return None
        (size,) = _size(self._view, start)
        if not 0 <= size <= self.limit:
            raise FrameSizeError(size, self.limit)
        end = start + SIZE_BYTES + size
        if end > self._end:
            self._needed = SIZE_BYTES + size
            return None
        self._needed = SIZE_BYTES
        self._start = end
        return self._view[start + SIZE_BYTES : end]
