"""Random histories of a group of connect workers in simulated time: exactly once, and everything runs at last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from support.simulated_connect import World
from support.virtual_time import VirtualTimeLoop

STEPS = 25
SEEDS_AT_ONCE = 25


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Histories log thousands of accidents."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, 100, SEEDS_AT_ONCE))
def test_no_history_doubles_a_task_or_leaves_one_behind(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                runner.run(asyncio.wait_for(World(seed).run(STEPS), 1_000_000))
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
