"""`TransactionContext`: how a task says where transactions end, with transaction.boundary=connector (KIP-618)."""

from __future__ import annotations

from typing import Protocol

from .records import SourceRecord


class TransactionContext(Protocol):
    """Requests the end of the transaction that is open.

    A request takes effect when the batch of the present poll is handled: after the whole batch, or after `record` of
    it. Raises IllegalTransactionRequestError where two requests contradict each other.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after `record`, or without one after the batch that the next poll returns."""

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort after `record`, which is dropped as well, or without one after the batch of the next poll."""
