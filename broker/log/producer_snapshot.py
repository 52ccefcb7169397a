"""Encode and decode producer snapshot files: the state of all producers of a partition as of an offset.

The format is Kafka's (version 1, one batch per producer), followed by an additional section that Kafka's reader
ignores. This section contains the rest of each producer's last five batches, so that a repeated batch is recognised
even after a restart.

    version int16 = 1 | crc uint32 (crc32c of all that follows) | count int32 | entries...
    entry: producer_id int64, epoch int16, last_sequence int32, last_offset int64, offset_delta int32, timestamp int64,
           coordinator_epoch int32, current_txn_first_offset int64
    section: magic "once" | count int32 | per producer: producer_id int64, batches int8, and per batch last_sequence
             int32, last_offset int64, offset_delta int32, timestamp int64; oldest first, without the newest batch
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import Final

from crc32c import crc32c

from ..system.ports import File
from .producer_state import BatchMetadata, ProducerStateEntry

_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_MAGIC: Final = b"once"
_OLDER: Final = Struct(">qb")
_BATCH: Final = Struct(">iqiq")
_VERSION: Final = 1

_PER_PIECE: Final = 250
"""The number of producers whose state is encoded at a time, which takes about half a millisecond."""


class CorruptSnapshot(Exception):
    """A producer snapshot file is damaged, incomplete or of an unknown version."""


def write_snapshot(file: File, entries: Sequence[ProducerStateEntry]) -> None:
    """Write the content of a `.snapshot` file with these producers to an empty file, in pieces. Raises OSError.

    The checksum in the head is written last. A thread that writes a large snapshot lets the event loop run during each
    write, and needs memory for one piece only.
    """
    position, crc = _HEAD.size, 0
    for piece in _body(entries):
        file.write_at([piece], position)
        position += len(piece)
        crc = crc32c(piece, crc)
    file.write_at([_HEAD.pack(_VERSION, crc)], 0)
    file.truncate(position)


def _body(entries: Sequence[ProducerStateEntry]) -> Iterator[bytes]:
    """Yield, in pieces, the part of a snapshot's content that follows the head."""
    yield _COUNT.pack(len(entries))
    pack_entry, pack_older, pack_batch = _ENTRY.pack, _OLDER.pack, _BATCH.pack
    with_older: list[ProducerStateEntry] = []
    left = iter(entries)
    while some := list(islice(left, _PER_PIECE)):
        packed = []
        for entry in some:
            batches = entry.batches
            sequence, offset, delta = batches[-1][:3] if batches else (-1, -1, 0)
            packed.append(
                pack_entry(
                    entry.producer_id,
                    entry.producer_epoch,
                    sequence,
                    offset,
                    delta,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.current_txn_first_offset,
                )
            )
            if len(batches) > 1:
                with_older.append(entry)
        yield b"".join(packed)
    if with_older:
        yield _MAGIC + _COUNT.pack(len(with_older))
        left = iter(with_older)
        while some := list(islice(left, _PER_PIECE)):
            packed = []
            for entry in some:
                packed.append(pack_older(entry.producer_id, len(entry.batches) - 1))
                packed += [pack_batch(*batch) for batch in entry.batches[:-1]]
            yield b"".join(packed)


def check_snapshot(data: bytes) -> None:
    """Raise CorruptSnapshot if the content of a `.snapshot` file is damaged, incomplete or of an unknown version."""
    try:
        version, crc = _HEAD.unpack_from(data)
    except StructError as error:
        raise CorruptSnapshot(f"the snapshot ends early: {error}") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"snapshot version {version} is unknown")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise CorruptSnapshot("the checksum does not match the snapshot's content")


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Return the producers in the content of a `.snapshot` file; raise CorruptSnapshot if it is damaged."""
    check_snapshot(data)
    try:
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
