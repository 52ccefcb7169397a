"""The consumer's own errors, besides those of all clients. The `remedy` of a class says what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import FatalError, RetriableError
from ..values import TopicPartition

if TYPE_CHECKING:
    from .record import ConsumerRecord


class CommitFailedError(KafkaError):
    """The offsets were not committed: the member has left the group, and its partitions may belong to another member.

    The new owner of the partitions reprocesses all records after the last committed offsets. If processing took too
    long, poll more often, or raise max.poll.interval.ms.
    """


class RebalanceInProgressError(RetriableError):
    """The offsets were not committed because the group rebalances: poll, then commit the offsets of the partitions that
    are still assigned.
    """

    remedy = (
        "call poll() so that the rebalance can end, then commit the offsets of the partitions that are still assigned"
    )


class FencedInstanceError(FatalError):
    """Another consumer with the same group.instance.id has taken this consumer's place."""

    remedy = "close this consumer; give each instance its own group.instance.id"


class _OfPartitions(KafkaError):
    def __init__(self, code: ErrorCode, message: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(code, message)
        self.partitions = tuple(sorted(partitions))


class NoOffsetForPartitionError(_OfPartitions):
    """A partition has no committed offset, and auto.offset.reset is none: `seek`, or commit an offset first."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        names = ", ".join(map(str, sorted(partitions)))
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"no committed offset for {names} and auto.offset.reset=none: seek(), or set a reset policy",
            partitions,
        )


class OffsetOutOfRangeError(_OfPartitions):
    """The position is not in the log, because records were deleted or the topic was recreated. With
    auto.offset.reset=none, the program must `seek` to another offset.
    """

    def __init__(self, partition: TopicPartition, offset: int, why: str = "out of range") -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {partition}: {why}, and auto.offset.reset=none: seek(), or set a reset policy",
            (partition,),
        )
        self.offset = offset


class RecordCorruptError(KafkaError):
    """A batch cannot be read from `offset` on; the position stays at `offset`.

    To skip the rest of the batch on purpose, `seek` to `next_offset`, which is -1 if the end of the batch is unknown.
    """

    def __init__(self, partition: TopicPartition, offset: int, reason: str, next_offset: int = -1) -> None:
        remedy = "seek() beyond the batch" if next_offset < 0 else f"seek() to offset {next_offset}"
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE, f"{partition}, batch at offset {offset}: {reason}; {remedy} to skip it"
        )
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class DeserializationError(KafkaError):
    """The key or value of a record cannot be deserialized. The position stays at the record, and the next poll raises
    this error again, so that no record is skipped unnoticed.

    `record` is the record with key and value as bytes, and `part` is key or value. To skip the record on purpose,
    `seek` to `next_offset`. The deserializer's own exception is the `__cause__`.
    """

    def __init__(self, record: ConsumerRecord, part: str, reason: str) -> None:
        partition, offset = record.topic_partition, record.offset
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"the {part} of {partition} at offset {offset} {reason}; correct the deserializer, or seek() to offset "
            f"{offset + 1} to skip the record (this error's `record`)",
        )
        self.record = record
        self.part = part
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1

    def __str__(self) -> str:
        return self.message
