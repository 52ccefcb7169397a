"""Records that cannot be produced, with errors.tolerance=all: sent again alone, within the time of a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from oncelog.client.errors import KafkaError, error_for
from oncelog.client.values import RecordMetadata
from oncelog.connect.api.records import SourceRecord
from oncelog.connect.converters.simple_headers import SimpleHeaderConverter
from oncelog.connect.converters.strings import StringConverter
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.task import at_least_once
from oncelog.connect.task.at_least_once import AtLeastOnceDelivery
from oncelog.connect.task.pipeline import ErrorHandling, Pipeline
from oncelog.protocol.errors import ErrorCode
from support.virtual_time import VirtualTimeLoop

TASK = ConnectorTaskId("c", 0)
TIMEOUT_S = 5.0
REFUSED = error_for(ErrorCode.INVALID_RECORD, "refused")


class Sent:
    """A record on its way, which `end` decides about."""

    def __init__(self, value: bytes) -> None:
        self.value = value.decode()
        self._future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return asyncio.shield(self._future).__await__()

    def done(self) -> bool:
        return self._future.done()

    def when_done(self, callback: Callable[[bool], object]) -> None:
        self._future.add_done_callback(lambda ended: callback(ended.exception() is None))

    def end(self, error: KafkaError | None = None) -> None:
        if error is None:
            self._future.set_result(RecordMetadata("t", 0, 0, 0))
        else:
            self._future.set_exception(error)
            self._future.exception()


class Broker:
    """The producer of a task. A flush ends when no record is on its way any more."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    async def start(self) -> None: ...

    async def enqueue(self, topic: str, value: bytes, **_: Any) -> Sent:
        self.sent.append(Sent(value))
        return self.sent[-1]

    async def flush(self) -> None:
        while not all(each.done() for each in self.sent):
            await asyncio.sleep(0.1)

    def end(self, error: KafkaError | None = None) -> None:
        """Accept all records on their way, or refuse them as one batch."""
        for each in self.sent:
            if not each.done():
                each.end(error)

    def values(self) -> str:
        """Return the values of all records that were sent."""
        return "".join(each.value for each in self.sent)


class Task:
    """A task whose records have letters as values and numbers from 1 as offsets."""

    def __init__(self, delivery: AtLeastOnceDelivery, offsets: OffsetStore, pipeline: Pipeline) -> None:
        self.delivery, self._offsets, self.pipeline = delivery, offsets, pipeline
        self.heard: list[tuple[str, bool]] = []
        self.commits = 0
        self._count = 0

    async def send(self, values: str, *, placed: bool = True) -> None:
        for value in values:
            self._count += 1
            record = SourceRecord(topic="t", value=value)
            if placed:
                record = record.replace(source_partition={"of": "t"}, source_offset={"count": self._count})
            await self.delivery.send(record, await self.pipeline.convert(record))

    async def finish(self) -> float:
        """Commit, and return how long that took."""
        began = asyncio.get_running_loop().time()
        await self.delivery.finish()
        return asyncio.get_running_loop().time() - began

    async def committed(self) -> int:
        (offset,) = await self._offsets.read("c", [{"of": "t"}])
        return 0 if offset is None else int(offset["count"])


def with_task(test: Callable[[Task, Broker], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(at_least_once, "Producer", lambda settings: broker)
    pipeline = Pipeline(
        TASK, StringConverter(), StringConverter(), SimpleHeaderConverter(), (), ErrorHandling(tolerate=True)
    )

    async def main() -> None:
        async def committed() -> None:
            task.commits += 1

        async def acknowledged(records: Any) -> None:
            task.heard += [(record.value, metadata is not None) for record, metadata in records]

        offsets = OffsetStore(MemoryLog())
        await offsets.start()
        delivery = AtLeastOnceDelivery(
            TASK,
            {},
            offsets,
            pipeline,
            lambda topic: None,
            acknowledged,
            committed,
            lambda: None,
            keep_records=True,
            interval_s=60.0,
            timeout_s=TIMEOUT_S,
        )
        task = Task(delivery, offsets, pipeline)
        await delivery.start()
        await test(task, broker)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(asyncio.wait_for(main(), 10_000))


def test_records_that_are_sent_again_do_not_hold_a_commit_longer_than_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(task: Task, broker: Broker) -> None:
        await task.send("ab")
        broker.end(REFUSED)
        for _ in range(3):
            assert await task.finish() == pytest.approx(TIMEOUT_S)
        assert (broker.values(), await task.committed(), task.heard) == ("aba", 0, [])
        asyncio.get_running_loop().call_later(1, broker.end)
        asyncio.get_running_loop().call_later(2, broker.end, REFUSED)
        assert await task.finish() < TIMEOUT_S
        assert (broker.values(), await task.committed()) == ("abab", 2)
        assert task.heard == [("a", True), ("b", False)]
        assert task.pipeline.metrics.skipped == 1

    with_task(test, monkeypatch)


def test_records_that_are_sent_again_do_not_hold_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(task: Task, broker: Broker) -> None:
        await task.send("ab")
        broker.end(REFUSED)
        began = asyncio.get_running_loop().time()
        await task.delivery.batch_done()
        assert asyncio.get_running_loop().time() - began == pytest.approx(TIMEOUT_S)

    with_task(test, monkeypatch)


def test_a_record_is_only_skipped_if_it_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(task: Task, broker: Broker) -> None:
        await task.send("a")
        broker.end(REFUSED)
        await task.finish()
        await task.send("b")  # joins the batch of the record that was sent again
        broker.end(REFUSED)
        for after_s in (1, 2):
            asyncio.get_running_loop().call_later(after_s, broker.end)
        await task.finish()
        assert (broker.values(), await task.committed()) == ("aabab", 2)
        assert task.heard == [("a", True), ("b", True)]
        assert task.pipeline.metrics.skipped == 0

    with_task(test, monkeypatch)


def test_a_record_is_sent_again_after_those_that_were_sent_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(task: Task, broker: Broker) -> None:
        await task.send("ab")
        broker.end(REFUSED)
        await task.send("c")
        loop = asyncio.get_running_loop()
        loop.call_later(1, broker.end, REFUSED)
        for after_s in (2, 3, 4):
            loop.call_later(after_s, broker.end)
        await task.delivery.batch_done()
        assert (broker.values(), task.heard) == ("abcabc", [(value, True) for value in "abc"])

    with_task(test, monkeypatch)


def test_a_commit_waits_for_records_without_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(task: Task, broker: Broker) -> None:
        await task.send("a", placed=False)
        assert task.delivery.due_in_s() == 60
        assert await task.finish() == pytest.approx(TIMEOUT_S)
        assert task.commits == 0
        asyncio.get_running_loop().call_later(1, broker.end)
        assert 1 <= await task.finish() < TIMEOUT_S
        assert (task.commits, task.heard) == (1, [("a", True)])
        assert await task.finish() == 0
        assert task.commits == 1

    with_task(test, monkeypatch)
