"""Stores a coordinator's state as keyed records in an internal topic (`__transaction_state`, `__consumer_offsets`).

Maps keys to partitions, encodes state records as batches, and reads the records back in order. Never interprets keys or
values, and keeps no state in memory: the partition's log is the truth.

Invariants:

* A key always maps to the same partition. The mapping is Kafka's, so Kafka and this broker can use the same data
  directory.
* `append` writes one batch: either all of its records are in the log or none is. It returns when the records are in the
  log. With `durability=flush` they may not be on disk yet. No response may report the records until `durable` has
  returned.
* A partition is created by the first append to it. `existing` lists the partitions that a replay must read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.batch_header import TRANSACTIONAL, assemble_batch
from ...protocol.internal_topics import java_string_hash as java_string_hash
from ...protocol.internal_topics import partition_for_key as partition_for_key
from ...protocol.records import encode_record
from ..log.results import AppendOrigin

if TYPE_CHECKING:
    from ..log.results import AppendResult
    from ..partitions.replica_manager import ReplicaManager


def units_of_hashing(key: str) -> int:
    """Return the cost of `StateLog.partition_for(key)` in units of work (`steps.py`); a key may be 32 kB long."""
    return len(key) // 10


class StateRecord(NamedTuple):
    """One record read back from the log; the `value` of a tombstone is None."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class StateLog:
    """The partitions of one internal topic, in which a coordinator stores its state."""

    def __init__(self, replica_manager: ReplicaManager, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self._replica_manager = replica_manager

    def partition_for(self, key: str) -> int:
        """Return the index of the partition that holds the state of `key` (a transactional id or a group id)."""
        return partition_for_key(key, self.partitions)

    def existing(self) -> list[int]:
        """Return the indexes of the partitions that exist, in ascending order; a replay reads these partitions."""
        return sorted(self._replica_manager.existing_partitions(self.topic))

    def replay(self, partition: int) -> Iterator[bytes]:
        """Return all batches of a partition in log order, markers included, in chunks of about ten kilobytes.

        Raise KafkaError KAFKA_STORAGE_ERROR if the partition cannot be read.
        """
        return self._replica_manager.partition(self.topic, partition).log.windows()

    def append(
        self,
        partition: int,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        essential: bool = False,
    ) -> AppendResult:
        """Append (key, value or None) pairs as one batch; the first append to a partition creates it.

        `essential` says that the batch ends a transaction or removes state. Such a batch may use the whole disk reserve
        (`log.reserve.bytes`), including `log.reserve.decision.bytes`, and may exceed `max.message.bytes`. So existing
        state can always be ended or removed. Raise KafkaError with the log's codes (KAFKA_STORAGE_ERROR,
        MESSAGE_TOO_LARGE, ...); after an error, nothing has been written.
        """
        return self.append_encoded(
            partition,
            [encode_record(0, offset, key, value) for offset, (key, value) in enumerate(records)],
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
            essential=essential,
        )

    def keep_room(self, partition: int, size: int) -> Callable[[], None]:
        """Keep `size` bytes of the disk free for essential batches that follow, until the returned function is called.

        Raise KafkaError KAFKA_STORAGE_ERROR if the batches would need space that is kept for transaction decisions.
        """
        return self._replica_manager.partition(self.topic, partition).log.keep_room(size)

    def largest_batch(self) -> int:
        """Return the size in bytes of the largest batch that `append` accepts; essential batches may be larger."""
        return self._replica_manager.largest_batch(self.topic)

    def append_encoded(
        self,
        partition: int,
        records: Sequence[bytes],
        *,
        timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        essential: bool = False,
    ) -> AppendResult:
        """Do the same as `append` with records that `encode_record` has encoded.

        The records must have timestamp delta 0 and the offset deltas 0, 1, 2, ...
        """
        batch = assemble_batch(
            b"".join(records),
            base_offset=0,
            leader_epoch=-1,
            attributes=TRANSACTIONAL if transactional else 0,
            last_offset_delta=len(records) - 1,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=-1,
            record_count=len(records),
        )
        home = self._replica_manager.partition(self.topic, partition)
        return home.log.append(
            bytearray(batch), origin=AppendOrigin.COORDINATOR, leader_epoch=home.leader_epoch, essential=essential
        )

    def pending_flush(self, partition: int, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if all records below `end_offset` are durable, else a future that resolves when they are.

        The setting `durability` defines what durable means. All callers that wait for the same flush share its future,
        so each must await it through `asyncio.shield`, or call `durable`. The call, or the future, raises KafkaError
        KAFKA_STORAGE_ERROR if the log is offline or the flush fails.
        """
        return self._replica_manager.partition(self.topic, partition).log.flushed(end_offset)

    async def durable(self, partition: int, end_offset: int) -> None:
        """Return when all records below `end_offset` (an append's last_offset + 1) are durable.

        Raise KafkaError KAFKA_STORAGE_ERROR if the flush failed. In that case, the appended records may be lost.
        """
        flush = self.pending_flush(partition, end_offset)
        if flush is not None:
            await asyncio.shield(flush)
