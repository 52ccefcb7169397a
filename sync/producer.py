"""`Producer`: the blocking producer, with `Delivery` and `Transaction`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Generic, Self, Unpack

from ..client.config import ProducerConfig
from ..client.errors import KafkaTimeoutError
from ..client.keywords import ProducerKeywords
from ..client.producer import Delivery as AsyncDelivery
from ..client.producer import DeliveryCallback
from ..client.producer import Producer as AsyncProducer
from ..client.producer import Transaction as AsyncTransaction
from ..client.serialization.protocols import SentK, SentV, SerializerLike
from ..client.validation import duration_of
from ..client.values import ConsumerAssignment, ConsumerGroupMetadata, HeadersLike, Offsets, RecordMetadata
from ..protocol.errors import KafkaError
from .background import BackgroundLoop
from .facade import Facade, blocking


class Delivery:
    """The future result of a sent record. If `result` is not called, `Producer.flush` raises the record's failure."""

    def __init__(self, background: BackgroundLoop, delivery: AsyncDelivery) -> None:
        self._background = background
        self._delivery = delivery

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged, and return where it was written. Raises the record's failure.

        Raises TimeoutError after `timeout_s`. The producer then still tries to deliver the record.
        """

        if timeout_s is not None:
            timeout_s = duration_of(timeout_s, "timeout_s")

        async def wait() -> RecordMetadata:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._delivery
            except KafkaTimeoutError:
                raise  # the record's own failure
            except TimeoutError as error:
                raise TimeoutError(
                    f"the record was not acknowledged within {timeout_s} s; the producer still tries to deliver it"
                ) from error

        return self._background.run(wait)

    def done(self) -> bool:
        """Return whether the outcome is known."""

        async def ask() -> bool:
            return self._delivery.done()

        return self._background.run(ask)


class Transaction(Generic[SentK, SentV]):
    """A transaction as a block: `with producer.transaction() as txn`. Send its records with `txn`.

    The transaction is committed at the end of the block. An exception in the block, including KeyboardInterrupt, aborts
    the transaction and is raised again. If the commit fails because the transaction can only be aborted, it is aborted
    and AbortableError is raised: run the transaction again. AbortableError is also raised at the end of the block if
    the transaction was aborted by something other than `abort`, for example because another thread closed the producer.
    """

    def __init__(self, background: BackgroundLoop, transaction: AsyncTransaction[SentK, SentV]) -> None:
        self._background = background
        self._transaction = transaction

    def __enter__(self) -> Self:
        try:
            self._background.run(self._transaction.__aenter__)
        except BaseException as error:  # an interrupt may arrive when the transaction has already begun
            self._background.run(functools.partial(self._transaction.__aexit__, type(error), error, None))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_begun = False

        async def end() -> None:
            nonlocal is_begun
            is_begun = True
            await self._transaction.__aexit__(kind, error, trace)

        try:
            self._background.run(end)
        except KafkaError:
            raise
        except BaseException as failure:  # an interrupt may arrive before `end` has begun
            if not is_begun:
                self._background.run(functools.partial(self._transaction.__aexit__, type(failure), failure, None))
            raise

    def send(
        self,
        topic: str,
        value: SentV | None = None,
        *,
        key: SentK | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Hand over a record, as `Producer.send` does.

        The commit waits for the record, and fails if the record's delivery fails.
        """
        handing_over = functools.partial(
            self._transaction.enqueue,
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )
        return Delivery(self._background, self._background.run(handing_over))

    def send_offsets(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata | ConsumerAssignment | str | None = None
    ) -> None:
        """Commit a group's offsets in this transaction; see `Producer.send_offsets`."""
        self._background.run(lambda: self._transaction.send_offsets(offsets, group_metadata))

    def abort(self) -> None:
        """Abort the transaction now; the end of the block then commits nothing."""
        self._background.run(self._transaction.abort)


