"""A worker beside rebalances that begin, go on or end in the middle of its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from oncelog.client.consumer import ConsumerRecord
from oncelog.client.consumer.record import BatchOrigin
from oncelog.client.errors import IllegalGenerationError, IllegalStateError, RetriableError
from oncelog.client.processor import ProcessorTransaction
from oncelog.client.processor.metrics import Metrics
from oncelog.client.processor.options import ProcessorOptions
from oncelog.client.processor.worker import Worker, _Poisoned
from oncelog.client.values import ConsumerAssignment, OffsetAndMetadata, TopicPartition
from oncelog.protocol.batch_header import TimestampType
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

    def is_recreated(self, *_: Any) -> bool:
        return False

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
        self.sent: list[tuple[str, bytes | None]] = []
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
        self.sent = []

    def send(self, topic: str, value: bytes | None, **_: Any) -> None:
        self.sent.append((topic, value))

    async def abort(self) -> None:
        self.clean = True

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], _: Any) -> None:
        self._offsets = offsets

    async def commit_transaction(self) -> None:
        self.committed.append(self._offsets)


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord(BatchOrigin(A, 0, TimestampType.CREATE_TIME), offset, 0, None, b"%d" % offset, [])


def make(process: Any, **options: Any) -> tuple[Worker, Member, Recorder]:
    given: dict[str, Any] = {
        "topics": ("t",),
        "pattern": None,
        "process": process,
        "application_id": "g",
        "transactional_id": "x",
        "group_aware": True,
        "dead_letter_topic": None,
        "max_batch_records": 10,
        "max_batch_s": 0.0,
        "consumer_settings": {"group_id": "g", "auto_offset_reset": "earliest"},
        "producer_settings": {},
        "on_progress": None,
    }
    worker, recorder = Worker(ProcessorOptions(**{**given, **options}), Metrics()), Recorder()
    member = Member(worker)
    worker._consumer = worker._initial_offsets._consumer = member  # type: ignore[assignment]
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
    async with asyncio.timeout(60):
        while worker._dirty and not running.done():
            await asyncio.sleep(0.01)
        worker.stop()
        await running
    assert recorder.initialised == [1, 2]


@pytest.mark.parametrize("generations", [6])
async def test_refused_without_end_it_says_so(generations: int) -> None:
    worker, _, recorder = make(lambda records, transaction: None)
    recorder.refused = set(range(100))
    async with asyncio.timeout(60):
        with pytest.raises(IllegalGenerationError):
            await worker.run()
    assert recorder.initialised == list(range(1, generations + 1))


async def test_what_the_function_does_to_its_list_does_not_decide_which_record_is_to_blame() -> None:
    def process(records: list[ConsumerRecord], _: Any) -> None:
        while records:
            if records.pop(0).offset == 3:
                raise ValueError("this one")

    worker, _, recorder = make(process, dead_letter_topic="dead")
    worker._owned = ASSIGNMENT
    worker._batch.add(A, [record(offset) for offset in range(5)], OffsetAndMetadata(5))
    with pytest.raises(_Poisoned):
        await worker._transact()
    assert not recorder.committed


async def test_a_record_that_is_committed_is_not_buried_for_what_on_progress_raises() -> None:
    def on_progress(metrics: Metrics) -> None:
        raise ValueError("no disk for the statistics")

    worker, _, recorder = make(lambda records, _: None, dead_letter_topic="dead", on_progress=on_progress)
    worker._owned = ASSIGNMENT
    worker._batch.add(A, [record(4)], OffsetAndMetadata(5))
    with pytest.raises(ValueError, match="statistics"):
        await worker._transact()
    assert recorder.committed == [{A: OffsetAndMetadata(5)}]
    assert not recorder.sent


async def test_a_step_that_is_cancelled_by_itself_does_not_end_the_run_silently() -> None:
    async def cancelled(assignment: ConsumerAssignment) -> None:
        raise asyncio.CancelledError

    worker, _, recorder = make(lambda records, transaction: None)
    recorder.initialise = cancelled  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a step of the processor was cancelled"):
        await worker.run()


async def test_a_task_that_the_function_left_behind_sends_nothing_in_the_next_transaction() -> None:
    given: list[ProcessorTransaction] = []

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        given.append(transaction)
        raise RetriableError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "later")

    worker, _, recorder = make(process)
    worker._owned = ASSIGNMENT
    worker._batch.add(A, [record(4)], OffsetAndMetadata(5))
    with pytest.raises(RetriableError):
        await worker._transact()
    with pytest.raises(IllegalStateError, match="has ended"):
        given[0].send("t", b"late")
    assert not recorder.sent
