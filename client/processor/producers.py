"""Who produces for a worker: one producer for all of its partitions, or one for each. Two kinds of `WorkerProducers`.

Both keep what was there before out of the partitions, each in its way, whenever the worker's generation is a new one:

* `GroupAwareProducer`: one producer with the worker's own id. It is initialised with the member's assignment. A broker
  that knows group.aware.transaction then fences every producer of the group that these partitions had before, and
  completes their transactions; any other broker refuses the offsets of outdated members by their generation, and makes
  readers of committed offsets wait until pending ones are decided (KIP-447).
* `PartitionProducers`: a producer for each input partition, `{application_id}-{topic}-{partition}`. Whoever gets the
  partition initialises that id, and so fences the one who had it.

Members of both kinds may be in one group: offsets carry member and generation in both, and both read committed offsets
only after their initialisation, and only stable ones. docs/transactions.md has the handover between the kinds.
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
"""Producers of partitions that are initialised at a time."""


class WorkerProducers(Protocol):
    """A worker's producers."""

    @property
    def clean(self) -> bool:
        """Whether no transaction is open or undecided."""

    async def start(self) -> None:
        """Decide the open transactions of a predecessor with the same ids, if these are known before the assignment."""

    async def initialise(self, assignment: GroupAssignment) -> None:
        """Take over these partitions: their previous producers cannot commit on them afterwards."""

    async def recover(self, assignment: GroupAssignment) -> None:
        """Make the producers clean again, within the same generation."""

    def shares(self, batch: Batch) -> list[Share]:
        """Return the producer and the records of each transaction in which a batch is committed."""

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort open transactions, and disconnect."""


class GroupAwareProducer:
    """One producer for all partitions of a worker, initialised with its assignment."""

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
        pass  # which ids are its own, the assignment says

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
