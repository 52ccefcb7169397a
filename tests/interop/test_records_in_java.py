"""Kafka's own DumpLogSegments reads a segment of batches that we built: every codec, headers, a transaction marker."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from oncelog.protocol.batch_builder import BatchBuilder
from oncelog.protocol.compression import Compression
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.records import read_batch_header, stamp

pytestmark = pytest.mark.slow


def test_java_reads_every_codec_and_the_marker(tmp_path: Path) -> None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("java and mvn are not installed")
    from support.apache_kafka import java

    segment = bytearray()
    offset = 0
    for codec in Compression:
        builder = BatchBuilder(codec, 1 << 24)
        for number in range(20):
            headers = [("h", b"x"), ("n", None)]
            assert builder.append(1_700_000_000_000 + number, b"k%d" % number, b"value %d " % number * 3000, headers)
        batch = bytearray(builder.build(5, 0, offset, True))
        stamp(batch, 0, base_offset=offset, leader_epoch=0)
        offset = read_batch_header(batch).next_offset
        segment += batch
    segment += control_batch(True, 3, 5, 0, 1_700_000_000_000, base_offset=offset)
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(segment)

    text = java("kafka.tools.DumpLogSegments", "--files", str(file), "--deep-iteration", "--print-data-log").stdout

    assert re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE) == [str(number) for number in range(offset + 1)]
    assert re.findall(r"compresscodec: (\w+)", text) == ["none", "gzip", "snappy", "lz4", "zstd", "none"]
    assert "isvalid: false" not in text
    assert text.count("headerKeys: [h,n]") == 20 * len(Compression)
    assert text.count("payload: value 19 value 19 ") == len(Compression)
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in text
