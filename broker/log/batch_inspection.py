"""Check the records inside a client's batch before the batch is appended (`Inspection`).

This module does three things:

* It decompresses the records, beginning with a check of the framing (`protocol/compressed_framing.py`).
* It walks through the records (`protocol/record_walk.py`).
* It divides this work into portions for the event loop. A small batch is checked at once, within `PartitionLog.append`.
  A large batch is decompressed in a worker thread and checked in slices with pauses, before it is appended.

This module does not apply the topic's rules for keys and timestamps: `log_validator.py` applies them to the result.

Memory: a batch that expands beyond AT_ONCE_BYTES waits for one of a few slots. So all inspections of such batches
together hold at most slots x max.decompressed.bytes of decompressed records. The traceback of an error keeps the
variables of all functions that the error passed through, including the records. Therefore a CorruptBatch never leaves
an Inspection, not even as the context of the KafkaError: the KafkaError is raised outside of the `except` block.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from ...protocol.batch_header import COMPRESSION_MASK, HEADER_SIZE, BatchBudgetExceeded, BatchHeader, CorruptBatch
from ...protocol.compressed_framing import check_framing
from ...protocol.compression import Compression, expand
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.plain_records import MAX_PLAIN_BYTES, MOST_PLAIN, visit_plain
from ...protocol.record_walk import RecordLimits, RecordWalk
from ..system.ports import Buffer, Lane, Threads
from .log_config import INT64_MAX

STEPS_AT_ONCE: Final = 2_000
"""Number of records checked without a pause (about 1 ms). Adjacent records of equal size take a sixteenth of this time.
"""

AT_ONCE_BYTES: Final = 1 << 20
"""Maximum number of bytes that are decompressed on the event loop. This takes 1 ms with zstd, 3 ms with gzip."""

AT_ONCE_COMPRESSED_BYTES: Final = 32 << 10
"""Maximum number of compressed gzip or zstd bytes that are decompressed on the event loop.

