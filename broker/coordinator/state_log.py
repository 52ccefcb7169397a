"""An internal topic (`__transaction_state`, `__consumer_offsets`) used as a keyed log of a coordinator's state.

Owns: which partition a key lives in, how state records become batches, and reading them back in order. Never
interprets keys or values and keeps no state of its own: the partition log is the truth.

Invariants:

* A key always maps to the same partition (by Kafka's mapping, so both brokers can use the same data directory).
* `append` writes one batch: all of its records are in the log or none. It returns when the log has them, which with
  `durability=flush` is before they are on disk; no response may report them until `durable` has returned.
* Partitions are created by the first append that needs them; `existing` lists those that a replay must read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.batch_header import TRANSACTIONAL, assemble_batch
from ...protocol.internal_topics import java_string_hash as java_string_hash
from ...protocol.internal_topics import partition_for_key as partition_for_key
from ...protocol.records import Record, encode_batch
from ..log.results import AppendOrigin

if TYPE_CHECKING:
    from ..log.results import AppendResult
    from ..replica_manager import ReplicaManager


class StateRecord(NamedTuple):
    """One record read back from the log; a tombstone has `value` None."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class StateLog:
    """The partitions of one internal topic, as a coordinator writes and replays them."""

    def __init__(self, replica_manager: ReplicaManager, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self._replica_manager = replica_manager

    def partition_for(self, key: str) -> int:
        """The partition that holds the state of `key` (a transactional id, a group id)."""
        return partition_for_key(key, self.partitions)

    def existing(self) -> list[int]:
        """The partitions that have been created so far, in order; a replay reads these."""
        return sorted(self._replica_manager.existing_partitions(self.topic))

    def replay(self, partition: int) -> Iterator[bytes]:
        """All batches of a partition in log order, markers included, some ten kilobytes at a time.

        Raises KafkaError KAFKA_STORAGE_ERROR if the partition cannot be read.
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
        """Append (key, value or None) pairs as one batch, creating the partition on first use.

        `essential`: the batch ends a transaction or removes state. It may use the last part of the disk's reserve and
        is not bound by `max.message.bytes`, so that existing state can always be ended or removed.
        Raises KafkaError with the log's codes (KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, ...); then nothing was written.
        """
        batch = encode_batch(
            [Record(offset, timestamp_ms, key, value, []) for offset, (key, value) in enumerate(records)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
        )
        return self._append(partition, batch, essential)

    def largest_batch(self) -> int:
        """The size in bytes of the largest batch that `append` accepts, unless it is essential."""
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
        """Append records that `encode_record` made, with timestamp delta 0 and offset deltas from 0; as `append`."""
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
        return self._append(partition, batch, essential)

    def _append(self, partition: int, batch: bytes, essential: bool) -> AppendResult:
        home = self._replica_manager.partition(self.topic, partition)
        return home.log.append(
            bytearray(batch), origin=AppendOrigin.COORDINATOR, leader_epoch=home.leader_epoch, essential=essential
        )

    def pending_flush(self, partition: int, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is as durable as `durability` requires, else a future for it.

        All callers share the future of a flush: await it through `asyncio.shield`, or use `durable`.
        """
        return self._replica_manager.partition(self.topic, partition).log.flushed(end_offset)

    async def durable(self, partition: int, end_offset: int) -> None:
        """Return when everything below `end_offset` (an append's last_offset + 1) is durable.

        Raises KafkaError KAFKA_STORAGE_ERROR if the flush failed: the appended records may or may not survive.
        """
        flush = self.pending_flush(partition, end_offset)
        if flush is not None:
            await asyncio.shield(flush)
