"""`StatusListener`: receives the state changes of connectors and tasks."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from ..stores.ids import ConnectorTaskId
from ..stores.status_records import State


class StatusListener(Protocol):
    """Receives events of connectors and tasks."""

    async def status(self, what: str | ConnectorTaskId, state: State, trace: str | None, version: str | None) -> None:
        """A connector or task has changed its state."""

    async def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """A task writes to a topic that is not in use."""

    def topics_in_use(self, connector: str) -> Container[str]:
        """Return a live view of the topics that a connector writes to: it changes as they do."""
