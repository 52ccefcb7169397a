"""Computes the eager assignment, which gives the connectors, and then the tasks, to the members in turn.

All work stops before each rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from ..stores.ids import ConnectorTaskId
from .work import Work


def assign_eagerly(configured: Work, members: Iterable[str]) -> dict[str, Work]:
    """Return the work that each member runs. Needs at least one member."""
    names = sorted(members)
    turn = cycle(names)
    connectors: dict[str, list[str]] = {member: [] for member in names}
    tasks: dict[str, list[ConnectorTaskId]] = {member: [] for member in names}
    for connector in sorted(configured.connectors):
        connectors[next(turn)].append(connector)
    for task in sorted(configured.tasks):
        tasks[next(turn)].append(task)
    return {member: Work.of(connectors[member], tasks[member]) for member in names}
