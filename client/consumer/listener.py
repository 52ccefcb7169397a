"""The application's part in a rebalance: `RebalanceListener`."""

from __future__ import annotations

from collections.abc import Awaitable

from ..values import TopicPartition


class RebalanceListener:
    """Base class of rebalance listeners: override what you need, as plain or `async` methods. They run inside `poll()`.

    While `on_partitions_revoked` runs, this member still owns the partitions: commit what was processed, finish or
    abort a transaction. In `on_partitions_lost` it does not: another member may own them, and a commit would fail. With
    the cooperative protocol only partitions that really move are named. An exception ends the poll in which it is
    raised.
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called after a rebalance with the newly assigned partitions; it may `seek` to set their positions."""

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are given up."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions are already lost; calls `on_partitions_revoked` by default."""
        return self.on_partitions_revoked(partitions)
