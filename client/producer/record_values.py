"""`record_of` checks the arguments of `send` and `enqueue`, for all producers.

Each value is converted to the type that a batch holds. If a value cannot be converted, the call itself raises an error.
If such a value were noticed only later, in a batch or in a request for metadata, other records would fail as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeGuard

from ...protocol.records import Headers
from ..validation import MAX_INT32, MAX_INT64, whole_number
from ..values import HeadersLike


class RecordValues(NamedTuple):
    """A record that can be put into a batch. If `partition` is None, the partition has not been chosen yet."""

    partition: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def record_of(value: object, key: object, partition: object, timestamp_ms: object, headers: object) -> RecordValues:
    """Return a record's values. Raises TypeError for a wrong type, ValueError for a number out of range.

    `timestamp_ms` None means now. Buffers are copied to bytes, so that a record does not change while it waits.
    """
    return RecordValues(
        None if partition is None else whole_number(partition, "partition", MAX_INT32),
        int(time.time() * 1000) if timestamp_ms is None else timestamp_of(timestamp_ms),
        bytes_of("key", key),
        bytes_of("value", value),
        headers_of(headers),
    )


def timestamp_of(timestamp_ms: object) -> int:
    """Return a checked timestamp, in milliseconds since the epoch."""
    if type(timestamp_ms) is int and 0 <= timestamp_ms <= MAX_INT64:
        return timestamp_ms
    if isinstance(timestamp_ms, int) and timestamp_ms < 0:
        raise ValueError(f"timestamp_ms {timestamp_ms} is before 1970")
    return whole_number(timestamp_ms, "timestamp_ms", MAX_INT64, "; give milliseconds: int(time.time() * 1000)")


def bytes_of(name: str, value: object) -> bytes | None:
    """Return a key or a value as bytes, or None. Raises TypeError for other types."""
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        hint = f"; encode it: {name}.encode()" if isinstance(value, str) else ""
        raise TypeError(f"{name} must be bytes or None, not {type(value).__name__}{hint}")
    return bytes(value)


def are_plain_headers(headers: object) -> TypeGuard[Headers]:
    """Return whether headers are a list or tuple of pairs that a batch can take without a copy. This check is fast."""
    if type(headers) is not list and type(headers) is not tuple:
        return False
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str:
            return False
        if pair[1] is not None and type(pair[1]) is not bytes:
            return False
    return True


def read_once(headers: HeadersLike) -> HeadersLike:
    """Return headers that can be read more than once, for a record that may have to wait. An iterator is copied."""
    return headers_of(headers) if isinstance(headers, Iterator) else headers


def headers_of(headers: object) -> Headers:
    """Return headers as a tuple of pairs, because an iterator could be read only once, and a list could change."""
    if type(headers) is tuple and not headers:
        return ()
    pairs: list[tuple[str, bytes | None]] = []
    try:
        for name, content in headers.items() if isinstance(headers, Mapping) else headers:  # type: ignore[attr-defined]
            if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
                raise TypeError
            name.encode()
            pairs.append((name, content))
    except UnicodeEncodeError as error:
        raise ValueError(f"header name {error.object!r} cannot be encoded as UTF-8") from None
    except (TypeError, ValueError):
        raise TypeError("headers must be (str, bytes or None) pairs") from None
    return tuple(pairs)
