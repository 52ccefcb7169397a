"""What the admin client tells of transactions and of producers. Plain values; times are in ms since the epoch."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ..values import TopicPartition


class FencedProducer(NamedTuple):
    """What became of one transactional id: its producer id and new epoch (-1, -1 with an `error`).

    Every producer with an older epoch is fenced, and what it had open is aborted.
    """

    producer_id: int
    producer_epoch: int
    error: KafkaError | None = None


class TransactionListing(NamedTuple):
    """A transactional id as it is listed; `state` is Kafka's name ("Ongoing"), `coordinator` the node that has it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """What the coordinator knows of a transactional id.

    `started_ms` and `partitions` are those of the transaction that is open or being ended: None and empty without one.
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
        """When the coordinator aborts it by itself; None where nothing is undecided."""
        if self.state != "Ongoing" or self.started_ms is None:
            return None
        return self.started_ms + self.timeout_ms


class ProducerDescription(NamedTuple):
    """A producer as a partition's leader remembers it.

    `transaction_start_offset` is the first offset of its open transaction, None without one; `coordinator_epoch` that
    of the last marker, -1 before the first; `last_timestamp_ms` that of its last record, -1 where it is not known.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class AbortTransactionSpec(NamedTuple):
    """Names an open transaction of one partition as exactly as a marker has to; Kafka's name for it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0

    @classmethod
    def of(cls, partition: TopicPartition, producer: ProducerDescription) -> AbortTransactionSpec:
        """Return what names the transaction that this producer has open there."""
        coordinator_epoch = max(producer.coordinator_epoch, 0)
        return cls(partition, producer.producer_id, producer.producer_epoch, coordinator_epoch)


class WhyHanging(Enum):
    """Why no coordinator will ever end a transaction."""

    NO_TRANSACTIONAL_ID = "no transactional id has its producer id any more"
    NOT_ITS_TRANSACTION = "the transactional id has no transaction open on this partition"


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition, and that no coordinator knows of: it holds up readers for ever."""

    partition: TopicPartition
    producer: ProducerDescription
    transactional_id: str | None
    why: WhyHanging

    @property
    def abort_spec(self) -> AbortTransactionSpec:
        """What `Admin.abort_transaction` takes to end it."""
        return AbortTransactionSpec.of(self.partition, self.producer)
