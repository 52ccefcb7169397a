"""Decides where the transactions of a task end (transaction.boundary, KIP-618)."""

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
    """Decides after each record, after each batch and at the end of the task whether the transaction ends."""

    def after_record(self, record: SourceRecord) -> End | None:
        """Return how the transaction ends after this record; None to continue it."""

    def after_batch(self) -> End | None:
        """Return how the transaction ends after the batch; None to continue it."""

    def at_end(self) -> End | None:
        """Return how the transaction ends when the task is paused or stopped; None to leave it open."""

    def due_in_s(self) -> float | None:
        """Return the seconds until `after_batch` must be called again if no batch arrives; None for no limit."""


class PollBoundary:
    """One transaction per batch."""

    def after_record(self, record: SourceRecord) -> End | None:
        """Return None, because a transaction never ends within a batch."""
        return None

    def after_batch(self) -> End | None:
        """Return COMMIT, because each batch is a transaction."""
        return End.COMMIT

    def at_end(self) -> End | None:
        """Return COMMIT, because a task that stops commits its batch."""
        return End.COMMIT

    def due_in_s(self) -> float | None:
        """Return None: no transaction is open between batches."""
        return None


class IntervalBoundary:
    """One transaction per interval. A transaction ends after a batch, or while the source returns no records."""

    def __init__(self, interval_s: float, clock: Callable[[], float]) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._next = clock() + interval_s

    def after_record(self, record: SourceRecord) -> End | None:
        """Return None, because a transaction never ends within a batch."""
        return None

    def after_batch(self) -> End | None:
        """Return COMMIT if the interval has passed, else None."""
        if self._clock() < self._next:
            return None
        self._next = self._clock() + self._interval_s
        return End.COMMIT

    def at_end(self) -> End | None:
        """Return COMMIT, even if the interval has not passed yet."""
        return End.COMMIT

    def due_in_s(self) -> float | None:
        """Return the seconds until the transaction's interval has passed."""
        return max(0.0, self._next - self._clock())


class ConnectorBoundary:
    """Lets the task decide where transactions end; this object is the task's `TransactionContext`.

    The task may make requests in its own thread, so each request is one atomic step: an assignment or a change to a
    set.
    """

    def __init__(self) -> None:
        self._commit_batch = self._abort_batch = False
        self._commit_on: set[int] = set()
        self._abort_on: set[int] = set()
        self._kept: dict[int, SourceRecord] = {}
        """The records named in requests; kept because an id() is unique only while its object exists."""

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Request a commit after `record`, or after the batch. Raises IllegalTransactionRequestError."""
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
        """Request an abort after `record`, or after the batch. Raises IllegalTransactionRequestError."""
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
        """Return and clear the task's request for this record."""
        if not self._kept or self._kept.pop(id(record), None) is None:
            return None
        end = End.ABORT if id(record) in self._abort_on else End.COMMIT
        self._abort_on.discard(id(record))
        self._commit_on.discard(id(record))
        return end

    def after_batch(self) -> End | None:
        """Return and clear the task's request for the batch."""
        commit, abort = self._commit_batch, self._abort_batch
        self._commit_batch = self._abort_batch = False
        return End.ABORT if abort else End.COMMIT if commit else None

    def at_end(self) -> End | None:
        """Return None: a poll may still be running, and a request that it has made applies to its own batch.

        The next instance of the task aborts a transaction that this instance leaves open.
        """
        return None

    def due_in_s(self) -> float | None:
        """Return None: transactions do not depend on time."""
        return None
