"""Check a batch before it is appended, as far as that is possible from the batch alone.

This module checks format, checksum, size, counts, timestamps and, for compacted topics, keys. The records inside the
batch are checked by `batch_inspection.py`. This module never looks at other batches or at producers.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from ...protocol.batch_header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_END,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    read_batch_header,
)
from ...protocol.compression import Compression
from ...protocol.errors import ErrorCode, KafkaError
from ..system.ports import Buffer
from .batch_inspection import Content
from .log_config import INT64_MAX, LogConfig
from .results import CLIENT, AppendOrigin, InvalidRecords

_MAGIC_POSITION: Final = 16
_LARGEST_CODEC: Final = max(Compression)

CLIENT_ATTRIBUTES: Final = COMPRESSION_MASK | TRANSACTIONAL
"""The attribute bits that a client may set. All other bits are cleared, because they are set by the log or reserved.

Kafka clears most of them, too, but accepts a delete horizon from a client. Kafka's compaction then drops the batch's
tombstones at once.
"""


def read_and_check(
    batch: Buffer, origin: AppendOrigin, config: LogConfig, where: str, *, essential: bool = False
) -> BatchHeader:
    """Read the header of a batch, and check the batch's format, size and checksum. More bytes may follow the batch.

    A coordinator's control batch and an `essential` batch may have any size, because a transaction would stay open
    without its marker or the record of its decision. `where` names the partition in errors. Raises KafkaError
    CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        header = read_batch_header(batch)
    except CorruptBatch:
        if len(batch) >= HEADER_SIZE and (magic := batch[_MAGIC_POSITION]) != MAGIC:
            raise invalid(where, f"a batch has format (magic) {magic}, but only {MAGIC} is accepted") from None
        raise
    size = header[1] + LENGTH_END
    if size > config.max_batch_bytes and not essential and (origin is CLIENT or not header[5] & CONTROL):
        raise _too_large(size, config, where)
    if crc32c(memoryview(batch)[CRC_END:size]) != header[4]:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{where}: the checksum of a batch does not match its {size} bytes")
    attributes = header[5]
    if attributes & COMPRESSION_MASK > _LARGEST_CODEC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{where}: compression type {header.compression} is unknown"
        )
    if header[12] != header[6] + 1:
        raise invalid(
            where, f"a batch of {header.record_count} records has the wrong lastOffsetDelta {header.last_offset_delta}"
        )
    if attributes & CONTROL and origin is CLIENT:
        raise invalid(where, "clients must not write control records")
    return header


def _too_large(size: int, config: LogConfig, where: str) -> KafkaError:
    """Return MESSAGE_TOO_LARGE if `size` exceeds max.message.bytes, else RECORD_LIST_TOO_LARGE (segment.bytes)."""
    code, setting, limit = ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", config.max_message_bytes
    if size <= limit:
        code, setting, limit = ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes", config.segment_bytes
    return KafkaError(code, f"{where}: a batch of {size} bytes is larger than {setting} = {limit}")


def client_header(batch: Buffer, config: LogConfig, where: str) -> BatchHeader:
    """Read and check the header of a client's batch, which must be the only batch in the buffer.

    Raises KafkaError with the codes of `read_and_check`, and with INVALID_RECORD if more bytes follow the batch.
    """
    header = read_and_check(batch, CLIENT, config, where)
    size = header[1] + LENGTH_END
    if size != len(batch):
        raise invalid(
            where, f"the {len(batch)} bytes of records must be exactly one batch, but the first batch has {size} bytes"
        )
    return header


def check_client_batch(header: BatchHeader, content: Content, config: LogConfig, now_ms: int, where: str) -> None:
    """Check the rules that apply only to batches of clients; raise KafkaError INVALID_RECORD or INVALID_TIMESTAMP.

    `content` is the result of the batch's inspection.
    """
    attributes = header[5]
    if header[9] >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise invalid(
                where,
                f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence"
                f" {header.base_sequence}, but both must be at least 0",
            )
    elif attributes & TRANSACTIONAL:
        raise invalid(where, "a transactional batch has no producer id")
    if attributes & LOG_APPEND_TIME and (config.log_append_time or header.max_timestamp < 0):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"{where}: a producer must not send timestamp type LogAppendTime")
    earliest, latest, null_keys = content
    if not config.log_append_time:
        before_max_ms = config.message_timestamp_before_max_ms
        if latest - now_ms > config.message_timestamp_after_max_ms or (
            before_max_ms != INT64_MAX and 0 <= earliest < now_ms - before_max_ms
        ):
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"{where}: timestamps {earliest} to {latest} are not all in the allowed range, which begins"
                f" message.timestamp.before.max.ms = {before_max_ms} before and ends message.timestamp.after.max.ms ="
                f" {config.message_timestamp_after_max_ms} after the broker's time, {now_ms}",
            )
    if null_keys and config.compacted:
        reason = "the topic is compacted, so every record needs a key"
        raise InvalidRecords(f"{where}: {reason}", [(index, reason) for index in null_keys])


def invalid(where: str, reason: str) -> KafkaError:
    """Return a KafkaError INVALID_RECORD; `where` names the partition."""
    return KafkaError(ErrorCode.INVALID_RECORD, f"{where}: {reason}")
