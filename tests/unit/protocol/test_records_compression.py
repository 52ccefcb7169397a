"""Codecs: framing that other clients read, and bounds that compressed data can't break."""

from __future__ import annotations

import tracemalloc

import cramjam
import pytest
from oncelog.protocol.compression import Compression, UnsupportedCompression, compress, decompress
from oncelog.protocol.records import CorruptBatch

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [0, 1, 1000, 32 * 1024, 100_000, 3_000_000])
def test_round_trip(codec: Compression, size: int) -> None:
    payload = (b"".join(b"%d," % (number * 7919 % 10_007) for number in range(size // 4 + 1)))[:size]
    assert decompress(codec, memoryview(compress(codec, payload))) == payload


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("level", [1, 9])
def test_level_is_taken(codec: Compression, level: int) -> None:
    assert decompress(codec, compress(codec, b"abc" * 1000, level)) == b"abc" * 1000


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_is_refused_at_the_bound_without_being_expanded(codec: Compression) -> None:
    bomb = compress(codec, bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, max_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000
    assert len(decompress(codec, bomb, max_bytes=20_000_000)) == 20_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_small_garbage_makes_no_large_allocation(codec: Compression) -> None:
    compressed = compress(codec, b"some text" * 10)
    tracemalloc.start()
    for position in range(len(compressed)):
        damaged = bytearray(compressed)
        damaged[position] ^= 0xFF
        try:
            decompress(codec, bytes(damaged[:-1]))
        except CorruptBatch:
            continue
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_cut_off_data_is_corrupt(codec: Compression) -> None:
    compressed = compress(codec, b"some text" * 10)
    with pytest.raises(CorruptBatch):
        decompress(codec, compressed[:-3])


def test_raw_snappy_is_read_as_well() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"librdkafka writes this" * 50))
    assert decompress(Compression.SNAPPY, raw) == b"librdkafka writes this" * 50


def test_snappy_is_written_in_xerial_framing() -> None:
    assert compress(Compression.SNAPPY, b"x" * 100_000).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@pytest.mark.parametrize("tail", [b"\x00\x00", b"\x00\x00\x00\x05ab", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_damaged_xerial_framing_is_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"text") + tail)


def test_snappy_length_that_lies_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x07" + b"\x00" * 20)


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    flags = compress(Compression.LZ4, b"text" * 100_000)[4]
    assert flags >> 6 == 1  # frame format version
    assert flags & 0x20


def test_several_members_and_frames_are_read() -> None:
    for codec in (Compression.GZIP, Compression.ZSTD):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two")) == b"onetwo"


def test_unknown_code_and_unknown_name() -> None:
    with pytest.raises(UnsupportedCompression, match="code 7"):
        decompress(7, b"")
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        Compression.from_name("brotli")
    assert Compression.from_name("zstd") is Compression.ZSTD
