"""Apache Kafka's own DumpLogSegments reads the files of our partitions: segments, indexes and producer snapshots."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, LoadPoint, LogConfig, PartitionLog, load_log
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.system.ports import RealFileSystem, SystemClock
from oncelog.protocol.compression import Compression
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.records import Record, encode_batch
from support.apache_kafka import java

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime")

NOW = SystemClock().now_ms()


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    done = java("kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def batch(first_key: int, count: int = 3, **options: Any) -> bytearray:
    records = [Record(i, NOW + i, b"key-%d" % (first_key + i), b"value-%d" % (first_key + i)) for i in range(count)]
    return bytearray(encode_batch(records, **options))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments with every codec, idempotent and transactional batches, markers, and an aborted transaction."""
    directory = tmp_path_factory.mktemp("data") / "t-0"
    directory.mkdir()
    log = load_log(
        "t",
        0,
        str(directory),
        fs=RealFileSystem(),
        clock=SystemClock(),
        config=LogConfig(segment_bytes=6000, index_interval_bytes=300, unsaved_bytes=0),
        point=LoadPoint(clean=True),
    )
    write(log)
    log.close()
    return directory


def write(log: PartitionLog) -> None:
    for codec in Compression:
        for number in range(8):
            log.append(batch(number, compression=codec))
    for number in range(8):
        log.append(batch(number, producer_id=7, producer_epoch=1, base_sequence=3 * number))
    for commit in (True, False):
        log.append(batch(0, producer_id=9, producer_epoch=0, base_sequence=0 if commit else 3, transactional=True))
        log.append(
            bytearray(control_batch(commit, 5, 9, 0, NOW)),
            origin=AppendOrigin.COORDINATOR,
        )
    log.flush()


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def test_kafka_reads_every_record_of_our_segments(directory: Path) -> None:
    logs = files(directory, ".log")
    assert len(logs) > 1, "the log was rolled"
    text = dump(*logs, options=("--print-data-log", "--deep-iteration"))
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    records = (len(Compression) + 1) * 8 * 3 + 2 * (3 + 1)
    assert offsets == list(range(records))
    assert text.count("isvalid: true") == (len(Compression) + 1) * 8 + 4
    assert "isvalid: false" not in text
    assert text.count("payload: value-0") == (len(Compression) + 1) + 2
    for codec in Compression:
        assert f"compresscodec: {codec.name.lower()}" in text
    assert "endTxnMarker: COMMIT coordinatorEpoch: 5" in text
    assert "endTxnMarker: ABORT coordinatorEpoch: 5" in text


def test_kafka_finds_our_indexes_sane(directory: Path) -> None:
    text = dump(*files(directory, ".index"), *files(directory, ".timeindex"), options=("--index-sanity-check",))
    assert text.count("passed sanity check") == len(files(directory, ".index")) + len(files(directory, ".timeindex"))


def test_kafka_finds_that_our_indexes_match_the_log(directory: Path) -> None:
    text = dump(*files(directory, ".index"), *files(directory, ".timeindex"), options=("--verify-index-only",))
    assert "mismatch" not in text.lower()
    assert "out of order" not in text.lower()
    assert "Found" not in text


def test_kafka_reads_our_transaction_index(directory: Path) -> None:
    text = dump(*files(directory, ".txnindex"))
    assert len(re.findall(r"producerId: 9 firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+", text)) == 1


def test_kafka_reads_our_producer_snapshots(directory: Path) -> None:
    text = dump(files(directory, ".snapshot")[-1])
    assert re.search(r"producerId: 7 producerEpoch: 1 .*lastSequence: 23", text)
    assert re.search(
        r"producerId: 9 producerEpoch: 0 coordinatorEpoch: 5 currentTxnFirstOffset: (None|-1|Optional)", text
    )


def test_kafka_reads_a_compacted_segment(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    fs = RealFileSystem()
    log = load_log(
        "t",
        0,
        str(directory),
        fs=fs,
        clock=SystemClock(),
        config=LogConfig(segment_bytes=6000, cleanup_policy=("compact",)),
        point=LoadPoint(clean=True),
    )
    write(log)
    log.append(bytearray(encode_batch([Record(0, NOW, b"key-1", None)])))
    log.roll()
    log.flush()
    Cleaner(fs).clean(log, 0, NOW)
    log.close()
    text = dump(*files(directory, ".log"), options=("--print-data-log", "--deep-iteration"))
    assert "isvalid: false" not in text
    assert "isvalid: true" in text
    assert "deleteHorizonMs: OptionalLong[" in text, "the tombstone was given its horizon"
    assert text.count("payload: value-0") == 1
