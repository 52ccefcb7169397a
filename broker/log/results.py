"""Define the values that a partition log's operations take and return, and the errors that they raise."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..system.ports import Buffer


class AppendOrigin(Enum):
    """The origin of a batch (Kafka's AppendOrigin). It decides which checks an append makes.

    CLIENT: a client's batch, with all checks. COORDINATOR: markers and coordinator state, which have no sequences.
    REPLAY: batches that are already on disk and are accepted unchecked when state is rebuilt.
    """

    CLIENT = 0
    COORDINATOR = 1
    REPLAY = 2


# Module names for enum members, because appends and reads use them often, and `Enum.MEMBER` is a slow look-up.
CLIENT: Final = AppendOrigin.CLIENT


class IsolationLevel(IntEnum):
    """How far a reader sees: up to the high watermark (READ_UNCOMMITTED) or the last stable offset (READ_COMMITTED)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


READ_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED


class AppendResult(NamedTuple):
    """The result of an append: the offsets of the batch.

    `duplicate`: whether the batch was already in the log. If so, nothing was written, and the offsets are those of the
    original batch. `log_append_time`: in ms; -1 if the records keep their own timestamps (CreateTime).
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


append_result: Final[Callable[[tuple[int, int, int, int, bool]], AppendResult]] = partial(tuple.__new__, AppendResult)
"""Create an AppendResult from a tuple of its fields. This is faster than the constructor, which is Python code."""


class LogRead(NamedTuple):
    """The result of a read: whole batches. The first batch contains the requested offset, and may begin before it.

    `next_offset` is an upper bound for the end offset of `records`. `aborted` has (producer_id, first_offset) of every
    aborted transaction that may overlap the records; it is None if the reader is not read_committed.
    """

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    next_offset: int


log_read: Final[Callable[[tuple[Buffer, int, int, int, list[tuple[int, int]] | None, int]], LogRead]] = partial(
    tuple.__new__, LogRead
)
"""Create a LogRead from a tuple of its fields. This is faster than the constructor, which is a Python function."""


class AbortedTxn(NamedTuple):
    """An entry of a transaction index: one aborted transaction. `last_offset` is the offset of its marker.

    `last_stable_offset` is the last stable offset after the marker: no transaction that is indexed later began before
    this offset.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class InvalidRecords(KafkaError):
    """An INVALID_RECORD error about some records of a batch; `record_errors` contains (index, reason) for each."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = record_errors


class CorruptLog(KafkaError):
    """A KAFKA_STORAGE_ERROR: a file of a partition is damaged or missing, and a torn write cannot explain it.

    `offset`: the first offset that is not known to be sound. `position`: the first damaged byte of `file`. `place`: the
    part of the message that names the damage. `remedy`: the part that says what to do.
    """

    def __init__(self, file: str, position: int, offset: int, reason: str) -> None:
        self.file = file
        self.position = position
        self.offset = offset
        self.reason = reason
        self.place = f"{file} is damaged at byte {position} (from offset {offset} on): {reason}"
        self.remedy = (
            "stop the broker and run `oncelog log repair` on the data directory, which shows what would be lost"
        )
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.place}. The partition stays offline; {self.remedy}")


def storage_error(message: str) -> KafkaError:
    """Return a KafkaError KAFKA_STORAGE_ERROR."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)


def no_descriptor_error(partition: str) -> KafkaError:
    """Return the KAFKA_STORAGE_ERROR for a request that needs a file descriptor when none is free."""
    return storage_error(
        f"{partition}: the process has no file descriptor left; close connections or raise the limit (ulimit -n)"
    )
