"""Define the keys and values of the records in `__transaction_state`."""

from __future__ import annotations

from ..schema import Message, Struct, array, int8, int16, int32, int64, record_key, record_value, string, struct


@record_key(id=0, versions="0", flexible="none")
class TransactionLogKey(Message):
    """The key of a transactional id's state in `__transaction_state`."""

    transactional_id: str = string("0")


@struct
class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array("int32", "0+")


@record_value(id=0, versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    """The state of a transactional id: producer id and epoch, timeout in ms, status, and the partitions of the ongoing
    transaction (null if there is none). Times are in ms since the epoch. v1 is flexible and stores the producer ids and
    the epoch of KIP-890 in tags. oncelog's extension adds the partitions of the session (tag 9000).
    """

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0, tagged="1+")
    next_producer_id: int = int64("1+", default=-1, tag=1, tagged="1+")
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2, tagged="1+")
    session_partitions: list[PartitionsSchema] = array(PartitionsSchema, "1+", tag=9000, tagged="1+", ignorable=True)


@record_key(id=9000, versions="0", flexible="none")
class GroupAssignmentKey(Message):
    """The key of a claim in `__transaction_state`. A claim is the right of a transactional id to commit a group's
    offsets on some partitions (group-aware initialisation). The record with an empty transactional id is not a claim.
    It has the newest generation whose claims were dropped: the copies of claims in committed offsets are ignored if
    they are of this generation or an older one. This record is removed when the group has a claim of the same or a
    newer generation, or when the group is deleted.
    """

    group_id: str = string("0")
    transactional_id: str = string("0")


@struct
class AssignedPartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array("int32", "0+")


@record_value(id=9000, versions="0", flexible="0+")
class GroupAssignmentValue(Message):
    """The claim's generation and partitions. A released claim has no partitions. Its generation stays, so that requests
    of older generations are still refused. A tombstone removes the generation, too.
    """

    generation_id: int = int32("0+", default=-1)
    assigned_partitions: list[AssignedPartitionsSchema] = array(AssignedPartitionsSchema, "0+")
