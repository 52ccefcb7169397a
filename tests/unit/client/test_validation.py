"""What a program gives is checked, and refused in words, before any of it takes effect."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.client.errors import IllegalStateError
from oncelog.client.producer.initialisation import Initialisation
from oncelog.client.validation import names_of, partitions_of, positions_of
from oncelog.client.values import ConsumerGroupMetadata, GroupAssignment, OffsetAndMetadata, TopicPartition
from support.scripted_cluster import TOPIC, World, in_world

T0 = TopicPartition("t", 0)


def test_positions_are_taken_as_numbers_or_with_metadata() -> None:
    given: Any = {("t", 0): 5, ("t", 1): OffsetAndMetadata(6, "m", 2)}
    assert positions_of(given) == {T0: OffsetAndMetadata(5), TopicPartition("t", 1): OffsetAndMetadata(6, "m", 2)}


@pytest.mark.parametrize(
    "given",
    [
        [(T0, 5)],
        {"t": 5},
        {("t", "0"): 5},
        {T0: "5"},
        {T0: 5.0},
        {T0: None},
        {T0: True},
        {T0: OffsetAndMetadata(5, None)},  # type: ignore[arg-type]
        {T0: OffsetAndMetadata(5, "", "2")},  # type: ignore[arg-type]
        {T0: OffsetAndMetadata(5, "", True)},
    ],
)
def test_positions_of_wrong_types_are_refused(given: Any) -> None:
    with pytest.raises(TypeError):
        positions_of(given)


@pytest.mark.parametrize("offset", [-1, -5, 2**63])
def test_an_offset_that_would_be_read_as_none_is_not_committed(offset: int) -> None:
    with pytest.raises(IllegalStateError, match="t-0"):
        positions_of({T0: offset})


@pytest.mark.parametrize("given", ["t", ["t"], [("t", "0")], [("t", True)], [("t", 0, 1)], [3]])
def test_what_is_no_partition_is_refused(given: Any) -> None:
    with pytest.raises(TypeError):
        partitions_of(given)


@pytest.mark.parametrize("given", ["billing-0", ["a", 1], [b"a"]])
def test_one_name_is_not_taken_for_a_list_of_letters(given: Any) -> None:
    assert names_of(("a", "b"), "topics") == ["a", "b"]
    with pytest.raises(TypeError, match="transactional ids"):
        names_of(given, "transactional ids")


@pytest.mark.parametrize("group", [GroupAssignment(1), {"group": 1}, 5])
def test_who_commits_offsets_is_checked_before_they_are_sent(group: Any) -> None:
    async def test(world: World) -> None:
        await world.begin()
        with pytest.raises(TypeError):
            await world.transactions.send_offsets({(TOPIC, 0): 5}, group)
        assert not world.manager.started
        assert not world.cluster.asked

    in_world(test, 2)


@pytest.mark.parametrize("assignment", ["g", ConsumerGroupMetadata("g", 1, "m"), {("t", 0)}])
def test_what_is_no_assignment_is_refused(assignment: Any) -> None:
    async def test(world: World) -> None:
        initialisation: Initialisation = world.transactions._initialisation
        with pytest.raises(TypeError, match="group_assignment"):
            initialisation.plan(assignment, "g")

    in_world(test, 2)
