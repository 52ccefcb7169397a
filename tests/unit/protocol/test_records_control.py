"""Transaction markers."""

from __future__ import annotations

import pytest
from oncelog.protocol.control_records import ControlRecord, ControlType, control_batch, read_control_record
from oncelog.protocol.records import CorruptBatch, Record, decode_batch, read_batch_header, verify_crc


@pytest.mark.parametrize("commit", [True, False])
def test_marker_round_trip(commit: bool) -> None:
    batch = control_batch(commit, 12, 1000, 3, 555)
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1000, 3, -1)
    (record,) = decode_batch(batch, 0, header)
    assert record.timestamp == 555
    assert read_control_record(record) == ControlRecord(ControlType.COMMIT if commit else ControlType.ABORT, 12)


def test_marker_bytes_are_kafkas() -> None:
    (record,) = decode_batch(control_batch(True, 5, 1, 0, 0), 0, read_batch_header(control_batch(True, 5, 1, 0, 0)))
    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x05"


def test_unknown_type_is_for_the_reader_to_skip() -> None:
    assert read_control_record(Record(0, 0, b"\x00\x00\x00\x09", b"")).type is ControlType.UNKNOWN


def test_later_version_is_read_like_the_first() -> None:
    record = Record(0, 0, b"\x00\x02\x00\x00more", b"\x00\x02\x00\x00\x00\x07more")
    assert read_control_record(record) == ControlRecord(ControlType.ABORT, 7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (b"\xff\xff\x00\x00", b""),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00"),
    ],
)
def test_marker_too_short_to_mean_anything_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_control_record(Record(0, 0, key, value))
