"""Check that every Kafka client can read the framing of compressed records: `check_framing`.

The decompressors of `compression.py` read more than some clients do: several lz4 frames, linked lz4 blocks, several
gzip members, snappy blocks in an unknown version of the xerial framing, zstd formats before 0.8. A consumer that cannot
read such a batch stops at its offset forever, so the broker refuses the batch. oncelog's own consumers need no such
check, because they use these decompressors.

The check decompresses nothing except gzip data that seems to have a second member. lz4 and xerial data is refused if it
has too many blocks for its size, so that the check is never slow.

Sources: the specifications of the formats, and Kafka's Lz4BlockInputStream, which stops at a block of length 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

from .batch_header import CorruptBatch
from .compression import Compression
from .schema import Buffer

FREE_BLOCKS: Final = 1000
"""The number of blocks of any size that lz4 or xerial data may have.

For each further block, the data must have LEAST_BLOCK_BYTES more bytes.
"""

LEAST_BLOCK_BYTES: Final = 256
"""The number of bytes that the data must have for each block beyond FREE_BLOCKS.

Full blocks are never smaller: a block of 64 KB of zeros takes this many bytes with lz4. A block of 32 KB of zeros, the
size that xerial writers use, takes more with snappy.
"""

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_HEADER: Final = Struct("<IBB")
_LZ4_FIXED_FLAGS: Final = 0b1110_0011
_LZ4_FLAGS: Final = 0b0110_0000
"""The required flags: version 1, independent blocks, no dictionary, reserved bit 0. Clients may choose all other flags.
"""
_LZ4_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_WORD: Final = Struct("<I")
_LZ4_UNCOMPRESSED: Final = 0x8000_0000

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_ZLIB_GZIP: Final = 31

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = Struct(">ii")
_XERIAL_HEADER_SIZE: Final = 16
_XERIAL_LENGTH: Final = Struct(">i")

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def check_framing(code: int, data: Buffer, max_bytes: int) -> None:
    """Raise CorruptBatch unless every Kafka client can read the framing of `data`.

    `code`: the compression in the attributes of the batch. `max_bytes`: the limit of the decompressed size. Most damage
    inside blocks is found only when the data is decompressed.
    """
    check = _CHECKS.get(code)
    if check is not None:
        check(memoryview(data), max_bytes)


def _check_lz4(data: memoryview, _max_bytes: int) -> None:
    """Check that the data is one lz4 frame of version 1 with independent, non-empty blocks and no dictionary."""
    if len(data) < _LZ4_HEADER.size:
        raise CorruptBatch(f"lz4 data of {len(data)} bytes is shorter than a frame header")
    magic, flags, _ = _LZ4_HEADER.unpack_from(data)
    if magic != _LZ4_MAGIC:
        raise CorruptBatch(f"lz4 data begins with {magic:#010x}: write one lz4 frame (magic {_LZ4_MAGIC:#010x})")
    if flags & _LZ4_FIXED_FLAGS != _LZ4_FLAGS:
        raise CorruptBatch(
            f"an lz4 frame has the flags {flags:#04x}, which Kafka's clients cannot read: "
            "write frames of version 1 with independent blocks and without a dictionary"
        )
    position = _LZ4_HEADER.size + (8 if flags & _LZ4_CONTENT_SIZE else 0) + 1
    between = _LZ4_WORD.size + (4 if flags & _LZ4_BLOCK_CHECKSUMS else 0)
    end = len(data) - _LZ4_WORD.size - (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
    for _ in range(_most_blocks(data)):
        if position > end:
            raise CorruptBatch("an lz4 frame is cut off")
        (word,) = _LZ4_WORD.unpack_from(data, position)
        if word == 0:
            break
        length = word & ~_LZ4_UNCOMPRESSED
        if length == 0 or (length == 1 and word < _LZ4_UNCOMPRESSED):  # one compressed byte expands to nothing
            raise CorruptBatch(
                "an lz4 frame has an empty block. Kafka's Java client stops reading there: write no empty blocks"
            )
        position += between + length
    else:
        raise _too_many_blocks("lz4")
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the end of an lz4 frame: write all records as one frame")


def _check_snappy(data: memoryview, _max_bytes: int) -> None:
    """Check the version and the number of blocks of xerial framing. Raw snappy data passes."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC or len(data) < _XERIAL_HEADER_SIZE:
        return
    versions = _XERIAL_VERSIONS.unpack_from(data, len(_XERIAL_MAGIC))
    if versions != (1, 1):
        raise CorruptBatch(f"xerial framing has the versions {versions}: write version 1 and compatible version 1")
    position = _XERIAL_HEADER_SIZE
    for _ in range(_most_blocks(data)):
        if position + _XERIAL_LENGTH.size > len(data):
            return
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        if length < 0:
            return  # the decompressor raises the error
        position += _XERIAL_LENGTH.size + length
    raise _too_many_blocks("snappy")


def _check_gzip(data: memoryview, max_bytes: int) -> None:
    """Check that the data has only one gzip member. Raises CorruptBatch."""
    whole = bytes(data)
    if whole.find(_GZIP_MAGIC, len(_GZIP_MAGIC)) < 0:
        return  # at most one member
    member = zlib.decompressobj(_ZLIB_GZIP)
    try:
        member.decompress(whole, max_bytes + 1)
    except zlib.error as error:
        raise CorruptBatch(f"gzip data is damaged: {error}") from None
    if member.unused_data:
        left = len(member.unused_data)
        raise CorruptBatch(f"{left} bytes follow the first member of gzip data: write all records as one member")


def _check_zstd(data: memoryview, _max_bytes: int) -> None:
    """Check that the data begins with a frame of RFC 8878."""
    if len(data) < len(_ZSTD_MAGIC):
        raise CorruptBatch(f"zstd data of {len(data)} bytes is shorter than a frame header")
    magic = bytes(data[: len(_ZSTD_MAGIC)])
    if magic != _ZSTD_MAGIC:
        raise CorruptBatch(f"zstd data begins with {magic.hex()}: write a frame of RFC 8878 (28b52ffd)")


def _most_blocks(data: memoryview) -> int:
    """Return how many blocks lz4 or xerial data of this size may have."""
    return FREE_BLOCKS + len(data) // LEAST_BLOCK_BYTES


def _too_many_blocks(name: str) -> CorruptBatch:
    return CorruptBatch(
        f"{name} data has more than {FREE_BLOCKS} blocks, of less than {LEAST_BLOCK_BYTES} bytes on average: "
        "fill each block before the next one begins"
    )


_CHECKS: Final[dict[int, Callable[[memoryview, int], None]]] = {
    Compression.GZIP: _check_gzip,
    Compression.SNAPPY: _check_snappy,
    Compression.LZ4: _check_lz4,
    Compression.ZSTD: _check_zstd,
}
