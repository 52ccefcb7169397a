"""Carries out decided transactions: a marker to every partition, then COMPLETE_*.

Owns the tasks that do so and their retries. Never decides: what it starts from is PREPARE_* in the log, and it goes on
until every marker is durable, across failures of single partitions. A partition that is deleted meanwhile drops out.
The next transaction of the id can't begin before, and COMPLETE_* comes only then.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ....protocol.errors import ErrorCode
from ...markers import Marker
from ...ports import Clock
from .entry import TransactionEntry
from .gateway import PartitionGateway
from .metadata import TransactionMetadata, complete_end
from .state import TopicPartition
from .state_manager import TransactionStateManager

_FIRST_BACKOFF_S = 0.05
_LAST_BACKOFF_S = 5.0

_SETTLED = frozenset(
    {
        ErrorCode.NONE,
        # The partition knows a newer epoch of this producer, so nothing that this marker could end is open there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Answers after which a partition needs no marker of this transaction any more."""


class TransactionMarkerWriter:
    """The transactions that are decided and not yet complete."""

    def __init__(self, state: TransactionStateManager, gateway: PartitionGateway, clock: Clock, logger: Any) -> None:
        self._state = state
        self._gateway = gateway
        self._clock = clock
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    def finish(self, entry: TransactionEntry) -> None:
        """Begin to carry out the decision that `entry` holds; done when the entry is in COMPLETE_*."""
        if self._stopped:
            return  # a decision that became durable while the broker stops: the next start finds it
        metadata = entry.metadata
        assert metadata.state.is_prepare
        task = asyncio.get_running_loop().create_task(self._finish(entry), name=f"end-txn-{metadata.transactional_id}")
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._ended(metadata.transactional_id, task))

    async def stop(self) -> None:
        """Leave what is unfinished to the next start, which finds PREPARE_* in the log."""
        self._stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def write(self, marker: Marker) -> set[TopicPartition]:
        """Write one marker; returns the partitions that still need it, after noting those that have dropped out."""
        (codes,) = await self._gateway.write_markers([marker])
        left: dict[TopicPartition, ErrorCode] = {}
        for partition in marker.partitions:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code not in _SETTLED and not self._gateway.is_deleted(partition):
                left[partition] = code
            elif code is not ErrorCode.NONE:
                self._logger.info(
                    "marker_not_needed", partition=partition, producer_id=marker.producer_id, reason=code.name
                )
        if left:
            self._logger.warning(
                "marker_not_written",
                producer_id=marker.producer_id,
                commit=marker.commit,
                partitions=[f"{topic}-{index}: {code.name}" for (topic, index), code in left.items()],
            )
        return set(left)

    async def _finish(self, entry: TransactionEntry) -> None:
        metadata = entry.metadata
        left = set(metadata.topic_partitions)
        backoff_s = _FIRST_BACKOFF_S
        while left:
            left = await self.write(marker_of(metadata, left))
            if left:
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _LAST_BACKOFF_S)
        assert entry.metadata is metadata, "nothing else moves an id out of PREPARE_*"
        self._state.complete(entry, complete_end(metadata, self._clock.now_ms()))

    def _ended(self, transactional_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error(
                "transaction_unfinished_until_restart", transactional_id=transactional_id, exc_info=error
            )


def marker_of(metadata: TransactionMetadata, partitions: set[TopicPartition]) -> Marker:
    """The marker of a decided transaction, for some of its partitions."""
    return Marker(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        coordinator_epoch=0,
        commit=metadata.state.is_commit,
        partitions=sorted(partitions),
        transaction_version=int(metadata.client_transaction_version),
    )
