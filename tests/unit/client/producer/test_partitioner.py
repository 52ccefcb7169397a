"""Keys go where Kafka's clients send them; records without a key stay, then move on."""

from __future__ import annotations

import pytest
from oncelog.client.producer.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_of_keys_that_kafka_tests_with(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_long_keys_are_hashed_without_being_kept() -> None:
    assert partition_for_key(b"x" * 1000, 7) == (murmur2(b"x" * 1000) & 0x7FFFFFFF) % 7


def test_sticky_moves_on_after_its_bytes_and_never_to_itself() -> None:
    sticky = StickyPartitioner(100, lambda count: 0)
    sticky.switch((0, 1, 2))
    assert sticky.partition == 0
    sticky.filled(99, (0, 1, 2))
    assert sticky.partition == 0
    sticky.filled(1, (0, 1, 2))
    assert sticky.partition == 1
    sticky.filled(100, (1,))
    assert sticky.partition == 1
