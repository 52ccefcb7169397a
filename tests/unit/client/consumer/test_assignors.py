"""Assignors against examples of Kafka's own documentation and tests."""

from __future__ import annotations

import pytest
from oncelog import TopicPartition
from oncelog.client.consumer.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    assignors_of,
)
from oncelog.client.consumer.assignors.sticky import decode_user_data, encode_user_data
from oncelog.client.group_protocol import Subscription


def members(**topics: str) -> dict[str, Subscription]:
    """`members(c0="a b")`: a member and the topics that it subscribes to."""
    return {member: Subscription(tuple(names.split())) for member, names in topics.items()}


def named(assignor: Assignor, subscriptions: dict[str, Subscription], **partitions: int) -> dict[str, str]:
    """The result as member → "a0 a1 b0"."""
    result = assignor.assign(subscriptions, partitions)
    return {member: " ".join(f"{one.topic}{one.partition}" for one in mine) for member, mine in result.items()}


def tp(*names: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[0], int(name[1:])) for name in names)


# -- range: the examples of its class documentation


def test_range_gives_runs_of_each_topic() -> None:
    assert named(RangeAssignor(), members(C0="a b", C1="a b"), a=3, b=3) == {"C0": "a0 a1 b0 b1", "C1": "a2 b2"}


def test_range_leaves_members_beyond_the_partitions_empty() -> None:
    assert named(RangeAssignor(), members(C0="a", C1="a", C2="a"), a=2) == {"C0": "a0", "C1": "a1", "C2": ""}


def test_range_orders_static_members_by_instance_id_and_before_the_others() -> None:
    subscriptions = members(z="a", y="a", b="a")
    subscriptions["z"].group_instance_id = "1"
    subscriptions["y"].group_instance_id = "2"
    assert named(RangeAssignor(), subscriptions, a=3) == {"z": "a0", "y": "a1", "b": "a2"}


def test_topics_that_do_not_exist_are_left_out() -> None:
    for assignor in assignors_of(("range", "roundrobin", "sticky", "cooperative-sticky")):
        assert named(assignor, members(C0="a gone"), a=1) == {"C0": "a0"}


# -- round robin: the examples of its class documentation


def test_round_robin_deals_out_equal_subscriptions() -> None:
    result = named(RoundRobinAssignor(), members(C0="a b", C1="a b"), a=3, b=3)
    assert result == {"C0": "a0 a2 b1", "C1": "a1 b0 b2"}


def test_round_robin_skips_who_does_not_subscribe() -> None:
    result = named(RoundRobinAssignor(), members(C0="a", C1="a b", C2="a b c"), a=1, b=2, c=3)
    assert result == {"C0": "a0", "C1": "b0", "C2": "b1 c0 c1 c2"}


# -- sticky: the examples of KIP-54


def with_owned(assignor: type[StickyAssignor], result: dict[str, str], topics: str) -> dict[str, Subscription]:
    subscriptions = {}
    for member, mine in result.items():
        one = assignor()
        one.assigned(tp(*mine.split()), 1)
        subscriptions[member] = Subscription(tuple(topics.split()), user_data=one.user_data())
    return subscriptions


def test_sticky_keeps_what_the_remaining_members_had() -> None:
    sticky = StickyAssignor()
    first = named(sticky, members(C0="t u v w", C1="t u v w", C2="t u v w"), t=2, u=2, v=2, w=2)
    assert sorted(len(mine.split()) for mine in first.values()) == [2, 3, 3]
    left = with_owned(StickyAssignor, first, "t u v w")
    del left["C1"]
    second = named(sticky, left, t=2, u=2, v=2, w=2)
    for member in ("C0", "C2"):
        assert set(first[member].split()) <= set(second[member].split())
        assert len(second[member].split()) == 4


def test_sticky_gives_a_new_member_its_share_and_moves_nothing_else() -> None:
    subscriptions = with_owned(StickyAssignor, {"C0": "a0 a1 a2", "C1": "a3 a4 a5"}, "a")
    subscriptions["C2"] = Subscription(("a",))
    result = named(StickyAssignor(), subscriptions, a=6)
    assert {member: len(mine.split()) for member, mine in result.items()} == {"C0": 2, "C1": 2, "C2": 2}
    assert set(result["C0"].split()) < {"a0", "a1", "a2"}
    assert set(result["C1"].split()) < {"a3", "a4", "a5"}


def test_sticky_with_different_subscriptions_is_as_even_as_it_can_be() -> None:
    # KIP-54, second example: C0 may have t0 only, C1 also u, C2 all.
    first = named(StickyAssignor(), members(C0="t", C1="t u", C2="t u v"), t=1, u=2, v=3)
    assert first == {"C0": "t0", "C1": "u0 u1", "C2": "v0 v1 v2"}


def test_the_claim_of_the_newest_generation_counts() -> None:
    old, new = StickyAssignor(), StickyAssignor()
    old.assigned(tp("a0", "a1"), 4)
    new.assigned(tp("a0"), 5)
    subscriptions = {
        "old": Subscription(("a",), user_data=old.user_data()),
        "new": Subscription(("a",), user_data=new.user_data()),
    }
    assert named(StickyAssignor(), subscriptions, a=2) == {"old": "a1", "new": "a0"}


def test_sticky_reads_user_data_of_both_versions_and_survives_rubbish() -> None:
    data = encode_user_data(tp("a0", "a2", "b1"), 7)
    assert data.hex() == "00000002000161000000020000000000000002000162000000010000000100000007"
    assert decode_user_data(data) == (list(tp("a0", "a2", "b1")), 7)
    assert decode_user_data(data[:-4]) == (list(tp("a0", "a2", "b1")), -1)
    for end in range(len(data)):
        decode_user_data(data[:end])
    assert decode_user_data(b"\x7f\xff\xff\xff") == ([], -1)


# -- cooperative


def test_cooperative_gives_nobody_what_its_owner_still_holds() -> None:
    subscriptions = {
        "C0": Subscription(("a",), owned=tp("a0", "a1"), generation_id=3),
        "C1": Subscription(("a",)),
    }
    first = named(CooperativeStickyAssignor(), subscriptions, a=2)
    assert first == {"C0": "a0", "C1": ""}
    subscriptions["C0"] = Subscription(("a",), owned=tp("a0"), generation_id=4)
    assert named(CooperativeStickyAssignor(), subscriptions, a=2) == {"C0": "a0", "C1": "a1"}


def test_cooperative_waits_for_an_outdated_owner_too() -> None:
    subscriptions = {
        "C0": Subscription(("a",), owned=tp("a0"), generation_id=2),
        "C1": Subscription(("a",), owned=tp("a0", "a1"), generation_id=3),
    }
    result = named(CooperativeStickyAssignor(), subscriptions, a=2)
    assert "a0" not in (result["C0"] + " " + result["C1"]).split()


def test_cooperative_reads_the_generation_of_older_members_from_user_data() -> None:
    newest = CooperativeStickyAssignor()
    newest.assigned((), 9)
    subscriptions = {
        "C0": Subscription(("a",), owned=tp("a0", "a1"), user_data=newest.user_data()),
        "C1": Subscription(("a",), owned=(), generation_id=9),
    }
    assert newest.user_data() == (9).to_bytes(4, "big")
    assert named(CooperativeStickyAssignor(), subscriptions, a=2)["C0"] == "a0"


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_assignors_have_kafkas_names(name: str) -> None:
    assert assignors_of((name,))[0].name == name
