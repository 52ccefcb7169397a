"""`ConfigChanges`: collects the changes that are read from the config topic until the tick loop applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..logging_levels import set_level
from ..stores.cluster_config import (
    Change,
    ConnectorConfigUpdated,
    ConnectorRemoved,
    LoggerLevelChanged,
    RestartRequested,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from ..stores.config_records import RestartRequest


@dataclass
class Changes:
    """The names of connectors with new settings (`connectors`), target states (`targets`) or tasks (`tasks`)."""

    connectors: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)
    rebalance: bool = False
    """Whether connectors or tasks were added or removed, so that the group must rebalance."""


class ConfigChanges:
    """Collects each change when it is read. A new log level is applied immediately."""

    def __init__(self, wake: Callable[[], None], new_tasks: Callable[[str], None]) -> None:
        """Begin without changes; `wake` wakes the tick loop.

        `new_tasks` is called immediately with the name of a connector whose tasks have changed or that was removed.
        """
        self._wake, self._new_tasks = wake, new_tasks
        self._known: set[str] = set()
        self._changes = Changes()
        self._restarts: dict[str, RestartRequest] = {}

    @property
    def rebalance_needed(self) -> bool:
        """Whether a collected change will cause a rebalance, so that the assignment of work is about to change."""
        return self._changes.rebalance

    def note(self, change: Change) -> None:
        """Collect a change and wake the tick loop."""
        match change:
            case ConnectorConfigUpdated(connector):
                if connector in self._known:
                    self._changes.connectors.add(connector)
                else:
                    self._changes.rebalance = True
            case ConnectorRemoved(connector):
                if connector in self._known:  # stopped immediately: it may be created again before the rebalance
                    self._changes.connectors.add(connector)
                    self._changes.tasks.add(connector)
                    self._changes.rebalance = True
                    self._new_tasks(connector)
            case TaskConfigsUpdated(connector):
                self._changes.tasks.add(connector)
                self._changes.rebalance = True
                self._new_tasks(connector)
            case TargetStateChanged(connector):
                self._changes.targets.add(connector)
            case RestartRequested(request):
                known = self._restarts.get(request.connector)
                if known is None or _impact(request) > _impact(known):
                    self._restarts[request.connector] = request
            case LoggerLevelChanged(namespace, level):
                set_level(namespace, level)
        self._wake()

    def take(self, known: Iterable[str]) -> Changes:
        """Return the changes since the last call. After this, connectors not in `known` are treated as new."""
        changes, self._changes = self._changes, Changes()
        self._known = set(known)
        return changes

    def take_restarts(self) -> list[RestartRequest]:
        """Return the restart requests since the last call: for each connector, the request that restarts the most."""
        restarts, self._restarts = self._restarts, {}
        return list(restarts.values())


def _impact(request: RestartRequest) -> int:
    return 2 * (not request.only_failed) + request.include_tasks
