"""The producers of a worker: one for all of its partitions, or one for each partition. Both kinds implement
`WorkerProducers`.

When the worker's generation changes, both kinds keep the previous producers from committing, each in its own way:

* `GroupAwareProducer`: one producer with the worker's own id, initialised with the member's assignment. A broker with
  group.aware.transaction then fences every producer of the group that owned these partitions before, and ends its open
  transactions. Any other broker refuses offsets that an outdated member sends with its old generation. It also makes
  readers of committed offsets wait until the transactions that commit offsets have ended (KIP-447).
* `PartitionProducers`: a producer for each input partition, `{application_id}-{topic}-{partition}`. The worker that
  gets the partition initialises the id, which fences the previous worker's producer.

One group may have members with either kind of producer. All of them send their member id and generation with their
offsets. They read committed offsets only after they have initialised their producers, and they read only stable
offsets. docs/transactions.md describes the handover between the kinds.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..values import GroupAssignment, TopicPartition
from .batch import Batch
from .metrics import Metrics
from .options import ProcessorOptions
from .owned_producer import OwnedProducer

Share = tuple[OwnedProducer, Batch]

STARTED_TOGETHER = 16
"""Number of partition producers that are initialised at the same time."""


class WorkerProducers(Protocol):
    """The interface of a worker's producers."""

    @property
    def clean(self) -> bool:
        """Whether every transaction of these producers is known to have ended."""

    async def start(self) -> None:
        """Initialise the producers whose transactional ids do not depend on the assignment. This ends the open
        transactions of these ids.
        """

    async def initialise(self, assignment: GroupAssignment) -> None:
        """Take over these partitions, so that their previous producers can no longer commit offsets of them."""

    async def recover(self, assignment: GroupAssignment) -> None:
        """End all transactions of these producers: abort them or, if their outcome is unknown, initialise the producers
        again. The generation stays the same.
        """

    def shares(self, batch: Batch) -> list[Share]:
        """Return the producer and the records of each transaction in which the batch is committed."""

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort open transactions, and disconnect."""


class GroupAwareProducer:
    """One producer for all partitions of a worker, initialised with the worker's assignment."""

    def __init__(self, options: ProcessorOptions, metrics: Metrics) -> None:
        own = {
            "transactional_id": options.transactional_id,
            "consumer_group_aware_transaction": options.group_aware,
        }
        self._owned = OwnedProducer({**options.producer_settings, **own}, metrics)

    @property
    def clean(self) -> bool:
        return self._owned.clean

    async def start(self) -> None:
        await self._owned.initialise()

    async def initialise(self, assignment: GroupAssignment) -> None:
        await self._owned.initialise(assignment)

    async def recover(self, assignment: GroupAssignment) -> None:
        if not await self._owned.recover():
            await self._owned.initialise(assignment)

    def shares(self, batch: Batch) -> list[Share]:
        return [(self._owned, batch)]

    async def close(self, timeout_s: float | None = None) -> None:
        await self._owned.close(timeout_s)


class PartitionProducers:
    """A producer for each input partition."""

    def __init__(self, options: ProcessorOptions, metrics: Metrics) -> None:
        self._options = options
        self._metrics = metrics
        self._owned: dict[TopicPartition, OwnedProducer] = {}

    @property
    def clean(self) -> bool:
        return all(owned.clean for owned in self._owned.values())

    async def start(self) -> None:
        pass  # the ids depend on the assignment

    async def initialise(self, assignment: GroupAssignment) -> None:
        gone = self._owned.keys() - assignment.partitions
        await asyncio.gather(*(self._owned.pop(partition).close() for partition in gone))
        for partition in assignment.partitions - self._owned.keys():
            self._owned[partition] = self._new(partition)
        await self._each(list(self._owned.values()))

    async def recover(self, assignment: GroupAssignment) -> None:
        owned = list(self._owned.values())
        usable = await asyncio.gather(*(one.recover() for one in owned))
        await self._each([one for one, well in zip(owned, usable, strict=True) if not well])

    def shares(self, batch: Batch) -> list[Share]:
        return [(self._owned[partition], part) for partition, part in batch.by_partition().items() if part.records]

    async def close(self, timeout_s: float | None = None) -> None:
        owned = list(self._owned.values())
        self._owned.clear()
        await asyncio.gather(*(one.close(timeout_s) for one in owned))

    def _new(self, partition: TopicPartition) -> OwnedProducer:
        own = {
            "transactional_id": f"{self._options.application_id}-{partition.topic}-{partition.partition}",
            "consumer_group_aware_transaction": False,
        }
        return OwnedProducer({**self._options.producer_settings, **own}, self._metrics)

    async def _each(self, owned: list[OwnedProducer]) -> None:
        for first in range(0, len(owned), STARTED_TOGETHER):
            outcomes = await asyncio.gather(
                *(one.initialise() for one in owned[first : first + STARTED_TOGETHER]), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
