"""Completes the transactions in a PREPARE_* state: writes a marker to every partition, then the COMPLETE_* value.

This module runs the tasks that do this, and retries them. It never decides whether a transaction is committed: a task
starts from PREPARE_* in the log, and retries until every marker is durable, both after failures of single partitions
and after unexpected errors. Only then does COMPLETE_* follow, and only then can the transactional id's next transaction
begin.

A partition that is deleted meanwhile needs no marker. If a partition refuses the marker and its log has no open
transaction of the producer, it needs no marker either. If its log has an open transaction of the producer, the marker
belongs to another transaction. The open transaction is then aborted, because a power failure has lost either its marker
or the coordinator's record of it.

A failure is logged when it first occurs, when it changes and when it is over, not at each attempt.

A transaction with many partitions is processed in slices. The state of its transactional id does not change meanwhile:
until COMPLETE_*, a request that would change it waits or is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from ....protocol.errors import ErrorCode, KafkaError
from ...partitions.markers import Marker
from ...scheduling.shared_turns import SharedTurns
from ...scheduling.slices import in_slices
from ...scheduling.steps import Steps, ordered, run_in_slices
from ...system.ports import Clock
from ..backoff import RetryBackoff
from .entry import TransactionEntry
from .gateway import PartitionGateway
from .metadata import TransactionMetadata, complete_end
from .state import TopicPartition
from .state_manager import TransactionStateManager

_REFUSALS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""The error codes with which a partition refuses a marker. Its log is then searched for an open transaction."""

_PER_TURN: Final = 500
"""The number of partitions whose results are processed before the event loop runs other tasks."""

_ATTEMPTS_PER_TURN: Final = 50
"""How many markers are written one at a time before the event loop runs other tasks."""

_UNITS_PER_TRANSACTION: Final = 50
"""The cost of beginning to complete a transaction, in units of work (`steps.py`)."""

_SHOWN: Final = 20
"""The maximum number of partitions in a log line that lists partitions without their marker."""


