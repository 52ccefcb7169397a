"""One transactional id in memory: its current value, the transition under way, and who waits for it."""

from __future__ import annotations

import asyncio

from .metadata import TransactionMetadata
from .state import TopicPartition


class TransactionEntry:
    """The mutable cell around the immutable TransactionMetadata.

    `metadata` is what is durable and may be told; `pending` what is appended but not yet durable, at most one at a
    time. `unwritten` is a COMPLETE_* value that is current and not yet in the log: it goes there in front of the id's
    next record. `partition` is the partition of `__transaction_state` that holds the id.

    `written` are the partitions of the ongoing transaction that a batch was appended to, or is about to be; None when
    that is not known, because the transaction has gone on since before this process started. `waiters` is None while
    nobody waits: there are many entries, and an empty list in each would take 56 bytes.
    """

    __slots__ = ("metadata", "partition", "pending", "unwritten", "waiters", "written")

    def __init__(self, metadata: TransactionMetadata, partition: int) -> None:
        self.metadata = metadata
        self.partition = partition
        self.pending: TransactionMetadata | None = None
        self.unwritten: TransactionMetadata | None = None
        self.waiters: list[asyncio.Future[None]] | None = None
        self.written: set[TopicPartition] | None = None

    @property
    def is_settled(self) -> bool:
        """No transition is under way and no decided transaction is incomplete: what comes next can be decided."""
        return self.pending is None and not self.metadata.state.is_prepare

    def wake(self) -> None:
        """Let those who wait look again."""
        waiters, self.waiters = self.waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
