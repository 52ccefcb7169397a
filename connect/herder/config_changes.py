"""`ConfigChanges`: collects what the config topic changes until the tick loop gets to it."""

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
    """Names of connectors: with new settings, with another target state, with other tasks."""

    connectors: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)
    rebalance: bool = False
    """Whether connectors or tasks have come or gone, so that the group has to divide the work anew."""


class ConfigChanges:
    """Is told of each change as it is read. What counts at once, a log level, is done at once."""

    def __init__(self, wake: Callable[[], None], new_tasks: Callable[[str], None]) -> None:
        """`wake` wakes the tick loop; `new_tasks` hears of a connector with other tasks before the loop does."""
        self._wake, self._new_tasks = wake, new_tasks
        self._known: set[str] = set()
        self._changes = Changes()
        self._restarts: dict[str, RestartRequest] = {}

    @property
    def rebalance_needed(self) -> bool:
        """Whether a change waits that makes the group rebalance: who runs what is not settled then."""
        return self._changes.rebalance

    def note(self, change: Change) -> None:
        """Take a change."""
        match change:
            case ConnectorConfigUpdated(connector):
                if connector in self._known:
                    self._changes.connectors.add(connector)
                else:
                    self._changes.rebalance = True
            case ConnectorRemoved(connector):
                if connector in self._known:  # stopped at once: it may be created again before the rebalance
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
        """Return what has changed since the last call. Another connector than the `known` ones is new from now on."""
        changes, self._changes = self._changes, Changes()
        self._known = set(known)
        return changes

    def take_restarts(self) -> list[RestartRequest]:
        """Return the requests to restart since the last call: of each connector the one that restarts most."""
        restarts, self._restarts = self._restarts, {}
        return list(restarts.values())


def _impact(request: RestartRequest) -> int:
    return 2 * (not request.only_failed) + request.include_tasks
