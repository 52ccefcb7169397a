"""Topic names: what is allowed, and what collides."""

from __future__ import annotations

import pytest
from oncelog.broker.topic_names import TopicNames, name_problem


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_bad_names(name: str) -> None:
    assert name_problem(name) is not None


def test_dots_and_underscores_collide() -> None:
    assert names("a_b", "c").colliding("a.b") == "a_b"
    assert names("a.b_c").colliding("a_b.c") == "a.b_c"
    assert names("a.b", "a-b").colliding("a.b") is None
    assert names("a_b").colliding("ab") is None


def names(*given: str) -> TopicNames:
    made = TopicNames()
    for name in given:
        made.add(name)
    return made


def test_a_name_that_was_discarded_collides_no_more() -> None:
    both = names("a.b", "a_b")
    both.discard("a.b")
    assert both.colliding("a.b") == "a_b"
    both.discard("a_b")
    both.discard("a_b")
    assert both.colliding("a.b") is None
