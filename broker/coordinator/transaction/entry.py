"""Holds one transactional id's state in memory: its current value, its pending transition and the waiting requests."""

from __future__ import annotations

import asyncio

from .metadata import TransactionMetadata
from .state import TopicPartition


class Closing:
    """A period in which an ongoing transaction accepts no batches.

    `requests` is the number of EndTxn(commit) requests that wait for the transaction's records.
    """

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


class TransactionEntry:
    """The mutable holder of a transactional id's immutable TransactionMetadata.

    `metadata` is the current value, which responses may report. `pending` is a value that is appended but not yet
    durable, or None; an id has at most one. `unwritten` is a COMPLETE_* value that is current but not yet in the log;
    it will be written before the id's next record. `partition` is the partition of `__transaction_state` that holds the
    id.

    `closed` is not None while the ongoing transaction accepts no batches, because EndTxn(commit) waits, or has waited,
    for its records. It is a new object each time the transaction is closed.

    `given_up_ms` is the time, in ms since the epoch, at which the connection of a waiting EndTxn(commit) was last
    closed. It is None if this has not happened in the ongoing transaction. For a short time after it, a timed-out
    transaction is not aborted, because the client may connect again and repeat the commit.

    `written` contains the partitions of the ongoing transaction that have a batch, or are about to get one. It is None
    if the transaction began before this process started, because these partitions are then unknown. `waiters` is None
    while no request waits, because a broker has many entries and each empty list would take 56 bytes.
    """

    __slots__ = ("closed", "given_up_ms", "metadata", "partition", "pending", "unwritten", "waiters", "written")

    def __init__(self, metadata: TransactionMetadata, partition: int) -> None:
        self.metadata = metadata
        self.partition = partition
        self.pending: TransactionMetadata | None = None
        self.closed: Closing | None = None
        self.given_up_ms: int | None = None
        self.unwritten: TransactionMetadata | None = None
        self.waiters: list[asyncio.Future[None]] | None = None
        self.written: set[TopicPartition] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the next transition can be decided: none is pending, and the current state is not PREPARE_*."""
        return self.pending is None and not self.metadata.state.is_prepare

    def leave(self, closed: Closing) -> None:
        """Record that an EndTxn(commit) no longer waits for records, although it has not committed.

        `closed` is the period in which it waited. When no other EndTxn(commit) waits, batches are accepted again.
        """
        closed.requests -= 1
        if not closed.requests:
            self.closed = None

    def wake(self) -> None:
        """Wake the requests that wait for this transactional id. They then check the state again."""
        waiters, self.waiters = self.waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
