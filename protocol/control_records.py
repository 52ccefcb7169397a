"""Control batches: the markers that end transactions (KIP-98).

Owns: building the batch that a commit or an abort leaves in every partition of a transaction, and reading its one
record. A marker's key is version int16, type int16; its value is version int16, coordinator_epoch int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from .records import CorruptBatch, Record, encode_batch

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class ControlType(IntEnum):
    """What a control record says; UNKNOWN stands for all that this version does not know, which readers skip."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record as read; `coordinator_epoch` is -1 for UNKNOWN."""

    type: ControlType
    coordinator_epoch: int = -1

    @property
    def is_commit(self) -> bool:
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
    """The batch that ends `producer_id`'s transaction in one partition."""
    key = _KEY.pack(0, ControlType.COMMIT if commit else ControlType.ABORT)
    return encode_batch(
        [Record(base_offset, timestamp_ms, key, _VALUE.pack(0, coordinator_epoch))],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control_record(record: Record) -> ControlRecord:
    """What the record of a control batch says. Raises CorruptBatch when it is too short to say anything.

    Later versions only add fields behind the ones known here, so they are read like version 0.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch(f"control record at offset {record.offset} has no usable key")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptBatch(f"control record at offset {record.offset} has key version {version}")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(ControlType.UNKNOWN)
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatch(f"transaction marker at offset {record.offset} has no coordinator epoch")
    return ControlRecord(ControlType(kind), _VALUE.unpack_from(record.value)[1])
