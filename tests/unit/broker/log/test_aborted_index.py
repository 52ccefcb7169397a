"""Looking up aborted transactions among very many of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest
from oncelog.broker.log.aborted_index import BLOCK, AbortedIndex
from oncelog.broker.log.results import AbortedTxn

MANY = 20_000
LINES = 4_000
"""The most lines of Python that one look-up may execute."""


def history(random: Random, count: int) -> list[AbortedTxn]:
    """Aborted transactions of a few producers, some of which stay open for long."""
    offset, opened, ended = 0, dict[int, int](), list[AbortedTxn]()
    while len(ended) < count:
        offset += 1
        producer = random.choice((0, 0, 0, 0, 1, 1, 2, 3)) if random.random() < 0.95 else random.randrange(10, 40)
        if producer not in opened:
            opened[producer] = offset
        elif random.random() < (0.5 if producer < 2 else 0.02):
            first = opened.pop(producer)
            if random.random() < 0.8:
                ended.append(AbortedTxn(producer, first, offset, min(opened.values(), default=offset + 1)))
    return ended


def naive(entries: list[AbortedTxn], offset: int, end: int) -> tuple[list[tuple[int, int]], bool]:
    found = []
    for entry in entries:
        if entry.last_offset >= offset:
            if entry.first_offset < end:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end:
                return found, True
    return found, False


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("appended", [False, True])
def test_the_same_transactions_are_found_as_by_looking_at_each(seed: int, appended: bool) -> None:
    random = Random(seed)
    entries = history(random, random.choice((0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 17)))
    index = AbortedIndex() if appended else AbortedIndex(entries)
    if appended:
        for entry in entries:
            index.append(entry)
    assert index == entries
    last = entries[-1].last_offset + 2 if entries else 10
    for _ in range(200):
        offset = random.randrange(last)
        end = offset + random.choice((1, 5, 50, last))
        found: list[tuple[int, int]] = []
        over = index.add_between(offset, end, found)
        assert (found, over) == naive(entries, offset, end)


def lines(look_up: Callable[[], object]) -> int:
    """The lines of Python that a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        look_up()
    finally:
        sys.settrace(former)
    return count


def test_a_look_up_does_not_go_through_all_transactions_before_its_range() -> None:
    index = AbortedIndex(AbortedTxn(1, 2 * i, 2 * i + 1, 2 * i + 2) for i in range(MANY))
    found: list[tuple[int, int]] = []
    assert lines(lambda: index.add_between(2 * MANY - 20, 2 * MANY, found)) < LINES
    assert found == [(1, offset) for offset in range(2 * MANY - 20, 2 * MANY, 2)]


def test_a_look_up_does_not_go_through_all_transactions_that_were_aborted_while_an_older_one_was_open() -> None:
    aborted = [AbortedTxn(1, 2 * i + 1, 2 * i + 2, 0) for i in range(MANY)]
    index = AbortedIndex([*aborted, AbortedTxn(2, 0, 2 * MANY + 1, 2 * MANY + 2)])
    found: list[tuple[int, int]] = []
    assert lines(lambda: index.add_between(10, 20, found)) < LINES
    assert found == [(1, offset) for offset in range(9, 20, 2)] + [(2, 0)]
