"""Chooses the partition of a record as Kafka's clients do, so that a key goes to the same partition with any client.

A key is hashed with murmur2. Records without a key go to one partition until it has received about batch.size bytes,
then to another partition chosen at random (KIP-794). This results in full batches instead of many small ones, and
distributes records evenly in the long run.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_CACHED_KEYS: Final = 16_384
_CACHED_KEY_BYTES: Final = 64


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 hash of a key, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & 0xFFFFFFFF
    words = length // 4
    for k in struct.unpack_from(f"<{words}I", data):
        k = (k * _M) & 0xFFFFFFFF
        k ^= k >> 24
        k = (k * _M) & 0xFFFFFFFF
        h = ((h * _M) & 0xFFFFFFFF) ^ k
    rest = data[words * 4 :]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * _M) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * _M) & 0xFFFFFFFF
    return h ^ (h >> 15)


_murmur2_cached: Final = lru_cache(maxsize=_CACHED_KEYS)(murmur2)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`: the hash without its sign bit, modulo `partitions`."""
    if len(key) <= _CACHED_KEY_BYTES:
        return (_murmur2_cached(bytes(key)) & 0x7FFFFFFF) % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Chooses the partition for those records of a topic that have no key. `available` are the partitions that have a
    leader.
    """

    __slots__ = ("_bytes", "_choose", "_limit", "partition")

    def __init__(self, limit: int, choose: Callable[[int], int] = random.randrange) -> None:
        self.partition = -1
        self._bytes = 0
        self._limit = limit
        self._choose = choose

    def switch(self, available: tuple[int, ...]) -> None:
        """Switch to another partition, chosen at random. Keep the current one only if no other is available."""
        others = tuple(partition for partition in available if partition != self.partition) or available
        self.partition = others[self._choose(len(others))]
        self._bytes = 0

    def filled(self, size: int, available: tuple[int, ...]) -> None:
        """Count the bytes of a closed batch, and switch to another partition after `limit` bytes."""
        self._bytes += size
        if self._bytes >= self._limit:
            self.switch(available)
