"""The parts of a task: calls in a thread, pipeline with error tolerance, boundaries of transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from oncelog.connect.api.records import Header, SourceRecord
from oncelog.connect.calls import Calls
from oncelog.connect.converters.json_converter import JsonConverter
from oncelog.connect.converters.simple_headers import SimpleHeaderConverter
from oncelog.connect.converters.strings import StringConverter
from oncelog.connect.data.schema import INT32
from oncelog.connect.errors import ConnectError, DataError, IllegalTransactionRequestError, RetriableError
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.task.boundaries import ConnectorBoundary, End, IntervalBoundary, PollBoundary
from oncelog.connect.task.delivery import PendingOffsets
from oncelog.connect.task.pipeline import ErrorHandling, Pipeline, ProducerRecord
from oncelog.connect.task.topic_tracker import TopicTracker
from support.virtual_time import VirtualTimeLoop

TASK = ConnectorTaskId("c", 0)
RECORD = SourceRecord(topic="t", key="k", value={"a": 1}, headers=(Header("h", 5, INT32),), timestamp_ms=7)


class Failing:
    """A stage that fails so many times."""

    name = "TRANSFORMATION failing"

    def __init__(self, times: int, error: Callable[[str], Exception] = RetriableError) -> None:
        self.left, self.error, self.calls = times, error, 0

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error("not now")
        return record


def pipeline(*stages: Any, **errors: Any) -> Pipeline:
    value = JsonConverter()
    value.configure({"converter.type": "value", "schemas.enable": "false"})
    return Pipeline(TASK, StringConverter(), value, SimpleHeaderConverter(), stages, ErrorHandling(**errors))


async def test_a_record_becomes_bytes() -> None:
    assert await pipeline().convert(RECORD) == ProducerRecord("t", None, b"k", b'{"a":1}', 7, (("h", b"5"),))


async def test_without_tolerance_a_failure_fails_the_task() -> None:
    with pytest.raises(ConnectError, match="Tolerance exceeded in error handler: TRANSFORMATION failing: not now"):
        await pipeline(Failing(1, DataError)).convert(RECORD)
    with pytest.raises(ConnectError, match="VALUE_CONVERTER"):
        await pipeline().convert(RECORD.replace(value=object()))


async def test_a_tolerated_failure_leaves_the_record_out(caplog: pytest.LogCaptureFixture) -> None:
    quiet, loud = pipeline(Failing(1, DataError), tolerate=True), pipeline(Failing(1), tolerate=True, log_errors=True)
    assert await quiet.convert(RECORD) is None
    assert (quiet.metrics.skipped, caplog.text) == (1, "")
    assert await quiet.convert(RECORD) is not None
    assert await loud.convert(RECORD) is None
    assert "error of task c-0 in TRANSFORMATION failing" in caplog.text
    assert "'k'" not in caplog.text, "errors.log.include.messages is off"


def test_a_retriable_failure_is_repeated_within_its_time() -> None:
    loop = VirtualTimeLoop()
    try:
        stage = Failing(3)
        converted = loop.run_until_complete(pipeline(stage, retry_timeout_ms=10_000).convert(RECORD))
        assert converted is not None
        assert stage.calls == 4
        stage = Failing(1_000)
        with pytest.raises(ConnectError, match="not now"):
            loop.run_until_complete(pipeline(stage, retry_timeout_ms=10_000).convert(RECORD))
        assert 5 <= stage.calls <= 9
    finally:
        loop.close()


async def test_other_failures_are_not_repeated() -> None:
    stage = Failing(1, DataError)
    with pytest.raises(ConnectError):
        await pipeline(stage, retry_timeout_ms=-1).convert(RECORD)
    assert stage.calls == 1


async def test_plain_methods_run_in_one_thread_of_their_own() -> None:
    calls = Calls("calls")
    threads = [await calls.call(threading.current_thread) for _ in range(2)]
    assert threads[0] is threads[1]
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon

    async def here() -> threading.Thread:
        return threading.current_thread()

    assert await calls.call(here) is threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await calls.call(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration was raised"):
        await calls.call(lambda: next(iter(())))
    last: list[threading.Thread] = []
    calls.close(lambda: last.append(threading.current_thread()))
    await asyncio.to_thread(threads[0].join)
    assert not threads[0].is_alive()
    assert last == threads[:1]
    Calls("without a thread").close(lambda: last.append(threading.current_thread()))
    assert last[1:] == [threading.current_thread()]


def test_a_call_that_outlasts_its_event_loop_does_not_keep_the_last_function_from_running() -> None:
    calls, release, last = Calls("calls"), threading.Event(), threading.Event()

    async def close_while_a_call_is_under_way() -> None:
        calling = asyncio.create_task(calls.call(release.wait))
        await asyncio.sleep(0)
        calls.close(last.set)
        calling.cancel()

    asyncio.run(close_while_a_call_is_under_way())
    release.set()
    assert last.wait(10)


def test_an_offset_that_its_task_changes_later_is_committed_as_it_was() -> None:
    pending, offset = PendingOffsets("c"), {"position": 1}
    pending.add({"file": "a"}, offset)
    offset["position"] = 2
    assert pending.take() == [(b'["c",{"file":"a"}]', b'{"position":1}')]


def test_poll_boundary_commits_each_batch() -> None:
    boundary = PollBoundary()
    assert boundary.after_record(RECORD) is None
    assert (boundary.after_batch(), boundary.at_end(), boundary.due_in_s()) == (End.COMMIT, End.COMMIT, None)


def test_interval_boundary_commits_when_its_time_is_over() -> None:
    now = 100.0
    boundary = IntervalBoundary(5, lambda: now)
    assert (boundary.after_batch(), boundary.due_in_s()) == (None, 5)
    now = 104.0
    assert (boundary.after_batch(), boundary.due_in_s(), boundary.at_end()) == (None, 1, End.COMMIT)
    now = 106.0
    assert (boundary.after_batch(), boundary.due_in_s(), boundary.after_batch()) == (End.COMMIT, 5, None)


def test_connector_boundary_does_what_the_task_asked_for_once() -> None:
    boundary, other = ConnectorBoundary(), RECORD.replace(key="other")
    boundary.commit_transaction(RECORD)
    boundary.abort_transaction(other)
    same_content = RECORD.replace()
    assert boundary.after_record(same_content) is None, "records are told apart by identity"
    assert (boundary.after_record(RECORD), boundary.after_record(other)) == (End.COMMIT, End.ABORT)
    assert boundary.after_record(RECORD) is None
    boundary.commit_transaction()
    assert (boundary.after_batch(), boundary.after_batch()) == (End.COMMIT, None)
    boundary.abort_transaction()
    assert (boundary.after_batch(), boundary.after_batch()) == (End.ABORT, None)


@pytest.mark.parametrize("request_end", [ConnectorBoundary.commit_transaction, ConnectorBoundary.abort_transaction])
def test_a_pause_leaves_what_a_task_asks_for_behind_a_batch_that_it_has_not_returned(
    request_end: Callable[[ConnectorBoundary], None],
) -> None:
    boundary = ConnectorBoundary()
    request_end(boundary)  # by a poll that goes on while its task is paused
    assert boundary.at_end() is None
    assert boundary.after_batch() is not None


def test_a_transaction_is_not_both_committed_and_aborted() -> None:
    boundary = ConnectorBoundary()
    boundary.commit_transaction()
    boundary.commit_transaction(RECORD)
    with pytest.raises(IllegalTransactionRequestError):
        boundary.abort_transaction()
    with pytest.raises(IllegalTransactionRequestError):
        boundary.abort_transaction(RECORD)


def test_the_newest_offset_of_each_partition_is_committed() -> None:
    offsets = PendingOffsets("c")
    assert not offsets
    partition = {"file": "a"}
    for position in range(3):
        offsets.add(partition, {"position": position})
    offsets.add({"file": "b"}, {"position": 9})
    offsets.add({"file": "a"}, {"position": 4})
    offsets.add(None, None)
    assert offsets.take() == [
        (b'["c",{"file":"a"}]', b'{"position":4}'),
        (b'["c",{"file":"b"}]', b'{"position":9}'),
    ]
    assert offsets.take() == []


def test_an_offset_that_is_withdrawn_gives_way_to_the_one_before_it() -> None:
    offsets, partition = PendingOffsets("c"), {"file": "a"}
    key = b'["c",{"file":"a"}]'
    for position in (1, 2, 2):
        offsets.add(partition, {"position": position})
    offsets.add({"file": "b"}, None)
    offsets.withdraw(partition, {"position": 3})
    assert offsets.records() == [(key, b'{"position":2}'), (b'["c",{"file":"b"}]', None)]
    for _ in range(2):
        offsets.withdraw(partition, {"position": 2})
        offsets.withdraw({"file": "b"}, None)
        offsets.withdraw(None, None)
        assert offsets.take() == [(key, b'{"position":1}')]
        offsets.add(partition, {"position": 1})
    offsets.clear()
    offsets.add(partition, {"position": 2})
    offsets.withdraw(partition, {"position": 2})
    assert not offsets, "an offset before the last commit is not written again"


@pytest.mark.parametrize(
    ("partitions", "keys"),
    [
        ([{"s": 1}, {"s": True}, {"s": 1.0}, {"s": 1}], [b'{"s":1}', b'{"s":true}', b'{"s":1.0}']),
        ([{"s": 0.0}, {"s": -0.0}], [b'{"s":0.0}', b'{"s":-0.0}']),
        ([{"s": 1, "t": True}, {"t": 1, "s": True}], [b'{"s":1,"t":true}', b'{"t":1,"s":true}']),
        ([{"s": "a", "t": None}, {"s": "a", "t": None}], [b'{"s":"a","t":null}']),
    ],
)
def test_source_partitions_that_are_equal_only_in_python_have_their_own_offsets(
    partitions: list[dict[str, Any]], keys: list[bytes]
) -> None:
    offsets = PendingOffsets("c")
    for partition in partitions:
        offsets.add(partition, {"n": 1})
    assert offsets.take() == [(b'["c",' + key + b"]", b'{"n":1}') for key in keys]


def test_a_partition_that_its_task_changes_later_keeps_its_key() -> None:
    offsets, partition = PendingOffsets("c"), {"file": "a"}
    offsets.add(partition, {"position": 1})
    partition["file"] = "b"
    offsets.add(partition, {"position": 2})
    assert [key for key, _ in offsets.take()] == [b'["c",{"file":"a"}]', b'["c",{"file":"b"}]']


async def test_a_record_whose_timestamp_says_none_gets_the_current_time() -> None:
    converted = await pipeline().convert(RECORD.replace(timestamp_ms=-1))
    assert converted is not None
    assert converted.timestamp_ms is None


class Sent:
    """The delivery of a record whose outcome the test decides, with `done(written)`."""

    done: Callable[[bool], object]

    def when_done(self, callback: Callable[[bool], object]) -> None:
        self.done = callback


def test_a_topic_is_reported_when_the_first_of_its_records_is_written() -> None:
    reported: list[str] = []
    tracker = TopicTracker(reported.append, reported)
    refused, written, later = sent = [Sent(), Sent(), Sent()]
    deliveries: list[Any] = list(sent)
    for delivery in deliveries:
        tracker.sent("t", delivery)
    refused.done(False)
    assert reported == []
    written.done(True)
    assert reported == ["t"], "although an earlier record was refused"
    later.done(True)
    assert reported == ["t"], "a topic is reported once"
    reported.clear()  # a user's reset
    tracker.sent("t", deliveries[0])
    refused.done(True)
    assert reported == ["t"]


def test_only_so_many_records_of_a_topic_are_watched_at_a_time() -> None:
    reported: list[str] = []
    tracker = TopicTracker(reported.append, reported)
    sent = [Sent() for _ in range(1_001)]
    deliveries: list[Any] = list(sent)
    for delivery in deliveries:
        tracker.sent("t", delivery)
    assert not hasattr(sent[-1], "done")
    sent[0].done(False)
    tracker.sent("t", deliveries[-1])
    sent[-1].done(True)
    assert reported == ["t"]
