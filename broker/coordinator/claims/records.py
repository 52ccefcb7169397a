"""Encodes and decodes the records of claims in `__transaction_state` (record id 9000).

Defines the mapping between assignments and records; never appends or replays records. Kafka's tools skip these records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ....protocol.codec import decode_record_value, encode_record_key, encode_record_value
from ....protocol.messages.transaction_log import AssignedPartitionsSchema, GroupAssignmentKey, GroupAssignmentValue
from ..claim import TopicPartition

VALUE_VERSION = 0


def encode_assignment_key(group_id: str, transactional_id: str) -> bytes:
    """Encode the key of the record that stores which of a group's partitions a transactional id holds."""
    return encode_record_key(GroupAssignmentKey(group_id, transactional_id))


def encode_assignment(generation_id: int, partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the value of an assignment's record: the generation and the held partitions."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    assigned = [AssignedPartitionsSchema(topic, sorted(topics[topic])) for topic in sorted(topics)]
    return encode_record_value(GroupAssignmentValue(generation_id, assigned), VALUE_VERSION)


def decode_assignment(value: bytes) -> tuple[int, frozenset[TopicPartition]]:
    """Decode the value of an assignment's record; return (generation, partitions).

    Raise DecodeError if the value is malformed or has an unknown, newer version.
    """
    read = decode_record_value(GroupAssignmentValue, value)
    partitions = frozenset((item.topic, index) for item in read.assigned_partitions for index in item.partition_ids)
    return read.generation_id, partitions
