"""Framing that every Kafka client reads is accepted, and no other."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.protocol.compressed_framing import FREE_BLOCKS, LEAST_BLOCK_BYTES, check_framing
from oncelog.protocol.compression import Compression, compress, decompress
from oncelog.protocol.records import CorruptBatch

MAX = 1 << 20
FIRST, SECOND = b"first half, " * 1000, b"second half, " * 1000
BOTH = FIRST + SECOND
XERIAL = b"\x82SNAPPY\x00"
ZSTD_07 = b"\x27\xb5\x2f\xfd\x20\x05\x40\x00\x05hello\xc0\x00\x00"
SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"


def lz4_frame(payload: bytes = BOTH, **options: Any) -> bytes:
    return bytes(lz4.frame.compress(payload, **{"block_linked": False, "store_size": False} | options))


def lz4_between(word: int, block: bytes = b"") -> bytes:
    """A frame of two blocks with another in between."""
    return lz4_frame(FIRST)[:-4] + struct.pack("<I", word) + block + lz4_frame(SECOND)[7:]


def lz4_of_tiny_blocks(count: int) -> bytes:
    return lz4_frame()[:7] + (struct.pack("<I", 0x8000_0001) + b"a") * count + b"\0\0\0\0"


def xerial(*blocks: bytes, versions: tuple[int, int] = (1, 1)) -> bytes:
    pieces = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return XERIAL + struct.pack(">ii", *versions) + b"".join(struct.pack(">i", len(it)) + it for it in pieces)


READABLE = {
    "lz4": (Compression.LZ4, lz4_frame()),
    "lz4 with block checksums": (Compression.LZ4, lz4_frame(block_checksum=True)),
    "lz4 with a content checksum": (Compression.LZ4, lz4_frame(content_checksum=True)),
    "lz4 with the content's size": (Compression.LZ4, lz4_frame(store_size=True)),
    "lz4 with all of these": (
        Compression.LZ4,
        lz4_frame(block_checksum=True, content_checksum=True, store_size=True),
    ),
    "lz4 of several blocks": (Compression.LZ4, lz4_frame(BOTH * 20, block_size=lz4.frame.BLOCKSIZE_MAX64KB)),
    "lz4 of blocks that are not compressed": (Compression.LZ4, lz4_of_tiny_blocks(FREE_BLOCKS)),
    "gzip": (Compression.GZIP, gzip.compress(BOTH)),
    "gzip with the magic among its data": (
        Compression.GZIP,
        gzip.compress(b"\x1f\x8b\x08" * 3 + gzip.compress(BOTH), compresslevel=0),
    ),
    "raw snappy": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(BOTH))),
    "xerial snappy": (Compression.SNAPPY, xerial(FIRST, SECOND)),
    "zstd": (Compression.ZSTD, bytes(cramjam.zstd.compress(BOTH))),
    "zstd of two frames": (
        Compression.ZSTD,
        bytes(cramjam.zstd.compress(FIRST)) + bytes(cramjam.zstd.compress(SECOND)) + SKIPPABLE,
    ),
}

UNREADABLE = {
    "lz4 with linked blocks": (Compression.LZ4, lz4_frame(BOTH * 20, block_linked=True), "flags"),
    "two lz4 frames": (Compression.LZ4, lz4_frame(FIRST) + lz4_frame(SECOND), "one frame"),
    "a skippable frame before lz4": (Compression.LZ4, SKIPPABLE + lz4_frame(), "begins with"),
    "a skippable frame after lz4": (Compression.LZ4, lz4_frame() + SKIPPABLE, "one frame"),
    "bytes after lz4 with a content checksum": (
        Compression.LZ4,
        lz4_frame(content_checksum=True) + SKIPPABLE,
        "one frame",
    ),
    "lz4 with an empty block": (Compression.LZ4, lz4_between(0x8000_0000), "empty block"),
    "lz4 with a compressed block of nothing": (Compression.LZ4, lz4_between(1, b"\0"), "empty block"),
    "lz4 of too many blocks": (Compression.LZ4, lz4_of_tiny_blocks(2 * FREE_BLOCKS), "more than"),
    "two gzip members": (Compression.GZIP, gzip.compress(FIRST) + gzip.compress(SECOND), "one member"),
    "gzip after an empty member": (Compression.GZIP, gzip.compress(b"") + gzip.compress(BOTH), "one member"),
    "xerial snappy of version 0": (Compression.SNAPPY, xerial(BOTH, versions=(0, 1)), "versions"),
    "xerial snappy of version 2": (Compression.SNAPPY, xerial(BOTH, versions=(2, 2)), "versions"),
    "xerial snappy of too many blocks": (Compression.SNAPPY, xerial(*[b"a"] * 2 * FREE_BLOCKS), "more than"),
    "zstd of version 0.7": (Compression.ZSTD, ZSTD_07, "begins with 27b52ffd"),
}
"""All of these are read by `decompress`, and not by some Kafka client."""


@pytest.mark.parametrize("name", READABLE)
def test_framing_that_every_client_reads_is_accepted(name: str) -> None:
    codec, data = READABLE[name]
    assert decompress(codec, data)
    check_framing(codec, memoryview(data), MAX)


@pytest.mark.parametrize("name", UNREADABLE)
def test_framing_that_some_client_cannot_read_is_refused(name: str) -> None:
    codec, data, reason = UNREADABLE[name]
    assert decompress(codec, data), "the codec reads it"
    with pytest.raises(CorruptBatch, match=reason):
        check_framing(codec, memoryview(data), MAX)


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_data_without_a_frame_header_is_refused_with_its_size(codec: Compression) -> None:
    for data in (b"", b"\x28"):
        with pytest.raises(CorruptBatch, match=f"{len(data)} bytes is shorter than a frame header"):
            check_framing(codec, memoryview(data), MAX)


def test_a_dictionary_id_in_an_lz4_frame_is_refused() -> None:
    frame = lz4_frame()
    named = frame[:4] + bytes([frame[4] | 1, frame[5]]) + bytes(4) + frame[6:]
    with pytest.raises(CorruptBatch, match="dictionary"):
        check_framing(Compression.LZ4, named, MAX)


@pytest.mark.parametrize("options", [{}, {"content_checksum": True}, {"store_size": True}])
def test_an_lz4_frame_that_is_cut_off_is_refused(options: dict[str, Any]) -> None:
    frame = lz4_frame(**options)
    for size in range(len(frame)):
        with pytest.raises(CorruptBatch):
            check_framing(Compression.LZ4, frame[:size], MAX)


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.SNAPPY])
def test_the_most_compressible_records_have_larger_blocks_than_the_bound(codec: Compression) -> None:
    zeros = bytes(2 * FREE_BLOCKS * 64 * 1024)
    data = compress(codec, zeros)
    assert len(data) // LEAST_BLOCK_BYTES >= 2 * FREE_BLOCKS
    check_framing(codec, data, len(zeros))


@given(st.binary(max_size=5000), st.sampled_from([it for it in Compression if it]))
def test_what_we_compress_is_accepted(payload: bytes, codec: Compression) -> None:
    check_framing(codec, compress(codec, payload), MAX)


@given(st.binary(max_size=60), st.sampled_from(list(READABLE)), st.integers(0, 100), st.integers(0, 100))
def test_damaged_data_raises_nothing_but_corrupt_batch(junk: bytes, name: str, at: int, cut: int) -> None:
    codec, data = READABLE[name]
    try:
        check_framing(codec, data[:at] + junk + data[at + cut :], MAX)
    except CorruptBatch:
        return


def test_a_gzip_member_larger_than_the_bound_is_left_to_the_decompressor() -> None:
    data = zlib.compress(bytes(MAX), wbits=31) + gzip.compress(b"")
    check_framing(Compression.GZIP, data, MAX - 2)
    with pytest.raises(CorruptBatch):
        check_framing(Compression.GZIP, data, MAX)
