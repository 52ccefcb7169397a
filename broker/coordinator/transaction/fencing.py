"""Fencing the producer of a transactional id on behalf of another producer of its group, or of an operator.

The order: the epoch is bumped durably, and an ongoing transaction aborted by the same record; a decided transaction is
completed as decided, and then the epoch is bumped. In the end the id is EMPTY, with an epoch that no producer has.
Repeated, even while the first call still waits, it does not bump the epoch again. After a restart of the broker in
between it may, which costs an epoch that no producer had.
"""

from __future__ import annotations

from typing import NamedTuple

from .core import TransactionCore
from .decisions import Step, decide_fence
from .events import Caller
from .metadata import TransactionMetadata
from .state import NO_PRODUCER_EPOCH, TransactionState


class FenceOutcome(NamedTuple):
    """What became of the id: the epoch that is locked out, the one that nobody has, and whether a transaction was
    aborted for it.
    """

    producer_id: int
    epoch_before: int
    epoch_after: int
    aborted: bool


class Fencing(TransactionCore):
    """Fences producers of transactional ids, each at most once."""

    async def fence(
        self, transactional_id: str, *, cause: Caller, reason: str, deadline: float | None = None
    ) -> FenceOutcome | None:
        """Bump the epoch of an id and abort its ongoing transaction; returns when both are durable and complete.

        None: nobody holds the id. `deadline` is in the event loop's time; past it KafkaError CONCURRENT_TRANSACTIONS,
        and what was done stays done. Raises the coordinator's codes, too.
        """
        first: TransactionMetadata | None = None
        aborted = bumped = False
        while True:
            entry = self._state.get(transactional_id)
            if entry is None or entry.metadata.producer_epoch == NO_PRODUCER_EPOCH:
                return None
            before = entry.metadata
            step = decide_fence(
                before,
                pending=entry.pending is not None,
                server_version=self.transaction_version(),
                now_ms=self._clock.now_ms(),
            )
            if step is Step.WAIT:
                await self._waits.until_settled(entry, deadline, cause, counted=False)
                continue
            first = first or before
            if isinstance(step, TransactionMetadata):
                await self._append(entry, step, reason, cause)
                aborted |= step.state is TransactionState.PREPARE_ABORT
                if not before.fenced and not bumped:
                    bumped = True
                    self.events.fenced(before, step, reason, cause)
                continue
            now = entry.metadata
            return FenceOutcome(now.producer_id, first.producer_epoch, now.producer_epoch, aborted)
