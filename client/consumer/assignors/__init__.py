"""How the leader of a group shares partitions out: one module per strategy, under Kafka's names, all sans-I/O."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Assignor, RebalanceProtocol
from .cooperative_sticky import CooperativeStickyAssignor
from .range import RangeAssignor
from .round_robin import RoundRobinAssignor
from .sticky import StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignors_of",
]

_BY_NAME: dict[str, type[Assignor]] = {
    one.name: one for one in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def assignors_of(names: Sequence[str]) -> list[Assignor]:
    """Return new assignors by name, in that order of preference."""
    return [_BY_NAME[name]() for name in names]
