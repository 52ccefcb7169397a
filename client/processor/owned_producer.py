"""`OwnedProducer`: a producer that can be made usable again after any failure.

It owns a transactional.id and the producer that currently uses it. `clean` means that no transaction is open, and that
none has an unknown outcome. If an abort cannot make the producer clean, a new initialisation does so, with a new
producer if the old one is unusable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from ...protocol.errors import KafkaError
from ..cancellation import grace_s
from ..errors import FatalError, IllegalStateError
from ..producer import Producer
from ..values import GroupAssignment
from .metrics import Metrics

log = logging.getLogger(__name__)


class OwnedProducer:
    """A transactional.id, and the producer that currently uses it."""

    def __init__(self, settings: Mapping[str, object], metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._producer: Producer | None = None
        self._initialised = False
        self.clean = False

    @property
    def producer(self) -> Producer:
        """The producer; valid until the next `initialise`."""
        assert self._producer is not None, "not initialised"
        return self._producer

    async def initialise(self, assignment: GroupAssignment | None = None) -> None:
        """Fence the previous producers of this id and, with an assignment, those of the assignment's partitions. This
        ends their open transactions.
        """
        if self._initialised:
            self._metrics.reinitialisations += 1
        if not self.clean:
            await self.recover()
        self.clean = False
        if self._producer is None:
            producer = Producer(self._settings)
            try:
                await producer.start()
            except BaseException:
                await producer.close()
                raise
            self._producer = producer
        try:
            await self._producer.init_transactions(assignment)
        except (FatalError, IllegalStateError):
            await self.close()  # the next attempt makes a new producer
            raise
        self.clean = self._initialised = True

    async def recover(self) -> bool:
        """Abort the open transaction. Return False if `initialise` is needed to get a clean producer."""
        if not self.clean and self._producer is not None:
            try:
                await self._producer.abort_transaction()
            except KafkaError as error:
                log.info("%s is initialised again: %s", self._producer.transactional_id, error)
            else:
                self._metrics.aborts += 1
                self.clean = True
        return self.clean

    async def abort(self, error: BaseException | None = None) -> None:
        """Abort the open transaction after a failure. If the abort fails, `clean` stays false.

        If `error` is a cancellation, the abort waits for the broker for cancel.grace.ms at most.
        """
        if self._producer is None:
            return  # it was closed meanwhile, which aborts as well
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(grace_s(self._producer.config, error)):
                await self._producer.abort_transaction()  # if this is cancelled again, closing the producer aborts
            self._metrics.aborts += 1
            self.clean = True

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort the open transaction and disconnect. Failures are logged; the coordinator then aborts the transaction
        after its timeout.
        """
        producer, self._producer = self._producer, None
        self.clean = False
        if producer is not None:
            try:
                await producer.close(timeout_s)
            except KafkaError as failure:
                log.warning("while closing the producer: %s", failure)
