"""Check the records inside a client's batch before the batch is appended (`Inspection`).

This module does three things: it decompresses the records, beginning with a check of the framing
(`protocol/compressed_framing.py`); it walks through the records (`protocol/record_walk.py`); and it divides this work
into portions for the event loop. A small batch is checked at once, within `PartitionLog.append`. A large batch is
decompressed in a worker thread and checked in slices with pauses, before it is appended. Never looks at the topic's
rules for keys and timestamps: `log_validator.py` applies them to the result.

Memory: a batch that expands beyond AT_ONCE_BYTES waits for one of a few slots. So all inspections together hold at most
(slots x max.decompressed.bytes) of decompressed records. The traceback of an error keeps the variables of all functions
that the error passed through, including the records. Therefore a CorruptBatch never leaves an Inspection, not even as
the context of the KafkaError: the KafkaError is raised outside of the `except` block.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from ...protocol.batch_header import COMPRESSION_MASK, HEADER_SIZE, BatchBudgetExceeded, BatchHeader, CorruptBatch
from ...protocol.compressed_framing import check_framing
from ...protocol.compression import expand
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.plain_records import MAX_PLAIN_BYTES, MOST_PLAIN, visit_plain
from ...protocol.record_walk import RecordLimits, RecordWalk
from ..system.ports import Buffer, Lane, Threads
from .log_config import INT64_MAX

STEPS_AT_ONCE: Final = 2_000
"""Number of records checked without a pause (about 1 ms). Adjacent records of equal size take a sixteenth of this."""

AT_ONCE_BYTES: Final = 1 << 20
"""Maximum number of bytes that are decompressed on the event loop. This takes 1 ms with zstd, 3 ms with gzip."""

_ALL: Final = 1 << 62
_scratch: Final = bytearray(AT_ONCE_BYTES)
"""A buffer for decompression on the event loop, because the decompressed size is not known in advance."""

Content: TypeAlias = tuple[int, int, list[int]]
"""The smallest and the largest timestamp of the records in ms, and the indexes of the first records without a key."""


def content_at_a_glance(batch: Buffer, header: BatchHeader, limits: RecordLimits) -> Content | None:
    """Return the content of a batch if its records are few, plain and uncompressed; None if it needs an `Inspection`.

    `batch` is one whole batch with a verified checksum.
    """
    count = header[12]
    if count > MOST_PLAIN or header[1] > count * MAX_PLAIN_BYTES + HEADER_SIZE or header[5] & COMPRESSION_MASK:
        return None
    return _visit(memoryview(batch)[HEADER_SIZE:].tobytes(), header, limits)


def _visit(records: bytes | bytearray, header: BatchHeader, limits: RecordLimits) -> Content | None:
    """Return the content of the records if they are few and plain; None if they need a full `Inspection`."""
    count = header[12]
    if count > MOST_PLAIN or count > limits.batch_objects:
        return None
    plain = visit_plain(records, count)
    if plain is None:
        return None
    base_timestamp = header[7]
    lowest, highest, null_keys = plain
    if base_timestamp + highest > INT64_MAX:
        return None
    return base_timestamp + lowest, base_timestamp + highest, null_keys


class Inspection:
    """The check of one batch; the buffer must not change until the batch is appended.

    Call `begin`; if it returns False, call `finish`. Then `content` has the result. Both methods raise KafkaError
    INVALID_RECORD if the records cannot be read, and MESSAGE_TOO_LARGE if they exceed the limits.
    """

    __slots__ = ("_batch", "_limits", "_walk", "_where", "content", "expanded", "header")

    def __init__(self, batch: Buffer, header: BatchHeader, limits: RecordLimits, where: str) -> None:
        """Prepare the check of `batch`, whose `header` has a verified checksum. `where` names the partition in errors.

        Attributes: `expanded` is the number of bytes that `begin` has decompressed. `content` is the result, which is
        valid when the check has ended.
        """
        self.header = header
        self.expanded = 0
        self.content: Content = (-1, -1, [])
        self._batch = batch
        self._limits = limits
        self._where = where
        self._walk: RecordWalk | None = None

    def begin(self) -> bool:
        """Check a small batch completely, or the first slice of a large one; return whether the check is finished."""
        at_once = min(AT_ONCE_BYTES, self._limits.decompressed_bytes)
        try:
            return self._begin(at_once) or self._advance(STEPS_AT_ONCE)
        except CorruptBatch as error:
            if (
                isinstance(error, BatchBudgetExceeded)
                and self._walk is None
                and self.header.compression
                and at_once < self._limits.decompressed_bytes
            ):
                self.expanded = at_once
                return False
            refusal = self._refusal(error)
        raise refusal

    def inspect_whole(self) -> None:
        """Check the batch without pauses, however large it is. Use this only outside of an event loop."""
        try:
            if not self._begin(self._limits.decompressed_bytes):
                self._advance(_ALL)
            return
        except CorruptBatch as error:
            refusal = self._refusal(error)
        raise refusal

    def _begin(self, max_bytes: int) -> bool:
        """Decompress at most `max_bytes`, and return whether the check is finished.

        Records that are few and plain are checked at once. For all others, the walk is begun.
        """
        header = self.header
        codec = header.compression
        if codec:
            self._check_count()
            data = memoryview(self._batch)[HEADER_SIZE : header.size]
            if len(data) > max_bytes < self._limits.decompressed_bytes:
                raise BatchBudgetExceeded(f"{len(data)} compressed bytes are too many for one slice")
            check_framing(codec, data, max_bytes)
            payload = expand(codec, data, max_bytes, _scratch if max_bytes == AT_ONCE_BYTES else None)
            self.expanded = len(payload)
        else:
            payload = memoryview(self._batch)[HEADER_SIZE:].tobytes()
        content = _visit(payload, header, self._limits)
        if content is not None:
            self.content = content
            return True
        self._walk = RecordWalk(payload, header, self._limits)
        return False

    async def finish(self, threads: Threads, slots: asyncio.Semaphore) -> None:
        """Check the rest of the batch in slices. `slots` limits how many expanded batches are in memory at a time."""
        try:
            if self._walk is None:
                await self._finish_compressed(threads, slots)
            else:
                await self._finish_walk()
            return
        except CorruptBatch as error:
            refusal = self._refusal(error)
        raise refusal

    async def _finish_compressed(self, threads: Threads, slots: asyncio.Semaphore) -> None:
        """Decompress the batch in a thread, then check its records in slices."""
        await slots.acquire()
        # The thread cannot be interrupted: the slot is released when both the thread and this call have ended.
        batch = bytes(self._batch)
        job = threads.run(Lane.DECOMPRESSION, lambda: self._expand_copy(batch))
        try:
            payload = await asyncio.shield(job)
            self._walk = RecordWalk(payload, self.header, self._limits)
            del payload
            await self._finish_walk()
        finally:
            self._walk = None
            if job.done():
                slots.release()
            else:
                job.add_done_callback(lambda _: slots.release())
            del job  # its exception has a traceback with this call, which would be a cycle

    def _check_count(self) -> None:
        """Refuse a batch with an impossible record count before it is decompressed."""
        try:
            self._limits.check_count(self.header.record_count, self._limits.decompressed_bytes)
            return
        except CorruptBatch as error:
            refusal = self._refusal(error)
        raise refusal

    async def _finish_walk(self) -> None:
        """Check the remaining records in slices, with a turn of the event loop before each slice."""
        finished = False
        while not finished:
            await asyncio.sleep(0)
            finished = self._advance(STEPS_AT_ONCE)

    def _expand_copy(self, batch: bytes) -> bytes | bytearray:
        """Decompress a copy of the batch in a worker thread.

        A copy is necessary because the request's buffer is reused when its connection closes.
        """
        data = memoryview(batch)[HEADER_SIZE : self.header.size]
        check_framing(self.header.compression, data, self._limits.decompressed_bytes)
        return expand(self.header.compression, data, self._limits.decompressed_bytes)

    def _advance(self, steps: int) -> bool:
        """Check up to `steps` records; if the walk is then finished, set `content` and return True.

        Raises CorruptBatch.
        """
        walk = self._walk
        assert walk is not None, "begun"
        if not walk.advance(steps):
            return False
        self.content = (walk.min_timestamp, walk.max_timestamp, walk.null_keys)
        self._walk = None
        return True

    def _refusal(self, error: CorruptBatch) -> KafkaError:
        """Return the KafkaError for records that are invalid or exceed the limits, and drop the records."""
        self._walk = None
        too_large = isinstance(error, BatchBudgetExceeded)
        code = ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.INVALID_RECORD
        return KafkaError(code, f"{self._where}: {error.message}")
