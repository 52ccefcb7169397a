"""Decodes the committed offsets when the broker starts, quickly and with shared objects.

A group usually commits on many partitions, and many groups use the same topics, mostly with the same metadata. The
group id and the topic name are therefore decoded once per group and topic. All groups share the (topic, partition)
tuples and the topic ids.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ....protocol.codec import UnknownRecord
from ....protocol.messages.group_log import GroupMetadataKey
from .offsets import OffsetAndMetadata, TopicPartition
from .records import decode_key, decode_offset

_PARTITION: Final = Struct(">i")
_PLAIN: Final = Struct(">hqiBqBBB16s")
"""The layout of most offset values: version 4, empty metadata, and the topic id as the only tagged field."""
_PLAIN_SIZE: Final = _PLAIN.size


class _Partitions(dict[int, TopicPartition]):
    """The (topic, partition) tuples of one topic by partition index. A tuple is created on its first access."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __missing__(self, index: int) -> TopicPartition:
        partition = self[index] = (self._topic, index)
        return partition


class OffsetReader:
    """A decoder of the keys and values of `__consumer_offsets`. It raises DecodeError like `records.py`."""

    def __init__(self) -> None:
        # The group id and the topic's partitions, by the bytes of a key that precede the partition index.
        self._targets: dict[bytes, tuple[str, _Partitions]] = {}
        self._partitions: dict[str, _Partitions] = {}
        self._topic_ids: dict[bytes, bytes] = {}
        self._commit_timestamp_ms = -1

    def key(self, raw: bytes) -> tuple[str, TopicPartition | None] | UnknownRecord:
        """Decode a record's key and return its group id and partition. The partition of a group's metadata key is None.

        Return UnknownRecord for a record of another kind.
        """
        target = self._targets.get(raw[:-4])
        if target is not None:
            (index,) = _PARTITION.unpack_from(raw, len(raw) - 4)
        else:
            key = decode_key(raw)
            if isinstance(key, UnknownRecord):
                return key
            if isinstance(key, GroupMetadataKey):
                return key.group, None
            partitions = self._partitions.setdefault(key.topic, _Partitions(key.topic))
            target = self._targets[raw[:-4]] = key.group, partitions
            index = key.partition
        return target[0], target[1][index]

    def offset(self, value: bytes, record_offset: int) -> OffsetAndMetadata:
        """Decode the value of an offset record. `record_offset` is the record's offset in the log."""
        if len(value) == _PLAIN_SIZE:
            version, offset, leader_epoch, metadata, timestamp_ms, tags, tag, size, topic_id = _PLAIN.unpack(value)
            if version == 4 and metadata == 1 and tags == 1 and tag == 0 and size == 16:
                if timestamp_ms == self._commit_timestamp_ms:
                    timestamp_ms = self._commit_timestamp_ms  # share the object among offsets committed together
                else:
                    self._commit_timestamp_ms = timestamp_ms
                topic_id = self._topic_ids.setdefault(topic_id, topic_id)
                return OffsetAndMetadata(offset, leader_epoch, "", timestamp_ms, -1, topic_id, None, record_offset)
        return decode_offset(value)._replace(record_offset=record_offset)
