"""The histories of test_exactly_once.py notice every safeguard that is taken out of the broker."""

from __future__ import annotations

import pytest
from support.simulation.kinds import MIXES
from support.simulation.mutations import MIXES_THAT_NOTICE, MUTATIONS, REFUSALS
from support.simulation.scenario import CALM, scenario
from support.simulation.world import history

SEEDS = 500
"""The histories in which a mutation must be noticed. test_exactly_once.py runs the first 500 seeds."""

RARE = {"offsets are told before they are on disk": 420, "a new owner fences nobody": 600}
"""Mutations that few histories notice, and the seed at which the search for one begins."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_bug_is_found(name: str) -> None:
    with MUTATIONS[name]():
        for seed in range(RARE.get(name, 0), RARE.get(name, 0) + SEEDS):
            try:
                contended = True if name in MIXES_THAT_NOTICE else None
                history(scenario(seed, MIXES_THAT_NOTICE.get(name, MIXES), contended=contended))
            except Exception:
                return
    pytest.fail(f"{SEEDS} histories pass when {name}")


@pytest.mark.parametrize("name", REFUSALS)
def test_an_unjustified_refusal_is_found(name: str) -> None:
    """Nothing goes wrong in these histories, and nothing but the refusal could be noticed."""
    with REFUSALS[name]():
        for seed in range(CALM, SEEDS, 10):
            try:
                history(scenario(seed))
            except AssertionError:
                return
    pytest.fail(f"the calm ones of {SEEDS} histories pass when {name}")
