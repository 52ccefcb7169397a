"""Reproduces the order in which Java's HashMap iterates over its keys.

Kafka Connect keeps partitions and offsets from a user's request in HashMaps, so their JSON has the names in this order.
"""

from __future__ import annotations

from collections.abc import Iterable

_CAPACITY = 16
"""The number of buckets of a new HashMap. It doubles whenever more than three quarters of it are filled."""


def hash_order(names: Iterable[str]) -> list[str]:
    """Return the names in the iteration order of a HashMap to which they were added in the given order."""
    keys = list(dict.fromkeys(names))
    capacity = _CAPACITY
    while len(keys) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        code = _hash_code(name)
        return (code ^ code >> 16) & capacity - 1

    return sorted(keys, key=bucket)


def _hash_code(text: str) -> int:
    """Return Java's String.hashCode() as an unsigned 32-bit number."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = code * 31 + (high << 8 | low) & 0xFFFFFFFF
    return code
