"""Build and read control batches: the markers that end transactions (KIP-98).

A commit or an abort leaves one control batch of one record in every partition of a transaction. The record's key is
version int16, type int16. Its value is version int16, coordinator_epoch int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

from .batch_header import CONTROL, TRANSACTIONAL, assemble_batch
from .records import CorruptBatch, Record, encode_record

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class ControlType(IntEnum):
    """The type of a control record. UNKNOWN stands for the types of newer releases, which readers skip."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A decoded control record. `coordinator_epoch` is -1 for UNKNOWN."""

    type: ControlType
    coordinator_epoch: int = -1

    @property
    def is_commit(self) -> bool:
        """Whether the marker commits its transaction."""
        return self.type is ControlType.COMMIT


def control_batch(
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Return the batch that ends the transaction of `producer_id` in one partition."""
    return assemble_batch(
        _encoded(commit, coordinator_epoch),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        record_count=1,
    )


@lru_cache(maxsize=16)
def _encoded(commit: bool, coordinator_epoch: int) -> bytes:
    """Return the record of a marker. Results are cached, because nearly all markers have one of two records."""
    key = _KEY.pack(0, ControlType.COMMIT if commit else ControlType.ABORT)
    return encode_record(0, 0, key, _VALUE.pack(0, coordinator_epoch))


def read_control_record(record: Record) -> ControlRecord:
    """Decode the record of a control batch. Raises CorruptBatch if its key or value is missing or too short.

    Later versions only add fields after the known ones, so they are read like version 0.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch(f"control record at offset {record.offset} has no usable key")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptBatch(f"control record at offset {record.offset} has an invalid key version: {version}")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(ControlType.UNKNOWN)
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatch(f"transaction marker at offset {record.offset} has no coordinator epoch")
    return ControlRecord(ControlType(kind), _VALUE.unpack_from(record.value)[1])
