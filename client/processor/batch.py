"""`Batch`: the records that a worker has gathered for its next transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..consumer import ConsumerRecord
from ..values import OffsetAndMetadata, TopicPartition


class Batch:
    """Gathered records, and the offsets to commit for them.

    Invariant: the keys of `offsets` are the partitions of the gathered records. Each value is the position after the
    partition's last gathered record.
    """

    __slots__ = ("offsets", "records")

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    def add(self, partition: TopicPartition, records: Iterable[ConsumerRecord], position: OffsetAndMetadata) -> None:
        """Add records of a partition, and the position after them."""
        self.records += records
        self.offsets[partition] = position

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Remove all records and offsets of these partitions, which were revoked or lost."""
        self.records = [record for record in self.records if record.topic_partition not in partitions]
        for partition in partitions:
            self.offsets.pop(partition, None)

    def copy(self) -> Batch:
        """Return a copy that later changes do not affect."""
        batch = Batch()
        batch.records, batch.offsets = list(self.records), dict(self.offsets)
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
            batch.offsets[partition] = position
        for record in self.records:
            batches[record.topic_partition].records.append(record)
        return batches
