"""What goes into a partition log's operations and what comes out: plain values."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..ports import Buffer


class AppendOrigin(Enum):
    """Who appends, and so what is checked (Kafka's AppendOrigin).

    CLIENT: everything. COORDINATOR: markers and coordinator state, which carry no sequences. REPLAY: what is on disk
    already, taken as it is when state is rebuilt.
    """

    CLIENT = 0
    COORDINATOR = 1
    REPLAY = 2


# Members of enums by names of their own, for appends and reads: `Enum.MEMBER` is a look-up in a descriptor.
CLIENT: Final = AppendOrigin.CLIENT


class IsolationLevel(IntEnum):
    """Up to where a reader sees: the high watermark or the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


READ_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED


class AppendResult(NamedTuple):
    """Where a batch went. `duplicate`: it was there already, nothing was written, the offsets are the original's.

    `log_append_time` (ms) is -1 where records keep the time of their creation.
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


append_result: Final[Callable[[tuple[int, int, int, int, bool]], AppendResult]] = partial(tuple.__new__, AppendResult)
"""Make an AppendResult of its fields: without the Python function that its constructor is."""


class LogRead(NamedTuple):
    """Whole batches from the one that holds the asked offset on; the first may begin before it.

    `next_offset` is an upper bound of what `records` covers. `aborted` holds (producer_id, first_offset) of every
    aborted transaction that may overlap it; None when the reader is not read_committed.
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
"""Make a LogRead of its fields, as `append_result` does."""


class AbortedTxn(NamedTuple):
    """One aborted transaction of a transaction index; `last_offset` is its marker's.

    `last_stable_offset` is what it was behind the marker: no transaction indexed later began before it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class InvalidRecords(KafkaError):
    """An INVALID_RECORD that some records of a batch are to blame for: `record_errors` has (index, reason) of each."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = record_errors


class CorruptLog(KafkaError):
    """A file of a partition is damaged where that cannot be a torn tail (KAFKA_STORAGE_ERROR)."""

    def __init__(self, file: str, position: int, offset: int, reason: str) -> None:
        self.file = file
        self.position = position
        self.offset = offset
        self.reason = reason
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{file} is damaged at byte {position} (offset {offset} on): {reason}. The partition stays offline; stop"
            f" the broker and run `oncelog log repair` on the data directory, which tells what would be lost",
        )


def storage_error(message: str) -> KafkaError:
    """A KAFKA_STORAGE_ERROR."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
