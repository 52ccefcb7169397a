"""`StatusListener`: receives the state changes of connectors and tasks."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from ..stores.ids import ConnectorTaskId
from ..stores.status_records import State


class StatusListener(Protocol):
    """Receives the state changes of connectors and tasks, and the topics that tasks write to."""

    async def status(self, what: str | ConnectorTaskId, state: State, trace: str | None, version: str | None) -> None:
        """Handle a new state of a connector or task; `trace` is the stack trace of a failure."""

    def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """Handle a task's first write to a topic that is not in use yet. Called when the record has been written."""

    def topics_in_use(self, connector: str) -> Container[str]:
        """Return a live view of the names of the topics that a connector writes to."""
