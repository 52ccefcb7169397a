"""Compress and decompress record batches in the framing that Kafka's clients read, with bounded output.

A length that the compressed bytes claim is never trusted: output goes into a buffer of bounded size, and data that
expands beyond the bound is refused.

* gzip: one member is written; several are read. zstd: one frame is written; several are read.
* snappy: the xerial framing is written (`\\x82SNAPPY\\0`, version, compatible version, then length-prefixed blocks),
  which Kafka's Java client and librdkafka read. Raw snappy, which librdkafka writes, is read as well.
* lz4: one frame with independent blocks is written, because Kafka's Java reader refuses linked blocks. Frames with
  linked blocks are read as well.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from .batch_header import BatchBudgetExceeded, CorruptBatch
from .errors import ErrorCode, KafkaError
from .schema import Buffer

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""The default limit of what `decompress` returns, in bytes."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
_LENGTH: Final = Struct(">i")

_TOO_SMALL: Final = "failed to write whole buffer"
"""The error text with which cramjam says that the target was too small."""

_FIRST_GUESS: Final = 16 * 1024
_GROWTH: Final = 8


class Compression(IntEnum):
    """The compression codec of a batch, as in the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """Return the codec of a `compression.type`: "none", "gzip", "snappy", "lz4" or "zstd". Raises ValueError."""
        try:
            return cls[name.upper()]
        except KeyError:
            choices = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"unknown compression type {name!r}: use one of {choices}") from None


class UnsupportedCompression(KafkaError):
    """The batch names a codec that does not exist (UNSUPPORTED_COMPRESSION_TYPE)."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression code {code} is not one of 0 to 4")


def compress(codec: Compression, payload: bytes, level: int | None = None) -> bytes:
    """Return `payload` compressed with `codec`, in the framing that Kafka's clients read.

    `level` is on the codec's own scale; None means the codec's default. Snappy has no levels.
    """
    if codec is Compression.NONE:
        return payload
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(payload, level))
    if codec is Compression.SNAPPY:
        return _compress_xerial(payload)
    if codec is Compression.LZ4:
        compressor = cramjam.lz4.Compressor(level=level or 0, content_checksum=False, block_linked=False)
        compressor.compress(payload)
        return bytes(compressor.finish())
    return bytes(cramjam.zstd.compress(payload, level))


def decompress(code: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the decompressed records of a batch whose header has the compression `code`.

    Raises UnsupportedCompression, BatchBudgetExceeded if the data expands beyond `max_bytes`, or CorruptBatch if it is
    damaged.
    """
    return bytes(expand(code, data, max_bytes))


def expand(
    code: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES, scratch: bytearray | None = None
) -> bytes | bytearray:
    """Decompress like `decompress`, but possibly return a bytearray, which saves a copy.

    Normally the size of the result is guessed, and the work is repeated if the guess was too small. A caller can avoid
    the repetition by passing `scratch`, a bytearray of `max_bytes`: the data is decompressed into it and the result
    copied from it.
    """
    if code == Compression.NONE:
        return bytes(data)
    if code == Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), max_bytes)
    try:
        expand_into, ratio = _EXPANDERS[code]
    except KeyError:
        raise UnsupportedCompression(code) from None
    bound = min(max_bytes, ratio * len(data) + _FIRST_GUESS)
    size = min(bound, max(_FIRST_GUESS, 4 * len(data))) if scratch is None else bound
    while True:
        target = bytearray(size) if scratch is None else scratch
        try:
            written = expand_into(data, target)
        except cramjam.DecompressionError as error:
            problem = str(error)
        else:
            if scratch is not None:
                return bytes(memoryview(scratch)[:written])
            del target[written:]
            return target
        # Here `error` and its traceback are gone, so this frees the target before the next one is allocated, and before
        # an exception is raised, whose traceback keeps the variables of this function alive.
        del target
        if size == bound:
            break
        # cramjam raises the same exception for damaged input and for a target that is too small, so only a failure with
        # the largest target is final.
        size = min(bound, size * _GROWTH)
    name = Compression(code).name.lower()
    if bound == max_bytes and _TOO_SMALL in problem:
        raise BatchBudgetExceeded(f"{name} data expands beyond {max_bytes} bytes")
    raise CorruptBatch(f"{name} data is damaged or expands beyond {bound} bytes: {problem}")


def _expand_gzip(data: Buffer, target: bytearray) -> int:
    return int(cramjam.gzip.decompress_into(data, target))


def _expand_lz4(data: Buffer, target: bytearray) -> int:
    return int(cramjam.lz4.decompress_into(data, target))


def _expand_zstd(data: Buffer, target: bytearray) -> int:
    return int(cramjam.zstd.decompress_into(data, target))


_EXPANDERS: Final[dict[int, tuple[Callable[[Buffer, bytearray], int], int]]] = {
    # The number is the most bytes that one input byte can become in the format. It keeps small damaged input from
    # causing a large allocation.
    Compression.GZIP: (_expand_gzip, 1_040),
    Compression.LZ4: (_expand_lz4, 256),
    Compression.ZSTD: (_expand_zstd, 44_000),
}
_SNAPPY_RATIO: Final = 64


def _compress_xerial(payload: bytes) -> bytes:
    """Return the payload as snappy blocks in xerial framing."""
    pieces: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK]))
        pieces += (_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    """Decompress raw snappy, or snappy blocks in xerial framing. Raises CorruptBatch, BatchBudgetExceeded."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, max_bytes)
    pieces: list[bytes] = []
    try:
        _decompress_xerial(data, max_bytes, pieces)
    except CorruptBatch:
        pieces.clear()  # the traceback would keep them in memory
        raise
    return b"".join(pieces)


def _decompress_xerial(data: memoryview, max_bytes: int, pieces: list[bytes]) -> None:
    """Decompress snappy blocks in xerial framing into `pieces`. Raises CorruptBatch, BatchBudgetExceeded."""
    position = len(_XERIAL_HEADER)
    total = 0
    while position < len(data):
        start = position + _LENGTH.size
        if start > len(data):
            raise CorruptBatch("snappy data is cut off within a block length")
        (length,) = _LENGTH.unpack_from(data, position)
        position = start + length
        if length < 0 or position > len(data):
            raise CorruptBatch(f"snappy block of {length} bytes exceeds the {len(data) - start} bytes that are left")
        piece = _decompress_snappy_block(data[start:position], max_bytes - total)
        total += len(piece)
        pieces.append(piece)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    """Decompress one raw snappy block. Raises CorruptBatch, BatchBudgetExceeded."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO * len(block):
            raise CorruptBatch(f"a snappy block of {len(block)} bytes claims to expand to {size}, which is impossible")
        if size > max_bytes:
            raise BatchBudgetExceeded(f"a snappy block expands to {size} bytes, but only {max_bytes} more are allowed")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy data is damaged: {error}") from None
