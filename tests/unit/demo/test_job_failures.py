"""How the demo's job fails: by name, with where it stood, and with nothing left running."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
from oncelog.client.errors import KafkaTimeoutError
from oncelog.client.values import TopicPartition
from oncelog.demo import job, topics
from oncelog.demo.job import JobOptions, run_job
from oncelog.demo.observer import JobFailed
from oncelog.demo.waits import Limits, Waits
from oncelog.protocol.errors import ErrorCode
from support.demo_notes import Notes
from support.group_world import in_virtual_time


class StalledConsumer:
    """Reads five of each partition's ten records, and then gets no more."""

    hangs = False

    def __init__(self, **settings: Any) -> None:
        self._given = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        pass

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    async def poll(self, timeout_ms: float) -> list[Any]:
        await (asyncio.Event().wait() if self.hangs and self._given else asyncio.sleep(timeout_ms / 1000))
        self._given = 5
        return []

    async def position(self, partition: TopicPartition) -> int:
        return self._given


@pytest.mark.parametrize("hangs", [False, True])
@in_virtual_time
async def test_reader_that_stalls_says_which_topic_and_where(monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    monkeypatch.setattr(topics, "Consumer", StalledConsumer)
    monkeypatch.setattr(StalledConsumer, "hangs", hangs)
    waits = Waits(Notes(), Limits(record_s=30))
    with pytest.raises(JobFailed) as failure:
        await topics.read_committed(waits, "127.0.0.1:1", topics.LATEST, lambda *_: None)
    assert str(failure.value) == (
        "waited 30 s for the next record of a read_committed reader of latest-airports"
        " (0 records read; offset 5 of 10 in partition 0)"
    )


def children() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


async def test_timeout_of_a_client_is_not_reported_as_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_topics(*_: str) -> None:
        raise KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, "the topics are not created within 60000 ms")

    monkeypatch.setattr(job, "create_topics", create_topics)
    before = children()
    with pytest.raises(JobFailed, match="the topics are not created within 60000 ms") as failure:
        await run_job(JobOptions(directory=tmp_path, rows=10, kills=()), Notes())
    assert "not done after" not in str(failure.value)
    assert children() == before


async def test_time_limit_says_what_was_waited_for(tmp_path: Path) -> None:
    before = children()
    with pytest.raises(JobFailed, match=r"not done after 0.01 s .*: was waiting 0 s for the broker to start; "):
        await run_job(JobOptions(directory=tmp_path, rows=10, kills=(), time_limit_s=0.01), Notes())
    assert children() == before


def test_each_process_is_ended_also_when_another_one_does_not_end(tmp_path: Path) -> None:
    ended: list[str] = []

    class Process:
        def __init__(self, name: str, ends: bool = True) -> None:
            self.name, self.ends = name, ends

        def close(self) -> None:
            ended.append(self.name)
            if not self.ends:
                raise RuntimeError("still there")

    class Started(job._Job):
        async def start(self) -> None:
            self.transformers = [Process("first"), Process("second", ends=False)]  # type: ignore[list-item]
            self.broker = Process("broker")  # type: ignore[assignment]

    async def run() -> None:
        started = Started(JobOptions(directory=tmp_path), Notes())
        await started.start()
        with pytest.raises(RuntimeError, match="still there"):
            started.stop()

    asyncio.run(run())
    assert sorted(ended) == ["broker", "first", "second"]