class Producer(Facade[AsyncProducer[SentK, SentV]], Generic[SentK, SentV]):
    """Sends records to a Kafka cluster; `oncelog.Producer` with blocking methods. Several threads may use it.

    ::

        with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            producer.send("topic", b"value", key=b"key").result()      # one record, acknowledged

            for value in values:                                       # many records
                producer.send("topic", value)                          # waits only while the buffer is full
            producer.flush()                                           # all acknowledged, or raises

        with Producer(transactional_id="job-1") as producer:
            with producer.transaction() as txn:                        # commits, or aborts on an exception
                txn.send("topic", b"value")

    Settings have Kafka's names. Give them in a mapping (`{"linger.ms": 20}`) or as keywords (`linger_ms=20`); see
    ProducerConfig. The types of keys and values follow from the serializers, as with `oncelog.Producer`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: SerializerLike[SentK] | None = None,
        value_serializer: SerializerLike[SentV] | None = None,
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        super().__init__(
            AsyncProducer(config, key_serializer=key_serializer, value_serializer=value_serializer, **settings)
        )

    @property
    def config(self) -> ProducerConfig:
        """The producer's settings."""
        return self._client.config

    def start(self) -> None:
        """Connect to the cluster. An idempotent producer also gets its id. Raises KafkaTimeoutError after
        max.block.ms.
        """
        self._start(self._client.start)

    def close(self, timeout_s: float | None = None) -> None:
        """Send the remaining records, then disconnect. An open transaction is aborted. Safe to call twice.

        Raises the first failure of a delivery whose result the program has not requested. Records that are not
        acknowledged within `timeout_s` (default: delivery.timeout.ms) fail.
        """
        self._close(lambda: self._client.close(timeout_s))

    def send(
        self,
        topic: str,
        value: SentV | None = None,
        *,
        key: SentK | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Hand over a record without waiting for its delivery.

        The method waits while the buffer is full or the topic's metadata is unknown.

        Without `partition` the hash of the key chooses the partition. `timestamp_ms` is in milliseconds since the epoch
        (default: now). `headers` are (name, bytes or None) pairs.

        `on_delivery(error, metadata)` is called when the record is acknowledged or has failed, in the thread of the
        event loop. The callback must return soon, and must not call a blocking client. Its exceptions are logged,
        including SystemExit.

        Raises KafkaTimeoutError if the buffer stays full, or the topic's metadata stays unknown, for max.block.ms.
        Raises UnknownPartitionError if the topic does not have the partition, and RecordTooLargeError if the record is
        too large. Raises IllegalStateError if the producer is transactional and no transaction is open. Raises
        SerializationError if a serializer fails or, without a serializer, TypeError for values that are not bytes.
        """
        handing_over = functools.partial(
            self._client.enqueue,
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )
        return Delivery(self._background, self._background.run(handing_over))

    flush = blocking(AsyncProducer.flush)
    partitions_for = blocking(AsyncProducer.partitions_for)
    init_transactions = blocking(AsyncProducer.init_transactions)
    begin_transaction = blocking(AsyncProducer.begin_transaction)
    send_offsets = blocking(AsyncProducer.send_offsets)
    send_offsets_to_transaction = send_offsets
    commit_transaction = blocking(AsyncProducer.commit_transaction)
    abort_transaction = blocking(AsyncProducer.abort_transaction)

    def transaction(self, partitions: Collection[tuple[str, int]] | None = None) -> Transaction[SentK, SentV]:
        """Return a context manager that begins a transaction, commits it at the end of the block, and aborts it on an
        exception.

        A producer that is not initialised yet is initialised first, unless `init_transactions` was called with an
        assignment or a group. With `partitions`, the transaction may write records to these partitions only. Offsets
        are not restricted.
        """

        async def make() -> AsyncTransaction[SentK, SentV]:
            return self._client.transaction(partitions)

        return Transaction(self._background, self._background.run(make))

    @property
    def transactional_id(self) -> str | None:
        """The configured transactional id, else the id that the broker has assigned, or None if it has not assigned one
        yet.
        """
        return self._client.transactional_id

    @property
    def ready(self) -> bool:
        """Whether `begin_transaction` is possible now."""
        return self._client.ready

    @property
    def group_aware(self) -> bool:
        """Whether the last `init_transactions` claimed the group's partitions at the broker."""
        return self._client.group_aware
