"""One Spark session for all tests of the pipeline, in this process: it takes seconds to start, and memory.

Without pyspark or Java these tests are skipped, which the extra `pipeline` and `make setup` prevent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.client.config import ProducerConfig
from oncelog.pipeline import spark_session
from oncelog.pipeline.blocking import BlockingCluster
from oncelog.pipeline.requirements import RequirementError, java_problem, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
MARKERS_WAIT_S = 20.0
"""How long a decided transaction may take to write its markers, in s: less than the sink's transaction.timeout.ms."""
STATE_TOPIC = "__oncelog_pipeline"

try:
    require_spark()
    from oncelog.pipeline.sink.produce import CLIENT_DEFAULTS
    from oncelog.pipeline.sink.settings import _of_checkpoint
    from oncelog.pipeline.sink.transaction import SinkTransaction
    from support.spark_archive import QUICK
except RequirementError:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/pipeline/" in str(item.path):
            # pyspark warns of pandas 3, and leaves its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    problem = java_problem()
    if problem is not None:
        pytest.skip(problem)
    session = spark_session(
        "local[2]",
        settings={
            "spark.driver.memory": "700m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.extraJavaOptions": QUICK,
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Topics:
    """Topics of one test on the session's broker: made, filled and read without Spark."""

    def __init__(self, bootstrap: str, fresh_name: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.options = {"kafka.bootstrap.servers": bootstrap}
        self.fresh_name = fresh_name

    def make(self, stem: str, partitions: int = PARTITIONS, config: dict[str, str] | None = None) -> str:
        name = self.fresh_name(stem)

        async def make() -> None:
            async with Admin(bootstrap_servers=self.bootstrap) as admin:
                await admin.create_topics([NewTopic(name, partitions, configs=config or {})])

        asyncio.run(make())
        return name

    def send(self, topic: str, values: list[Any], *, commit: bool = True, **record: Any) -> None:
        """Send values (str) in one transaction: value n to partition n modulo, unless `partition` says otherwise.

        Return when the transaction is complete, so that a reader that begins now gets all of its committed records.
        """

        async def send() -> None:
            async with Producer(
                bootstrap_servers=self.bootstrap, transactional_id=self.fresh_name("sender")
            ) as producer:
                with contextlib.suppress(_AbortError):
                    async with producer.transaction() as transaction:
                        for number, value in enumerate(values):
                            what = {"partition": number % PARTITIONS, **record}
                            await transaction.enqueue(topic, str(value).encode(), **what)
                        if not commit:
                            await producer.flush()
                            raise _AbortError
                # EndTxn is answered before the markers are written, and InitProducerId only afterwards.
                await producer.init_transactions()

        asyncio.run(send())

    def tombstone(self, topic: str, key: bytes) -> None:
        """Send a record without a value."""

        async def send() -> None:
            async with Producer(bootstrap_servers=self.bootstrap) as producer:
                await producer.send(topic, None, key=key)

        asyncio.run(send())

    def records(self, topic: str, *, settled: bool = True) -> list[Any]:
        """All committed records, by partition and offset; with `settled`, no transaction may be open any more."""

        async def read() -> list[Any]:
            async with Consumer(
                bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
            ) as consumer:
                everything = [TopicPartition(topic, one) for one in range(PARTITIONS)]
                consumer.assign(everything)
                found: list[Any] = []
                async with asyncio.timeout(60):
                    ends = await (self._settled(everything) if settled else consumer.end_offsets(everything))
                    while any([await consumer.position(one) < ends[one] for one in everything]):
                        for records in (await consumer.getmany(timeout_ms=100)).values():
                            found += records
                return sorted(found, key=lambda one: (one.partition, one.offset))

        return asyncio.run(read())

    def values(self, topic: str) -> list[str]:
        """The committed values, sorted."""
        return sorted(record.value.decode() for record in self.records(topic))

    def end_of(self, topic: str) -> int:
        """The number of offsets of a topic, those of open and aborted transactions included."""

        async def end() -> int:
            async with Consumer(bootstrap_servers=self.bootstrap) as consumer:
                ends = await consumer.end_offsets([TopicPartition(topic, one) for one in range(PARTITIONS)])
                return sum(ends.values())

        return asyncio.run(end())

    def delete_before(self, topic: str, offset: int) -> None:
        """Delete the oldest records of each partition."""

        async def delete() -> None:
            async with Admin(bootstrap_servers=self.bootstrap) as admin:
                await admin.delete_records({TopicPartition(topic, one): offset for one in range(PARTITIONS)})

        asyncio.run(delete())

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""

        async def grow() -> None:
            async with Admin(bootstrap_servers=self.bootstrap) as admin:
                await admin.create_partitions({topic: partitions})

        asyncio.run(grow())

    def claim(self, query: str) -> str:
        """Own a query as a newer driver does when it starts; returns the run."""

        async def claim(transaction: SinkTransaction) -> str:
            return await transaction.claim(query, STATE_TOPIC)

        return self._of_query(claim)

    def owner(self, query: str) -> str:
        """The run that owns a query."""

        async def owner(transaction: SinkTransaction) -> str:
            return (await transaction._record(query, STATE_TOPIC, stable=True)).run

        return self._of_query(owner)

    def owner_of_checkpoint(self, checkpoint: Path) -> str:
        """The run that owns the query of a checkpoint."""
        return self.owner(_of_checkpoint(str(checkpoint)))

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        """Look again and again, with short pauses for what is waited for, until the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "what the test waits for has not come"
            time.sleep(0.05)

    def _of_query(self, work: Callable[[SinkTransaction], Coroutine[Any, Any, str]]) -> str:
        config = ProducerConfig.of({"bootstrap.servers": self.bootstrap}, **CLIENT_DEFAULTS)
        with BlockingCluster(config, 20.0) as kafka:
            return kafka.run(work(SinkTransaction(kafka.cluster, config)))

    def forget_offsets(self, group: str) -> None:
        """As if all offsets of a group had expired."""

        async def delete() -> None:
            async with Admin(bootstrap_servers=self.bootstrap) as admin:
                await admin.delete_groups([group])

        asyncio.run(delete())

    async def _settled(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends, as soon as no transaction is open; a decided one is open until its markers are written."""
        async with (
            Consumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed") as stable,
            Consumer(bootstrap_servers=self.bootstrap) as all_of_it,
        ):
            deadline = time.monotonic() + MARKERS_WAIT_S
            while time.monotonic() < deadline:
                ends = await all_of_it.end_offsets(partitions)
                if await stable.end_offsets(partitions) == ends:
                    return ends
                await asyncio.sleep(0.01)
        raise AssertionError("a transaction is open: readers wait for it")


class _AbortError(Exception):
    pass


@pytest.fixture
def topics(bootstrap: str, fresh_name: Callable[[str], str]) -> Topics:
    return Topics(bootstrap, fresh_name)
