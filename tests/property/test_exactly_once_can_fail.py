"""The histories of test_exactly_once.py notice every safeguard that is taken out of the broker."""

from __future__ import annotations

import pytest
from support.simulation.mutations import MUTATIONS, Mutation
from support.simulation.scenario import scenario
from support.simulation.world import history

SEEDS = 400
"""More than ten times what most mutations take; 2,000 run in test_exactly_once.py."""


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=[name.replace(" ", "-") for name in MUTATIONS])
def test_the_bug_is_found(mutation: Mutation) -> None:
    with mutation():
        for seed in range(SEEDS):
            try:
                history(scenario(seed))
            except Exception:
                return
    pytest.fail(f"{SEEDS} histories pass with this bug")
