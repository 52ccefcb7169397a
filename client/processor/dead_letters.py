"""Decides which errors were caused by a record, finds this record in a failed batch, and builds a dead letter's
headers.

A record on which the function fails goes to the dead-letter topic with its key, value and headers, and with headers
that name its source and the error. The transaction of the dead letter also commits the offset after that record.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from ...protocol.batch_builder import record_size
from ...protocol.errors import ErrorCode, KafkaError
from ..consumer import ConsumerRecord
from ..errors import RecordTooLargeError
from ..values import TopicPartition
from .batch import Batch

log = logging.getLogger(__name__)

PREFIX: Final = "__oncelog.errors."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
EXCEPTION: Final = PREFIX + "exception"
MESSAGE: Final = PREFIX + "message"
MAX_MESSAGE: Final = 1000
"""Maximum number of characters of an error message that are kept."""

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_OF_A_RECORD: Final = _TOO_LARGE | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
"""Codes of errors that a record has caused: the broker refused the record, or a serializer or deserializer failed."""


def is_poison(error: BaseException) -> bool:
    """Return whether a record has caused the error. This is true for all exceptions except those about the cluster, the
    group or the transaction.
    """
    if isinstance(error, KafkaError):
        return isinstance(error, RecordTooLargeError) or error.code in _OF_A_RECORD
    return isinstance(error, Exception)


def is_too_large(error: KafkaError) -> bool:
    """Return whether a record or a batch was refused because of its size."""
    return isinstance(error, RecordTooLargeError) or error.code in _TOO_LARGE


def note_dead_letter(record: ConsumerRecord[Any, Any], error: BaseException) -> None:
    """Log that the record goes to the dead-letter topic because of the error."""
    place = TopicPartition(record.topic, record.partition)
    log.warning("the record of %s at offset %d goes to the dead-letter topic: %r", place, record.offset, error)


def source_headers(record: ConsumerRecord[Any, Any]) -> list[tuple[str, bytes | None]]:
    """Return the record's headers, followed by headers that name its source."""
    return [
        *record.headers,
        (TOPIC, record.topic.encode()),
        (PARTITION, b"%d" % record.partition),
        (OFFSET, b"%d" % record.offset),
    ]


def error_headers(
    record: ConsumerRecord[Any, Any], error: BaseException, max_bytes: int
) -> list[tuple[str, bytes | None]]:
    """Return the record's headers, followed by headers that name its source and the error.

    If the record would take more than `max_bytes` bytes in a batch, the error's message is shortened. If that is not
    enough, the headers about the error are left out.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raw, headers = record.raw, source_headers(record)
    text = str(error)[:MAX_MESSAGE].encode(errors="replace")
    for header, content in ((EXCEPTION, name.encode(errors="replace")), (MESSAGE, text)):
        room = max_bytes - record_size(raw.key, raw.value, [*headers, (header, b"")])
        if header == MESSAGE and len(content) > room > 0:
            content = content[:room].decode(errors="ignore").encode()
        if len(content) > room:
            break
        headers.append((header, content))
    return headers


class Isolation:
    """Finds the record at fault in a failed batch, by halving the size of the next batches.

    Until the positions are past the failed batch, only the batch's partitions are read, so that the next batches
    contain no records of other partitions. If no records arrive for some time, other partitions are read as well, in
    batches of the same small size, so that they are not held up. When a batch of one record fails, that record is at
    fault.
    """

    def __init__(self, max_records: int) -> None:
        self._most = max_records
        self._ends: dict[TopicPartition, int] = {}
        self._with_others = False
        self.limit = max_records
        """Maximum number of records in the next batch."""

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions to read; empty means all."""
        return () if self._with_others else self._ends.keys()

    def failed(self, batch: Batch) -> None:
        """After a batch was aborted, search only its partitions, in batches of half its size."""
        self._with_others = False
        self._ends.update({partition: position.offset for partition, position in batch.offsets.items()})
        self.limit = max(1, min(self.limit, len(batch.records) // 2))

    def passed(self, batch: Batch) -> None:
        """Record that a batch was committed. This ends the search in partitions that have now been read beyond the
        failed batch.
        """
        if not self._ends:
            return
        for partition, position in batch.offsets.items():
            if position.offset >= self._ends.get(partition, position.offset + 1):
                del self._ends[partition]
        self._reset_if_done()

    def waited(self, read_to_end: Collection[TopicPartition]) -> None:
        """Read other partitions as well, because the partitions that are searched have had no records for some time.

        `read_to_end` are the partitions that have no more records; the search in them ends.
        """
        self.drop(read_to_end)
        self._with_others = bool(self._ends)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """End the search in partitions that are given up, or have been read to their end."""
        for partition in list(partitions):
            self._ends.pop(partition, None)
        self._reset_if_done()

    def _reset_if_done(self) -> None:
        if not self._ends:
            self.limit = self._most
            self._with_others = False
