"""`oncelog log dump`: reading a segment file without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from oncelog.cli.main import oncelog
from oncelog.protocol.compression import Compression
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.records import Record, encode_batch

BATCH = encode_batch(
    [Record(0, 1000, b"k", b"v", [("h", b"\xff")]), Record(1, 2000, None, b"\xfe")],
    compression=Compression.ZSTD,
    producer_id=7,
    producer_epoch=1,
    base_sequence=0,
    transactional=True,
)
MARKER = control_batch(False, 4, 7, 1, 3000, base_offset=2)


def dump(file: Path, content: bytes, *arguments: str) -> Result:
    file.write_bytes(content)
    return CliRunner().invoke(oncelog, ["log", "dump", str(file), *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def test_batches_with_their_producers_and_checksums(file: Path) -> None:
    result = dump(file, BATCH + MARKER)
    assert result.exit_code == 0, result.output
    first, second = result.output.splitlines()
    assert first == (
        f"0..1 records 2 at byte 0 size {len(BATCH)} zstd transactional producer 7 epoch 1 sequences 0..1"
        " epoch -1 time 2000 crc ok"
    )
    assert second.startswith(f"2..2 records 1 at byte {len(BATCH)} size {len(MARKER)} none control producer 7")


def test_records_and_markers_as_text(file: Path) -> None:
    lines = dump(file, BATCH + MARKER, "--records").output.splitlines()
    assert lines[1:3] == ["  0 1000 k v", "  1 2000 null \\xfe"]
    assert lines[4] == "  2 ABORT coordinator epoch 4"


def test_records_as_json_keep_bytes_that_are_no_text(file: Path) -> None:
    lines = [json.loads(line) for line in dump(file, BATCH + MARKER, "--records", "--json").output.splitlines()]
    assert lines[0]["batch"]["producer_id"] == 7
    assert lines[0]["batch"]["crc_ok"] is True
    assert lines[1] == {
        "offset": 0,
        "timestamp": 1000,
        "key": "k",
        "value": "v",
        "headers": [{"name": "h", "value_base64": "/w=="}],
    }
    assert lines[2] == {"offset": 1, "timestamp": 2000, "key": None, "value_base64": "/g=="}
    assert lines[4] == {"offset": 2, "control": "ABORT", "epoch": 4}


@pytest.mark.parametrize("cut", [1, 40, 61, len(BATCH) - 1])
def test_torn_tail_is_said_with_its_place(file: Path, cut: int) -> None:
    result = dump(file, MARKER + BATCH[:cut])
    assert result.exit_code == 1
    assert f"at byte {len(MARKER)}: it contains only the first {cut} bytes of the batch" in result.output


def test_wrong_checksum_is_shown_and_is_an_exit_code(file: Path) -> None:
    broken = bytearray(BATCH)
    broken[-1] ^= 1
    result = dump(file, bytes(broken) + MARKER, "--records")
    assert result.exit_code == 1
    assert "crc WRONG" in result.output
    assert "2 ABORT" in result.output, "what follows is still shown"


def test_file_that_is_no_segment(file: Path) -> None:
    result = dump(file, b"this is not a log file" * 10)
    assert result.exit_code == 1
    assert f"{file} is damaged at byte 0: the batch has format (magic) 103: only 2 is supported." in result.output


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (16, b"\x01", "the batch has format (magic) 1: only 2 is supported"),
        (8, b"\0\0\0\x05", "the batch claims 17 bytes, less than its header"),
        (57, b"\xff\xff\xff\xff", "the batch claims -1 records and last offset delta 1: both must be >= 0"),
    ],
)
def test_malformed_header_is_said_with_its_place(file: Path, field: int, value: bytes, reason: str) -> None:
    broken = bytearray(BATCH)
    broken[field : field + len(value)] = value
    result = dump(file, MARKER + bytes(broken) + MARKER)
    assert result.exit_code == 1
    assert result.output.splitlines()[0].startswith("2..2 records 1 at byte 0"), "what precedes is still shown"
    assert f"{file} is damaged at byte {len(MARKER)}: {reason}. `oncelog log repair`" in result.output


@pytest.mark.parametrize("change", [-10, 1000])
def test_a_batch_with_a_wrong_size_is_named_and_not_what_follows(file: Path, change: int) -> None:
    wrong = bytearray(BATCH)
    wrong[8:12] = (int.from_bytes(BATCH[8:12], "big") + change).to_bytes(4, "big")
    result = dump(file, MARKER + wrong + MARKER * 20)
    assert result.exit_code == 1
    assert f"is damaged at byte {len(MARKER)}: the checksum of the batch is wrong" in result.output


def test_empty_segment_is_sound(file: Path) -> None:
    result = dump(file, b"")
    assert (result.exit_code, result.output) == (0, "")
