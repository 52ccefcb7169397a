"""What a consumer hands out: `ConsumerRecord`, one slotted object per record that shares what its batch has in common.

Owns no buffer: key, value and header values are bytes of their own, so that a record may be kept for as long as one
likes.
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.records import TimestampType
from ..values import TopicPartition


class BatchOrigin(NamedTuple):
    """What all records of one batch share."""

    partition: TopicPartition
    leader_epoch: int
    timestamp_type: TimestampType


class ConsumerRecord:
    """One record of a topic. `timestamp` in ms since the epoch; `leader_epoch` -1 where the broker does not say."""

    __slots__ = ("headers", "key", "offset", "origin", "timestamp", "value")

    def __init__(
        self,
        origin: BatchOrigin,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        self.origin = origin
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record comes from."""
        return self.origin.partition

    @property
    def topic(self) -> str:
        return self.origin.partition.topic

    @property
    def partition(self) -> int:
        return self.origin.partition.partition

    @property
    def leader_epoch(self) -> int:
        return self.origin.leader_epoch

    @property
    def timestamp_type(self) -> TimestampType:
        return self.origin.timestamp_type

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset and its own timestamp in ms."""

    offset: int
    timestamp: int
    leader_epoch: int = -1
