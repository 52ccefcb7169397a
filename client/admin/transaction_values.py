"""Arguments and results of the admin client for transactions and producers. Times are in ms since the epoch."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ..values import TopicPartition


class FencedProducer(NamedTuple):
    """The outcome of fencing a transactional id: the producer id and its new epoch, or -1 and -1 with an `error`.

    Every producer with an older epoch is fenced, and its open transaction is aborted.
    """

    producer_id: int
    producer_epoch: int
    error: KafkaError | None = None


class TransactionListing(NamedTuple):
    """A listed transactional id. `state` is Kafka's name ("Ongoing"); `coordinator` is the id of the coordinating
    broker.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """The coordinator's view of a transactional id.

    `started_ms` and `partitions` describe the transaction that is open or being ended. Without a transaction they are
    None and empty.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the coordinator will abort the open transaction, or None if no transaction is open."""
        if self.state != "Ongoing" or self.started_ms is None:
            return None
        return self.started_ms + self.timeout_ms


class ProducerDescription(NamedTuple):
    """The state of a producer at a partition's leader.

    `transaction_start_offset` is the first offset of the producer's open transaction, or None. `coordinator_epoch` is
    the epoch in the last marker, or -1 before the first marker. `last_timestamp_ms` is the timestamp of the last
    record, or -1 if it is unknown.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class AbortTransactionSpec(NamedTuple):
    """Identifies an open transaction of a partition, with all values that its abort marker needs."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0

    @classmethod
    def of(cls, partition: TopicPartition, producer: ProducerDescription) -> AbortTransactionSpec:
        """Return the spec of the transaction that this producer has open in a partition."""
        coordinator_epoch = max(producer.coordinator_epoch, 0)
        return cls(partition, producer.producer_id, producer.producer_epoch, coordinator_epoch)


class WhyHanging(Enum):
    """The reason why no coordinator will ever end a hanging transaction."""

    NO_TRANSACTIONAL_ID = "no transactional id has this producer id any more"
    NOT_ITS_TRANSACTION = "the transactional id has no transaction open on this partition"


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition but unknown to all coordinators. It blocks read_committed consumers."""

    partition: TopicPartition
    producer: ProducerDescription
    transactional_id: str | None
    why: WhyHanging

    @property
    def abort_spec(self) -> AbortTransactionSpec:
        """The argument for `Admin.abort_transaction` that ends this transaction."""
        return AbortTransactionSpec.of(self.partition, self.producer)
