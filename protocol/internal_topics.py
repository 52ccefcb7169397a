"""The topics that coordinators keep their state in: which of their partitions holds the state of a key.

Brokers and clients have to agree with Java's String.hashCode: a client that names the offsets partition of a group, and
a broker whose data directory came from Apache Kafka.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: signed 32 bits, over UTF-16 code units (a character beyond U+FFFF counts as two)."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H") if not text.isascii() else text.encode()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_key(key: str, partitions: int) -> int:
    """The partition of `partitions` that holds `key`'s state: Kafka's abs(hash) % n, where abs of the minimum is 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
