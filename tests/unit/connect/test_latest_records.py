"""The last record of a key whose records are in several partitions."""

from __future__ import annotations

from itertools import permutations

import pytest
from oncelog.client.producer.partitioner import partition_for_key
from oncelog.connect.stores.latest import LatestRecords

KEY, PARTITIONS = b'["c",{"p":1}]', 7
HOME = partition_for_key(KEY, PARTITIONS)
ELSEWHERE, FURTHER = [number for number in range(PARTITIONS) if number != HOME][:2]


@pytest.mark.parametrize(
    ("records", "last"),
    [
        ({HOME: [1], ELSEWHERE: [2]}, (ELSEWHERE, 0)),
        ({HOME: [2], ELSEWHERE: [1]}, (HOME, 0)),
        ({HOME: [2], ELSEWHERE: [2]}, (HOME, 0)),
        ({FURTHER: [2], ELSEWHERE: [2]}, (max(FURTHER, ELSEWHERE), 0)),
        ({HOME: [3, 1], ELSEWHERE: [2]}, (HOME, 1)),
        ({HOME: [5, 1], ELSEWHERE: [2, 6, 3]}, (ELSEWHERE, 2)),
        ({HOME: [4], ELSEWHERE: [3, 3], FURTHER: [1, 4, 2]}, (HOME, 0)),
    ],
)
def test_the_last_record_of_a_key_does_not_depend_on_the_order_of_reading(
    records: dict[int, list[int]], last: tuple[int, int]
) -> None:
    reads = {number for number, times in records.items() for _ in times}
    turns = [number for number in reads for _ in records[number]]
    for order in set(permutations(turns)):
        latest, taken, following = LatestRecords(), None, dict.fromkeys(reads, 0)
        for partition in order:
            index = following[partition]
            following[partition] += 1
            if latest.add(KEY, partition, records[partition][index], PARTITIONS):
                taken = partition, index
        assert taken == last, order


def test_the_keys_of_a_topic_do_not_affect_each_other() -> None:
    latest = LatestRecords()
    assert latest.add(b"a", 0, 9, 2)
    assert latest.add(b"b", 1, 1, 2)
    assert latest.add(b"b", 1, 1, 2)


def test_all_partitions_with_records_of_a_key_are_known_with_their_newest_timestamps() -> None:
    latest = LatestRecords()
    assert latest.places(KEY) == {}
    for partition, timestamp_ms in ((ELSEWHERE, 5), (ELSEWHERE, 3)):
        latest.add(KEY, partition, timestamp_ms, PARTITIONS)
    assert latest.places(KEY) == {ELSEWHERE: 5}
    for partition, timestamp_ms in ((HOME, 7), (FURTHER, 2), (FURTHER, 6), (ELSEWHERE, 4)):
        latest.add(KEY, partition, timestamp_ms, PARTITIONS)
    assert latest.places(KEY) == {ELSEWHERE: 5, HOME: 7, FURTHER: 6}
    latest.add(KEY, FURTHER, 9, PARTITIONS)
    assert latest.places(KEY) == {ELSEWHERE: 5, HOME: 7, FURTHER: 9}
