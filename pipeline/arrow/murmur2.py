"""Compute the partition of every key in an Arrow array as Kafka does, with murmur2 for all keys at once.

A key gets the same partition as in every other Kafka client. `client/producer/partitioner.py` does the same for one
key.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint32]

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> Hashes:
    """Return the hash of each key in a binary array. Null has the hash of an empty key.

    Raises TypeError for an array of another type.
    """
    if keys.type != pa.binary():
        raise TypeError(f"keys are {keys.type}: cast them to binary")
    count = len(keys)
    if not count:
        return np.empty(0, np.uint32)
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32, keys.offset + count + 1)[keys.offset :].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    at, length = bounds[:-1], np.diff(bounds)
    h = np.uint32(_SEED) ^ length.astype(np.uint32)
    words = length >> 2
    # The keys are sorted by descending length, so that the keys with a further word are always the first ones.
    order = np.argsort(-words, kind="stable")
    at, words, h = at[order], words[order], h[order]
    for word in range(int(words[0])):
        many = int(np.searchsorted(-words, -word, side="left"))
        k = _word(raw, at[:many] + 4 * word) * _M
        k ^= k >> 24
        h[:many] = h[:many] * _M ^ k * _M
    rest = length[order] & 3
    tail = at + 4 * words
    for size in (1, 2, 3):
        some = np.flatnonzero(rest == size)
        if some.size:
            k = np.zeros(some.size, np.uint32)
            for byte in range(size):
                k |= raw[tail[some] + byte].astype(np.uint32) << np.uint32(8 * byte)
            h[some] = (h[some] ^ k) * _M
    h ^= h >> 13
    h *= _M
    h ^= h >> 15
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes


def partitions_for_keys(keys: pa.Array, partitions: int) -> NDArray[np.int32]:
    """Return the partition of each key in a topic with `partitions` partitions."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def _word(raw: NDArray[np.uint8], at: NDArray[np.int64]) -> Hashes:
    """Return the little-endian 32-bit words at these positions."""
    word = raw[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= raw[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
