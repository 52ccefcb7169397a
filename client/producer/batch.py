"""`ProducerBatch`, a batch of records on its way to a partition, and `Delivery`, the future result of a record.

The outcome is set once, for all records of the batch. If the broker finds a batch too large, the batch is split, and
its outcome is then the outcome of its parts. A batch does no queueing, sending or retrying; it only stores the numbers
that these steps need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeAlias

from ...protocol.batch_builder import BatchBuilder
from ...protocol.errors import ErrorCode, KafkaError
from ..errors import IllegalStateError, copy_of
from ..values import RecordMetadata


class Outcome:
    """The common outcome of several records. Their deliveries wait until it is known."""

    __slots__ = ("__weakref__", "_observed", "_on_observed", "done", "error", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.error: KafkaError | None = None
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def record_count(self) -> int:
        """The number of records that have this outcome."""
        raise NotImplementedError

    def fail(self, error: KafkaError, on_observed: Callable[[Outcome], object]) -> None:
        """Set an error, because the records are not known to have been written. `on_observed` is called with this
        outcome when the program has received the failure of each record.
        """
        self.error = error
        self._observed: set[int] = set()
        self._on_observed = on_observed
        self.finish()

    def observe(self, index: int) -> None:
        """Record that the program has received the failure of the record with this index."""
        self._observed.add(index)
        if len(self._observed) == self.record_count:
            self._on_observed(self)

    def finish(self) -> None:
        """Mark the outcome as known, and wake all waiters."""
        assert not self.done, "an outcome is decided once"
        self.done = True
        self.wake()

    def wake(self) -> None:
        """Make all waiters check again."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def waiter(self) -> asyncio.Future[None]:
        """Return a new future for a waiter. With a separate future, a cancelled task does not affect other waiters."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter

    def replacements(self) -> Iterable[Outcome]:
        """Return the outcomes that replace this one, if its records were moved to other batches."""
        return ()

    async def wait(self) -> None:
        """Wait until the outcome of every record is known. Does not raise errors."""
        while not self.done:
            await self.waiter()
        for replacement in self.replacements():
            await replacement.wait()

    def unreceived(self) -> Iterator[Outcome]:
        """Yield the failed outcomes of these records, except those whose failure the program has received."""
        if self.error is not None and len(self._observed) < self.record_count:
            yield self
        for replacement in self.replacements():
            yield from replacement.unreceived()


class ProducerBatch(Outcome):
    """A batch of records for one partition, with its place in the partition's sequence.

    Batches are delivered by ascending `order`, a tuple that grows with each new batch. The parts of a split batch have
    the tuple of that batch, with 0 and with 1 appended. `base_sequence` is -1 until the batch is first sent.
    `was_sent`: the batch, or the larger batch that it was split from, was sent with the current sequence.
    `maybe_written`: a response was lost, or did not say whether the batch was written. `doubtful`: the batch is a part
    of a batch that may have been written as a whole.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "closed",
        "deadline",
        "doubtful",
        "in_flight",
        "last_error",
        "log_append_time",
        "maybe_written",
        "order",
        "partition",
        "parts",
        "payload",
        "producer_epoch",
        "producer_id",
        "ready_at",
        "reserved",
        "topic",
        "was_sent",
    )

    def __init__(
        self,
        key: tuple[str, int],
        order: tuple[int, ...],
        builder: BatchBuilder,
        ready_at: float,
        deadline: float,
        reserved: int,
    ) -> None:
        super().__init__()
        self.topic, self.partition = key
        self.order = order
        self.builder = builder
        self.ready_at = ready_at
        self.deadline = deadline
        self.reserved = reserved
        self.closed = False
        self.in_flight = False
        self.was_sent = False
        self.maybe_written = self.doubtful = False
        self.attempts = 0
        self.last_error = ErrorCode.NONE
        self.payload: bytes | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.base_offset = -1
        self.log_append_time = -1
        self.parts: list[tuple[int, ProducerBatch]] = []

    @property
    def record_count(self) -> int:
        """The number of the batch's records."""
        return self.builder.record_count

    def encode(self, transactional: bool) -> bytes:
        """Return the batch's bytes, with its current producer id, epoch and sequence."""
        if self.payload is None:
            self.payload = self.builder.build(
                self.producer_id, self.producer_epoch, self.base_sequence, transactional=transactional
            )
        return self.payload

    def assign(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the batch's producer id, epoch and base sequence."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.payload = None

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Mark the batch as written. The broker has written its first record at `base_offset` (-1: unknown)."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.finish()

    def finish(self) -> None:
        """Mark the outcome as known, wake all waiters, and free the records, because they will not be sent again."""
        super().finish()
        self.builder.free()
        self.payload = None

    def replace(self, parts: list[tuple[int, ProducerBatch]]) -> None:
        """Replace the batch with smaller batches, each with the index of its first record in this batch."""
        self.parts = parts
        self.finish()

    def replacements(self) -> Iterable[Outcome]:
        return (part for _, part in self.parts)


DeliveryCallback: TypeAlias = Callable[[KafkaError | None, RecordMetadata | None], object]
"""Called on the event loop with a record's failure and None, or with None and the record's metadata."""


class Delivery:
    """The future result of a sent record. Awaiting it returns the record's RecordMetadata, or raises its failure.

    Any number of tasks may await a delivery. If no task does, `Producer.flush` raises the failure.
    """

    __slots__ = ("_index", "_outcome", "_timestamp")

    def __init__(self, outcome: Outcome, index: int, timestamp: int) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp = timestamp

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.done():
            yield from self._outcome.waiter()
        return self.result()

    def done(self) -> bool:
        """Return whether the outcome is known."""
        outcome = self._outcome
        while isinstance(outcome, ProducerBatch) and outcome.parts:
            first, outcome = max((part for part in outcome.parts if part[0] <= self._index), key=lambda part: part[0])
            self._outcome = outcome
            self._index -= first
        return outcome.done

    def result(self) -> RecordMetadata:
        """Return where the record was written, or raise the record's failure. Raises IllegalStateError while the
        outcome is unknown.
        """
        if not self.done():
            raise IllegalStateError("the outcome of the record is not known yet: await the delivery, or flush() first")
        batch = self._outcome
        if batch.error is not None:
            batch.observe(self._index)
            # A copy, because one exception raised in many tasks would collect the tracebacks of all of them.
            raise copy_of(batch.error) from batch.error
        assert isinstance(batch, ProducerBatch), "a record is written as part of a batch"
        return RecordMetadata(
            batch.topic,
            batch.partition,
            batch.base_offset + self._index if batch.base_offset >= 0 else -1,
            batch.log_append_time if batch.log_append_time >= 0 else self._timestamp,
        )

    def report_to(self, callback: DeliveryCallback) -> None:
        """Call `callback(error, metadata)` on the event loop when the outcome is known. The callbacks for a partition
        are called in the order of its records. Exceptions of the callback go to the event loop's exception handler.
        """

        def report() -> None:
            try:
                metadata = self.result()
            except KafkaError as error:
                callback(error, None)
            else:
                callback(None, metadata)

        self._call_when_done(report)

    def when_done(self, callback: Callable[[bool], object]) -> None:
        """Call `callback(written)` on the event loop when the outcome is known.

        Unlike with `report_to`, a failure does not count as received: `Producer.flush` still raises it. Exceptions of
        the callback go to the event loop's exception handler.
        """
        self._call_when_done(lambda: callback(self._outcome.error is None))

    def _call_when_done(self, report: Callable[[], object]) -> None:
        def look() -> None:
            if self.done():
                report()
            else:  # the record was placed in a batch, or its batch was split
                self._call_when_done(report)

        if self.done():
            asyncio.get_running_loop().call_soon(look)
        else:
            self._outcome.waiter().add_done_callback(lambda _: look())

    def place(self, placed: Delivery) -> None:
        """Take over the outcome of another delivery, whose record is in a batch."""
        self._outcome = placed._outcome
        self._index = placed._index
