"""Fences the producer of a transactional id, for another producer of its group or for an operator.

One record bumps the epoch and aborts the ongoing transaction. If the transaction is already being committed or aborted,
fencing waits until that is complete, and only then bumps the epoch. Fencing leaves the transactional id in state EMPTY,
with an epoch that no producer holds. A repeated call does not bump the epoch again, even while the first call still
waits. After a restart of the broker, a repeated call may bump the epoch again, which wastes one epoch.
"""

from __future__ import annotations

from typing import NamedTuple

from .core import TransactionCore
from .decisions import Step, decide_fence
from .events import Caller
from .metadata import TransactionMetadata
from .state import NO_PRODUCER_EPOCH, TransactionState


class FenceOutcome(NamedTuple):
    """The result of fencing a producer.

    `epoch_before` is the fenced epoch. `epoch_after` is the new epoch, which no producer holds. `aborted` says whether
    a transaction was aborted.
    """

    producer_id: int
    epoch_before: int
    epoch_after: int
    aborted: bool


class Fencing:
    """The part of the transaction coordinator that fences producers."""

    def __init__(self, core: TransactionCore) -> None:
        self._core = core

    async def fence(
        self, transactional_id: str, *, cause: Caller, reason: str, deadline: float | None = None
    ) -> FenceOutcome | None:
        """Bump the epoch of a transactional id and abort its ongoing transaction.

        Return the outcome when the abort is complete and durable, or None if the transactional id is unknown or has no
        epoch yet. Raise KafkaError CONCURRENT_TRANSACTIONS if the abort is not complete at `deadline` (event loop
        time). Other errors have a coordinator error code. Transitions made before an error remain in effect.
        """
        first: TransactionMetadata | None = None
        aborted = bumped = False
        while True:
            entry = self._core.state.get(transactional_id)
            if entry is None or entry.metadata.producer_epoch == NO_PRODUCER_EPOCH:
                return None
            before = entry.metadata
            step = decide_fence(
                before,
                pending=entry.pending is not None,
                server_version=self._core.transaction_version(),
                now_ms=self._core.clock.now_ms(),
            )
            if step is Step.WAIT:
                await self._core.waits.until_settled(entry, deadline, cause, counted=False)
                continue
            first = first or before
            if isinstance(step, TransactionMetadata):
                await self._core.append(entry, step, reason, cause)
                aborted |= step.state is TransactionState.PREPARE_ABORT
                if not before.fenced and not bumped:
                    bumped = True
                    self._core.events.fenced(before, step, reason, cause)
                continue
            now = entry.metadata
            return FenceOutcome(now.producer_id, first.producer_epoch, now.producer_epoch, aborted)
