"""The 61 bytes in front of every record batch (format v2, KIP-98), and all that a broker does with them.

Owns: reading a header, walking a run of batches, the checksum, and patching base offset and leader epoch in place.
Never looks at the records behind the header: to the broker they are opaque, compressed or not.

Layout, big endian; `crc` is the CRC-32C of everything behind itself, so offset and epoch can be patched freely::

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32 | attributes int16 |
    last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 | producer_id int64 | producer_epoch int16 |
    base_sequence int32 | record_count int32 | records...

attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 base_timestamp is a delete horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from .errors import ErrorCode, KafkaError
from .schema import Buffer

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LENGTH_END: Final = 12
"""Bytes up to and including `batch_length`, which counts what follows them."""
CRC_START: Final = 17
CRC_END: Final = 21
MAGIC: Final = 2
MAX_SEQUENCE: Final = (1 << 31) - 1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_unpack_header = HEADER.unpack_from
_OFFSET: Final = Struct(">q")
_LENGTH_AT_8: Final = Struct(">8xi")
_CRC: Final = Struct(">I")
_EPOCH_AT_12: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35


class CorruptBatch(KafkaError):
    """The bytes are not a whole, valid record batch (CORRUPT_MESSAGE)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchBudgetExceeded(CorruptBatch):
    """A batch would take more memory or time than is allowed for one: too many objects, or bytes when decompressed."""


class TimestampType(IntEnum):
    """Who set the timestamps of a batch's records."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """One batch header as read: a plain tuple, because a broker makes one per batch: it must cost next to nothing."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        """The compression code as written: 5 to 7 mean nothing known, see `compression.Compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """True when `base_timestamp` is the time from which compaction may drop the batch's tombstones (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def last_offset(self) -> int:
        """Offset of the last record, compacted away or not (inclusive)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset behind the batch (exclusive end): where the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without one; after 2^31-1 comes 0."""
        if self.base_sequence < 0:
            return -1
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.batch_length

    @property
    def has_producer(self) -> bool:
        """True when an idempotent or transactional producer (or a coordinator on its behalf) wrote the batch."""
        return self.producer_id >= 0


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`; after 2^31-1 comes 0."""
    return (sequence + count) & MAX_SEQUENCE


_new_header: Final[Callable[[tuple[int, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)
"""Make a header of 13 values: without the Python function that the class's own constructors are."""


def read_batch_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """The header of the batch at `position`; `whole` also demands that the entire batch lies within the buffer.

    Checks structure only (bounds, magic, lengths and counts that cannot be), not the checksum. Raises CorruptBatch.
    """
    available = len(buffer) - position
    if available < HEADER_SIZE:
        raise CorruptBatch(f"batch header at byte {position} is cut off: {max(available, 0)} of {HEADER_SIZE} bytes")
    header = _new_header(_unpack_header(buffer, position))
    if header[3] != MAGIC:
        raise CorruptBatch(f"batch at byte {position} has format (magic) {header[3]}, only 2 is supported")
    size = header[1] + LENGTH_END
    if size < HEADER_SIZE:
        raise CorruptBatch(f"batch at byte {position} claims {size} bytes, less than its header")
    if whole and size > available:
        raise CorruptBatch(f"batch at byte {position} claims {size} bytes, only {available} are there")
    if header[12] < 0 or header[6] < 0:
        raise CorruptBatch(
            f"batch at byte {position} claims {header[12]} records and last offset delta {header[6]}: both must be >= 0"
        )
    return header


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch from `position` on; what is cut off at the end is left out silently.

    A Fetch answer may end within a batch, hence the silence: who must not lose anything compares the last position plus
    size with the buffer's length. Raises CorruptBatch on a batch that is not cut off but broken.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        (length,) = _LENGTH_AT_8.unpack_from(buffer, position)
        if length >= HEADER_SIZE - LENGTH_END and length + LENGTH_END > end - position:
            return
        header = read_batch_header(buffer, position)
        yield position, header
        position += header[1] + LENGTH_END


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the checksum in `header` matches the bytes of its batch at `position`."""
    end = position + LENGTH_END + header[1]
    return crc32c(memoryview(buffer)[position + CRC_END : end]) == header[4]


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    base_offset: int,
    leader_epoch: int,
    log_append_time: int | None = None,
) -> None:
    """Write base offset and leader epoch into the batch at `position`, in place; the checksum does not cover them.

    With `log_append_time` (ms) the batch also becomes one of type LOG_APPEND_TIME, which renews the checksum.
    """
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH_AT_12.pack_into(buffer, position + LENGTH_END, leader_epoch)
    if log_append_time is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)
        _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME)
        _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, log_append_time)
        _renew_crc(buffer, position)


def clear_attributes(buffer: bytearray | memoryview, position: int, keep: int) -> None:
    """Clear every attribute bit outside of `keep` in the batch at `position`, in place; renews the checksum."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes & keep)
    _renew_crc(buffer, position)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, max_timestamp: int) -> None:
    """Write the largest timestamp (ms) into the header of the batch at `position`, in place; renews the checksum."""
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    _renew_crc(buffer, position)


def _renew_crc(buffer: bytearray | memoryview, position: int) -> None:
    (length,) = _LENGTH_AT_8.unpack_from(buffer, position)
    crc = crc32c(memoryview(buffer)[position + CRC_END : position + LENGTH_END + length])
    _CRC.pack_into(buffer, position + CRC_START, crc)


def assemble_batch(
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """A whole batch: header with checksum, then `payload` (the encoded records, compressed if `attributes` says so)."""
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_END + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(header, CRC_START, crc32c(payload, crc32c(memoryview(header)[CRC_END:])))
    return b"".join((header, payload))
