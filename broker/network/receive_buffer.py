"""One connection's receive buffer: bytes go in as the socket delivers them, whole frames come out as memoryviews.

A frame view lies in the buffer, uncopied and writable (the log patches offsets in place). It is valid until the next
call of `writable`, unless the buffer is `pinned`: then nothing moves, and new bytes only go behind what is there.
The buffer is as large as the frame that is on its way, but grows with what has really arrived, so that a peer cannot
make the broker allocate by announcing a large frame: it doubles when it is full, so each byte is copied once or twice.
Sans-I/O.
"""

from __future__ import annotations

import struct
from typing import Final

INITIAL_BYTES: Final = 16 * 1024
"""Capacity of a fresh or drained buffer: room for the small requests of an idle connection."""

KEPT_BYTES: Final = 2 * 1024 * 1024
"""A drained buffer up to this size is kept for the next frame of that size, as long as memory is not short."""

UNCHECKED_GROWTH: Final = 128 * 1024
"""Up to this capacity a buffer grows at once to what the frame announces."""

SIZE_BYTES: Final = 4
_size = struct.Struct(">i").unpack_from


TLS_HANDSHAKE: Final = b"\x16\x03"
HTTP_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI")


class FrameSizeError(Exception):
    """A frame announces a size that is negative or larger than allowed."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame announces {size} bytes, allowed are 0..{limit}{_guess(size)}")
        self.size = size


def _guess(size: int) -> str:
    """What speaks here instead of Kafka's protocol, told from the bytes that were taken for a size."""
    start = size.to_bytes(SIZE_BYTES, "big", signed=True)
    if start.startswith(TLS_HANDSHAKE):
        return "; this looks like TLS, but the listener is PLAINTEXT: set the client's security.protocol=PLAINTEXT"
    if start in HTTP_METHODS:
        return "; this looks like HTTP, but the listener speaks the Kafka protocol"
    return ""


class ReceiveBuffer:
    """The buffer; `limit` is the largest frame (`socket.request.max.bytes`)."""

    __slots__ = ("_buffer", "_end", "_limit", "_needed", "_start", "_view", "pinned")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._needed = SIZE_BYTES
        self.pinned = False

    def __len__(self) -> int:
        """Bytes received and not yet taken as a frame."""
        return self._end - self._start

    @property
    def capacity(self) -> int:
        """Bytes allocated."""
        return len(self._buffer)

    @property
    def claim(self) -> int:
        """Bytes that the buffer has, or will have grown to when the frame on its way is whole."""
        return max(len(self._buffer), self._needed)

    @property
    def full(self) -> bool:
        """Whether nothing can be received before a frame is taken (or unpinned)."""
        if self.pinned:
            return self._end == len(self._buffer)
        return self._end - self._start >= max(self._needed, len(self._buffer))

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty unless `full`."""
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
        """Shrink to the initial size; only while nothing is held and no frame is in use."""
        assert not self.pinned
        assert self._start == self._end
        if len(self._buffer) > INITIAL_BYTES:
            self._replace(INITIAL_BYTES)

    def shrink(self) -> None:
        """Shrink to the initial size, or to what is held; not while a view of a frame lives, which keeps the memory."""
        wanted = max(INITIAL_BYTES, len(self))
        if self.pinned or len(self._buffer) <= wanted:
            return
        self._view.release()
        try:
            self._buffer.append(0)
        except BufferError:  # a view of a frame lives
            self._view = memoryview(self._buffer)
            return
        self._view = memoryview(self._buffer)
        self._replace(wanted)

    def received(self, count: int) -> bool:
        """`count` bytes were written to the last `writable`; returns whether the buffer was empty before."""
        first = self._start == self._end
        self._end += count
        return first

    def next_frame(self) -> memoryview | None:
        """Take the next whole frame, without its size; None until it is there. Raises FrameSizeError."""
        start = self._start
        held = self._end - start
        if held < SIZE_BYTES:
            self._needed = SIZE_BYTES
            return None
        (size,) = _size(self._view, start)
        if not 0 <= size <= self._limit:
            raise FrameSizeError(size, self._limit)
        end = start + SIZE_BYTES + size
        if end > self._end:
            self._needed = SIZE_BYTES + size
            return None
        self._needed = SIZE_BYTES
        self._start = end
        return self._view[start + SIZE_BYTES : end]
