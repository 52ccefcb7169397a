"""`UnobservedFailures`: failures of records that the program has not received yet. `flush` raises them.

A program that never flushes must not collect more and more failures. If the program still holds the `Delivery` of a
record, it can still receive the record's failure. So the failure is kept as long as the `Delivery` exists. Of all other
failures, only the first and the last are kept. A `flush` that raises the first one may have begun before the last one
occurred. So the last one is kept for the next `flush`.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Iterator

from ...protocol.errors import KafkaError
from .batch import Outcome


class UnobservedFailures:
    """The failed outcomes. An outcome is removed once the program has received the failure of each of its records.

    Iteration first yields the outcomes without deliveries, then the others. In both groups, the oldest come first.

    A thread of the program may drop a delivery at any moment (`oncelog.sync`), even while another method is running.
    So each change of a collection is a single step, and no collection is replaced.
    """

    def __init__(self) -> None:
        self._errors: dict[weakref.ref[Outcome], KafkaError] = {}
        self._undeliverable: list[Outcome] = []
        """The first and the last failure of outcomes that have no deliveries any more."""
        self._waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._errors) + len(self._undeliverable)

    def __iter__(self) -> Iterator[Outcome]:
        deliverable = [outcome for reference in list(self._errors) if (outcome := reference()) is not None]
        return iter([*self._undeliverable, *deliverable])

    def add(self, outcome: Outcome, error: KafkaError) -> None:
        """Add an outcome that fails with this error."""
        self._errors[weakref.ref(outcome, self._dropped)] = error
        self.wake()

    async def wait(self) -> None:
        """Wait until an outcome is added, or `wake` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let all calls of `wait` return."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def discard(self, outcome: Outcome) -> None:
        """Remove an outcome whose failures the program has received."""
        self._errors.pop(weakref.ref(outcome), None)
        with contextlib.suppress(ValueError):
            self._undeliverable.remove(outcome)

    def clear(self) -> None:
        """Remove all failures."""
        self._errors.clear()
        self._undeliverable.clear()

    def _dropped(self, reference: weakref.ref[Outcome]) -> None:
        error = self._errors.get(reference)
        if error is not None:
            undeliverable = _Undeliverable(error)
            self._undeliverable[1:] = [undeliverable]
            if self._errors.pop(reference, None) is None:  # another thread has removed all failures meanwhile
                with contextlib.suppress(ValueError):
                    self._undeliverable.remove(undeliverable)


class _Undeliverable(Outcome):
    """The failure of records whose `Delivery` objects the program no longer holds."""

    __slots__ = ()

    def __init__(self, error: KafkaError) -> None:
        super().__init__()
        self.fail(error, lambda outcome: None)

    @property
    def record_count(self) -> int:
        return 1
