"""Readers beside a query: no read_committed reader waits for more than a second for a batch that failed, nor for a
driver that died once its successor has started.

Measured from outside: how long the stable part of a topic stays behind its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from oncelog import Consumer, TopicPartition
from oncelog.pipeline import write, write_stream
from pyspark.errors.exceptions.captured import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READERS_WAIT_S = 1.0

DRIVER = """
import sys, time
from pathlib import Path
from oncelog.pipeline import spark_session, write_stream
bootstrap, source, topic, name, checkpoint = sys.argv[1:]
spark = spark_session("local[2]", settings={"spark.driver.memory": "600m"})
kafka = {"kafka.bootstrap.servers": bootstrap}
frame = spark.readStream.format("oncelog").options(**kafka, subscribe=source, startingOffsets="earliest").load()

def stuck(batches):
    import pyarrow as pa
    for _ in batches:
        for _ in range(250):  # more than what lies in buffers on the way: 10,000 rows
            yield pa.RecordBatch.from_pydict({"value": [bytes(100)] * 100})
        time.sleep(600)

frame = frame.select("value").coalesce(1).mapInArrow(stuck, "value binary")
options = {**kafka, "topic": topic, "transactionalId": name, "checkpointLocation": checkpoint}
frame.writeStream.format("oncelog").options(**options).start().awaitTermination()
"""


class Watch:
    """Looks at a topic, again and again: is its stable part behind its end, and since when not any more?"""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.open_seen = threading.Event()
        self.free_at: float | None = None
        self._bootstrap, self._topic = bootstrap, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look()))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def await_open(self, timeout_s: float = 240) -> None:
        """Wait until a transaction holds readers up."""
        assert self.open_seen.wait(timeout_s), "no transaction was open"

    def seconds_after(self, moment: float) -> float:
        """How long after a moment (of `time.monotonic`) readers are free; negative if before."""
        deadline = time.monotonic() + 30
        while self.free_at is None:
            assert time.monotonic() < deadline, "readers are still held up after half a minute"
            time.sleep(0.005)
        return self.free_at - moment

    async def _look(self) -> None:
        partitions = [TopicPartition(self._topic, one) for one in range(3)]
        async with (
            Consumer(bootstrap_servers=self._bootstrap, isolation_level="read_committed") as stable,
            Consumer(bootstrap_servers=self._bootstrap) as everything,
        ):
            while not self._over.is_set():
                # In this order a transaction that begins in between counts as none.
                end = await everything.end_offsets(partitions)
                if (found := await stable.end_offsets(partitions)) != end and any(found[p] < end[p] for p in end):
                    self.open_seen.set()
                    self.free_at = None
                elif self.open_seen.is_set() and self.free_at is None:
                    self.free_at = time.monotonic()
                await asyncio.sleep(0.01)


def stream(spark: SparkSession, topics: Any, topic: str) -> DataFrame:
    options = {**topics.options, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("oncelog").options(**options).load()


def failing_late() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function that writes, and fails when that has reached the broker. Nested, so that it travels to the tasks."""

    def fails_late(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            for _ in range(250):  # more than what lies in buffers on the way: 10,000 rows
                yield pa.RecordBatch.from_pydict({"value": [bytes(100)] * 100})
            time.sleep(2)
            raise RuntimeError("this task fails")

    return fails_late


@pytest.mark.slow
def test_a_failed_batch_lets_readers_go_on(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    source, topic = topics.make("in"), topics.make("out")
    topics.send(source, range(10))
    frame = stream(spark, topics, source).select("value").coalesce(1).mapInArrow(failing_late(), "value binary")
    options = {**topics.options, "topic": topic, "checkpointLocation": str(tmp_path / "checkpoint")}
    with Watch(topics.bootstrap, topic) as watch:
        query = frame.writeStream.format("oncelog").options(**options).start()
        with pytest.raises(StreamingQueryException, match="this task fails"):
            query.awaitTermination(200)
        assert watch.open_seen.is_set()
        assert watch.seconds_after(time.monotonic()) < READERS_WAIT_S


@pytest.mark.slow
def test_a_failed_write_lets_readers_go_on(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out")
    frame = spark.range(0, 10, 1, 1).selectExpr("cast(cast(id as string) as binary) value")
    frame = frame.mapInArrow(failing_late(), "value binary")
    with Watch(topics.bootstrap, topic) as watch:
        with pytest.raises(Exception, match="this task fails"):
            frame.write.format("oncelog").options(**topics.options, topic=topic).mode("append").save()
        assert watch.open_seen.is_set()
        assert watch.seconds_after(time.monotonic()) < READERS_WAIT_S
    write(spark.range(3).selectExpr("cast(id as string) value"), {**topics.options, "topic": topic})
    assert topics.values(topic) == ["0", "1", "2"]


@pytest.fixture
def dead_driver(topics: Any, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A driver was killed in the middle of a batch, and readers are held up."""
    names = {"source": topics.make("in"), "topic": topics.make("out"), "name": topics.fresh_name("query")}
    topics.send(names["source"], range(10))
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), topics.bootstrap, *names.values(), str(tmp_path / "c")]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        with Watch(topics.bootstrap, names["topic"]) as watch:
            try:
                watch.await_open()
            except AssertionError:
                raise AssertionError((tmp_path / "driver.log").read_text()[-3000:]) from None
            _kill(driver)
            time.sleep(2)
            assert watch.free_at is None, "the transaction of a dead driver is open until its timeout, or its successor"
        yield names
    finally:
        _kill(driver)


def _kill(driver: subprocess.Popen[bytes]) -> None:
    """Kill -9 the driver and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checkpoint", ["its", "none"])
def test_the_successor_of_a_dead_driver_lets_readers_go_on(
    spark: SparkSession, topics: Any, tmp_path: Path, dead_driver: dict[str, str], checkpoint: str
) -> None:
    """At once, also if it has a new checkpoint and nothing to write."""
    options = {**topics.options, "topic": dead_driver["topic"], "transactionalId": dead_driver["name"]}
    options["checkpointLocation"] = str(tmp_path / ("c" if checkpoint == "its" else "new"))
    source = dead_driver["source"] if checkpoint == "its" else topics.make("empty")
    writer = write_stream(stream(spark, topics, source).select("value"), options)
    with Watch(topics.bootstrap, dead_driver["topic"]) as watch:
        watch.await_open(10)
        began = time.monotonic()
        query = writer.trigger(processingTime="100 milliseconds").start()
        try:
            assert watch.seconds_after(began) < READERS_WAIT_S
            query.processAllAvailable()
        finally:
            query.stop()
    wanted = [str(n) for n in range(10)] if checkpoint == "its" else []
    assert topics.values(dead_driver["topic"]) == wanted
