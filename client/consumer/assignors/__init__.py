"""Assignors: the group leader's strategies for assigning partitions. One sans-I/O module per strategy of Kafka."""

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
    """Return new assignors for these names, in the same order."""
    return [_BY_NAME[name]() for name in names]
