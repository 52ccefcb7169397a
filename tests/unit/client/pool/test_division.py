"""How members divide a pool's suffixes: never one to two, fair, and steady."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.client.pool.division import Holding, decode_share, divide, encode_share


def test_one_member_has_all() -> None:
    assert divide({"a": Holding(4)}) == {"a": [0, 1, 2, 3]}


def test_what_is_free_goes_to_who_has_least() -> None:
    assert divide({"a": Holding(5, (4, 1), 1), "b": Holding(5)}) == {"a": [4, 1, 0], "b": [2, 3]}


def test_what_is_to_move_goes_to_nobody_until_it_is_given_up() -> None:
    shares = divide({"a": Holding(4, (0, 1, 2, 3), 1), "b": Holding(4)})
    assert shares == {"a": [0, 1], "b": []}
    assert divide({"a": Holding(4, (0, 1), 2), "b": Holding(4)}) == {"a": [0, 1], "b": [2, 3]}


def test_what_is_in_use_comes_first_and_stays() -> None:
    assert divide({"a": Holding(4, (3, 0, 1, 2), 1), "b": Holding(4)})["a"] == [3, 0]


def test_of_two_holders_the_later_generation_counts() -> None:
    shares = divide({"zombie": Holding(2, (0, 1), 3), "heir": Holding(2, (0, 1), 4)})
    assert shares == {"heir": [0], "zombie": []}


def test_a_suffix_that_two_claim_in_one_generation_goes_to_neither() -> None:
    shares = divide({"a": Holding(2, (0,), 3), "b": Holding(2, (0,), 3)})
    assert 0 not in shares["a"] + shares["b"]


def test_more_members_than_suffixes() -> None:
    shares = divide({name: Holding(2) for name in "abc"})
    assert sorted(map(len, shares.values())) == [0, 1, 1]


def test_the_largest_size_counts() -> None:
    assert divide({"a": Holding(2, (0, 1), 1), "b": Holding(3)}) == {"a": [0, 1], "b": [2]}


@given(st.integers(1, 20), st.lists(st.sampled_from(["join", "leave", "forget"]), max_size=12), st.randoms())
def test_members_come_and_go(size: int, steps: list[str], chance: random.Random) -> None:
    """Rounds as the group makes them: nothing is ever held twice, and after every change all is divided evenly."""
    held: dict[str, set[int]] = {"m0": set()}
    generation = 0
    for number, step in enumerate(steps, 1):
        if step == "join":
            held[f"m{number}"] = set()
        elif step == "leave" and len(held) > 1:
            del held[chance.choice(sorted(held))]
        elif step == "forget":
            held[chance.choice(sorted(held))] = set()
        for _ in range(3):
            generation += 1
            holdings = {
                name: Holding(size, tuple(chance.sample(sorted(mine), len(mine))), generation - 1)
                for name, mine in held.items()
            }
            shares = divide(holdings)
            before = held
            # Until it has said so, a member may still use what it had.
            using = {name: before[name] | set(shares[name]) for name in held}
            assert sum(map(len, using.values())) == len(set().union(*using.values()))
            held = {name: set(share) for name, share in shares.items()}
        sizes = sorted(map(len, held.values()))
        assert sum(sizes) == size == len(set().union(*held.values()))
        assert sizes[-1] - sizes[0] <= 1
        settled = divide({name: Holding(size, tuple(mine), generation) for name, mine in held.items()})
        assert {name: set(share) for name, share in settled.items()} == held


def test_what_members_tell_each_other_survives_the_wire() -> None:
    holding = Holding(7, (3, 1), 12)
    assert Holding.decode(holding.encode()) == holding
    assert decode_share(encode_share([5, 2])) == {2, 5}
    assert decode_share(b"") == set()


@pytest.mark.parametrize("data", [b"", b"\x00\x01", b"[]", b"{}", b'{"size":0,"suffixes":[],"generation_id":1}'])
def test_what_no_member_says_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="pool"):
        Holding.decode(data)
