"""Look up the start and the ends of partitions, for commands that also show the partitions that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..client.errors import KafkaError
from ..client.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListedOffset
from ..client.values import TopicPartition

if TYPE_CHECKING:
    from ..client.admin import Admin


class PartitionOffsets(NamedTuple):
    """The first stored offset of a partition, its last stable offset, and the offset of its next record.

    An offset that cannot be looked up is None, and `error` contains the reason.
    """

    start: int | None
    stable: int | None
    end: int | None
    error: str | None


async def partition_offsets(
    admin: Admin, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionOffsets]:
    """Return the offsets of each partition. Raises UnknownTopicError for a partition that does not exist."""
    at_start, at_end = dict.fromkeys(partitions, EARLIEST_TIMESTAMP), dict.fromkeys(partitions, LATEST_TIMESTAMP)
    starts = await admin.list_offsets_or_errors(at_start)
    stable = await admin.list_offsets_or_errors(at_end, isolation_level="read_committed")
    ends = await admin.list_offsets_or_errors(at_end)
    return {one: _offsets(starts[one], stable[one], ends[one]) for one in partitions}


def _offsets(
    start: ListedOffset | KafkaError, stable: ListedOffset | KafkaError, end: ListedOffset | KafkaError
) -> PartitionOffsets:
    errors = [found for found in (start, stable, end) if isinstance(found, KafkaError)]
    reason = f"{errors[0].code.name}: {errors[0].code.text}" if errors else None
    return PartitionOffsets(_known(start), _known(stable), _known(end), reason)


def _known(found: ListedOffset | KafkaError) -> int | None:
    return None if isinstance(found, KafkaError) else found.offset
