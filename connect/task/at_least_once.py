"""`AtLeastOnceDelivery`: periodically writes the offsets of the records that have been produced.

With errors.tolerance=all, a record that cannot be produced is skipped, as in Kafka Connect. The other records of its
batch, which have failed with it, are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...client.errors import FatalError, IllegalStateError, KafkaError
from ...client.producer import Producer
from ...client.producer.batch import Delivery as RecordDelivery
from ...client.values import RecordMetadata
from ..api.records import SourceRecord
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from .delivery import Acknowledged, Copies, PendingOffsets
from .pipeline import Pipeline, ProducerRecord
from .topic_tracker import TopicTracker

log = logging.getLogger(__name__)


class _Sent(NamedTuple):
    """A record that was passed to `send`; `delivery` is None for a record that was dropped or skipped.

    If the record was sent again, `again` is the number of records that were sent up to that time, including this one;
    otherwise, it is 0.
    """

    record: SourceRecord
    converted: ProducerRecord | None
    delivery: RecordDelivery | None
    again: int = 0


class AtLeastOnceDelivery:
    """Produces the records of one task, and writes their offsets every `interval_s` seconds.

    If waiting for the records or writing the offsets takes longer than `timeout_s` seconds, the commit is abandoned,
    and repeated after the interval. The task continues in the meantime.

    `wake` is called when `batch_done` has an outcome to process: a failure, or an outcome that the task is to be told.
    `committed` is called after each commit. If `keep_records` is set, `acknowledged` is called with the records and
    their metadata. `copies` copies the offsets to the worker's topic, if the connector has its own topic. `tracker`
    reports the topics that are written to; None if topics are not tracked.
    """

    def __init__(
        self,
        task: ConnectorTaskId,
        client: Mapping[str, Any],
        store: OffsetStore,
        pipeline: Pipeline,
        prepare: Callable[[str], Awaitable[None] | None],
        acknowledged: Callable[[Acknowledged], Awaitable[None]],
        committed: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
        *,
        keep_records: bool,
        interval_s: float,
        timeout_s: float,
        copies: Copies | None = None,
        tracker: TopicTracker | None = None,
    ) -> None:
        self._task = task
        self._producer = Producer(dict(client))
        self._store, self._pipeline = store, pipeline
        self._prepare, self._acknowledged, self._committed = prepare, acknowledged, committed
        self._wake = wake
        self._copies, self._tracker = copies, tracker
        self._offsets = PendingOffsets(task.connector)
        self._keep = keep_records
        self._sent: deque[_Sent] = deque()
        """The records whose outcomes are checked one by one, in order."""
        self._watched: RecordDelivery | None = None
        """The last delivery of which `wake` reports the outcome."""
        self._watching: asyncio.Task[None] | None = None
        """Waits for a record that fails, unless the outcomes are checked one by one."""
        self._failure: KafkaError | None = None
        """The failure that `_watching` has received."""
        self._outcomes: Acknowledged = []
        """The outcomes that were not passed to the task yet."""
        self._produced = 0
        self._interval_s, self._timeout_s = interval_s, timeout_s
        self._next = 0.0
        self._due = False
        """Whether records were sent, or left out, since the last complete commit."""
        self._lost = False
        """Whether a record was neither produced nor skipped; no offset may be written after that."""

    async def start(self) -> None:
        """Start the producer."""
        await self._producer.start()
        if not self._pipeline.tolerates:
            self._watching = asyncio.create_task(self._watch(), name=f"failures of task {self._task}")
        self._next = asyncio.get_running_loop().time() + self._interval_s

    async def send(self, record: SourceRecord, converted: ProducerRecord | None) -> None:
        """Produce a record, and keep its offset for the next commit. Raise the error of a record that failed before."""
        self._raise_failure()
        self._due = True
        delivery = None
        if converted is not None:
            if (preparing := self._prepare(converted.topic)) is not None:
                await preparing
            try:
                delivery = await self._enqueue(converted)
            except KafkaError as error:
                self._failed(record, error)
        if self._keep or (self._pipeline.tolerates and delivery is not None):
            self._sent.append(_Sent(record, converted, delivery))
        self._offsets.add(record.source_partition, record.source_offset)

    async def batch_done(self) -> None:
        """Process the acknowledgements received so far, and commit the offsets if the interval has passed."""
        if self._sent:
            await self._settle_known()
        self._raise_failure()
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + self._interval_s
            await self.finish()
        self._watch_first()

    async def finish(self) -> None:
        """Wait for all records, then write their offsets; raise the error of a record that failed.

        If the timeout passes before all records are acknowledged or skipped, write nothing. If it passes during the
        write, the offsets may have been written.
        """
        self._raise_failure()
        if self._lost or not self._due:
            return
        self._lost = True
        are_settled = await self._in_time(self._flush())
        await self._tell()
        self._raise_failure()
        are_written = are_settled and await self._in_time(self._write())
        self._lost = False
        if are_written:
            self._due = False
            await self._committed()
            return
        log.warning(
            "task %s: offsets were not committed within %g s (offset.flush.timeout.ms); they will be committed later",
            self._task,
            self._timeout_s,
        )

    async def finish_failed(self, unsent: Iterable[SourceRecord]) -> None:
        """Write the offsets of the records that were produced before the task failed.

        The offset of an unsent record is not written, even if earlier records have the same offset: the task would
        continue after the unsent record.
        """
        for record in unsent:
            self._offsets.withdraw(record.source_partition, record.source_offset)
        if self._lost:
            with contextlib.suppress(KafkaError):  # the task has failed with it
                await self._settle_known()
        else:
            await self.finish()

    def due_in_s(self) -> float | None:
        """Return the remaining seconds of the interval, or None if no record waits for a commit."""
        return max(0.0, self._next - asyncio.get_running_loop().time()) if self._due else None

    async def close(self) -> None:
        """Close the producer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        try:
            await self._producer.close()
        except KafkaError as error:
            log.warning("task %s: error while closing the producer: %s", self._task, error)

    async def _enqueue(self, converted: ProducerRecord) -> RecordDelivery:
        topic, partition, key, value, timestamp_ms, headers = converted
        delivery = await self._producer.enqueue(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        self._produced += 1
        if self._tracker is not None:
            self._tracker.sent(topic, delivery)
        return delivery

    async def _watch(self) -> None:
        """Wait for a record that fails, and wake the task."""
        try:
            await self._producer.failed()
        except KafkaError as error:
            self._failure, self._lost = error, True
            self._wake()

    def _raise_failure(self) -> None:
        """Raise the failure that `_watch` has received, if any. The task then ends."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _watch_first(self) -> None:
        """Wake the task when the outcome of the first record in `_sent` is known."""
        first = self._sent[0].delivery if self._sent else None
        if first is not None and first is not self._watched:
            self._watched = first
            first.when_done(lambda _: self._wake())

    async def _in_time(self, work: Awaitable[None]) -> bool:
        """Await `work`. Return False if it takes longer than the timeout, which cancels it.

        Raises KafkaError if a record failed, even if the failure is a timeout of the client.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await work
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            return False
        return True

    async def _settle_known(self) -> None:
        """Process the outcomes known so far, and pass them to the task."""
        try:
            await self._in_time(self._settle())
        finally:
            await self._tell()

    async def _flush(self) -> None:
        """Wait until all records are acknowledged or skipped."""
        await self._send_buffered()
        await self._settle(wait=True)

    async def _send_buffered(self) -> None:
        try:
            await self._producer.flush()
        except KafkaError:
            if not self._pipeline.tolerates:
                raise  # otherwise the deliveries raise the error again

    async def _write(self) -> None:
        """Write the offsets, if there are any, and forget them."""
        if not self._offsets:
            return
        pairs: Sequence[tuple[bytes, bytes | None]] = self._offsets.records()
        if self._copies is not None:
            pairs = await self._copies.before_commit(pairs)
        await self._store.write_raw(pairs)
        if self._copies is not None:
            self._copies.after_commit(pairs)
        self._offsets.clear()

    async def _settle(self, *, wait: bool = False) -> None:
        """Process the outcomes of records in order, up to the first pending record. With `wait`, wait for all records.

        May be cancelled: the next call continues with the same record.
        """
        while self._sent and (wait or self._sent[0].delivery is None or self._sent[0].delivery.done()):
            metadata = await self._outcome()
            self._outcomes.append((self._sent.popleft().record, metadata))

    async def _outcome(self) -> RecordMetadata | None:
        """Return the metadata of the first record in `_sent` once it is produced, or None if it is dropped or skipped.

        A record that fails is sent again, after all other records. If it fails again, and no record was sent after it,
        it has failed alone and is skipped. Raises KafkaError if errors.tolerance does not allow the failure.
        """
        while True:
            record, converted, delivery, again = self._sent[0]
            if delivery is None or converted is None:
                return None
            try:
                return await delivery
            except KafkaError as error:
                if not self._pipeline.tolerates:
                    self._lost = True
                    raise
                if again == self._produced:
                    self._failed(record, error)
                    return None
                log.debug(
                    "task %s: a batch of records failed, so each record is sent again alone: %s", self._task, error
                )
            await self._send_buffered()
            try:
                delivery = await self._enqueue(converted)
            except KafkaError as error:
                self._failed(record, error)
                return None
            self._sent[0] = _Sent(record, converted, delivery, self._produced)

    async def _tell(self) -> None:
        """Pass the outcomes to the task if `keep_records` is set. Has no time limit, as it runs the task's code."""
        outcomes, self._outcomes = self._outcomes, []
        if self._keep and outcomes:
            await self._acknowledged(outcomes)

    def _failed(self, record: SourceRecord, error: KafkaError) -> None:
        """Skip a record that cannot be produced; raise the error if errors.tolerance does not allow this."""
        if not self._pipeline.tolerates or isinstance(error, FatalError | IllegalStateError):
            self._lost = True
            raise error
        self._pipeline.leave_out(record, error)
