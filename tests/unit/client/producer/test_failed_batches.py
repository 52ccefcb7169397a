"""What the producer keeps of records whose delivery has failed: the failure, until the program has received it."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from oncelog.client.config import ProducerConfig
from oncelog.client.errors import KafkaError, KafkaTimeoutError
from oncelog.client.producer.accumulator import RecordAccumulator
from oncelog.client.producer.batch import Delivery, Outcome
from oncelog.client.producer.record_values import RecordValues
from oncelog.client.producer.unobserved_failures import UnobservedFailures, _Undeliverable
from oncelog.protocol.errors import ErrorCode
from support.simulated_leader import Fate, SimulatedCluster
from support.simulated_producer import SimulatedProducer
from support.virtual_time import VirtualTimeLoop

SIZE, COUNT = 200_000, 20


@pytest.fixture
def kept_bytes() -> Iterator[Callable[[], int]]:
    """A function that returns how many bytes more are in use than at the start of the test."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    yield lambda: tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()


def run(test: Callable[[SimulatedProducer], Awaitable[None]], fate: Fate) -> None:
    async def main() -> None:
        cluster = SimulatedCluster(lambda: (fate, 0.001))
        async with SimulatedProducer(cluster, {"compression.type": "none"}) as producer:
            await test(producer)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize("fate", [Fate.SERVED, Fate.INVALID])
def test_a_delivery_keeps_no_bytes_of_its_batch(kept_bytes: Callable[[], int], fate: Fate) -> None:
    async def test(producer: SimulatedProducer) -> None:
        deliveries = []
        for _ in range(COUNT):
            deliveries.append(producer.append(0, bytes(SIZE)))
            while not deliveries[-1].done():
                await asyncio.sleep(0.001)
        written = SIZE * COUNT if fate is Fate.SERVED else 0  # the simulated log is in the same process
        assert kept_bytes() - written < 5 * SIZE

    run(test, fate)


async def in_flight(accumulator: RecordAccumulator) -> None:
    """Wait until the first batch is in flight, so that a later record goes into another batch."""
    while not next(iter(accumulator.incomplete)).in_flight:
        await asyncio.sleep(0.0001)


def test_every_flush_that_waits_for_a_record_gets_its_failure() -> None:
    async def test(producer: SimulatedProducer) -> None:
        accumulator = producer.accumulator
        producer.append(0, b"1")
        first, second = asyncio.create_task(accumulator.flush()), asyncio.create_task(accumulator.flush())
        await in_flight(accumulator)
        producer.append(0, b"2")
        third = asyncio.create_task(accumulator.flush())
        for flush in (first, second):
            failure = accumulator.take_failure(await flush)
            assert failure is not None
            assert failure.code is ErrorCode.INVALID_RECORD
        assert accumulator.take_failure(await third) is not None
        assert accumulator.take_failure(await accumulator.flush()) is None

    run(test, Fate.INVALID)


def test_a_flush_leaves_the_failure_of_a_later_record_to_the_next_flush() -> None:
    async def test(producer: SimulatedProducer) -> None:
        accumulator = producer.accumulator
        delivery = producer.append(0, b"1")
        flush = asyncio.create_task(accumulator.flush())
        await in_flight(accumulator)
        later = producer.append(0, b"2")
        outcomes = await flush
        while not later.done():
            await asyncio.sleep(0.001)
        with pytest.raises(KafkaError):
            await delivery
        assert accumulator.take_failure(outcomes) is None, "the program has received the failure of the first record"
        assert accumulator.take_failure(await accumulator.flush()) is not None

    run(test, Fate.INVALID)


def test_records_that_got_no_partition_are_not_kept(kept_bytes: Callable[[], int]) -> None:
    accumulator = RecordAccumulator(ProducerConfig.of({}), lambda: 0.0, lambda: None)
    topic = accumulator.topic("t")
    for _ in range(COUNT):
        assert accumulator.hold(topic, RecordValues(None, 0, None, bytes(SIZE), ())) is not None
        accumulator.drop_unplaced(topic, KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, "no such topic"))
    gc.collect()
    assert len(accumulator.unobserved_failures) == 2
    assert kept_bytes() < 5 * SIZE


