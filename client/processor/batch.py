"""`Batch`: the records that a worker has gathered for its next transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.schema import NO_UUID
from ..consumer import ConsumerRecord
from ..values import OffsetAndMetadata, TopicPartition


class Batch:
    """Gathered records, and the offsets to commit for them.

    Invariant: `offsets` has exactly the partitions of the gathered records, each with the position behind its last
    record. `topic_ids` has the id of the topic that each partition's last record comes from.
    """

    __slots__ = ("offsets", "records", "topic_ids")

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}

    def add(
        self,
        partition: TopicPartition,
        records: Iterable[ConsumerRecord],
        position: OffsetAndMetadata,
        topic_id: bytes = NO_UUID,
    ) -> None:
        """Add records of a partition, the position behind them, and the id of their topic."""
        self.records += records
        self.offsets[partition] = position
        self.topic_ids[partition] = topic_id

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Remove records of partitions that are given up."""
        self.records = [record for record in self.records if record.topic_partition not in partitions]
        for partition in partitions:
            self.offsets.pop(partition, None)
            self.topic_ids.pop(partition, None)

    def copy(self) -> Batch:
        """Return a copy that later changes do not affect."""
        batch = Batch()
        batch.records, batch.offsets, batch.topic_ids = list(self.records), dict(self.offsets), dict(self.topic_ids)
        return batch

    def describe(self) -> str:
        """Return topic, partition and offsets of the records, as text for a message."""
        offsets: dict[TopicPartition, list[int]] = {}
        for record in self.records:
            offsets.setdefault(record.topic_partition, []).append(record.offset)
        ranges = [f"{partition} offsets {known[0]} to {known[-1]}" for partition, known in sorted(offsets.items())]
        return f"a batch of {len(self.records)} records: {'; '.join(ranges)}"

    def by_partition(self) -> dict[TopicPartition, Batch]:
        """Return one batch for each partition."""
        batches: dict[TopicPartition, Batch] = {}
        for partition, position in self.offsets.items():
            batches[partition] = batch = Batch()
            batch.offsets[partition], batch.topic_ids[partition] = position, self.topic_ids[partition]
        for record in self.records:
            batches[record.topic_partition].records.append(record)
        return batches
