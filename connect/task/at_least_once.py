"""`AtLeastOnceDelivery`: offsets are written behind the records that they follow, from time to time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...client.errors import KafkaError
from ...client.producer import Producer
from ...client.producer.batch import Delivery as RecordDelivery
from ..api.records import SourceRecord
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from .delivery import PendingOffsets
from .exactly_once import Committed
from .pipeline import ProducerRecord

log = logging.getLogger(__name__)


class AtLeastOnceDelivery:
    """The records of one task, and their offsets every offset.flush.interval.ms."""

    def __init__(
        self,
        task: ConnectorTaskId,
        client: Mapping[str, Any],
        store: OffsetStore,
        prepare: Callable[[str], Awaitable[None] | None],
        committed: Committed,
        *,
        keep_records: bool,
        interval_s: float,
    ) -> None:
        self._task = task
        self._producer = Producer(dict(client))
        self._store = store
        self._prepare, self._committed = prepare, committed
        self._offsets = PendingOffsets(task.connector)
        self._keep = keep_records
        self._kept: list[tuple[SourceRecord, RecordDelivery | None]] = []
        self._interval_s = interval_s
        self._next = 0.0

    async def start(self) -> None:
        """Start the producer."""
        await self._producer.start()
        self._next = asyncio.get_running_loop().time() + self._interval_s

    async def send(self, record: SourceRecord, converted: ProducerRecord | None) -> None:
        """Produce the record."""
        delivery = None
        if converted is not None:
            topic, partition, key, value, timestamp_ms, headers = converted
            if (preparing := self._prepare(topic)) is not None:
                await preparing
            delivery = await self._producer.enqueue(
                topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        if self._keep:
            self._kept.append((record, delivery))
        self._offsets.add(record.source_partition, record.source_offset)

    async def batch_done(self) -> None:
        """Commit when the interval is over."""
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + self._interval_s
            await self.finish()

    async def finish(self) -> None:
        """Wait for all records, then write their offsets; raises what a record failed with."""
        if not self._offsets and not self._kept:
            return
        await self._producer.flush()
        kept, self._kept = self._kept, []
        acknowledged = [(record, None if sent is None else await sent) for record, sent in kept]
        await self._store.write_raw(self._offsets.take())
        await self._committed(acknowledged)

    def due_in_s(self) -> float | None:
        """Return the rest of the interval, while there is something to commit."""
        return max(0.0, self._next - asyncio.get_running_loop().time()) if self._offsets else None

    async def close(self) -> None:
        """Disconnect."""
        try:
            await self._producer.close()
        except KafkaError as error:
            log.warning("task %s: while its producer closed: %s", self._task, error)
