"""Every assignor, whatever the group: each partition to exactly one subscriber, evenly; sticky ones move little."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog import TopicPartition
from oncelog.client.consumer.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from oncelog.client.group_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = ("a", "b", "c", "d")
topic_sets = st.sets(st.sampled_from(TOPICS), max_size=4)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
groups = st.dictionaries(st.sampled_from([f"m{n}" for n in range(8)]), topic_sets, min_size=1)
equal_groups = st.builds(
    lambda names, topics: dict.fromkeys(names, topics),
    st.sets(st.sampled_from([f"m{n}" for n in range(8)]), min_size=1),
    topic_sets,
)
assignors = st.sampled_from([RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor])
sticky = st.sampled_from([StickyAssignor, CooperativeStickyAssignor])
Shares = dict[str, list[TopicPartition]]


def check(shares: Shares, group: dict[str, set[str]], partitions: dict[str, int]) -> None:
    """Each partition of a wanted topic exactly once, to a subscriber; every member is named."""
    assert set(shares) == set(group)
    given_out = [one for mine in shares.values() for one in mine]
    wanted = set().union(*group.values())
    every = {TopicPartition(name, n) for name in wanted for n in range(partitions.get(name, 0))}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == every
    for member, mine in shares.items():
        assert {one.topic for one in mine} <= group[member]


def is_balanced(shares: Shares, group: dict[str, set[str]]) -> bool:
    """Nothing can move to a subscriber that has at least two fewer."""
    return not any(
        one.topic in group[taker] and len(shares[taker]) + 1 < len(mine)
        for mine in shares.values()
        for one in mine
        for taker in shares
    )


def run(assignor: type[Assignor], group: dict[str, set[str]], partitions: dict[str, int], before: Shares) -> Shares:
    """Rounds until nothing moves any more: as the members of a cooperative group would go through them."""
    owned, shares = before, before
    for generation in range(1, 4):
        subscriptions = {}
        for member, topics in group.items():
            one = assignor()
            if member in owned:
                one.assigned(owned[member], generation)
            subscriptions[member] = decode_subscription(
                encode_subscription(
                    Subscription(
                        tuple(topics),
                        one.user_data(),
                        tuple(owned.get(member, ())) if assignor is CooperativeStickyAssignor else (),
                        generation if owned.get(member) and assignor is CooperativeStickyAssignor else -1,
                    )
                )
            )
        shares = assignor().assign(subscriptions, partitions)
        if assignor is not CooperativeStickyAssignor:
            return shares
        for member, mine in shares.items():  # nobody gets what another one still holds
            for other, theirs in owned.items():
                assert other == member or other not in group or not set(mine) & set(theirs)
        if shares == owned:
            return shares
        owned = shares
    return shares


@given(assignors, groups, counts)
def test_every_partition_goes_to_exactly_one_subscriber(
    assignor: type[Assignor], group: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    check(run(assignor, group, partitions, {}), group, partitions)


@given(assignors, groups, counts, st.randoms())
def test_the_order_of_members_does_not_matter(assignor, group, partitions, random) -> None:  # type: ignore[no-untyped-def]
    members = list(group.items())
    random.shuffle(members)
    assert run(assignor, group, partitions, {}) == run(assignor, dict(members), partitions, {})


@given(sticky, groups, counts)
def test_sticky_assignors_are_balanced(
    assignor: type[Assignor], group: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    assert is_balanced(run(assignor, group, partitions, {}), group)


@given(sticky, groups, counts, groups, counts)
@settings(max_examples=200)
def test_sticky_assignors_stay_correct_through_any_change(
    assignor: type[Assignor],
    group: dict[str, set[str]],
    partitions: dict[str, int],
    then: dict[str, set[str]],
    then_partitions: dict[str, int],
) -> None:
    before = run(assignor, group, partitions, {})
    after = run(assignor, then, then_partitions, before)
    check(after, then, then_partitions)
    assert is_balanced(after, then)


@given(sticky, equal_groups, counts, st.data())
def test_with_equal_subscriptions_only_as_much_moves_as_has_to(
    assignor: type[Assignor], group: dict[str, set[str]], partitions: dict[str, int], data: st.DataObject
) -> None:
    before = run(assignor, group, partitions, {})
    assert run(assignor, group, partitions, before) == before
    gone = data.draw(st.sampled_from(sorted(group)))
    left = {member: topics for member, topics in group.items() if member != gone}
    if left:
        after = run(assignor, left, partitions, before)
        for member in left:
            assert set(before[member]) <= set(after[member])
    more = {**group, "new": next(iter(group.values()))}
    after = run(assignor, more, partitions, before)
    for member, mine in before.items():
        assert set(after[member]) <= set(mine)


@given(
    st.sets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2**31 - 1))),
    st.none() | st.binary(max_size=20),
    st.integers(-1, 2**31 - 1),
)
def test_what_members_tell_each_other_survives_the_wire(
    partitions: set[TopicPartition], user_data: bytes | None, generation: int
) -> None:
    owned = tuple(sorted(partitions))
    assert decode_assignment(encode_assignment(Assignment(owned, user_data))) == Assignment(owned, user_data)
    subscription = Subscription(TOPICS, user_data, owned, generation, "rack")
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert decode_assignment(b"") == Assignment()
