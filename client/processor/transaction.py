"""`ProcessorTransaction`: the object with which a processing function sends records.

The records are committed together with the offsets of the input records.
"""

from __future__ import annotations

import copy
from typing import Any, Generic, NamedTuple

from ...protocol.batch_header import HEADER_SIZE
from ..consumer import ConsumerRecord
from ..errors import BufferFullError, IllegalStateError
from ..producer import Producer
from ..producer.record_values import bytes_of, headers_of, read_once
from ..producer.serialization import RecordSerializer
from ..serialization.protocols import NotReadyError, SentK, SentV
from ..values import BytesLike, HeadersLike
from .dead_letters import error_headers, is_poison, note_dead_letter, source_headers


class OutputRecord(NamedTuple, Generic[SentK, SentV]):
    """A record to send. Key and value are bytes, or what the processor's serializers accept. Without `partition` the
    key's hash chooses the partition. `timestamp` is in ms since the epoch; None means now.
    """

    topic: str
    value: SentV | None
    key: SentK | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: HeadersLike = ()


class _Held(NamedTuple):
    """A record that waits until the function has returned."""

    record: OutputRecord[Any, Any]
    serialized: bool = True


class ProcessorTransaction(Generic[SentK, SentV]):
    """The open transaction of one batch. Records are sent in the order of the calls."""

    def __init__(
        self, producer: Producer, dead_letter_topic: str | None = None, serialize: RecordSerializer | None = None
    ) -> None:
        self._producer = producer
        self._dead_letter_topic = dead_letter_topic
        self._serialize = serialize
        self._held: list[_Held] = []
        self._over = False
        self.records = 0
        """The number of records sent so far."""
        self.dead_letters = 0
        """The number of records sent to the dead-letter topic so far."""

    def send(
        self,
        topic: str,
        value: SentV | None,
        key: SentK | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """Send a record in this transaction; the commit fails if the record cannot be delivered.

        The arguments may change after the call. An object whose schema is not known yet is copied with `copy.deepcopy`.
        If it cannot be copied, it must not change until the function has returned and its batch has ended.

        Raises RecordTooLargeError if the record is too large, and IllegalStateError after the function has returned.
        Raises SerializationError if a serializer fails or, without a serializer, TypeError for values that are not
        bytes.
        """
        if self._over:
            raise IllegalStateError("the transaction has ended: call send() only while the processing function runs")
        sent_key: Any = key
        sent_value: Any = value
        if self._serialize is not None:
            try:
                sent_key, sent_value = self._serialize(topic, key, value)
            except NotReadyError:
                # A plain function cannot wait: `finish` does. Until then, the function may change its objects.
                held = OutputRecord(topic, _copy_of(value), _copy_of(key), partition, timestamp, headers_of(headers))
                self._held.append(_Held(held, serialized=False))
                self.records += 1
                return
        self._send(topic, sent_value, sent_key, partition, timestamp, headers)

    def _send(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None,
        partition: int | None,
        timestamp: int | None,
        headers: HeadersLike,
    ) -> None:
        if type(headers) is not tuple and type(headers) is not list:
            headers = read_once(headers)
        must_wait = bool(self._held)
        if not must_wait:
            try:
                self._producer.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp, headers=headers)
            except BufferFullError:
                must_wait = True  # a plain function cannot wait: `finish` sends this and all later records
        if must_wait:
            # Copies, because the function may use its buffers and headers again for the next record.
            value, key = bytes_of("value", value), bytes_of("key", key)
            self._held.append(_Held(OutputRecord(topic, value, key, partition, timestamp, headers_of(headers))))
        self.records += 1

    def dead_letter(self, record: ConsumerRecord[Any, Any], error: BaseException, *, brief: bool = False) -> None:
        """Send an input record that cannot be processed to the dead-letter topic, in this transaction.

        Key, value and headers stay the bytes that were read. Added headers `__oncelog.errors.…` name the record's
        source and the error. A warning in the log names them, too. If the record would exceed the producer's
        max.request.size, the headers about the error are shortened or left out. With `brief`, they are left out in any
        case.

        Raises IllegalStateError if the processor has no dead_letter_topic, and after the function has returned. Raises
        RecordTooLargeError if even the headers that name the source do not fit.
        """
        if self._dead_letter_topic is None:
            raise IllegalStateError("dead_letter() needs a processor with a dead_letter_topic")
        if self._over:
            raise IllegalStateError("the transaction has ended: call dead_letter() only while the function runs")
        note_dead_letter(record, error)
        config, raw = self._producer.config, record.raw
        max_bytes = min(config.max_request_size, config.buffer_memory) - HEADER_SIZE
        headers = source_headers(record) if brief else error_headers(record, error, max_bytes)
        self._send(self._dead_letter_topic, raw.value, raw.key, None, max(raw.timestamp, 0), headers)
        self.dead_letters += 1

    def is_poison(self, error: BaseException) -> bool:
        """Return whether a record has caused the error and the processor has a dead-letter topic."""
        return self._dead_letter_topic is not None and is_poison(error)

    def close(self) -> None:
        """Accept no more records. A task that outlives the function must not write into the next transaction."""
        self._over = True

    async def finish(self) -> None:
        """Send the records for which the buffer had no room, or whose serializer had to wait. The processor calls this
        method when the function has returned.
        """
        self.close()
        for record, serialized in self._held:
            key, value = record.key, record.value
            if not serialized:
                assert self._serialize is not None
                key, value = await self._serialize.waiting(record.topic, key, value)
            await self._producer.enqueue(
                record.topic,
                value,
                key=key,
                partition=record.partition,
                timestamp_ms=record.timestamp,
                headers=record.headers,
            )
        self._held.clear()


def _copy_of(value: Any) -> Any:
    """Return a deep copy of a key or value, or the object itself if it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
