"""Compute which partition of an internal topic holds the state of a key, such as a group id.

The hash of a key is Java's String.hashCode, as in Apache Kafka. So a Kafka client finds the same partition for a group,
and oncelog's broker can use a data directory that Apache Kafka wrote.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"


@lru_cache(maxsize=100)  # a request needs the hash of its key several times, and a key of 32 kB takes two milliseconds
def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: a signed 32-bit hash of UTF-16 code units (two per character beyond U+FFFF)."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H") if not text.isascii() else text.encode()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_key(key: str, partitions: int) -> int:
    """Return the partition that holds the state of `key`: Kafka's abs(hash) % n, where abs(-2^31) counts as 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
