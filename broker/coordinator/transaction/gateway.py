"""Defines the coordinator's only access to the leaders of a transaction's partitions.

`PartitionGateway` is the interface. `LocalPartitionGateway` accesses the partitions of this broker. With several
brokers, another implementation would send WriteTxnMarkers to the partition leaders, and nothing else would change. A
gateway never decides anything about a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode
from ...partitions.markers import Marker
from .state import TopicPartition

if TYPE_CHECKING:
    from ...metadata import Metadata
    from ...partitions.replica_manager import ReplicaManager


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A producer's transaction that has batches but no marker yet in one partition's log.

    `last_timestamp_ms` is the timestamp of the transaction's newest batch, as set by the producer.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerInLog:
    """A producer's state in one partition's log.

    `producer_epoch` is the producer's last epoch. `coordinator_epoch` is the epoch of the coordinator that ended the
    producer's last transaction, or -1 if none was ended. `is_open` says whether the producer has a transaction in the
    log that no marker has ended.
    """

    producer_epoch: int
    coordinator_epoch: int
    is_open: bool


class PartitionGateway(Protocol):
    """The operations that the coordinator needs from partition leaders."""

    async def write_markers(self, markers: list[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
        """Append the markers. Return an error code for each partition of each marker when all markers are durable.

        A marker in a `__consumer_offsets` partition also commits or drops the offsets pending there. Writing a marker
        twice is harmless. If a partition has recorded a higher coordinator epoch than the marker's, the marker is
        appended with the recorded epoch, because this broker's coordinator is the only one. The failure of a partition
        is returned as its error code, not raised.
        """

    def is_ready(self, partition: TopicPartition, *, has_waited: bool = False) -> bool:
        """Whether `write_markers`, called for this partition alone, would append without waiting.

        `has_waited` says whether the caller has waited with `until_ready`, as in `Marker`.

        Raise KafkaError UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR.
        """

    async def until_ready(self, partition: TopicPartition) -> None:
        """Wait until a marker can be appended to the partition. Raise KafkaError like `is_ready`.

        The partition may be deleted before the caller continues, so the caller must check `is_ready` again.
        """

    def producer(self, partition: TopicPartition, producer_id: int) -> ProducerInLog | None:
        """Return the producer's state in the partition's log, or None if the log does not know the producer.

        Raise KafkaError UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR.
        """

    def unflushed(self, partition: TopicPartition, producer_id: int) -> asyncio.Future[None] | None:
        """Return None if the producer's last batch in the partition is durable, else a future to await.

        The caller must shield the future, because other callers may await it. Raise KafkaError KAFKA_STORAGE_ERROR if
        the batch may be lost, NOT_LEADER_OR_FOLLOWER if the log is closed because the broker is stopping, and
        UNKNOWN_TOPIC_OR_PARTITION if the partition is being deleted; the future fails with the same errors.
        """

    def producer_epochs(self) -> Iterator[tuple[int, int]]:
        """Yield (producer id, epoch) of every producer in the logs of all reachable partitions.

        Used when the broker starts.
        """

    def is_deleted(self, partition: TopicPartition) -> bool:
        """Whether the partition no longer exists in the metadata, so that it needs no marker."""

    def deleted_of(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that no longer exist in the metadata."""

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Yield every open transaction in the logs of all reachable partitions. Used when the broker starts."""


class LocalPartitionGateway:
    """The partition leaders in this process."""

    def __init__(self, replica_manager: ReplicaManager, metadata: Metadata) -> None:
        self._replica_manager = replica_manager
        self._metadata = metadata

    async def write_markers(self, markers: list[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
        """Append the markers. Return an error code for each partition of each marker when all markers are durable."""
        return await self._replica_manager.append_markers(markers)

    def is_ready(self, partition: TopicPartition, *, has_waited: bool = False) -> bool:
        """Whether `write_markers`, called for this partition alone, would append without waiting."""
        return self._replica_manager.is_ready(partition, has_waited=has_waited)

    async def until_ready(self, partition: TopicPartition) -> None:
        """Wait until a marker can be appended to the partition."""
        await self._replica_manager.until_ready(partition)

    def producer(self, partition: TopicPartition, producer_id: int) -> ProducerInLog | None:
        """Return the producer's state in the partition's log, or None if the log does not know the producer.

        If the partition has no log yet, none is created.
        """
        log = self._replica_manager.existing_log(*partition)
        entry = None if log is None else log.producers.entry(producer_id)
        if entry is None:
            return None
        return ProducerInLog(entry.producer_epoch, entry.coordinator_epoch, entry.current_txn_first_offset >= 0)

    def unflushed(self, partition: TopicPartition, producer_id: int) -> asyncio.Future[None] | None:
        """Return None if the producer's last batch in the partition is durable, else a future to await."""
        return self._replica_manager.unflushed(*partition, producer_id)

    def producer_epochs(self) -> Iterator[tuple[int, int]]:
        """Yield (producer id, epoch) of every producer in the logs of all partitions."""
        for log in self._replica_manager.logs():
            for entry in log.producers.entries():
                yield entry.producer_id, entry.producer_epoch

    def is_deleted(self, partition: TopicPartition) -> bool:
        """Whether the partition no longer exists in the metadata."""
        topic = self._metadata.topic(partition[0])
        return topic is None or partition[1] >= topic.partitions

    def deleted_of(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that no longer exist in the metadata.

        Each topic is looked up once, because a transaction may have very many partitions.
        """
        counts: dict[str, int] = {}
        for name in set(map(itemgetter(0), partitions)):
            topic = self._metadata.topic(name)
            counts[name] = 0 if topic is None else topic.partitions
        return frozenset([partition for partition in partitions if partition[1] >= counts[partition[0]]])

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Yield every open transaction in the logs of all partitions."""
        for log in self._replica_manager.logs():
            for entry in log.producers.open_transactions():
                yield OpenTransaction(
                    (log.topic, log.partition),
                    entry.producer_id,
                    entry.producer_epoch,
                    entry.current_txn_first_offset,
                    entry.last_timestamp,
                )
