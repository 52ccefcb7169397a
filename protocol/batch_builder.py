"""Build one record batch as a producer fills it, record by record: `BatchBuilder`.

A batch can be built several times: a retry under a new producer epoch changes only header fields, and the payload is
compressed once.

`size` counts uncompressed bytes, which are limited. The compressed size is not known in advance, so `estimated_size`
multiplies the records' size by `ratio`, the compressed / uncompressed ratio of the topic's earlier batches
(`compression_ratio`).
"""

from __future__ import annotations

from typing import Final

from .batch_header import HEADER_SIZE, TRANSACTIONAL, assemble_batch
from .compression import Compression, compress
from .record_varint import SMALL_VARINTS, encode_varint
from .records import Headers

MAX_RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Maximum bytes of a record without headers in addition to its key and value: all varints at their longest."""

_NULL: Final = b"\x01"
_EMPTY_HEADERS: Final = b"\x00"


def record_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound on the bytes that one record takes in a batch. The batch's header is not included."""
    size = MAX_RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name.encode()) + len(content or b"")
    return size


class BatchBuilder:
    """A batch that takes records until it is full (`append` returns False) or `build` closes it.

    `max_bytes` limits the uncompressed size of the whole batch; the method `limit` changes this limit. The first record
    is always accepted, even if it is larger.
    """

    __slots__ = (
        "_base_timestamp",
        "_closed",
        "_level",
        "_limit",
        "_payload",
        "_pieces",
        "compression",
        "max_timestamp",
        "ratio",
        "record_count",
        "size",
    )

    def __init__(
        self,
        compression: Compression = Compression.NONE,
        max_bytes: int = 16384,
        *,
        level: int | None = None,
        ratio: float = 1.0,
    ) -> None:
        self.compression = compression
        self.ratio = ratio if compression else 1.0
        self.record_count = 0
        self.size = HEADER_SIZE
        """The exact size of the uncompressed batch in bytes."""
        self.max_timestamp = -1
        self._base_timestamp = -1
        self._limit = max_bytes
        self._level = level
        self._pieces: list[bytes] = []
        self._payload: bytes | None = None
        self._closed = False

    def limit(self, max_bytes: int) -> None:
        """Change the limit of the uncompressed size of the whole batch in bytes."""
        self._limit = max_bytes

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        """Add a record (`timestamp` in ms) and return True, or return False if the batch is full or closed."""
        # For speed: table look-ups instead of varint loops, and one join per record.
        count = self.record_count
        if count:
            delta = timestamp - self._base_timestamp
        else:
            self._base_timestamp = timestamp
            delta = 0
        small = SMALL_VARINTS
        if key is None:
            key_length, key = _NULL, b""
        else:
            length = len(key)
            key_length = small[length] if length < 8192 else encode_varint(length)
        if value is None:
            value_length, value = _NULL, b""
        else:
            length = len(value)
            value_length = small[length] if length < 8192 else encode_varint(length)
        body = b"".join(
            (
                b"\x00",
                small[delta] if 0 <= delta < 8192 else encode_varint(delta),
                small[count] if count < 8192 else encode_varint(count),
                key_length,
                key,
                value_length,
                value,
                _encode_headers(headers) if headers else _EMPTY_HEADERS,
            )
        )
        length = len(body)
        lead = small[length] if length < 8192 else encode_varint(length)
        size = self.size + length + len(lead)
        if (size > self._limit and count) or self._closed:
            return False
        self._pieces += (lead, body)
        self.size = size
        self.record_count = count + 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return True

    @property
    def estimated_size(self) -> int:
        """The size of the batch on the wire in bytes. It is exact without compression, or after `build`."""
        if self._payload is not None:
            return HEADER_SIZE + len(self._payload)
        return HEADER_SIZE + int((self.size - HEADER_SIZE) * self.ratio)

    @property
    def compression_ratio(self) -> float:
        """The compressed / uncompressed ratio of the payload, for the next batch. It is `ratio` before `build`."""
        if self._payload is None or self.size == HEADER_SIZE:
            return self.ratio
        return len(self._payload) / (self.size - HEADER_SIZE)

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """Return the batch with base offset 0 and leader epoch -1. No record can be appended after that.

        May be called again with other producer fields. Raises ValueError if the batch has no records, or was freed.
        """
        if self._payload is None:
            if not self._pieces:
                raise ValueError("a batch needs at least one record")
            self._closed = True
            self._payload = compress(self.compression, b"".join(self._pieces), self._level)
            self._pieces = []
        return assemble_batch(
            self._payload,
            base_offset=0,
            leader_epoch=-1,
            attributes=self.compression | (TRANSACTIONAL if transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )

    def free(self) -> None:
        """Free the memory of the records. `record_count` and `size` stay. No record can be appended after that."""
        self._closed = True
        self._pieces = []
        self._payload = None


def _encode_headers(headers: Headers) -> bytes:
    """Return the encoded headers of a record: their count, then each header."""
    pieces = [encode_varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        pieces += (encode_varint(len(encoded)), encoded)
        if content is None:
            pieces.append(_NULL)
        else:
            pieces += (encode_varint(len(content)), content)
    return b"".join(pieces)
