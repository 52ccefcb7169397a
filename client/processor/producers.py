"""The producers of a worker: one for all of its partitions, or one for each. Both are kinds of `WorkerProducers`.

When the worker's generation changes, both keep the previous producers out of the partitions, each in its own way:

* `GroupAwareProducer`: one producer with the worker's own id, initialised with the member's assignment. A broker with
  group.aware.transaction then fences every producer of the group that owned these partitions before, and completes its
  transactions. Any other broker refuses the offsets of outdated members by their generation, and makes readers of
  committed offsets wait until pending ones are decided (KIP-447).
* `PartitionProducers`: a producer for each input partition, `{application_id}-{topic}-{partition}`. The worker that
  gets the partition initialises the id, which fences the previous worker's producer.

Members of both kinds may be in one group: their offsets carry member and generation, and they read committed offsets
only after their initialisation, and only stable ones. docs/transactions.md describes the handover between the kinds.
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
        """Whether no transaction is open or undecided."""

    async def start(self) -> None:
        """Initialise the producers whose ids are known before the assignment. This decides the open transactions of
        these ids.
        """

    async def initialise(self, assignment: GroupAssignment) -> None:
        """Take over these partitions: their previous producers cannot commit their offsets afterwards."""

    async def recover(self, assignment: GroupAssignment) -> None:
        """Abort open transactions of the producers and resolve undecided ones; the generation stays the same."""

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
