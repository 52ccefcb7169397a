"""A worker beside rebalances that begin, go on or end in the middle of its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from oncelog.client.errors import IllegalGenerationError
from oncelog.client.processor.metrics import Metrics
from oncelog.client.processor.options import ProcessorOptions
from oncelog.client.processor.worker import Worker
from oncelog.client.values import ConsumerAssignment, OffsetAndMetadata, TopicPartition
from oncelog.protocol.errors import ErrorCode

A = TopicPartition("t", 0)
ASSIGNMENT = ConsumerAssignment(1, frozenset({A}), "g", "m")


class Member:
    """A consumer that is a member of its group in `assignment`, and gets another one by a poll once that is due."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.assignment = ASSIGNMENT
        self.rebalance_due = False

    def group_assignment(self) -> ConsumerAssignment:
        return self.assignment

    def enforce_rebalance(self, reason: str) -> None:
        self.rebalance_due = True

    async def getmany(self, *_: Any) -> dict[Any, Any]:
        if self.rebalance_due:
            self.rebalance_due = False
            self.assignment = ConsumerAssignment(self.assignment.generation_id + 1, frozenset({A}), "g", "m")
            self._worker.on_partitions_assigned({A})
        await asyncio.sleep(0)
        return {}

    def forget_positions(self) -> None:
        pass

    def wakeup(self) -> None:
        pass

    async def until_rebalance(self) -> None:
        await asyncio.Event().wait()


class Recorder:
    """A producer, and who owns it: notes what is committed."""

    def __init__(self) -> None:
        self.producer = self
        self.clean = True
        self.committed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self._offsets: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self.refused: set[int] = set()
        self.initialised: list[int] = []

    def shares(self, batch: Any) -> list[Any]:
        return [(self, batch)]

    async def initialise(self, assignment: ConsumerAssignment) -> None:
        self.initialised.append(assignment.generation_id)
        if assignment.generation_id in self.refused:
            raise IllegalGenerationError(ErrorCode.ILLEGAL_GENERATION, "over")

    async def begin_transaction(self) -> None:
        self._offsets = {}

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], _: Any) -> None:
        self._offsets = offsets

    async def commit_transaction(self) -> None:
        self.committed.append(self._offsets)


def make(process: Any) -> tuple[Worker, Member, Recorder]:
    options = ProcessorOptions(
        topics=("t",),
        pattern=None,
        process=process,
        application_id="g",
        transactional_id="x",
        group_aware=True,
        dead_letter_topic=None,
        max_batch_records=10,
        max_batch_s=0.0,
        consumer_settings={"group_id": "g", "auto_offset_reset": "earliest"},
        producer_settings={},
        on_progress=None,
    )
    worker, recorder = Worker(options, Metrics()), Recorder()
    member = Member(worker)
    worker._consumer = worker._beginnings._consumer = member  # type: ignore[assignment]
    worker._producers = recorder  # type: ignore[assignment]
    return worker, member, recorder


async def test_offsets_stay_with_their_records_when_partitions_are_given_up_beside_the_transaction() -> None:
    async def process(records: list[Any], _: Any) -> None:
        worker.on_partitions_revoked({A})  # a step of a rebalance that a poll has begun, and not seen the end of

    worker, _, recorder = make(process)
    worker._owned = ASSIGNMENT
    worker._batch.add(A, [], OffsetAndMetadata(5))
    await worker._transact()
    assert recorder.committed == [{A: OffsetAndMetadata(5)}]


async def test_after_a_refused_generation_the_group_is_joined_anew_before_the_next_attempt() -> None:
    worker, _, recorder = make(lambda records, transaction: None)
    recorder.refused = {1}
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        while worker._dirty and not running.done():
            await asyncio.sleep(0.01)
        worker.stop()
        await running
    assert recorder.initialised == [1, 2]


@pytest.mark.parametrize("generations", [6])
async def test_refused_without_end_it_says_so(generations: int) -> None:
    worker, _, recorder = make(lambda records, transaction: None)
    recorder.refused = set(range(100))
    async with asyncio.timeout(30):
        with pytest.raises(IllegalGenerationError):
            await worker.run()
    assert recorder.initialised == list(range(1, generations + 1))
