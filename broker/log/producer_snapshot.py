"""Encode and decode producer snapshot files: the state of all producers of a partition as of an offset.

The format is Kafka's (version 1, one batch per producer), followed by an additional section that Kafka's reader
ignores. This section has the rest of each producer's last five batches, so that after a restart a repeated batch is
still recognised.

    version int16 = 1 | crc uint32 (crc32c of all that follows) | count int32 | entries...
    entry: producer_id int64, epoch int16, last_sequence int32, last_offset int64, offset_delta int32, timestamp int64,
           coordinator_epoch int32, current_txn_first_offset int64
    section: magic "once" | count int32 | per producer: producer_id int64, batches int8, and per batch last_sequence
             int32, last_offset int64, offset_delta int32, timestamp int64; oldest first, without the newest batch
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from struct import error as StructError
from typing import Final

from crc32c import crc32c

from .producer_state import BatchMetadata, ProducerStateEntry

_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_MAGIC: Final = b"once"
_OLDER: Final = Struct(">qb")
_BATCH: Final = Struct(">iqiq")
_VERSION: Final = 1


class CorruptSnapshot(Exception):
    """A producer snapshot file is damaged, incomplete or of an unknown version."""


def encode_snapshot(entries: Collection[ProducerStateEntry]) -> bytes:
    """Return the content of a `.snapshot` file with these producers."""
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, entry.last_timestamp)
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    with_older = [entry for entry in entries if len(entry.batches) > 1]
    if with_older:
        body += _MAGIC + _COUNT.pack(len(with_older))
        for entry in with_older:
            body += _OLDER.pack(entry.producer_id, len(entry.batches) - 1)
            for batch in entry.batches[:-1]:
                body += _BATCH.pack(*batch)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Return the producers in the content of a `.snapshot` file; raise CorruptSnapshot if it is damaged."""
    try:
        version, crc = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise CorruptSnapshot(f"snapshot version {version} is unknown")
        if crc32c(memoryview(data)[_HEAD.size :]) != crc:
            raise CorruptSnapshot("the checksum does not match the snapshot's content")
        entries: dict[int, ProducerStateEntry] = {}
        position = _HEAD.size + _COUNT.size
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
        for _ in range(count):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = _ENTRY.unpack_from(
                data, position
            )
            position += _ENTRY.size
            entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, first)
            if offset >= 0:
                entry.batches = (BatchMetadata(sequence, offset, delta, timestamp),)
            entries[producer_id] = entry
        if data[position : position + len(_MAGIC)] == _MAGIC:
            _decode_older(data, position + len(_MAGIC), entries)
        return list(entries.values())
    except (StructError, KeyError, IndexError) as error:
        raise CorruptSnapshot(f"the snapshot ends early or is inconsistent: {error}") from None


def _decode_older(data: bytes, position: int, entries: dict[int, ProducerStateEntry]) -> None:
    """Add the older batches in the additional section, which begins at byte `position`, to `entries`."""
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    for _ in range(count):
        producer_id, batches = _OLDER.unpack_from(data, position)
        position += _OLDER.size
        entry = entries[producer_id]
        older = []
        for _ in range(batches):
            older.append(BatchMetadata(*_BATCH.unpack_from(data, position)))
            position += _BATCH.size
        entry.batches = (*older, entry.batches[0])
