"""`ProcessorTransaction`: what a processing function writes to. Its records commit together with the input offsets."""

from __future__ import annotations

from typing import NamedTuple

from ..consumer import ConsumerRecord
from ..errors import BufferFullError, IllegalStateError
from ..producer import Producer
from ..producer.record_values import read_once
from ..values import BytesLike, HeadersLike
from .dead_letters import error_headers, is_poison


class OutputRecord(NamedTuple):
    """A record to send. Without `partition` the key's hash chooses it; `timestamp` in ms since the epoch, None: now."""

    topic: str
    value: BytesLike | None
    key: BytesLike | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: HeadersLike = ()


class ProcessorTransaction:
    """The open transaction of one batch. Records go out in the order of the calls."""

    def __init__(self, producer: Producer, dead_letter_topic: str | None = None) -> None:
        self._producer = producer
        self._dead_letter_topic = dead_letter_topic
        self._held: list[OutputRecord] = []
        self._over = False
        self.records = 0
        """How many records were sent so far."""
        self.dead_letters = 0
        """How many of them to the dead-letter topic."""

    def send(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """Send a record in this transaction; the commit fails if it does not arrive.

        Raises RecordTooLargeError, TypeError for values that are not bytes, IllegalStateError after the function has
        returned.
        """
        if self._over:
            raise IllegalStateError("the transaction is over: send() only while the function of the batch runs")
        if type(headers) is not tuple and type(headers) is not list:
            headers = read_once(headers)
        self.records += 1
        if not self._held:
            try:
                self._producer.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp, headers=headers)
                return
            except BufferFullError:
                pass  # the function may be plain and cannot wait: the rest goes out when it has returned
        self._held.append(OutputRecord(topic, value, key, partition, timestamp, headers))

    def dead_letter(self, record: ConsumerRecord, error: BaseException) -> None:
        """Send an input record that cannot be processed to the dead-letter topic, in this transaction.

        Key, value and headers stay as they are; headers `__oncelog.errors.…` name its source and the error. Raises
        IllegalStateError if the processor has no dead_letter_topic.
        """
        if self._dead_letter_topic is None:
            raise IllegalStateError("dead_letter() needs a processor with a dead_letter_topic")
        headers = error_headers(record, error)
        self.send(self._dead_letter_topic, record.value, record.key, None, max(record.timestamp, 0), headers)
        self.dead_letters += 1

    def is_poison(self, error: BaseException) -> bool:
        """Whether an error is a record's own fault, and there is a topic for such records."""
        return self._dead_letter_topic is not None and is_poison(error)

    def close(self) -> None:
        """Accept no more records: a task that outlives the function must not write into the next transaction."""
        self._over = True

    async def finish(self) -> None:
        """Send the records for which there was no room; called by the processor."""
        self.close()
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