def test_a_failure_that_nobody_can_receive_outlives_a_flush_that_began_before_it() -> None:
    failures = UnobservedFailures()

    def fail(code: ErrorCode) -> None:
        failures.add(_Undeliverable(error := KafkaError(code)), error)  # nothing else refers to the outcome

    fail(ErrorCode.INVALID_RECORD)
    flushed = list(failures)
    fail(ErrorCode.MESSAGE_TOO_LARGE)
    for outcome in flushed:
        failures.discard(outcome)
    assert [outcome.error.code for outcome in failures if outcome.error is not None] == [ErrorCode.MESSAGE_TOO_LARGE]


def test_of_failures_that_nobody_can_receive_two_are_kept_for_the_next_flush() -> None:
    async def test(producer: SimulatedProducer) -> None:
        accumulator = producer.accumulator
        kept = producer.append(0, b"0")
        for _ in range(COUNT):
            producer.append(0, b"value")
            while accumulator.incomplete:
                await asyncio.sleep(0.001)
        gc.collect()
        assert len(accumulator.unobserved_failures) == 3
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await kept
        failure = accumulator.take_failure(await accumulator.flush())
        assert failure is not None
        assert failure.code is ErrorCode.INVALID_RECORD
        assert not accumulator.unobserved_failures
        assert accumulator.take_failure(await accumulator.flush()) is None

    run(test, Fate.INVALID)


def test_failures_that_the_program_has_received_are_not_kept() -> None:
    async def test(producer: SimulatedProducer) -> None:
        async def fail(delivery: Delivery) -> None:
            with pytest.raises(KafkaError, match="INVALID_RECORD"):
                await delivery

        for _ in range(COUNT):
            await fail(producer.append(0, b"value"))
        assert not producer.accumulator.unobserved_failures
        first, second = producer.append(0, b"1"), producer.append(0, b"2")
        for _ in range(2):
            await fail(first)
        assert len(producer.accumulator.unobserved_failures) == 1, "the second record's failure is not received yet"
        await fail(second)
        assert not producer.accumulator.unobserved_failures

    run(test, Fate.INVALID)


def calling_at(instruction: int, act: Callable[[], None]) -> Callable[[FrameType, str, Any], Any]:
    """Return a trace function that calls a function before the given instruction, as another thread can."""
    left = instruction

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                act()
        return trace

    return trace


def test_a_failure_is_kept_although_another_thread_drops_its_delivery_at_any_instruction() -> None:
    """Deliveries of oncelog.sync belong to the threads of the program, which may drop one during `discard`."""
    error = KafkaError(ErrorCode.INVALID_RECORD, "a record was refused")
    for instruction in range(1, 200):
        failures = UnobservedFailures()
        received = _Undeliverable(error)
        dropped: list[Outcome] = [_Undeliverable(error)]
        failures.add(received, error)
        failures.add(dropped[0], error)
        sys.settrace(calling_at(instruction, dropped.clear))
        try:
            failures.discard(received)
        finally:
            sys.settrace(None)
        if dropped:
            assert instruction > 5, "a delivery was dropped during the call"
            return
        assert len(failures) == 1
    pytest.fail("the call needs more instructions than the test tries")


def test_a_failure_is_removed_although_its_delivery_is_being_dropped_at_any_instruction() -> None:
    """The event loop's thread removes all failures of an aborted transaction while another thread drops a delivery."""
    error = KafkaError(ErrorCode.INVALID_RECORD, "a record was refused")
    for instruction in range(1, 200):
        failures = UnobservedFailures()
        dropped: list[Outcome] = [_Undeliverable(error)]
        failures.add(dropped[0], error)
        removals: list[None] = []

        def remove(failures: UnobservedFailures = failures, removals: list[None] = removals) -> None:
            failures.clear()
            removals.append(None)

        sys.settrace(calling_at(instruction, remove))
        try:
            dropped.clear()
        finally:
            sys.settrace(None)
        if not removals:
            assert instruction > 5, "the failures were removed during the drop"
            return
        assert not len(failures)
    pytest.fail("the drop needs more instructions than the test tries")
