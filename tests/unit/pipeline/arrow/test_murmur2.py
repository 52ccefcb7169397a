"""Kafka's hash of many keys at once, held against the one for a single key."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from oncelog.client.producer import partitioner  # noqa: E402
from oncelog.pipeline.arrow.murmur2 import murmur2, partitions_for_keys  # noqa: E402


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=40)), st.integers(1, 100))
def test_keys_land_where_the_client_puts_them(keys: list[bytes], partitions: int) -> None:
    array = pa.array([b"other", *keys], pa.binary()).slice(1)
    assert murmur2(array).tolist() == [partitioner.murmur2(key) for key in keys]
    found = partitions_for_keys(array, partitions).tolist()
    assert found == [partitioner.partition_for_key(key, partitions) for key in keys]


def test_null_counts_as_an_empty_key() -> None:
    assert murmur2(pa.array([None, b"", b"abc"], pa.binary())).tolist()[:2] == [partitioner.murmur2(b"")] * 2


def test_other_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="keys are large_binary: cast them to binary"):
        murmur2(pa.array([b"a"], pa.large_binary()))
