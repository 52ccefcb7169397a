"""`TransactionContext`: a task's requests to end transactions, with transaction.boundary=connector (KIP-618)."""

from __future__ import annotations

from typing import Protocol

from .records import SourceRecord


class TransactionContext(Protocol):
    """Requests the end of the open transaction.

    A request takes effect while the worker handles the batch of the current poll: after the whole batch, or after
    `record`. Raises IllegalTransactionRequestError if two requests contradict each other.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Request a commit after `record`; without a record, after the next batch that `poll` returns."""

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Request an abort after `record`, which is aborted with the rest; without a record, after the next batch."""
