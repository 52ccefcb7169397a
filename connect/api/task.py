"""`SourceTask`: the base class of tasks, which read a part of the source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from ...client.values import RecordMetadata
from .offsets import OffsetReader
from .records import SourceRecord
from .transactions import TransactionContext


class SourceTaskContext(Protocol):
    """The worker's services for a task, available before the task starts."""

    @property
    def config(self) -> Mapping[str, str]:
        """The task's settings, as text."""

    @property
    def offsets(self) -> OffsetReader:
        """The connector's committed offsets."""

    @property
    def transactions(self) -> TransactionContext | None:
        """The receiver of the task's requests to end transactions; None unless transaction.boundary=connector."""

    @property
    def exactly_once(self) -> bool:
        """Whether records and offsets are committed in one transaction.

        If false, records after the committed offset may already be in the topic.
        """


class SourceTask(ABC):
    """A task: reads records of the source.

    Every method may be `async def`, or plain `def`: plain methods run in a thread that belongs to this task. Methods of
    one task never run at the same time, with two exceptions: `stop` may be called while a plain `poll` waits, and
    `commit_record` and `commit` may be called while an `async def poll` waits.

    The worker sets `context`, then calls `start` once, `poll` repeatedly, and `stop` once.
    """

    context: SourceTaskContext

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> Awaitable[None] | None:
        """Open the source, and find the position to continue from.

        `await self.context.offsets.offset(partition)` returns the committed position, or None if there is none.
        """

    @abstractmethod
    def poll(self) -> Awaitable[Iterable[SourceRecord] | None] | Iterable[SourceRecord] | None:
        """Return the next records; None or an empty iterable if there are none yet.

        Wait a while for records instead of immediately returning nothing. Raise RetriableError for a temporary failure:
        the worker polls again after a pause.
        """

    def stop(self) -> Awaitable[None] | None:
        """Close the source, and make a plain `poll` that is waiting return soon."""
        return None

    def commit(self) -> Awaitable[None] | None:
        """React to a commit of offsets. The offsets of the latest `poll` may still be uncommitted."""
        return None

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> Awaitable[None] | None:
        """Handle the acknowledgement of a record; `metadata` is None if the record was filtered out or skipped."""
        return None
