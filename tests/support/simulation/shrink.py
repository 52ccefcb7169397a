"""Reduce a failing scenario: fewer events, and fewer and simpler workers, as long as it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .scenario import Scenario
from .worker import WorkerPlan
from .world import history


def failure(scenario: Scenario) -> str | None:
    """Return which promise a scenario breaks, or None."""
    try:
        history(scenario)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrunk(scenario: Scenario, *, other_seeds: int = 30) -> Scenario:
    """Return a smaller scenario that fails, perhaps in another way.

    A small change alters the whole history, so each one is also tried with other seeds.
    """
    assert failure(scenario) is not None
    found = True
    while found:
        found = False
        for smaller in _smaller(scenario):
            for seed in (smaller.seed, *range(other_seeds)):
                candidate = replace(smaller, seed=seed)
                if failure(candidate) is not None:
                    scenario, found = candidate, True
                    break
            if found:
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    for slot in range(len(scenario.workers)):
        if len(scenario.workers) > 1:
            yield replace(scenario, workers=scenario.workers[:slot] + scenario.workers[slot + 1 :])
    for number in range(len(scenario.events)):
        yield replace(scenario, events=scenario.events[:number] + scenario.events[number + 1 :])
    plain = WorkerPlan(next(iter(scenario.workers)).kind)
    for slot, plan in enumerate(scenario.workers):
        for name in ("stalls", "aborts", "lazy", "think_s", "rebalance_ms", "session_ms", "timeout_ms"):
            if getattr(plan, name) != getattr(plain, name):
                simpler = replace(plan, **{name: getattr(plain, name)})
                yield replace(scenario, workers=(*scenario.workers[:slot], simpler, *scenario.workers[slot + 1 :]))
    least: dict[str, Any] = {"inputs": 1, "outputs": 1, "broker": "plain", "max_epoch": 32767}
    for name, value in least.items():
        if getattr(scenario, name) != value:
            yield replace(scenario, **{name: value})
