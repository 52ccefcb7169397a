"""`read_offset_fetch`: the committed offsets in a response to OffsetFetch, for consumers and for `Admin`."""

from __future__ import annotations

from typing import Final

from ..protocol.errors import PENDING_TRANSACTION, ErrorCode, KafkaError, error_code
from ..protocol.messages.offset_fetch import OffsetFetchResponse
from .errors import PendingTransactionError, error_for
from .values import OffsetAndMetadata, TopicPartition

Found = dict[TopicPartition, OffsetAndMetadata | None]
"""Committed offsets by partition; None for a partition without a committed offset."""

LAST_FETCH_OF_ONE_GROUP: Final = 7
"""The last version of OffsetFetch that asks for a single group."""

ASK_AGAIN: Final = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Errors that end by themselves, although they are not retriable for other requests."""

_PENDING: Final = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT, PENDING_TRANSACTION})


def read_offset_fetch(answer: OffsetFetchResponse, version: int, group_id: str) -> tuple[Found, KafkaError | None]:
    """Return the committed offsets in a response, and the error of one partition, or None if no partition has an error.

    If several partitions have errors, an error that is not retriable is preferred. Raises an error of the whole group,
    and KafkaError UNKNOWN_SERVER_ERROR if the response does not name the group.
    """
    found: Found = {}
    problem: KafkaError | None = None
    if version <= LAST_FETCH_OF_ONE_GROUP:
        top, topics = answer.error_code, answer.topics
    else:
        group = next((one for one in answer.groups if one.group_id == group_id), None)
        if group is None:
            raise error_for(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"committed offsets: the broker's response does not name group {group_id!r}",
            )
        top, topics = group.error_code, group.topics  # type: ignore[assignment]
    if top:
        raise error_for(top, f"committed offsets: {error_code(top).text}")
    for topic in topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            if data.error_code:
                code = error_code(data.error_code)
                if problem is not None and not passes(problem):
                    continue
                problem = (
                    PendingTransactionError(
                        code, f"a transaction that commits offsets of {partition} has not ended yet"
                    )
                    if code in _PENDING
                    else error_for(code, f"committed offset of {partition}: {code.text}")
                )
                continue
            found[partition] = (
                OffsetAndMetadata(data.committed_offset, data.metadata or "", data.committed_leader_epoch)
                if data.committed_offset >= 0
                else None
            )
    return found, problem


def passes(error: KafkaError) -> bool:
    """Return whether the error of a partition or group may pass, so that the same request can succeed later."""
    return error.retriable or error.code in ASK_AGAIN or error.code is ErrorCode.BROKER_NOT_AVAILABLE
