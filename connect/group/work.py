"""`Work`: a set of connectors and tasks, with set operations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..stores.cluster_config import ClusterConfigState
from ..stores.ids import ConnectorTaskId


@dataclass(frozen=True, slots=True)
class Work:
    """A set of connectors and tasks. A connector and its tasks are independent of each other."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[ConnectorTaskId] = frozenset()

    @classmethod
    def of(cls, connectors: Iterable[str], tasks: Iterable[ConnectorTaskId]) -> Work:
        """Return a set of work with these connectors and tasks."""
        return cls(frozenset(connectors), frozenset(tasks))

    def __or__(self, other: Work) -> Work:
        return Work(self.connectors | other.connectors, self.tasks | other.tasks)

    def __and__(self, other: Work) -> Work:
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)

    def __sub__(self, other: Work) -> Work:
        return Work(self.connectors - other.connectors, self.tasks - other.tasks)

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def __str__(self) -> str:
        return f"[{', '.join([*sorted(self.connectors), *map(str, sorted(self.tasks))])}]"


def union(works: Iterable[Work]) -> Work:
    """Return the union of these sets of work."""
    total = Work()
    for work in works:
        total |= work
    return total


def configured(state: ClusterConfigState) -> Work:
    """Return all connectors and tasks that the config topic describes."""
    connectors = state.connector_configs
    return Work.of(connectors, (task for connector in connectors for task in state.tasks(connector)))
