"""`SourceTask`: reads a part of the source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from ...client.values import RecordMetadata
from .offsets import OffsetReader
from .records import SourceRecord
from .transactions import TransactionContext


class SourceTaskContext(Protocol):
    """What the worker gives to a task before it starts."""

    @property
    def config(self) -> Mapping[str, str]:
        """The task's settings, as text."""

    @property
    def offsets(self) -> OffsetReader:
        """The connector's committed offsets."""

    @property
    def transactions(self) -> TransactionContext | None:
        """Where transactions end; None unless transaction.boundary=connector."""


class SourceTask(ABC):
    """Reads records of the source; one task never runs in two places at a time.

    Every method may be `async def`, or a plain `def`, which then runs in a thread that belongs to this task: methods
    of one task never run at the same time, except `stop`, which may come while a plain `poll` waits.

    The worker sets `context`, then calls `start` once, `poll` again and again, and `stop` once.
    """

    context: SourceTaskContext

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> Awaitable[None] | None:
        """Open the source, and find out where to go on: `await self.context.offsets.offset(partition)`."""

    @abstractmethod
    def poll(self) -> Awaitable[Iterable[SourceRecord] | None] | Iterable[SourceRecord] | None:
        """Return the next records, or None or nothing where there are none yet.

        It should wait a while for records rather than return nothing at once. Raises RetriableError for a failure that
        passes: the worker polls again after a pause.
        """

    def stop(self) -> Awaitable[None] | None:
        """Close the source; a plain `poll` that waits must return soon after."""
        return None

    def commit(self) -> Awaitable[None] | None:
        """Note that the offsets of all records that `poll` returned before are committed."""
        return None

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> Awaitable[None] | None:
        """Note that a record is acknowledged; `metadata` is None for one that was filtered out or skipped."""
        return None
