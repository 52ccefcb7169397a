"""The committed offsets of a group: which record counts, and that memory goes with what is removed."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.coordinator.claim import TopicPartition
from oncelog.broker.coordinator.group.group_offsets import GroupOffsets, OffsetAndMetadata

PARTITIONS = st.builds(lambda index: ("t", index), st.integers(0, 5))
VALUES = st.builds(
    OffsetAndMetadata,
    committed_offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 1),
    metadata=st.sampled_from(["", "m"]),
    commit_timestamp_ms=st.integers(0, 2),
    topic_id=st.sampled_from([bytes(16), b"i" * 16]),
    record_offset=st.integers(0, 30),
)


@given(st.lists(st.tuples(PARTITIONS, VALUES, st.booleans()), max_size=60))
def test_offsets_are_those_of_a_dict_in_which_the_newest_record_counts(
    changes: list[tuple[TopicPartition, OffsetAndMetadata, bool]],
) -> None:
    offsets = GroupOffsets()
    model: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, value, removes in changes:
        known = model.get(partition)
        if removes:
            offsets.remove(partition, value.record_offset)
            if known is not None and known.record_offset <= value.record_offset:
                del model[partition]
        else:
            offsets.put(partition, value)
            if known is None or known.record_offset < value.record_offset:
                model[partition] = value
        assert list(offsets.items()) == list(model.items())
        assert (offsets == model, len(offsets), bool(offsets)) == (True, len(model), bool(model))
        assert all((("t", index) in offsets) == (("t", index) in model) for index in range(6))
        assert offsets.get(("t", 9)) is None


def test_offsets_committed_together_share_all_but_their_numbers() -> None:
    offsets = GroupOffsets()
    for turn in range(3):
        for index in range(100):
            rest = (0, "".join(["some ", "metadata"]), 2**40 + turn, -1, bytes(16), None)
            offsets.put(("t", index), OffsetAndMetadata(2**50 + index, *rest, 2**51 + 100 * turn + index))
    assert len({id(rest) for rest in offsets._rests}) == 1
    assert sys.getsizeof(offsets._numbers) + sys.getsizeof(offsets._rests) < 100 * 30


def test_removed_offsets_give_their_places_back() -> None:
    offsets = GroupOffsets()
    for number in range(1_000):
        offsets.put(("t", number), OffsetAndMetadata(1, 0, "", 0, record_offset=2 * number))
        offsets.remove(("t", number), 2 * number + 1)
    assert len(offsets) == 0
    assert len(offsets._rests) < 20


def test_removing_an_offset_moves_no_more_than_one_other() -> None:
    offsets = GroupOffsets()
    for number in range(1_000):
        offsets.put(("t", number), OffsetAndMetadata(number, 0, str(number), 0, record_offset=number))
    for number in range(999):
        places = dict(offsets._places)
        offsets.remove(("t", number), 2_000)
        moved = [partition for partition, place in offsets._places.items() if places[partition] != place]
        assert len(moved) <= 1
        assert len(offsets._rests) == len(offsets) == 999 - number
    assert list(offsets.values()) == [OffsetAndMetadata(999, 0, "999", 0, record_offset=999)]
