"""The consumer client: subscription, group membership, fetching, committed offsets."""

from .consumer import CommitCallback, Consumer, OffsetLike
from .errors import (
    CommitFailedError,
    DeserializationError,
    FencedInstanceError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    RecordCorruptError,
)
from .listener import RebalanceListener
from .record import ConsumerRecord, OffsetAndTimestamp

__all__ = [
    "CommitCallback",
    "CommitFailedError",
    "Consumer",
    "ConsumerRecord",
    "DeserializationError",
    "FencedInstanceError",
    "NoOffsetForPartitionError",
    "OffsetAndTimestamp",
    "OffsetLike",
    "OffsetOutOfRangeError",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RecordCorruptError",
]
