"""What a program gives as partitions, positions and names, checked before any of it takes effect.

A wrong type is a TypeError that says what is wanted, and a negative offset is refused: it would be committed, and read
as "no offset", so that the group begins anew somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .errors import IllegalStateError
from .values import OffsetAndMetadata, Offsets, TopicPartition


def partition_of(given: object) -> TopicPartition:
    """Return a (topic, partition) pair as one."""
    match given:
        case (str(topic), int(partition)) if not isinstance(partition, bool):
            return TopicPartition(topic, partition)
    raise TypeError(f"{given!r} is not a (topic, partition) pair")


def partitions_of(given: Iterable[object]) -> frozenset[TopicPartition]:
    """Return (topic, partition) pairs as a set."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is a string: give (topic, partition) pairs")
    return frozenset(partition_of(one) for one in given)


def positions_of(given: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return positions to commit, a plain int being an offset without metadata."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets are a mapping, from (topic, partition) to the next offset to read, not {given!r}")
    positions: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, at in given.items():
        partition = partition_of(key)
        position = at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
        offset, metadata, epoch = position
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(f"offset {offset!r} of {partition} is not a whole number")
        if not isinstance(metadata, str) or not isinstance(epoch, int):
            raise TypeError(f"{position!r} for {partition}: metadata is a string, and leader_epoch a whole number")
        if not 0 <= offset < 2**63:
            raise IllegalStateError(f"cannot commit offset {offset} for {partition}: it is not from 0 to 2^63 - 1")
        positions[partition] = position
    return positions


def names_of(given: Iterable[str], what: str) -> list[str]:
    """Return names as a list; one string alone would be taken for a list of its letters."""
    if isinstance(given, str):
        raise TypeError(f"{what}: {given!r} is a string, give a list")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what}: {name!r} is not a string")
    return names
