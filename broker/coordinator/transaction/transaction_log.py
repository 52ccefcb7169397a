"""Encodes and decodes the records of `__transaction_state` for transactional ids.

Defines the mapping between TransactionMetadata and the records; never appends or replays records. Layout and versions
are Kafka's, so Kafka's tools can read this broker's log, and this broker's tools can read Kafka's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from ....protocol.codec import (
    UnknownRecord,
    decode_record_key,
    decode_record_value,
    encode_record_key,
    encode_record_value,
)
from ....protocol.errors import DecodeError
from ....protocol.messages.transaction_log import (
    GroupAssignmentKey,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from .metadata import TransactionMetadata
from .state import NO_PARTITIONS, NO_PRODUCER_EPOCH, TopicPartition, TransactionState, TransactionVersion

TRANSACTION_STATE_TOPIC = "__transaction_state"

_STATES: Final = {int(state): state for state in TransactionState}
_VERSIONS: Final = {int(version): version for version in TransactionVersion}

_REMEMBERED_PARTITIONS = 500
"""The largest number of partitions whose sorted list is cached. The limit bounds the cache's memory."""

_INSERTED_SHARE: Final = 8
"""Added partitions are inserted if they are at most an eighth of the sorted ones. Otherwise all are sorted again."""


def encode_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id's record."""
    return encode_record_key(TransactionLogKey(transactional_id))


def decode_key(key: bytes) -> TransactionLogKey | GroupAssignmentKey | UnknownRecord:
    """Decode a record's key. Return UnknownRecord if the record has a newer version; such records are ignored.

    Raise DecodeError if the key is malformed.
    """
    decoded = decode_record_key(key, [TransactionLogKey, GroupAssignmentKey])
    assert isinstance(decoded, TransactionLogKey | GroupAssignmentKey | UnknownRecord)
    return decoded


class SortedSet:
    """A large set of partitions in the latest record of a transactional id, grouped and sorted as in the record.

    A transaction that grows partition by partition is written each time with all of its partitions. Sorting 10,000
    partitions again would take a millisecond, so the added partitions are inserted instead.
    """

    __slots__ = ("_partitions", "_rows")

    def __init__(self) -> None:
        self._partitions = NO_PARTITIONS
        self._rows: list[PartitionsSchema] = []

    def by_topic(self, partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
        """Group and sort the partitions for a record. The next call may change the returned list."""
        before = self._partitions
        growth = len(partitions) - len(before)
        if partitions is not before:
            added = partitions - before if 0 <= growth <= len(before) // _INSERTED_SHARE else None
            if added is not None and len(added) == growth:
                for topic, index in added:
                    _insert(self._rows, topic, index)
            else:
                self._rows = _sorted(partitions)
            self._partitions = partitions
        return self._rows


class SortedSets(NamedTuple):
    """The partitions of the transaction, and those that stay registered after it, in an id's latest record."""

    transaction: SortedSet
    session: SortedSet

    @classmethod
    def unknown(cls) -> SortedSets:
        """Return empty sets, for a transactional id for which no record has been encoded yet."""
        return cls(SortedSet(), SortedSet())


def is_large(metadata: TransactionMetadata) -> bool:
    """Return whether a record of the value should be encoded with `SortedSets`, because it has many partitions."""
    return (
        len(metadata.topic_partitions) > _REMEMBERED_PARTITIONS
        or len(metadata.session_partitions) > _REMEMBERED_PARTITIONS
    )


def encode_value(metadata: TransactionMetadata, level: TransactionVersion, sets: SortedSets | None = None) -> bytes:
    """Encode the value of a transactional id's record at the finalized `level` of transaction.version.

    If the value is large (`is_large`), `sets` should be the `SortedSets` of the id's previous record.
    """
    version = level.log_value_version
    empty = metadata.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        transaction_partitions=None if empty else _by_topic(metadata.topic_partitions, sets and sets.transaction),
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms=metadata.start_timestamp_ms,
    )
    if version >= 1:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = int(metadata.client_transaction_version)
        value.session_partitions = _by_topic(metadata.session_partitions, sets and sets.session)
        value.unknown_tags = metadata.unknown_tags
    return encode_record_value(value, version)


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Decode the value of a transactional id's record.

    Raise DecodeError if the value is malformed or has an unknown, newer version.
    """
    read = decode_record_value(TransactionLogValue, value)
    state = _STATES.get(read.transaction_status)
    version = _VERSIONS.get(min(read.client_transaction_version, TransactionVersion.TV_2))
    if state is None or version is None:
        raise DecodeError(
            f"unknown transaction status {read.transaction_status} or version {read.client_transaction_version}"
        )
    session_partitions = _flat(read.session_partitions)
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=_shared(read.transaction_timeout_ms),
        last_update_timestamp_ms=read.transaction_last_update_timestamp_ms,
        state=state,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        topic_partitions=_flat(read.transaction_partitions),
        start_timestamp_ms=read.transaction_start_timestamp_ms,
        client_transaction_version=version,
        session_partitions=session_partitions,
        preregistered=session_partitions,
        unknown_tags=read.unknown_tags,
    )


@lru_cache(maxsize=128)
def _shared(timeout_ms: int) -> int:
    """Return the int object that all transactional ids with this timeout share, to save memory."""
    return timeout_ms


def _by_topic(partitions: frozenset[TopicPartition], known: SortedSet | None) -> list[PartitionsSchema]:
    """Group and sort the partitions for a record.

    The list is cached, because most transactions repeat the same partitions.
    """
    if len(partitions) <= _REMEMBERED_PARTITIONS:
        return _remembered(partitions)
    return _sorted(partitions) if known is None else known.by_topic(partitions)


def _sorted(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return [PartitionsSchema(topic, sorted(topics[topic])) for topic in sorted(topics)]


def _insert(rows: list[PartitionsSchema], topic: str, index: int) -> None:
    """Add a partition to rows that are sorted."""
    place = bisect_left(rows, topic, key=_topic)
    if place == len(rows) or rows[place].topic != topic:
        rows.insert(place, PartitionsSchema(topic, []))
    insort(rows[place].partition_ids, index)


_topic: Final[Callable[[PartitionsSchema], str]] = attrgetter("topic")
_remembered = lru_cache(maxsize=128)(_sorted)


def _flat(topics: list[PartitionsSchema] | None) -> frozenset[TopicPartition]:
    if not topics:
        return NO_PARTITIONS
    return frozenset((entry.topic, partition) for entry in topics for partition in entry.partition_ids)
