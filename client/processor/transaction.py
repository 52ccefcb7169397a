"""What a processing function writes to: `ProcessorTransaction`. Its records commit together with the input offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ..errors import BufferFullError, IllegalStateError
from ..producer import Producer

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class OutputRecord(NamedTuple):
    """A record to send. Without `partition` the key's hash chooses it; `timestamp` in ms since the epoch, None: now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class ProcessorTransaction:
    """The open transaction of one batch. Records go out in the order of the calls."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._held: list[OutputRecord] = []
        self._over = False
        self.records = 0
        """How many records were sent so far."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Send a record in this transaction; whether it arrived is checked before the commit.

        Raises RecordTooLargeError, TypeError for what is not bytes, IllegalStateError after the function has returned.
        """
        if self._over:
            raise IllegalStateError("the transaction is over: send() only while the function of the batch runs")
        self.records += 1
        if not self._held:
            try:
                self._producer.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp, headers=headers)
                return
            except BufferFullError:
                pass  # the function may be plain and cannot wait: the rest goes out when it has returned
        self._held.append(OutputRecord(topic, value, key, partition, timestamp, headers))

    async def finish(self) -> None:
        """Send what there was no room for. The processor calls it."""
        self._over = True
        for record in self._held:
            await self._producer.enqueue(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp,
                headers=record.headers,
            )
        self._held.clear()