class TransactionMarkerWriter:
    """The tasks that write the markers of ended transactions until the transactions are complete."""

    def __init__(
        self,
        state: TransactionStateManager,
        gateway: PartitionGateway,
        clock: Clock,
        logger: Any,
        backoff: Callable[[], RetryBackoff],
    ) -> None:
        """Create the writer. `backoff` returns a new series of pauses between attempts."""
        self._state = state
        self._gateway = gateway
        self._clock = clock
        self._logger = logger
        self._backoff = backoff
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopped = False
        self._afterwards: dict[str, Callable[[], None]] = {}
        self._turns = SharedTurns()

    def afterwards(self, entry: TransactionEntry, action: Callable[[], None]) -> None:
        """Arrange that `action` is called as soon as the transaction of `entry` is complete, before other tasks run."""
        assert entry.metadata.state.is_prepare
        self._afterwards[entry.metadata.transactional_id] = action

    def finish(self, entry: TransactionEntry) -> None:
        """Start the task that completes the transaction of `entry`: it writes the markers, then COMPLETE_*."""
        if self._stopped:
            return  # a decision that became durable while the broker was stopping: the next start resumes it
        metadata = entry.metadata
        assert metadata.state.is_prepare
        task = asyncio.get_running_loop().create_task(self._finish(entry), name=f"end-txn-{metadata.transactional_id}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        """Cancel unfinished work. The broker's next start finds PREPARE_* in the log and resumes the work."""
        self._stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def write(self, marker: Marker, before: dict[TopicPartition, str]) -> dict[TopicPartition, str]:
        """Write one marker to its partitions. Return the partitions that still need the marker, each with the reason.

        Partitions that need no marker are logged and left out of the result. `before` is the result of the previous
        attempt. It is needed because only changes are logged.
        """
        left = await self._attempt(marker, before)
        if left and left != before:
            self._logger.warning(
                "marker_not_written",
                producer_id=marker.producer_id,
                commit=marker.commit,
                count=len(left),
                partitions=[f"{topic}-{index}: {why}" for (topic, index), why in islice(left.items(), _SHOWN)],
            )
        elif before and not left:
            self._logger.info("marker_written_at_last", producer_id=marker.producer_id, commit=marker.commit)
        return left

    async def _attempt(self, marker: Marker, before: dict[TopicPartition, str]) -> dict[TopicPartition, str]:
        try:
            (codes,) = await self._gateway.write_markers([marker])
        except Exception as error:
            if len(marker.partitions) > 1:  # one partition caused the error: the others must not wait for it
                left: dict[TopicPartition, str] = {}
                async for partition in in_slices(marker.partitions, _ATTEMPTS_PER_TURN):
                    left |= await self._attempt(replace(marker, partitions=[partition]), before)
                return left
            (partition,) = marker.partitions
            why = f"{type(error).__name__}: {error}"
            if before.get(partition) != why:
                self._logger.error("marker_failed", partition=partition, producer_id=marker.producer_id, exc_info=error)
            return {partition: why}
        left = {}
        async for partition in in_slices(marker.partitions, _PER_TURN):
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _REFUSALS:
                code = await self._overrule(marker, partition, code)
            if code is ErrorCode.NONE:
                continue
            if not self._gateway.is_deleted(partition):
                left[partition] = code.name
            else:
                self._not_needed(marker, partition, code)
        return left

    async def _overrule(self, marker: Marker, partition: TopicPartition, refusal: ErrorCode) -> ErrorCode:
        """Resolve a refused marker: abort an open transaction of the producer in the log. Return NONE or an error code.

        NONE means that the producer has no open transaction in the log any more. An open transaction is either a later
        one, whose record the coordinator has lost, or an earlier one, whose marker the log has lost. Such losses follow
        a power failure with durability=os. The open transaction can no longer be committed, so it is aborted.
        """
        try:
            known = self._gateway.producer(partition, marker.producer_id)
        except KafkaError as error:
            return error.code
        if known is None or not known.is_open:
            self._not_needed(marker, partition, refusal)
            return ErrorCode.NONE
        self._logger.error(
            "marker_refused_by_open_transaction",
            partition=partition,
            producer_id=marker.producer_id,
            marker_epoch=marker.producer_epoch,
            log_epoch=known.producer_epoch,
            commit=marker.commit,
            reason=refusal.name,
            remedy="no action is needed: the marker belongs to another transaction, and the open one is aborted. With"
            " durability=os, a power failure can lose a transaction's marker, or the coordinator's record of it",
        )
        epoch = max(marker.producer_epoch, known.producer_epoch)
        again = replace(marker, commit=False, partitions=[partition], producer_epoch=epoch, transaction_version=0)
        (codes,) = await self._gateway.write_markers([again])
        return codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _not_needed(self, marker: Marker, partition: TopicPartition, code: ErrorCode) -> None:
        self._logger.info("marker_not_needed", partition=partition, producer_id=marker.producer_id, reason=code.name)

    async def _finish(self, entry: TransactionEntry) -> None:
        await self._turns.take(_UNITS_PER_TRANSACTION)
        metadata = entry.metadata
        left: Collection[TopicPartition] = metadata.topic_partitions
        before: dict[TopicPartition, str] = {}
        failure = ""
        backoff = self._backoff()
        while True:
            try:
                if left:
                    partitions = await run_in_slices(_sorted(left)) if len(left) > _PER_TURN else sorted(left)
                    left = before = await self.write(marker_of(metadata, partitions), before)
                if not left:
                    assert entry.metadata is metadata, "nothing else moves an id out of PREPARE_*"
                    self._state.complete(entry, complete_end(metadata, self._clock.now_ms()))
                    action = self._afterwards.pop(metadata.transactional_id, None)
                    if action is not None:
                        action()
                    return
            except Exception as error:
                if failure != (failure := f"{type(error).__name__}: {error}"):
                    self._logger.error(
                        "transaction_not_completed", transactional_id=metadata.transactional_id, exc_info=error
                    )
                if entry.metadata is not metadata:
                    return  # a bug, but it must not block the transactional id
            await backoff.pause()


def marker_of(metadata: TransactionMetadata, partitions: list[TopicPartition]) -> Marker:
    """Return the marker that ends the transaction in `partitions`. The transaction is in a PREPARE_* state."""
    return Marker(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        coordinator_epoch=0,
        commit=metadata.state.is_commit,
        partitions=partitions,
        transaction_version=int(metadata.client_transaction_version),
    )


def _sorted(partitions: Collection[TopicPartition]) -> Steps[list[TopicPartition]]:
    """Sort many partitions in slices."""
    remaining = yield from ordered(partitions)
    in_order: list[TopicPartition] = []
    while piece := list(islice(remaining, _PER_TURN)):
        in_order += piece
        yield 2 * len(piece)
    return in_order
