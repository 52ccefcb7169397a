"""Topic names: what is allowed, and what collides."""

from __future__ import annotations

import pytest
from oncelog.broker.topic_names import colliding, name_problem


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_bad_names(name: str) -> None:
    assert name_problem(name) is not None


def test_dots_and_underscores_collide() -> None:
    assert colliding("a.b", ["a_b", "c"]) == "a_b"
    assert colliding("a_b.c", ["a.b_c"]) == "a.b_c"
    assert colliding("a.b", ["a.b", "a-b"]) is None
    assert colliding("ab", ["a_b"]) is None
