"""Exactly-once in random histories: the real broker, several workers of one group, and everything that can go wrong.

A history is a group of workers that consume, transform and produce in transactions, of all kinds of clients that may
share a group, while the broker loses power, processes die, stand still and come back as zombies, the group rebalances,
transactions time out, connections break, with requests lost, late or executed twice, and a restart changes feature
levels. Time is simulated and a seed gives it all, so that a failure can be looked at: `python -m support.simulation
SEED 0 --trace` in tests/. `make histories` runs any number of seeds.

What must hold is in support/simulation/checks.py, in short:

* each committed transaction on an input begins where the one before it ended, generations never go back, and one
  generation has one producer: the outputs that readers are given are exactly the inputs up to the committed offset;
* a transaction is there as a whole or not at all, as its worker was told, whatever crashed afterwards;
* what a reader was given stays as it is; what it reads comes from the log, or from the Fetch handler;
* retention deletes what its settings allow, and nothing that readers were not allowed to see;
* when all timeouts have passed, nothing is open and no last stable offset lags behind;
* a restart changes nothing: what the coordinators know is what a replay of their logs gives.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.simulation.kinds import MIXES
from support.simulation.scenario import (
    FURTHER_EVENTS,
    HARSH_EVENTS,
    KINDS_OF_EVENTS,
    Event,
    Scenario,
    needs_steady_member,
    scenario,
)
from support.simulation.worker import WorkerPlan
from support.simulation.world import BROKERS, history

CHUNKS = 6
SEEDS_PER_CHUNK = 50


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_history_is_exactly_once(chunk: int) -> None:
    told: Counter[bool | None] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        world = history(scenario(seed))
        told.update(transaction.told for transaction in world.transactions)
        kinds.update(transaction.kind for transaction in world.transactions if transaction.told)
    assert min(told[True] / 5, told[False], told[None]) > SEEDS_PER_CHUNK / 10, f"too little happens: {told}"
    assert len(kinds) > 10, f"few kinds commit: {kinds}"


def test_every_kind_of_event_happens_in_these_histories() -> None:
    drawn = Counter(event.what for seed in range(CHUNKS * SEEDS_PER_CHUNK) for event in scenario(seed).events)
    assert {*drawn} == {*HARSH_EVENTS, *FURTHER_EVENTS}
    assert min(drawn.values()) >= 5, drawn


def test_a_seed_gives_the_same_history_again() -> None:
    for seed in range(5):
        one, other = (history(scenario(seed), tracing=True).trace for _ in range(2))
        assert one == other
        assert one


def plans(mix: tuple[str, ...]) -> st.SearchStrategy[WorkerPlan]:
    return st.builds(
        WorkerPlan,
        kind=st.sampled_from(mix),
        timeout_ms=st.sampled_from((800, 2000, 4000)),
        session_ms=st.sampled_from((800, 3000)),
        lazy=st.integers(1, 4),
        aborts=st.sampled_from((0.0, 0.2)),
        think_s=st.sampled_from((0.01, 0.2)),
        stalls=st.sampled_from((0.0, 0.1)),
        rebalance_ms=st.sampled_from((150, 2000)),
    )


events = st.builds(
    Event,
    at=st.integers(0, 2000).map(lambda ms: ms / 1000),
    what=st.sampled_from(list(KINDS_OF_EVENTS)),
    target=st.integers(0, 2),
    for_s=st.sampled_from((0.05, 0.3, 1.0, 3.0)),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    workers = tuple(draw(st.lists(plans(draw(st.sampled_from(MIXES))), min_size=1, max_size=3)))
    happening = draw(st.lists(events, max_size=8))
    return Scenario(
        seed=draw(st.integers(0, 1 << 20)),
        workers=workers,
        events=tuple(sorted(happening, key=lambda event: event.at)),
        inputs=draw(st.integers(1, 3)),
        outputs=draw(st.integers(1, 2)),
        length_s=2.0,
        sync_s=draw(st.sampled_from((0.001, 0.05))),
        max_epoch=draw(st.sampled_from((32767, 6))),
        broker=draw(st.sampled_from(list(BROKERS))),
        steady=needs_steady_member(workers),
        consumed=draw(st.booleans()),
        misnames=draw(st.booleans()),
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_a_history_that_fails_shrinks(given_scenario: Scenario) -> None:
    """As above; what hypothesis finds, it makes small: fewer workers, fewer events."""
    history(given_scenario)
