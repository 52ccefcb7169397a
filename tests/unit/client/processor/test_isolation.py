"""How the record that makes a batch fail is found: by halving, past everything that does not fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from oncelog.client.processor.batch import Batch
from oncelog.client.processor.dead_letters import Isolation
from oncelog.client.values import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(first: int, end: int, partition: TopicPartition = A) -> Batch:
    made = Batch()
    made.add(partition, [None] * (end - first), OffsetAndMetadata(end))  # type: ignore[list-item]
    return made


@given(st.integers(1, 64), st.integers(1, 200), st.sets(st.integers(0, 199), max_size=6))
def test_every_culprit_is_found_and_nothing_else(most: int, total: int, culprits: set[int]) -> None:
    isolation, position, steps = Isolation(most), 0, 0
    buried: list[int] = []
    while position < total:
        steps += 1
        assert steps <= total + 10 * len(culprits) + 10
        end = min(position + isolation.limit, total)
        bad = culprits & set(range(position, end))
        if bad and end - position > 1:
            isolation.failed(batch(position, end))
            continue
        buried += bad
        isolation.passed(batch(position, end))
        position = end
    assert sorted(buried) == sorted(number for number in culprits if number < total)


def test_until_the_batch_is_passed_only_its_partitions_are_read() -> None:
    isolation = Isolation(100)
    isolation.failed(batch(0, 100))
    assert (list(isolation.partitions), isolation.limit) == ([A], 50)
    isolation.passed(batch(0, 50))
    assert (list(isolation.partitions), isolation.limit) == ([A], 50)
    isolation.passed(batch(50, 100))
    assert (list(isolation.partitions), isolation.limit) == ([], 100)


def test_partitions_that_are_given_up_are_forgotten() -> None:
    isolation = Isolation(100)
    isolation.failed(batch(0, 10))
    isolation.failed(batch(0, 20, B))
    assert (set(isolation.partitions), isolation.limit) == ({A, B}, 5)
    isolation.drop({A})
    assert set(isolation.partitions) == {B}
    isolation.drop({B})
    assert (set(isolation.partitions), isolation.limit) == (set(), 100)


def test_partitions_that_are_long_in_coming_do_not_hold_up_the_others_and_batches_stay_small() -> None:
    isolation = Isolation(100)
    isolation.failed(batch(0, 100))
    isolation.waited([])
    assert (list(isolation.partitions), isolation.limit) == ([], 50)
    isolation.passed(batch(0, 50, B))
    assert isolation.limit == 50
    isolation.failed(batch(0, 50))
    assert (list(isolation.partitions), isolation.limit) == ([A], 25)


def test_partitions_that_are_read_to_their_end_are_forgotten() -> None:
    isolation = Isolation(100)
    isolation.failed(batch(0, 10))
    isolation.waited([A])
    assert (list(isolation.partitions), isolation.limit) == ([], 100)
