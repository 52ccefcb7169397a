"""What a worker has gathered for its next transactions: `Batch`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..consumer import ConsumerRecord
from ..values import OffsetAndMetadata, TopicPartition


class Batch:
    """Gathered records, and what their offsets are committed as.

    Invariant: `offsets` holds a position for exactly the partitions that records were gathered of, behind the last one.
    """

    __slots__ = ("offsets", "records")

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    def add(self, partition: TopicPartition, records: Iterable[ConsumerRecord], position: OffsetAndMetadata) -> None:
        """Take records of a partition, and the position behind them."""
        self.records += records
        self.offsets[partition] = position

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was gathered of partitions that are given up."""
        self.records = [record for record in self.records if record.topic_partition not in partitions]
        for partition in partitions:
            self.offsets.pop(partition, None)

    def copy(self) -> Batch:
        """Return the same, which later changes of this one leave alone."""
        batch = Batch()
        batch.records, batch.offsets = list(self.records), dict(self.offsets)
        return batch

    def describe(self) -> str:
        """Return which records these are, for people."""
        offsets: dict[TopicPartition, list[int]] = {}
        for record in self.records:
            offsets.setdefault(record.topic_partition, []).append(record.offset)
        ranges = [f"{partition} offsets {known[0]} to {known[-1]}" for partition, known in sorted(offsets.items())]
        return f"a batch of {len(self.records)} records: {'; '.join(ranges)}"

    def by_partition(self) -> dict[TopicPartition, Batch]:
        """Return the same, one batch for each partition."""
        batches: dict[TopicPartition, Batch] = {}
        for partition, position in self.offsets.items():
            batches[partition] = batch = Batch()
            batch.offsets[partition] = position
        for record in self.records:
            batches[record.topic_partition].records.append(record)
        return batches