Both formats allow blocks that hold tables but almost no data. Decompressing 32 KiB of such blocks takes 6 ms. The
framing of lz4 and snappy allows only a few small blocks (`protocol/compressed_framing.py`).
"""

_WORTH_OF_COMPRESSED_BYTE: Final = AT_ONCE_BYTES // AT_ONCE_COMPRESSED_BYTES
"""The greatest cost of a compressed gzip or zstd byte: the number of decompressed bytes that usually cost as much."""

_WITH_TABLES: Final = frozenset((Compression.GZIP, Compression.ZSTD))
_ALL: Final = 1 << 62
_scratch: Final = bytearray(AT_ONCE_BYTES)
"""A buffer for decompression on the event loop, because the decompressed size is not known in advance."""

Content: TypeAlias = tuple[int, int, list[int]]
"""The smallest and the largest timestamp of the records in ms, and the indexes of at most 100 records without a key."""


def expands_at_once(codec: int, size: int) -> bool:
    """Return whether `size` bytes, compressed with `codec`, may be decompressed on the event loop.

    The caller must not let them expand beyond AT_ONCE_BYTES.
    """
    return not codec or size <= (AT_ONCE_COMPRESSED_BYTES if codec in _WITH_TABLES else AT_ONCE_BYTES)


def content_at_a_glance(batch: Buffer, header: BatchHeader, limits: RecordLimits) -> Content | None:
    """Return the content of a batch if its records are few, plain and uncompressed; None if it needs an `Inspection`.

    A plain record has no headers, short fields, and a timestamp that is not earlier than the first record's
    (`protocol/plain_records.py`). `batch` is one whole batch with a verified checksum.
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
    """The check of one batch.

    The batch's buffer must not change until the batch is appended. Call `begin`; if it returns False, call `finish`.
    After that, `content` is the result. Both methods raise KafkaError INVALID_RECORD if the records cannot be read, and
    MESSAGE_TOO_LARGE if they exceed the limits.
    """

    __slots__ = ("_batch", "_large", "_limits", "_walk", "_where", "content", "header", "work")

    def __init__(self, batch: Buffer, header: BatchHeader, limits: RecordLimits, where: str) -> None:
        """Prepare the check of `batch`, whose `header` has a verified checksum. `where` names the partition in errors.

        Attributes: `work` is the cost of the decompression in `begin`: the number of decompressed bytes that usually
        cost as much. `content` is the result, which is valid after the check has ended.
        """
        self.header = header
        self.work = 0
        self.content: Content = (-1, -1, [])
        self._batch = batch
        self._large = header.compression != 0 and header.size - HEADER_SIZE > AT_ONCE_BYTES
        self._limits = limits
        self._where = where
        self._walk: RecordWalk | None = None

    def begin(self) -> bool:
        """Check a small batch completely, or the first slice of a large one; return whether the check is finished."""
        header = self.header
        at_once = min(AT_ONCE_BYTES, self._limits.decompressed_bytes)
        try:
            if not expands_at_once(header.compression, header.size - HEADER_SIZE):
                self._check_count()
                return False
            return self._begin(at_once) or self._advance(STEPS_AT_ONCE)
        except CorruptBatch as error:
            if (
                isinstance(error, BatchBudgetExceeded)
                and self._walk is None
                and header.compression
                and at_once < self._limits.decompressed_bytes
            ):
                self.work = AT_ONCE_BYTES
                self._large = True
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

        Records that are few and plain are checked at once. For all other records, this method begins the walk.
        """
        header = self.header
        codec = header.compression
        if codec:
            self._check_count()
            data = memoryview(self._batch)[HEADER_SIZE : header.size]
            check_framing(codec, data, max_bytes)
            payload = expand(codec, data, max_bytes, _scratch if max_bytes == AT_ONCE_BYTES else None)
            self.work = max(len(payload), _WORTH_OF_COMPRESSED_BYTE * len(data) if codec in _WITH_TABLES else 0)
        else:
            payload = memoryview(self._batch)[HEADER_SIZE:].tobytes()
        return self._begin_walk(payload)

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
        """Decompress the batch in a thread, then check its records in slices.

        Only batches that are known to be large wait for a slot, so that other batches do not wait until large ones are
        checked.
        """
        if not self._large:
            try:
                finished = self._begin_walk(await asyncio.shield(self._expand_in_thread(threads, AT_ONCE_BYTES)))
            except BatchBudgetExceeded:
                pass
            else:
                if not finished:
                    await self._finish_walk()
                return
        await slots.acquire()
        # The thread cannot be interrupted: the slot is released when both the thread and this call have ended.
        job = self._expand_in_thread(threads, self._limits.decompressed_bytes)
        try:
            if not self._begin_walk(await asyncio.shield(job)):
                await self._finish_walk()
        finally:
            self._walk = None
            if job.done():
                slots.release()
            else:
                job.add_done_callback(lambda _: slots.release())
            del job  # the traceback of its exception refers to this call, which would be a cycle

    def _check_count(self) -> None:
        """Refuse a batch with an impossible record count before it is decompressed."""
        try:
            self._limits.check_count(self.header.record_count, self._limits.decompressed_bytes)
            return
        except CorruptBatch as error:
            refusal = self._refusal(error)
        raise refusal

    def _begin_walk(self, records: bytes | bytearray) -> bool:
        """Begin the walk through the decompressed records.

        Return True if the records are few and plain, because all of them are then checked already.
        """
        content = _visit(records, self.header, self._limits)
        if content is not None:
            self.content = content
            return True
        self._walk = RecordWalk(records, self.header, self._limits)
        return False

    async def _finish_walk(self) -> None:
        """Check the remaining records in slices, with a turn of the event loop before each slice."""
        finished = False
        while not finished:
            await asyncio.sleep(0)
            finished = self._advance(STEPS_AT_ONCE)

    def _expand_in_thread(self, threads: Threads, max_bytes: int) -> asyncio.Future[bytes | bytearray]:
        """Decompress a copy of the batch in a worker thread, to at most `max_bytes`. Return a future of the records.

        A copy is necessary because the request's buffer is reused when its connection closes.
        """
        batch, codec, size = bytes(self._batch), self.header.compression, self.header.size
        max_bytes = min(max_bytes, self._limits.decompressed_bytes)

        def expand_copy() -> bytes | bytearray:
            data = memoryview(batch)[HEADER_SIZE:size]
            check_framing(codec, data, max_bytes)
            return expand(codec, data, max_bytes)

        return threads.run(Lane.DECOMPRESSION, expand_copy)

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
