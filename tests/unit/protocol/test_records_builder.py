"""BatchBuilder: one batch as a producer fills it."""

from __future__ import annotations

import pytest
from oncelog.protocol.batch_builder import BatchBuilder, record_size
from oncelog.protocol.compression import Compression
from oncelog.protocol.records import HEADER_SIZE, Record, decode_batch, read_batch_header, verify_crc


def decode(batch: bytes) -> list[Record]:
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, header)
    assert header.size == len(batch)
    return decode_batch(batch, 0, header)


def test_batch_holds_what_was_appended_in_order() -> None:
    builder = BatchBuilder(max_bytes=1 << 20)
    assert builder.append(1000, b"k", b"v", [("h", b"x"), ("n", None)])
    assert builder.append(900, None, b"w" * 9000)
    assert builder.append(1_000_000, b"q" * 9000, None)
    batch = builder.build(producer_id=4, producer_epoch=1, base_sequence=7, transactional=True)
    assert decode(batch) == [
        Record(0, 1000, b"k", b"v", [("h", b"x"), ("n", None)]),
        Record(1, 900, None, b"w" * 9000),
        Record(2, 1_000_000, b"q" * 9000, None),
    ]
    header = read_batch_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 7)
    assert header.is_transactional
    assert header.max_timestamp == 1_000_000
    assert header.last_offset_delta == 2


def test_size_is_exact_at_every_step() -> None:
    for count in range(1, 200, 7):
        builder = BatchBuilder(max_bytes=1 << 20)
        for index in range(count):
            assert builder.append(index * 1000, b"k" * index, b"v" * (index * 50), [("h", b"1")] * (index % 3))
        assert builder.size == builder.estimated_size
        assert builder.size == len(builder.build())


def test_full_batch_refuses_and_stays_below_its_limit() -> None:
    builder = BatchBuilder(max_bytes=1000)
    while builder.append(0, None, b"x" * 90):
        pass
    before = builder.size
    assert before <= 1000
    assert not builder.append(0, None, b"x" * 90)
    assert builder.size == before
    assert builder.append(0, None, b"")
    assert len(decode(builder.build())) == builder.record_count


def test_first_record_is_taken_however_large() -> None:
    builder = BatchBuilder(max_bytes=100)
    assert builder.append(0, None, b"x" * 5000)
    assert not builder.append(0, None, b"")
    assert len(decode(builder.build())[0].value or b"") == 5000


def test_record_size_is_an_upper_bound() -> None:
    for size in (0, 1, 63, 64, 8191, 8192, 100_000):
        key, value, headers = b"k" * size, b"v" * size, [("é" * size, b"x" * size), ("", None)]
        builder = BatchBuilder(max_bytes=1)
        builder.append(0, key, value, headers)
        assert builder.size - HEADER_SIZE <= record_size(key, value, headers)


def test_building_again_changes_only_the_producer() -> None:
    builder = BatchBuilder(Compression.GZIP)
    builder.append(5, b"k", b"v")
    first, second = builder.build(1, 0, 10), builder.build(2, 3, 0)
    assert decode(first) == decode(second)
    assert not builder.append(5, b"k", b"v")
    header = read_batch_header(second)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2, 3, 0)
    assert first[HEADER_SIZE:] == second[HEADER_SIZE:]


def test_ratio_of_earlier_batches_estimates_the_size_of_a_compressed_one() -> None:
    plain, scaled = BatchBuilder(Compression.ZSTD, 4096), BatchBuilder(Compression.ZSTD, 4096, ratio=0.25)
    for builder in (plain, scaled):
        while builder.append(0, None, b"the same text over and over" * 3):
            pass
    assert 4000 < plain.size == scaled.size <= 4096, "the limit is that of the uncompressed size"
    assert 1000 < scaled.estimated_size < 1100
    scaled.build()
    assert scaled.estimated_size == len(scaled.build())
    assert scaled.compression_ratio < 0.25


def test_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()
