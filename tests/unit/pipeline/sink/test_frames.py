"""How many tasks write a frame, with and without Spark Connect, and which Kafka partitions its rows get."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from oncelog.client.errors import ErrorCode, UnknownTopicError
from oncelog.pipeline.sink import partition_counts
from oncelog.pipeline.sink.frames import _Decision, _tasks_at_once
from oncelog.pipeline.sink.partition_counts import TopicPartitionCounts


@pytest.mark.parametrize(
    ("session", "tasks"),
    [
        (SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=7)), 7),
        (SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=0)), 1),
        (SimpleNamespace(conf={"spark.sql.shuffle.partitions": "5"}), 5),  # Connect has no sparkContext
    ],
)
def test_as_many_tasks_write_as_there_are_cores_or_as_a_shuffle_has(session: Any, tasks: int) -> None:
    assert _tasks_at_once(session) == tasks


class Kafka:
    """A cluster whose topics have a number of partitions. It counts the connections to it."""

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.connections = 0
        self.cluster = self
        self.timeout_s = 1.0

    def __call__(self, options: object) -> Self:
        self.connections += 1
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, work: Any) -> Any:
        return asyncio.run(work)

    def track_all(self) -> None:
        pass

    async def refresh(self) -> Any:
        return SimpleNamespace(topics={name: self._described(name) for name in self.topics})

    async def topic(self, name: str, timeout_s: float, *, patient: bool = True) -> Any:
        if name not in self.topics:
            raise UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return self._described(name)

    def _described(self, name: str) -> Any:
        return SimpleNamespace(partitions=range(self.topics[name]))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka(grown=4)
    monkeypatch.setattr(partition_counts, "_open", kafka)
    monkeypatch.setattr(TopicPartitionCounts, "_asked", {})
    return kafka


KEYS = pa.array([b"%d" % n for n in range(100)])


@pytest.mark.parametrize("topic", ["grown", ""])
def test_a_task_that_is_repeated_elsewhere_gives_its_rows_the_same_partitions(kafka: Kafka, topic: str) -> None:
    """Spark repeats the task in another process after the topic has got more partitions."""
    names = ("key",) if topic else ("topic", "key")
    columns = (KEYS,) if topic else (pa.array(["grown"] * len(KEYS)), KEYS)
    options = {"kafka.bootstrap.servers": "one"}
    sent = pickle.dumps(_Decision(topic, names, TopicPartitionCounts.decided(options, topic)))
    first = pickle.loads(sent)(columns)
    kafka.topics["grown"] = 6
    TopicPartitionCounts._asked.clear()
    assert pickle.loads(sent)(columns) == first
    assert set(first.to_pylist()) == {0, 1, 2, 3}
    assert kafka.connections == 1, "tasks have asked the cluster"


def test_rows_may_name_partitions_that_are_newer_than_the_decision(kafka: Kafka) -> None:
    """The rows without a partition do not move because of that, and the cluster is asked once for all batches."""
    counts = TopicPartitionCounts.decided({"kafka.bootstrap.servers": "one"}, "grown")
    decide = _Decision("grown", ("partition", "key"), counts)
    nothing = pa.nulls(len(KEYS), pa.int32())
    before = decide((nothing, KEYS)).to_pylist()
    kafka.topics["grown"] = 6
    for _ in range(3):
        assert decide((pa.array([5, *[None] * 99], pa.int32()), KEYS)).to_pylist() == [5, *before[1:]]
    assert kafka.connections == 2


def test_a_topic_that_is_created_later_is_asked_for_by_the_task(kafka: Kafka) -> None:
    counts = TopicPartitionCounts.decided({"kafka.bootstrap.servers": "one"}, "later")
    kafka.topics["later"] = 2
    assert set(_Decision("later", ("key",), counts)((KEYS,)).to_pylist()) == {0, 1}
