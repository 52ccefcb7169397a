"""Where the transactions of a task end (transaction.boundary, KIP-618)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ..api.records import SourceRecord
from ..errors import IllegalTransactionRequestError


class End(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"


class Boundary(Protocol):
    """Decides after each record, after each batch and at the end."""

    def after_record(self, record: SourceRecord) -> End | None:
        """Return how the transaction ends behind a record; None: it goes on."""

    def after_batch(self) -> End | None:
        """Return how the transaction ends behind a batch."""

    def at_end(self) -> End | None:
        """Return how the transaction ends when the task is paused or stopped."""

    def due_in_s(self) -> float | None:
        """Return after how many seconds `after_batch` is to be asked again while no batch comes."""


class PollBoundary:
    """A transaction per batch."""

    def after_record(self, record: SourceRecord) -> End | None:
        """Return None: a batch is not divided."""
        return None

    def after_batch(self) -> End | None:
        """Return COMMIT."""
        return End.COMMIT

    def at_end(self) -> End | None:
        """Return COMMIT."""
        return End.COMMIT

    def due_in_s(self) -> float | None:
        """Return None: nothing is open between batches."""
        return None


class IntervalBoundary:
    """A transaction per interval; it ends behind a batch, or while the source is silent."""

    def __init__(self, interval_s: float, clock: Callable[[], float]) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._next = clock() + interval_s

    def after_record(self, record: SourceRecord) -> End | None:
        """Return None: a batch is not divided."""
        return None

    def after_batch(self) -> End | None:
        """Return COMMIT when the interval is over."""
        if self._clock() < self._next:
            return None
        self._next = self._clock() + self._interval_s
        return End.COMMIT

    def at_end(self) -> End | None:
        """Return COMMIT."""
        return End.COMMIT

    def due_in_s(self) -> float | None:
        """Return the seconds until the interval is over."""
        return max(0.0, self._next - self._clock())


class ConnectorBoundary:
    """The task decides; this is the `TransactionContext` that it is given.

    Requests may come from the thread of the task: each is one assignment or one change of a set.
    """

    def __init__(self) -> None:
        self._commit_batch = self._abort_batch = False
        self._commit_on: set[int] = set()
        self._abort_on: set[int] = set()
        self._kept: dict[int, SourceRecord] = {}
        """The records of requests: an identity is unique as long as its object lives."""

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit behind `record`, or behind the batch; raises IllegalTransactionRequestError."""
        if record is None:
            if self._abort_batch:
                raise IllegalTransactionRequestError("the batch")
            self._commit_batch = True
            return
        if id(record) in self._abort_on:
            raise IllegalTransactionRequestError("the record")
        self._kept[id(record)] = record
        self._commit_on.add(id(record))

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort behind `record`, or behind the batch; raises IllegalTransactionRequestError."""
        if record is None:
            if self._commit_batch:
                raise IllegalTransactionRequestError("the batch")
            self._abort_batch = True
            return
        if id(record) in self._commit_on:
            raise IllegalTransactionRequestError("the record")
        self._kept[id(record)] = record
        self._abort_on.add(id(record))

    def after_record(self, record: SourceRecord) -> End | None:
        """Return what the task has asked for behind this record, once."""
        if not self._kept or self._kept.pop(id(record), None) is None:
            return None
        end = End.ABORT if id(record) in self._abort_on else End.COMMIT
        self._abort_on.discard(id(record))
        self._commit_on.discard(id(record))
        return end

    def after_batch(self) -> End | None:
        """Return what the task has asked for behind the batch, once."""
        commit, abort = self._commit_batch, self._abort_batch
        self._commit_batch = self._abort_batch = False
        return End.ABORT if abort else End.COMMIT if commit else None

    def at_end(self) -> End | None:
        """Return None: a poll that goes on may have asked for an end behind the batch that it has not returned yet.

        The successor of a task aborts a transaction that the task has not ended.
        """
        return None

    def due_in_s(self) -> float | None:
        """Return None: the clock does not matter."""
        return None
