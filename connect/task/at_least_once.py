"""`AtLeastOnceDelivery`: offsets are written behind the records that they follow, from time to time.

With errors.tolerance=all a record that cannot be produced is left out, as in Kafka Connect; others of its batch, which
failed with it, are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ...client.errors import FatalError, IllegalStateError, KafkaError
from ...client.producer import Producer
from ...client.producer.batch import Delivery as RecordDelivery
from ...client.values import RecordMetadata
from ..api.records import SourceRecord
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from .delivery import Acknowledged, PendingOffsets
from .pipeline import Pipeline, ProducerRecord

log = logging.getLogger(__name__)


class _Sent(NamedTuple):
    """A record on its way; one without a delivery was dropped, or left out."""

    record: SourceRecord
    converted: ProducerRecord | None
    delivery: RecordDelivery | None


class AtLeastOnceDelivery:
    """The records of one task, and their offsets every offset.flush.interval.ms.

    `acknowledged` hears of records where `keep_records` is set, `committed` of each commit of offsets.
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
        *,
        keep_records: bool,
        interval_s: float,
    ) -> None:
        self._task = task
        self._producer = Producer(dict(client))
        self._store, self._pipeline = store, pipeline
        self._prepare, self._acknowledged, self._committed = prepare, acknowledged, committed
        self._offsets = PendingOffsets(task.connector)
        self._keep = keep_records
        self._sent: deque[_Sent] = deque()
        """Records whose outcome matters one by one, in their order."""
        self._interval_s = interval_s
        self._next = 0.0
        self._lost = False
        """Whether a record was not produced and not left out either: no offset may be written any more."""

    async def start(self) -> None:
        """Start the producer."""
        await self._producer.start()
        self._next = asyncio.get_running_loop().time() + self._interval_s

    async def send(self, record: SourceRecord, converted: ProducerRecord | None) -> None:
        """Produce the record."""
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
        """Note what is acknowledged, and commit when the interval is over."""
        if self._sent:
            await self._settle()
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + self._interval_s
            await self.finish()

    async def finish(self) -> None:
        """Wait for all records, then write their offsets; raises what a record failed with."""
        if self._lost or not (self._offsets or self._sent):
            return
        self._lost = True
        with contextlib.suppress(*[KafkaError] if self._pipeline.tolerates else []):  # each delivery says it again
            await self._producer.flush()
        await self._settle(wait=True)
        await self._store.write_raw(self._offsets.take())
        self._lost = False
        await self._committed()

    async def finish_failed(self) -> None:
        """Write the offsets of what was produced before the task has failed."""
        await self.finish()

    def due_in_s(self) -> float | None:
        """Return the rest of the interval, while there is something to commit."""
        return max(0.0, self._next - asyncio.get_running_loop().time()) if self._offsets else None

    async def close(self) -> None:
        """Disconnect."""
        try:
            await self._producer.close()
        except KafkaError as error:
            log.warning("task %s: while its producer closed: %s", self._task, error)

    async def _enqueue(self, converted: ProducerRecord) -> RecordDelivery:
        topic, partition, key, value, timestamp_ms, headers = converted
        return await self._producer.enqueue(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def _settle(self, *, wait: bool = False) -> None:
        """Note the outcome of records from the first one to the first whose outcome is open; all of them to `wait`."""
        acknowledged: Acknowledged = []
        while self._sent and (wait or self._sent[0].delivery is None or self._sent[0].delivery.done()):
            metadata = await self._outcome(self._sent[0])
            acknowledged.append((self._sent.popleft().record, metadata))
        if self._keep and acknowledged:
            await self._acknowledged(acknowledged)

    async def _outcome(self, sent: _Sent) -> RecordMetadata | None:
        """Return where a record is written, None where it is not."""
        record, converted, delivery = sent
        if delivery is None or converted is None:
            return None
        try:
            return await delivery
        except KafkaError as error:
            if not self._pipeline.tolerates:
                self._lost = True
                raise
            log.debug("task %s: a batch of records failed, each is sent again alone: %s", self._task, error)
        try:
            return await (await self._enqueue(converted))
        except KafkaError as error:
            self._failed(record, error)
            return None

    def _failed(self, record: SourceRecord, error: KafkaError) -> None:
        """Leave a record out that cannot be produced; raises the error where that is not tolerated."""
        if not self._pipeline.tolerates or isinstance(error, FatalError | IllegalStateError):
            self._lost = True
            raise error
        self._pipeline.leave_out(record, error)
