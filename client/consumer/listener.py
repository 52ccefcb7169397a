"""The application's part in a rebalance: `RebalanceListener`."""

from __future__ import annotations

from collections.abc import Awaitable

from ..values import TopicPartition


class RebalanceListener:
    """Override what you need; the methods may be plain or `async`. They run inside `poll()`, never beside it.

    While `on_partitions_revoked` runs, the partitions are still this member's: commit what was processed, finish or
    abort a transaction. In `on_partitions_lost` they are not any more: another member may have them, a commit would
    fail. With the cooperative protocol only the partitions that really move are named. An exception ends the poll that
    it happened in.
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called after a rebalance with the partitions that are new; positions may be set by `seek` here."""

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are given up."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions are gone already; by default as `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)
