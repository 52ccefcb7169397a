"""Read, check, patch and write the 61-byte header of record batches (format v2, KIP-98).

The module reads headers, walks a buffer of batches, verifies checksums, and patches headers in place. It never looks at
the records after the header: to the broker they are opaque, compressed or not.

Layout, big endian. `crc` is the CRC-32C of all bytes after it, so the base offset and the leader epoch, which come
before it, can be patched without a new checksum::

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32 | attributes int16 |
    last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 | producer_id int64 | producer_epoch int16 |
    base_sequence int32 | record_count int32 | records...

Bits of attributes: 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 base_timestamp is a delete horizon.
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
"""The number of bytes up to the end of `batch_length`. The value of `batch_length` counts the bytes after them."""
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
    """The batch has more records and headers, or more decompressed bytes, than the reader allows."""


class TimestampType(IntEnum):
    """The origin of a batch's timestamps: the producer (CREATE_TIME) or the broker (LOG_APPEND_TIME)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of one batch. Brokers create one for each batch, so it is a plain tuple, which is cheap."""

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
        """The compression code as written. The codes 5 to 7 are not defined (see `compression.Compression`)."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a control batch, such as a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time after which compaction may drop the batch's tombstones (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def timestamp_type(self) -> TimestampType:
        """The origin of the batch's timestamps: the producer or the broker."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last offset, where the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, or -1 if the batch has none. Sequences continue at 0 after 2^31-1."""
        if self.base_sequence < 0:
            return -1
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, header included."""
        return LENGTH_END + self.batch_length

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent or transactional producer, or a coordinator on its behalf, wrote the batch."""
        return self.producer_id >= 0


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence that is `count` after `sequence`. Sequences continue at 0 after 2^31-1."""
    return (sequence + count) & MAX_SEQUENCE


_new_header: Final[Callable[[tuple[int, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)
"""Make a header from 13 values, without the overhead of a NamedTuple's own constructors."""


def read_batch_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """Return the header of the batch at `position`.

    With `whole`, also check that the entire batch lies within the buffer. Only the structure is checked: bounds, magic,
    and impossible lengths and counts. The checksum is not verified. Raises CorruptBatch, whose message does not contain
    the position, because only the caller knows where the buffer begins.
    """
    available = len(buffer) - position
    if available < HEADER_SIZE:
        raise CorruptBatch(f"the batch header is cut off: {max(available, 0)} of {HEADER_SIZE} bytes")
    header = _new_header(_unpack_header(buffer, position))
    if header[3] != MAGIC:
        raise CorruptBatch(f"the batch has format (magic) {header[3]}: only 2 is supported")
    size = header[1] + LENGTH_END
    if size < HEADER_SIZE:
        raise CorruptBatch(f"the batch claims {size} bytes, less than its header")
    if whole and size > available:
        raise CorruptBatch(f"the batch claims {size} bytes, but only {available} are there")
    if header[12] < 0 or header[6] < 0:
        raise CorruptBatch(
            f"the batch claims {header[12]} records and last offset delta {header[6]}: both must be >= 0"
        )
    return header


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch from `position` on. A batch that is cut off at the end is left out.

    A Fetch response may end within a batch, so a cut-off batch is not an error. A caller that must not lose a batch
    compares the last position plus the last batch's size with the buffer's length. Raises CorruptBatch for a batch that
    is damaged in any other way.
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
    """Return whether the checksum in `header` matches the bytes of the batch at `position`."""
    end = position + LENGTH_END + header[1]
    return crc32c(memoryview(buffer)[position + CRC_END : end]) == header[4]


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    base_offset: int,
    leader_epoch: int,
    log_append_time: int | None = None,
) -> None:
    """Write the base offset and the leader epoch into the batch at `position`, in place.

    The checksum does not cover these two fields. With `log_append_time` (ms), also set the timestamp type
    LOG_APPEND_TIME and the largest timestamp, and renew the checksum.
    """
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH_AT_12.pack_into(buffer, position + LENGTH_END, leader_epoch)
    if log_append_time is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)
        _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME)
        _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, log_append_time)
        _renew_crc(buffer, position)


def clear_attributes(buffer: bytearray | memoryview, position: int, keep: int) -> None:
    """Clear every attribute bit that is not in `keep` in the batch at `position`, in place. Renew the checksum."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes & keep)
    _renew_crc(buffer, position)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, max_timestamp: int) -> None:
    """Write the largest timestamp (ms) into the header of the batch at `position`, in place. Renew the checksum."""
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    _renew_crc(buffer, position)


def _renew_crc(buffer: bytearray | memoryview, position: int) -> None:
    """Compute the checksum of the batch at `position`, and write it into the header."""
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
    """Return a whole batch: the header with its checksum, then `payload`, the encoded records.

    If `attributes` names a compression, `payload` must already be compressed.
    """
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
